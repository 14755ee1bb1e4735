"""Sessions over HTTP: a list of them, and one."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.sessions.repository import newest
from tests.conftest import Cast, Person, mint
from tests.generation.tools import Outbox
from tests.house.test_plans import plan
from tests.table import try_rows


async def start(client: httpx.AsyncClient, person: Person, name: str, **fields: object) -> dict[str, object]:
    body = {"projectId": "github.com/acme/orders", "externalSessionId": name, "contentSessionId": name} | fields
    response = await client.post("/v1/sessions/start", json=body, headers=person.headers)
    assert response.status_code in {200, 201}
    return response.json()["session"]


async def names(client: httpx.AsyncClient, person: Person, query: str = "") -> list[str]:
    response = await client.get(f"/v1/sessions{query}", headers=person.headers)
    assert response.status_code == 200, response.text
    return [session["externalSessionId"] for session in response.json()["sessions"]]


async def test_sessions_are_listed_newest_first_with_what_a_start_tells(client: httpx.AsyncClient, cast: Cast):
    first = await start(client, cast.alice, "s1")
    second = await start(client, cast.bob, "s2", platformSource="claude", metadata={"cwd": "/src"})

    response = await client.get("/v1/sessions", headers=cast.alice.headers)

    listed = {"project": cast.alice.project.canonical_id, "firstPrompt": None}
    assert response.json() == {"sessions": [second | listed, first | listed], "nextCursor": None}


async def test_pages_follow_one_another_without_a_gap_also_among_sessions_of_the_same_instant(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    for n in range(7):
        await start(client, cast.alice, f"s{n}")
    async with db.system() as conn:
        await conn.execute("UPDATE server_sessions SET started_at = '2026-01-01' WHERE external_session_id IN ('s2', 's3', 's4')")

    seen: list[str] = []
    cursor = ""
    pages = 0
    while cursor is not None:
        page = (await client.get(f"/v1/sessions?limit=2{cursor and '&cursor='}{cursor}", headers=cast.alice.headers)).json()
        seen += [session["externalSessionId"] for session in page["sessions"]]
        cursor = page["nextCursor"]
        pages += 1

    assert pages == 4
    assert seen[:4] == ["s6", "s5", "s1", "s0"]
    assert sorted(seen[4:]) == ["s2", "s3", "s4"]


async def test_filters(client: httpx.AsyncClient, cast: Cast):
    await start(client, cast.alice, "open", platformSource="claude")
    ended = await start(client, cast.alice, "ended", platformSource="codex")
    await start(client, cast.alice, "elsewhere", projectId="github.com/acme/other")
    await client.post(f"/v1/sessions/{ended['id']}/end", headers=cast.alice.headers)

    assert await names(client, cast.alice, "?active=true") == ["elsewhere", "open"]
    assert await names(client, cast.alice, "?active=false") == ["ended"]
    assert await names(client, cast.alice, "?platform=codex") == ["ended"]
    assert await names(client, cast.alice, "?project=git@github.com:acme/orders.git&active=true") == ["open"]
    assert await names(client, cast.alice, "?platform=nobody") == []


@try_rows(
    ("query", "path"),
    [
        ("?limit=201", "$.limit"),
        ("?platform=", "$.platform"),
        ("?cursor=", "$.cursor"),
        ("?project=%00", "$.project"),
    ],
)
async def test_what_cannot_be_asked_is_named(client: httpx.AsyncClient, cast: Cast, query: str, path: str):
    response = await client.get(f"/v1/sessions{query}", headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == path


async def test_one_session(client: httpx.AsyncClient, cast: Cast):
    session = await start(client, cast.alice, "s1")

    lower = await client.get(f"/v1/sessions/{session['id']}", headers=cast.bob.headers)
    upper = await client.get(f"/v1/sessions/{str(session['id']).upper()}", headers=cast.bob.headers)

    assert lower.json() == upper.json() == {"session": session}


SEED = """
INSERT INTO server_sessions (id, project_id, team_id, platform_source, started_at, ended_at, idle_from)
SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, 'claude', now() - n * interval '1 minute',
       CASE WHEN n %% 1000 <> 0 THEN now() END, NULL
  FROM generate_series(1, 10000) n
"""


@pytest.fixture
async def crowded(db: Db, cast: Cast) -> None:
    async with db.system() as conn:
        other = uuid4()
        await conn.execute(
            "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 'other', 'other')", [other, cast.alice.team_id]
        )
        for project_id, team_id in [
            (cast.alice.project.id, cast.alice.team_id),
            (other, cast.alice.team_id),
            (cast.charlie.project.id, cast.charlie.team_id),
        ]:
            await conn.execute(SEED, {"project_id": project_id, "team_id": team_id})
        await conn.execute("ANALYZE server_sessions")


@try_rows(
    ("filters", "index"),
    [
        ({}, "server_sessions_team"),
        ({"project": True}, "server_sessions_team"),  # half of the team's: what is in order already is cheaper
        ({"active": True}, "server_sessions_open"),
        ({"active": True, "project": True}, "server_sessions_open"),
    ],
)
async def test_a_page_is_read_from_an_index_in_its_order(db: Db, cast: Cast, crowded: None, filters: dict[str, bool], index: str):
    params: dict[str, object] = {
        "team_id": cast.alice.team_id,
        "project_id": cast.alice.project.id if filters.get("project") else None,
        "active": filters.get("active"),
        "platform_source": None,
        "before": None,
        "before_id": None,
        "limit": 51,
        "offset": 0,
    }

    explained = await plan(db, cast.alice.team_id, newest.query.text, params)

    assert f"Index Scan Backward using {index} " in explained
    assert "Sort" not in explained


async def test_a_prompt_in_the_metadata_of_a_start_is_one_of_the_session_s_prompts(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    for prompt in ("add a retry", "and now <private>the password is tulip</private> a test", "", 7):
        await start(client, cast.alice, "s1", metadata={"prompt": prompt})
    await start(client, cast.alice, "s1")

    rows = await outbox.rows("SELECT prompt_number, prompt AS text FROM turns ORDER BY prompt_number")
    assert [(row["prompt_number"], row["text"]) for row in rows] == [
        (1, "add a retry"),
        (2, "and now [redacted:private] a test"),
    ]


async def test_a_session_is_found_by_its_agent_s_word_for_it_and_by_nobody_else(client: httpx.AsyncClient, cast: Cast, db: Db):
    mine = await start(client, cast.alice, "s1")
    await start(client, cast.charlie, "s1")
    other = await start(client, cast.alice, "s2", projectId="github.com/acme/other")
    _, bound = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=cast.alice.project.id)

    by_word = await client.get("/v1/sessions/s1", headers=cast.alice.headers)
    receipts = await client.get("/v1/sessions/s1/context", headers=cast.alice.headers)
    strangers = await client.get("/v1/sessions/s2", headers=cast.charlie.headers)
    of_another_project = await client.get("/v1/sessions/s2", headers={"X-Api-Key": bound})

    assert by_word.json()["session"]["id"] == mine["id"]
    assert receipts.json()["receipts"] == []
    assert [response.status_code for response in (strangers, of_another_project)] == [404, 404]
    assert other["externalSessionId"] == "s2"
