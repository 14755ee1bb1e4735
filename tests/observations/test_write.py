from __future__ import annotations

import time
from typing import Any, LiteralString
from uuid import UUID

import pytest
from httpx import AsyncClient, Response

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.observations import repository
from tests.conftest import Cast, Person, bound_to
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]


async def write(client: AsyncClient, person: Person, **fields: object) -> Response:
    return await client.post("/v1/observations", json={"projectId": person.project.canonical_id, **fields}, headers=person.headers)


async def written(client: AsyncClient, person: Person, **fields: object) -> Json:
    response = await write(client, person, **fields)
    assert response.status_code == 201, response.text
    return response.json()["observation"]


async def stored(db: Db) -> int:
    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*) FROM observations")
        (count,) = await cursor.fetchone() or (0,)
    return count


async def audited(db: Db, action: str) -> list[Json]:
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT resource_type, resource_id, project_id, details FROM audit_log WHERE action = %s ORDER BY id", [action]
        )
        return [dict(zip(("type", "id", "project", "details"), row, strict=True)) for row in await cursor.fetchall()]


def without_request_id(response: Response) -> Json:
    answer = response.json()
    answer.pop("requestId")
    return answer


async def test_what_somebody_writes_is_an_observation_of_his_own_that_generates_nothing(client: AsyncClient, cast: Cast, db: Db):
    answer = await written(
        client,
        cast.alice,
        type="decision",
        title="Retry three times",
        subtitle="And no more",
        narrative="The upstream recovers within two seconds.",
        facts=["Backoff doubles", "Backoff doubles", " "],
        concepts=["trade-off"],
        filesRead=["orders/client.py"],
        filesModified=["orders/retry.py"],
        metadata={"ticket": 12},
    )

    assert (answer["number"], answer["kind"], answer["observationKind"], answer["origin"]) == (1, "manual", "manual", "api")
    assert (answer["type"], answer["scope"], answer["title"], answer["subtitle"]) == (
        "decision",
        "project",
        "Retry three times",
        "And no more",
    )
    assert answer["facts"] == ["Backoff doubles"]
    assert (answer["concepts"], answer["filesRead"], answer["filesModified"]) == (
        ["trade-off"],
        ["orders/client.py"],
        ["orders/retry.py"],
    )
    assert answer["content"] == (
        "Retry three times\n\nAnd no more\n\nThe upstream recovers within two seconds.\n\n- Backoff doubles"
    )
    assert answer["metadata"] == {"ticket": 12}
    assert answer["readTokens"] > 0
    assert answer["createdByJobId"] is None
    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*) FROM observation_generation_jobs")
        assert await cursor.fetchone() == (0,)
    assert await audited(db, "observations.created") == [
        {
            "type": "project",
            "id": str(cast.alice.project.id),
            "project": cast.alice.project.id,
            "details": {"observations": [answer["id"]]},
        }
    ]


async def test_a_content_beside_a_title_is_kept_as_it_was_sent_and_found(client: AsyncClient, cast: Cast):
    answer = await written(client, cast.alice, title="A note", content="The zebra lives in staging.")

    response = await client.post(
        "/v1/search", json={"projectId": cast.alice.project.canonical_id, "query": "zebra"}, headers=cast.bob.headers
    )

    assert answer["content"] == "The zebra lives in staging."
    assert [observation["id"] for observation in response.json()["observations"]] == [answer["id"]]


async def test_secrets_and_private_words_do_not_reach_the_table(client: AsyncClient, cast: Cast):
    answer = await written(
        client,
        cast.alice,
        title="Key AKIAIOSFODNN7EXAMPLE",
        facts=["<private>my salary</private> is public"],
        metadata={"password": "hunter2hunter2"},
    )

    assert "AKIA" not in str(answer)
    assert "salary" not in str(answer)
    assert "hunter2" not in str(answer)


@try_rows(
    ("fields", "path"),
    [
        ({}, "$"),
        ({"concepts": ["pattern"], "filesRead": ["a.py"]}, "$"),
        ({"title": " ", "content": ""}, "$"),
        ({"title": "x" * 201}, "$.title"),
        ({"narrative": "x" * 20_001}, "$.narrative"),
        ({"title": "x", "facts": ["y"] * 51}, "$.facts"),
        ({"title": "x", "facts": ["y" * 2_001]}, "$.facts[0]"),
        ({"title": "x", "type": "poem"}, "$.type"),
        ({"title": "x", "scope": "world"}, "$.scope"),
        ({"title": "x", "sessionId": "7"}, "$.sessionId"),
        ({"title": "x", "kind": "summary"}, "$.kind"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_and_named(client: AsyncClient, cast: Cast, db: Db, fields: Json, path: str):
    response = await write(client, cast.alice, **fields)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == path
    assert await stored(db) == 0


async def test_more_words_than_the_index_takes_are_refused_with_a_sentence(client: AsyncClient, cast: Cast, db: Db):
    # Four lists as large as may be, of different words in three-byte letters of a script with spaces: a little over a megabyte.
    words = ("".join(chr(0x1200 + n // 64**place % 64) for place in range(3)) + "\u1218" * 9 for n in range(64**3))
    names = ("facts", "concepts", "filesRead", "filesModified")
    lists = {name: [" ".join(next(words) for _ in range(153)) for _ in range(50)] for name in names}

    response = await write(client, cast.alice, title="All the words", **lists)

    assert response.status_code == 400, response.text
    assert "too many" in response.json()["message"].lower()
    assert await stored(db) == 0


async def test_a_session_of_the_project_can_be_named_and_no_other(client: AsyncClient, cast: Cast, db: Db):
    async def session(person: Person, project: str) -> str:
        body = {"projectId": project, "externalSessionId": "s"}
        return (await client.post("/v1/sessions/start", json=body, headers=person.headers)).json()["session"]["id"]

    own = await session(cast.alice, cast.alice.project.canonical_id)
    others = [await session(cast.alice, "billing"), await session(cast.charlie, "github.com/acme/orders"), str(new_id())]

    assert (await written(client, cast.alice, title="x", sessionId=own))["serverSessionId"] == own
    for other in others:
        response = await write(client, cast.alice, title="x", sessionId=other)
        assert (response.status_code, response.json()["error"]) == (404, "NotFound")
    assert await stored(db) == 1


async def test_a_key_that_is_bound_to_a_project_need_not_name_it(client: AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, "billing")

    response = await client.post("/v1/observations", json={"title": "Mine"}, headers=bound.headers)

    assert response.json()["observation"]["projectId"] == str(bound.project.id)


async def test_a_batch_is_stored_in_its_order_across_projects(client: AsyncClient, cast: Cast, db: Db):
    billing = str((await bound_to(db, cast.alice, "billing")).project.id)
    batch = [{"title": f"n{n}", "projectId": billing if n % 2 else cast.alice.project.canonical_id} for n in range(5)]

    response = await client.post("/v1/observations/batch", json=batch, headers=cast.alice.headers)

    assert response.status_code == 201, response.text
    answer = response.json()["observations"]
    assert [(observation["title"], observation["number"]) for observation in answer] == [(f"n{n}", n + 1) for n in range(5)]
    assert [observation["projectId"] == billing for observation in answer] == [False, True, False, True, False]
    assert len(await audited(db, "observations.created")) == 2


@pytest.mark.parametrize(
    ("bad", "status", "said"),
    [
        ({"title": "x", "type": "poem"}, 400, "$[1].type"),
        ({"projectId": "orders"}, 400, "$[1]"),
        ({"title": "x", "projectId": "no-such"}, 404, "$[1].projectId"),
        ({"title": "x", "sessionId": str(new_id())}, 404, "$[1].sessionId"),
    ],
)
async def test_one_bad_item_and_nothing_of_a_batch_is_stored(
    client: AsyncClient, cast: Cast, db: Db, bad: Json, status: int, said: str
):
    project = cast.alice.project.canonical_id
    batch = [{"title": "good", "projectId": project}, {"projectId": project, **bad}]

    response = await client.post("/v1/observations/batch", json=batch, headers=cast.alice.headers)

    assert response.status_code == status, response.text
    assert said in response.text
    assert await stored(db) == 0


async def test_what_was_written_down_elsewhere_keeps_its_time(client: AsyncClient, cast: Cast):
    project, spring = cast.alice.project.canonical_id, 1_772_712_000_123
    batch = [{"title": "new", "projectId": project}, {"title": "old", "projectId": project, "createdAtEpoch": spring}]

    response = await client.post("/v1/observations/batch", json=batch, headers=cast.alice.headers)

    new, old = response.json()["observations"]
    assert old["createdAtEpoch"] == spring < new["createdAtEpoch"]
    listed = await client.get("/v1/observations", headers=cast.alice.headers)
    assert [observation["title"] for observation in listed.json()["observations"]] == ["new", "old"]


async def test_a_time_that_is_still_to_come_is_refused_and_named(client: AsyncClient, cast: Cast, db: Db):
    project, tomorrow = cast.alice.project.canonical_id, int((time.time() + 86_400) * 1000)
    bad = {"title": "x", "projectId": project, "createdAtEpoch": tomorrow}

    alone = await client.post("/v1/observations", json=bad, headers=cast.alice.headers)
    in_batch = await client.post(
        "/v1/observations/batch", json=[{"title": "good", "projectId": project}, bad], headers=cast.alice.headers
    )

    assert [alone.status_code, in_batch.status_code] == [400, 400]
    assert [response.json()["issues"][0]["path"] for response in (alone, in_batch)] == [
        "$.createdAtEpoch",
        "$[1].createdAtEpoch",
    ]
    assert await stored(db) == 0


@pytest.mark.parametrize("batch", [[], {}, [{"title": "x"}] * 501])
async def test_a_batch_has_1_to_500_items(client: AsyncClient, cast: Cast, batch: object):
    response = await client.post("/v1/observations/batch", json=batch, headers=cast.alice.headers)

    assert response.status_code == 400
    assert "1 to 500" in response.json()["message"]


async def test_a_correction_changes_what_it_says_and_nothing_else(client: AsyncClient, cast: Cast, make: Make, db: Db):
    made = await make.observation(
        project=cast.alice.project, title="Fixd the retry", narrative="It retried for ever.", facts=["Three attempts"]
    )

    response = await client.patch(
        "/v1/observations/1",
        json={"title": "Fixed the retry", "type": "bugfix", "concepts": ["gotcha"], "metadata": {"by": "bob"}},
        headers=cast.bob.headers,
    )

    answer = response.json()["observation"]
    assert response.status_code == 200, answer
    assert (answer["id"], answer["title"], answer["type"], answer["concepts"]) == (
        str(made.id),
        "Fixed the retry",
        "bugfix",
        ["gotcha"],
    )
    assert answer["content"] == "Fixed the retry\n\nIt retried for ever.\n\n- Three attempts"
    assert (answer["narrative"], answer["facts"], answer["scope"]) == ("It retried for ever.", ["Three attempts"], "project")
    assert answer["metadata"]["by"] == "bob"
    assert answer["updatedAtEpoch"] >= answer["createdAtEpoch"]
    search = {"projectId": cast.alice.project.canonical_id, "query": "fixd"}
    assert (await client.post("/v1/search", json=search, headers=cast.bob.headers)).json()["observations"] == []
    (row,) = await audited(db, "observation.corrected")
    assert row["details"] == {"fields": ["type", "title", "concepts", "metadata"]}


async def test_a_title_can_be_taken_away_but_not_the_only_text(client: AsyncClient, cast: Cast):
    both = await written(client, cast.alice, title="Title", narrative="Narrative")
    only = await written(client, cast.alice, title="Title")

    taken = await client.patch(f"/v1/observations/{both['number']}", json={"title": None}, headers=cast.alice.headers)
    refused = await client.patch(f"/v1/observations/{only['number']}", json={"title": None}, headers=cast.alice.headers)

    assert (taken.json()["observation"]["title"], taken.json()["observation"]["content"]) == (None, "Narrative")
    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.title")


async def test_a_content_that_was_sent_stays_as_it_was_sent(client: AsyncClient, cast: Cast):
    alone = await written(client, cast.alice, content="The zebra lives in staging.")
    beside = await written(client, cast.alice, title="A note", content="The zebra lives in staging.")

    for observation in (alone, beside):
        response = await client.patch(f"/v1/observations/{observation['id']}", json={"title": "Zoo"}, headers=cast.alice.headers)
        assert response.json()["observation"]["content"] == "The zebra lives in staging."
    search = {"projectId": cast.alice.project.canonical_id, "query": "zebra"}
    found = await client.post("/v1/search", json=search, headers=cast.alice.headers)
    (hit,) = found.json()["observations"]  # they say the same now
    assert {hit["number"], *hit["alike"]} == {alone["number"], beside["number"]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"narrative": 7}, "$.narrative"),
        ({"filesRead": ["x"]}, "$.filesRead"),
        ({"importance": 1.1}, "$.importance"),
        ({"title": None, "narrative": None, "facts": []}, "$.title"),
        ({"type": "poem"}, "$.type"),
        ({"concepts": None}, "$.concepts"),
        ({"metadata": []}, "$.metadata"),
    ],
)
async def test_what_may_not_be_corrected_is_refused_and_named(client: AsyncClient, cast: Cast, make: Make, fields: Json, path: str):
    await make.observation(project=cast.alice.project)

    response = await client.patch("/v1/observations/1", json=fields, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == path


async def test_an_empty_correction_changes_nothing_and_is_not_noted(client: AsyncClient, cast: Cast, make: Make, db: Db):
    made = await make.observation(project=cast.alice.project)

    response = await client.patch("/v1/observations/1", json={}, headers=cast.alice.headers)

    assert response.json()["observation"]["title"] == made.title
    assert await audited(db, "observation.corrected") == []


async def test_secrets_are_taken_out_of_corrections(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)

    response = await client.patch("/v1/observations/1", json={"title": "AKIAIOSFODNN7EXAMPLE"}, headers=cast.alice.headers)

    assert response.json()["observation"]["title"] == "[redacted:aws_access_key]"


async def test_a_deleted_observation_is_gone_and_its_event_stays(client: AsyncClient, cast: Cast, make: Make, db: Db):
    body = {"projectId": cast.alice.project.canonical_id, "eventType": "note"}
    event = (await client.post("/v1/events?generate=false", json=body, headers=cast.alice.headers)).json()["event"]["id"]
    made = await make.observation(project=cast.alice.project, title="A zebra", from_event=UUID(event))

    response = await client.delete("/v1/observations/1", headers=cast.alice.headers)

    assert response.json() == {"deleted": True, "id": str(made.id)}
    assert (await client.get(f"/v1/observations/{made.id}", headers=cast.alice.headers)).status_code == 404
    assert (await client.delete("/v1/observations/1", headers=cast.alice.headers)).status_code == 404
    assert (await client.get(f"/v1/events/{event}", headers=cast.alice.headers)).status_code == 200
    async with db.system() as conn:
        cursor = await conn.execute("SELECT count(*) FROM observation_sources")
        assert await cursor.fetchone() == (0,)
    (row,) = await audited(db, "observation.deleted")
    assert (row["id"], row["details"]) == (str(made.id), {"number": 1})


async def test_what_is_open_can_be_marked_as_done_dropped_or_open_again(client: AsyncClient, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    path = f"/v1/observations/{observation.number}"

    for state in ("open", "done", "dropped", None):
        response = await client.patch(path, json={"state": state}, headers=cast.alice.headers)
        corrected = response.json()["observation"]
        assert corrected["state"] == state
        assert (corrected["closedAtEpoch"] is not None) == (state in {"done", "dropped"})
    refused = await client.patch(path, json={"state": "later"}, headers=cast.alice.headers)

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.state")


async def test_who_changes_an_observation_keeps_others_off_it_until_it_is_changed(db: Db, cast: Cast, make: Make):
    team = cast.alice.team_id
    observation = await make.observation(project=cast.alice.project)
    free = "SELECT id FROM observations WHERE id = %s FOR UPDATE SKIP LOCKED"

    async with db.tenant(team) as conn:
        locked = await repository.lock(conn, team, observation.id)
        meanwhile = await rows(db, free, observation.id)

    assert locked is not None
    assert (meanwhile, len(await rows(db, free, observation.id))) == ([], 1)


async def test_an_edit_in_psql_says_when_and_other_changes_of_a_row_do_not(client: AsyncClient, cast: Cast, db: Db):
    await written(client, cast.alice, title="Retry three times", narrative="The upstream recovers.")

    async def dates_change(assignment: LiteralString) -> bool:
        await rows(db, "UPDATE observations SET updated_at = '2026-01-01Z'")
        await rows(db, f"UPDATE observations SET {assignment}")
        (row,) = await rows(db, "SELECT updated_at > '2026-01-02Z' AS is_changed FROM observations")
        return row["is_changed"] is True

    edits: list[LiteralString] = [
        "title = 'Retry twice'",
        "facts = '{one}'",
        "importance = 0.9",
        "state = 'open'",
        "type = 'decision'",
    ]
    others: list[LiteralString] = [
        "access_count = access_count + 1, last_accessed_at = now()",
        "ttl_seconds = 60, expires_at = now() + interval '1 hour'",
        "title = title",
        "version = version + 1",
        "narrative = 'Other.', updated_at = '2025-01-01Z'",
    ]

    assert [edit for edit in edits if not await dates_change(edit)] == []
    assert [other for other in others if await dates_change(other)] == []
