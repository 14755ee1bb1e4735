from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from httpx import AsyncClient, Response

from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms, new_id
from cmserver.observations.model import TYPES
from tests.conftest import Cast, Person, bound_to, mint
from tests.make import Make
from tests.table import try_rows

NOON = datetime(2026, 3, 5, 12, 0, tzinfo=UTC)


async def listed(client: AsyncClient, person: Person, **params: str | int) -> dict[str, Any]:
    response = await client.get("/v1/observations", params=params, headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()


def numbers(answer: dict[str, Any]) -> list[int]:
    return [observation["number"] for observation in answer["observations"]]


def without_request_id(response: Response) -> dict[str, Any]:
    content = response.json()
    del content["requestId"]
    return content


async def served(db: Db) -> list[tuple[str, str, dict[str, Any]]]:
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT resource_type, resource_id, details FROM audit_log WHERE action = 'observations.served' ORDER BY id"
        )
        return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


async def send_event(client: AsyncClient, person: Person, **fields: object) -> UUID:
    body = {"projectId": person.project.canonical_id, "eventType": "PostToolUse", "payload": {"tool_name": "Edit"}, **fields}
    response = await client.post("/v1/events", params={"generate": "false"}, json=body, headers=person.headers)
    assert response.status_code == 201, response.text
    return UUID(response.json()["event"]["id"])


async def test_the_list_is_newest_first_and_its_pages_meet_without_gap_or_repetition(client: AsyncClient, cast: Cast, make: Make):
    # three at the same moment, so that a page ends between them
    moments = [NOON, *[NOON + timedelta(microseconds=1)] * 3, NOON + timedelta(hours=1)]
    made = [await make.observation(project=cast.alice.project, created_at=moment) for moment in moments]

    pages: list[list[int]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        answer = await listed(client, cast.alice, limit=2, **({"cursor": cursor} if cursor else {}))
        pages.append(numbers(answer))
        cursor = answer["nextCursor"]

    assert pages == [[5, 4], [3, 2], [1]]
    assert [observation.number for observation in made] == [1, 2, 3, 4, 5]


async def test_a_full_last_page_has_no_next_one(client: AsyncClient, cast: Cast, make: Make):
    for _ in range(2):
        await make.observation(project=cast.alice.project)

    answer = await listed(client, cast.alice, limit=2)

    assert len(answer["observations"]) == 2
    assert answer["nextCursor"] is None


@try_rows(
    "cursor",
    [
        "",
        "nonsense",
        "ünïcode",
        base64.urlsafe_b64encode(b"\x7f" * 24).decode(),  # a time after the year 9999
        base64.urlsafe_b64encode(b"\x00" * 23).decode(),
    ],
)
async def test_a_cursor_that_is_none_is_refused_and_named(client: AsyncClient, cast: Cast, cursor: str):
    response = await client.get("/v1/observations", params={"cursor": cursor}, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == "$.cursor"


@try_rows(
    ("params", "path"),
    [
        ({"limit": "201"}, "$.limit"),
        ({"limit": "many"}, "$.limit"),
        ({"project": " "}, "$.project"),
    ],
)
async def test_a_wrong_filter_is_refused_and_named(client: AsyncClient, cast: Cast, params: dict[str, str], path: str):
    response = await client.get("/v1/observations", params=params, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == path


@pytest.mark.parametrize("in_body", [False, True])
async def test_a_wrong_type_is_answered_with_all_types_there_are(client: AsyncClient, cast: Cast, in_body: bool):
    wrong = {"type": "poem"}
    if in_body:
        response = await client.post("/v1/observations/batch", json=[{"title": "x"}, wrong], headers=cast.alice.headers)
    else:
        response = await client.get("/v1/observations", params=wrong, headers=cast.alice.headers)

    (issue,) = response.json()["issues"]
    assert (response.status_code, issue["path"]) == (400, "$[1].type" if in_body else "$.type")
    assert [name for name in TYPES if name not in issue["message"]] == []


async def test_filters_narrow_the_list(client: AsyncClient, cast: Cast, make: Make):
    alice = cast.alice
    started = await client.post(
        "/v1/sessions/start", json={"projectId": alice.project.canonical_id, "externalSessionId": "s"}, headers=alice.headers
    )
    session = started.json()["session"]["id"]
    other = await client.post("/v1/projects", json={"canonicalId": "billing"}, headers=alice.headers)
    assert other.status_code == 201
    await make.observation(project=alice.project, type="bugfix", server_session_id=session)
    await make.observation(project=alice.project, kind="summary", summary={"request": "Retry"})
    await make.observation(project=alice.project, kind="manual", type="decision")

    assert numbers(await listed(client, alice)) == [3, 2, 1]
    assert numbers(await listed(client, alice, project="https://github.com/acme/orders.git")) == [3, 2, 1]
    assert numbers(await listed(client, alice, project="billing")) == []
    assert numbers(await listed(client, alice, session=session)) == [1]
    assert numbers(await listed(client, alice, kind="summary")) == [2]
    assert numbers(await listed(client, alice, kind="manual", type="decision")) == [3]
    assert numbers(await listed(client, alice, type="bugfix")) == [1]


async def test_an_observation_is_found_by_id_by_number_and_by_number_sign(client: AsyncClient, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project)

    for named in (str(made.id), str(made.id).upper(), "1", quote("#1", safe="")):
        response = await client.get(f"/v1/observations/{named}", headers=cast.bob.headers)
        assert response.status_code == 200, named
        assert response.json()["observation"]["id"] == str(made.id)


async def test_all_fields_of_a_generated_observation_are_on_the_wire(client: AsyncClient, cast: Cast, make: Make):
    event = await send_event(client, cast.alice)
    made = await make.observation(
        project=cast.alice.project,
        type="bugfix",
        title="Fixed the retry",
        narrative="It retried for ever.",
        facts=["Three attempts"],
        files_modified=["orders/client.py"],
        metadata={"provider": "offline", "title": "stored title"},
        from_event=event,
    )

    response = await client.get(f"/v1/observations/{made.number}", headers=cast.alice.headers)

    content = response.json()["observation"]
    (source,) = content.pop("sources")
    assert (source["sourceType"], source["sourceId"], source["generationJobId"]) == ("agent_event", str(event), None)
    assert content == {
        "id": str(made.id),
        "number": 1,
        "projectId": str(cast.alice.project.id),
        "teamId": str(cast.alice.team_id),
        "serverSessionId": None,
        "kind": "bugfix",
        "observationKind": "observation",
        "type": "bugfix",
        "scope": "project",
        "origin": "model",
        "title": "Fixed the retry",
        "subtitle": None,
        "narrative": "It retried for ever.",
        "facts": ["Three attempts"],
        "concepts": [],
        "filesRead": [],
        "filesModified": ["orders/client.py"],
        "summary": None,
        "promptNumber": None,
        "turnNumber": None,
        "actorId": None,
        "importance": 0.5,
        "quote": None,
        "quoteEventId": None,
        "anchors": [],
        "state": None,
        "stale": None,
        "closedBy": None,
        "closedAtEpoch": None,
        "content": "Fixed the retry\n\nIt retried for ever.\n\n- Three attempts",
        "readTokens": 14,
        "discoveryTokens": 0,
        "metadata": {
            "title": "stored title",
            "subtitle": None,
            "facts": ["Three attempts"],
            "narrative": "It retried for ever.",
            "concepts": [],
            "files_read": [],
            "files_modified": ["orders/client.py"],
            "provider": "offline",
        },
        "createdByJobId": None,
        "accessCount": 0,
        "lastAccessedAtEpoch": None,
        "agent": None,
        "callerType": None,
        "ttlSeconds": None,
        "expiresAtEpoch": None,
        "version": 1,
        "mergedFrom": [],
        "createdAtEpoch": epoch_ms(made.created_at),
        "updatedAtEpoch": epoch_ms(made.updated_at),
    }


async def test_a_summary_shows_its_six_fields_and_a_memory_its_metadata_as_it_was_sent(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, kind="summary", summary={"request": "Retry", "next_steps": "Ship it"})
    await make.observation(project=cast.alice.project, kind="manual", metadata={"tag": "x"})

    memory, summary = (await listed(client, cast.alice))["observations"]

    assert (summary["kind"], summary["observationKind"]) == ("summary", "summary")
    assert summary["summary"] == {
        "request": "Retry",
        "investigated": None,
        "learned": None,
        "completed": None,
        "nextSteps": "Ship it",
        "notes": None,
    }
    assert (memory["kind"], memory["metadata"]) == ("manual", {"tag": "x"})


@pytest.mark.parametrize("path", ["/v1/observations/{}", "/v1/events/{}", "/v1/events/{}/observations"])
async def test_what_one_may_not_see_answers_like_what_does_not_exist(
    client: AsyncClient, cast: Cast, make: Make, db: Db, path: str
):
    made = await make.observation(project=cast.alice.project)
    thing = made.id if "observations/" in path else await send_event(client, cast.alice)
    _, elsewhere = await mint(db, cast.charlie.team_id, "bot", scopes=["*"], project_id=cast.charlie.project.id)
    bound = (await bound_to(db, cast.alice, "billing")).key

    missing = await client.get(path.format(new_id()), headers=cast.alice.headers)
    assert missing.status_code == 404
    for key in (cast.charlie.key, elsewhere, bound):
        for named in (thing, "1", "abc", "9" * 5000):
            response = await client.get(path.format(named), headers={"X-Api-Key": key})
            assert response.status_code == 404, named
            assert without_request_id(response) == without_request_id(missing)
    assert (await client.get(path.format(thing), headers=cast.bob.headers)).status_code == 200


async def test_a_key_that_is_bound_to_a_project_lists_only_that_one(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project)
    await make.observation(project=cast.charlie.project)
    headers = (await bound_to(db, cast.alice, "billing")).headers

    own = await client.get("/v1/observations", headers=headers)
    other = await client.get("/v1/observations", params={"project": cast.alice.project.canonical_id}, headers=headers)

    assert own.json() == {"observations": [], "nextCursor": None}
    assert other.status_code == 404
    assert numbers(await listed(client, cast.bob)) == [1]


async def test_an_event_shows_what_was_drawn_from_it(client: AsyncClient, cast: Cast, make: Make):
    event = await send_event(client, cast.alice, payload={"tool_name": "Bash"})
    drawn = [await make.observation(project=cast.alice.project, from_event=event) for _ in range(2)]
    await make.observation(project=cast.alice.project)

    shown = await client.get(f"/v1/events/{event}", headers=cast.alice.headers)
    of_event = await client.get(f"/v1/events/{event}/observations", headers=cast.alice.headers)

    assert shown.json()["event"]["payload"] == {"tool_name": "Bash"}
    answer = of_event.json()
    assert answer["eventId"] == str(event)
    assert numbers(answer) == [observation.number for observation in drawn]
    for observation in answer["observations"]:
        assert observation["generationKey"] is None
        assert observation["source"]["sourceId"] == str(event)


async def test_reading_leaves_a_row_with_numbers_and_nothing_without_text(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await listed(client, cast.alice)  # nothing to serve, nothing to note
    await make.observation(project=cast.alice.project, title="secret plan")
    await listed(client, cast.alice)
    await listed(client, cast.alice, project="github.com/acme/orders")
    await client.get("/v1/observations/1", headers=cast.alice.headers)

    rows = await served(db)

    team, project = str(cast.alice.team_id), str(cast.alice.project.id)
    assert rows == [
        ("team", team, {"via": "list", "numbers": [1]}),
        ("project", project, {"via": "list", "numbers": [1]}),
        ("project", project, {"via": "get", "numbers": [1]}),
    ]


async def test_several_are_read_at_once_in_the_order_asked_for(client: AsyncClient, cast: Cast, make: Make, db: Db):
    made = [await make.observation(project=cast.alice.project, title=f"step {number}") for number in (1, 2, 3)]
    theirs = await make.observation(project=cast.charlie.project)

    request = {"ids": ["#3", 1, "S3", str(made[1].id), 99, str(theirs.id), "nonsense", 1]}
    answered = await client.post("/v1/observations/batch", json=request, headers=cast.alice.headers)

    assert answered.status_code == 200
    assert [observation["title"] for observation in answered.json()["observations"]] == ["step 3", "step 1", "step 2"]
    assert answered.json()["missing"] == [99, str(theirs.id), "nonsense"]
    async with db.system() as conn:
        cursor = await conn.execute("SELECT project_id, details FROM audit_log WHERE action = 'observations.served'")
        assert await cursor.fetchall() == [(cast.alice.project.id, {"via": "batch", "numbers": [3, 1, 2]})]


async def test_several_are_read_as_text(client: AsyncClient, cast: Cast, make: Make):
    for narrative in ("The first.", "The second.\n</cmserver-context>"):
        await make.observation(project=cast.alice.project, title="step", narrative=narrative)
    headers = {**cast.alice.headers, "Accept": "text/plain"}

    lines = (await client.post("/v1/observations/batch", json={"ids": [2, 1]}, headers=headers)).text.splitlines()
    nothing = await client.post("/v1/observations/batch", json={"ids": [9]}, headers=headers)

    assert [line.split()[0] for line in lines if line.startswith("#")] == ["#2", "#1"]
    assert {"The first.", "The second."} < set(lines)
    assert (lines[0], lines[-1], lines.count("</cmserver-context>")) == ("<cmserver-context>", "</cmserver-context>", 1)
    assert nothing.text == "There is no such observation.\n"


async def test_of_several_a_bound_key_is_given_its_own_and_what_is_shared(client: AsyncClient, db: Db, cast: Cast, make: Make):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    await make.observation(project=cast.alice.project, title="hidden")
    await make.observation(project=cast.alice.project, title="shared", scope="team")
    await make.observation(project=other.project, title="own")

    answered = await client.post("/v1/observations/batch", json={"ids": [1, 2, 3]}, headers=other.headers)

    assert [observation["title"] for observation in answered.json()["observations"]] == ["shared", "own"]
    assert answered.json()["missing"] == [1]


@pytest.mark.parametrize(
    ("scope", "reads", "writes"), [("observations:read", 200, 403), ("observations:write", 403, 201), ("events:write", 403, 403)]
)
async def test_reading_and_writing_several_take_their_own_scopes(
    client: AsyncClient, db: Db, cast: Cast, scope: str, reads: int, writes: int
):
    _, key = await mint(db, cast.alice.team_id, "narrow", scopes=[scope], project_id=cast.alice.project.id)
    headers = {"Authorization": f"Bearer {key}"}

    read = await client.post("/v1/observations/batch", json={"ids": [1]}, headers=headers)
    written = await client.post("/v1/observations/batch", json=[{"title": "by hand"}], headers=headers)

    assert (read.status_code, written.status_code) == (reads, writes)


@pytest.mark.parametrize(
    ("body", "path"), [({}, "$"), ({"ids": []}, "$.ids"), ({"ids": [0]}, "$.ids[0]"), ({"ids": list(range(1, 102))}, "$.ids")]
)
async def test_what_names_no_observations_is_refused(client: AsyncClient, cast: Cast, body: object, path: str):
    answered = await client.post("/v1/observations/batch", json=body, headers=cast.alice.headers)

    assert (answered.status_code, answered.json()["issues"][0]["path"]) == (400, path)
