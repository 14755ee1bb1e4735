"""Observations and summaries by their numbers, and by the files that they are about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to, mint
from tests.doors.claude_mem.worker import got, served
from tests.make import Make
from tests.table import try_rows

BATCH = "/api/observations/batch"
FILE = "/api/observations/by-file"


@pytest.fixture
async def three(cast: Cast, make: Make) -> None:
    for number in (1, 2, 3):
        await make.observation(
            project=cast.alice.project, title=f"step {number}", created_at=datetime(2026, 11, 10 + number, tzinfo=UTC)
        )


async def batch(client: httpx.AsyncClient, headers: dict[str, str], **body: object) -> list[Any]:
    answered = await client.post(BATCH, json=body, headers=headers)
    assert answered.status_code == 200, answered.text
    return answered.json()


@try_rows(
    ("body", "expected"),
    [
        ({"ids": [1, 3]}, [3, 1]),
        ({"ids": "1, #3"}, [3, 1]),
        ({"ids": ["1", "S3"]}, [3, 1]),
        ({"ids": 2}, [2]),
        ({"ids": [1, 3], "orderBy": "date_asc"}, [1, 3]),
        ({"ids": [2, 3, 1, 3], "orderBy": "relevance"}, [2, 3, 1]),
        ({"ids": [1, 2, 3], "limit": 1}, [3]),
        ({"ids": [1, 999]}, [1]),
        ({"ids": []}, []),
        ({"ids": [1], "project": "github.com/acme/orders"}, [1]),
        ({"ids": [1], "project": "nowhere"}, []),
    ],
    ids=str,
)
@pytest.mark.usefixtures("three")
async def test_those_of_the_numbers_come_as_an_array_of_rows(
    client: httpx.AsyncClient, cast: Cast, body: dict[str, object], expected: list[int]
):
    rows = await batch(client, cast.alice.headers, **body)

    assert [row["id"] for row in rows] == expected
    assert [row["title"] for row in rows] == [f"step {number}" for number in expected]


async def test_a_summary_and_what_was_written_by_hand_have_their_text_in_the_narrative(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project, title="Fed", content="Fed\n\nRequest: feed", kind="summary")
    await make.observation(project=cast.alice.project, title=None, content="It eats hay.", kind="manual")

    rows = await batch(client, cast.alice.headers, ids=[1, 2], orderBy="date_asc")

    assert [(row["type"], row["narrative"]) for row in rows] == [("summary", "Fed\n\nRequest: feed"), ("change", "It eats hay.")]
    assert [(entry["via"], entry["numbers"]) for entry in await served(db)] == [("batch", [1, 2])]


@try_rows("ids", [["one"], "1,two", [10**30], [-1], list(range(1, 502))], ids=["word", "words", "large", "less", "many"])
async def test_what_is_no_list_of_numbers_is_refused(client: httpx.AsyncClient, cast: Cast, ids: object):
    answered = await client.post(BATCH, json={"ids": ids}, headers=cast.alice.headers)

    assert (answered.status_code, answered.json()["issues"][0]["path"]) == (400, "$.ids")


async def test_a_key_of_another_project_is_given_only_what_is_shared(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    await make.observation(project=cast.alice.project)
    await make.observation(project=cast.alice.project, scope="team")
    await make.observation(project=other.project)

    assert [row["id"] for row in await batch(client, other.headers, ids=[1, 2, 3], orderBy="date_asc")] == [2, 3]
    assert await batch(client, cast.charlie.headers, ids=[1, 2, 3]) == []


async def test_a_hook_is_told_what_is_known_of_a_file(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    project, other = cast.alice.project, (await bound_to(db, cast.alice, "worktree")).project
    await make.observation(project=project, title="read", files_read=["src/a.py"], created_at=datetime(2026, 11, 1, tzinfo=UTC))
    await make.observation(project=other, title="changed", files_modified=["/home/x/src/a.py"])
    await make.observation(project=project, title="another", files_read=["src/b.py"])
    await make.observation(project=project, title="sum", kind="summary", files_read=["src/a.py"])

    answered = await client.get(
        f"{FILE}?path=/home/x/src/a.py&path=src/a.py&projects=github.com/acme/orders,worktree,nowhere&limit=40",
        headers=cast.alice.headers,
    )

    answer = answered.json()
    assert (answer["count"], [row["title"] for row in answer["observations"]]) == (2, ["changed", "read"])
    assert answer["observations"][1]["files_read"] == '["src/a.py"]'
    assert [(entry["via"], entry["numbers"]) for entry in await served(db)] == [("file", [2, 1])]


async def test_of_a_file_in_a_project_that_nobody_knows_nothing_is_known(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, files_read=["src/a.py"])

    nowhere = await got(client, FILE, cast.alice.headers, path="src/a.py", projects="nowhere")
    anywhere = await got(client, FILE, cast.alice.headers, path="src/a.py")

    assert nowhere == {"observations": [], "count": 0}
    assert anywhere["count"] == 1


async def test_as_many_as_a_hook_asks_for(client: httpx.AsyncClient, cast: Cast, make: Make):
    for _ in range(3):
        await make.observation(project=cast.alice.project, files_read=["src/a.py"])

    assert (await got(client, FILE, cast.alice.headers, path="src/a.py", limit=2))["count"] == 2


async def test_one_is_read_by_its_number(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project, title="fed")
    await make.observation(project=cast.alice.project, title="sum", kind="summary", summary={"request": "feed it"})

    observation = await got(client, "/api/observation/1", cast.alice.headers)
    summary = await got(client, "/api/session/S2", cast.alice.headers)
    missing = [
        await client.get(path, headers=headers)
        for path, headers in (
            ("/api/observation/3", cast.alice.headers),
            ("/api/session/1", cast.alice.headers),
            ("/api/observation/1", cast.charlie.headers),
            ("/api/session/2", cast.charlie.headers),
        )
    ]

    assert (observation["id"], observation["title"]) == (1, "fed")
    assert (summary["id"], summary["request"]) == (2, "feed it")
    assert [response.status_code for response in missing] == [404] * 4
    assert [entry["numbers"] for entry in await served(db)] == [[1], [2]]


async def test_what_is_deleted_is_gone(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)
    await make.observation(project=cast.alice.project, kind="summary")

    wrong = await client.delete("/api/summary/1", headers=cast.alice.headers)
    observation = await client.delete("/api/observation/1", headers=cast.alice.headers)
    summary = await client.delete("/api/summary/2", headers=cast.alice.headers)

    assert wrong.status_code == 404
    assert observation.json() == {"success": True, "id": 1, "kind": "observation", "entity_rev": None}
    assert summary.json() == {"success": True, "id": 2, "kind": "summary", "entity_rev": None}
    assert await batch(client, cast.alice.headers, ids=[1, 2]) == []


async def test_who_may_only_read_and_a_guest_delete_nothing(
    client: httpx.AsyncClient, guest: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project)
    _, key = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])

    by_key = await client.delete("/api/observation/1", headers={"Authorization": f"Bearer {key}"})
    by_guest = await guest.delete("/api/observation/1")

    assert by_key.status_code == by_guest.status_code == 403
    assert (await guest.get("/api/observation/1")).status_code == 200
    assert [row["id"] for row in (await guest.post(BATCH, json={"ids": [1]})).json()] == [1]
