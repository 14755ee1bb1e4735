"""Observations and turns are read for what they name: new, changed, merged, deleted and imported ones, once and for good."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph import repository
from cmserver.graph.model import READER
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import Answer, Completion, DraftObservation, Prompt
from tests.conftest import Cast, Person, bound_to
from tests.generation.tools import Outbox, Scripted, completion
from tests.graph.test_api import Api
from tests.graph.test_read_turn import entities_of, say
from tests.make import Make


async def names_of(db: Db, person: Person) -> dict[str, int]:
    """The person's entities as `type:name`, with how often they are mentioned."""
    async with db.tenant(person.team_id) as conn:
        rows = await repository.list_entities(conn, person.team_id, project_id=None, type_=None, search=None, after=None, limit=200)
    return {f"{row.type}:{row.name}": row.mention_count for row in rows}


async def test_each_new_observation_is_read_once(db: Db, cast: Cast, make: Make):
    for _ in range(2):
        await make.observation(project=cast.alice.project, title="Changed `retry_queue`", files_modified=["src/queue.py"])
    await make.observation(project=cast.charlie.project, title="Changed `ledger_lock`")

    assert await read_new_observations(db) is False
    assert await read_new_observations(db) is False

    assert await names_of(db, cast.alice) == {"file:src/queue.py": 2, "symbol:retry_queue": 2}
    assert await names_of(db, cast.charlie) == {"symbol:ledger_lock": 1}


async def test_names_differ_in_more_than_case_and_types(db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="We moved to Postgres")
    await make.observation(project=cast.alice.project, title="PostgreSQL refuses more")

    await read_new_observations(db)

    assert await names_of(db, cast.alice) == {"technology:PostgreSQL": 2}


async def test_a_corrected_text_is_read_again(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, title="Changed `old_name`, `kept_name`")
    await read_new_observations(db)

    await client.patch(
        f"/v1/observations/{made.number}", json={"title": "Changed `new_name`, `kept_name`"}, headers=cast.alice.headers
    )
    await read_new_observations(db)

    assert await names_of(db, cast.alice) == {"symbol:kept_name": 1, "symbol:new_name": 1}


async def test_what_is_merged_mentions_nothing_until_it_is_undone(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    target = await make.observation(project=cast.alice.project, title="Changed `a_name`", kind="manual")
    source = await make.observation(project=cast.alice.project, title="Changed `b_name`", kind="manual")
    await read_new_observations(db)

    body = {"sources": [source.number], "strategy": "latest_wins"}
    merged = await client.post(f"/v1/observations/{target.number}/merge", json=body, headers=cast.alice.headers)
    assert merged.status_code == 200, merged.text
    await read_new_observations(db)
    after_merge = await names_of(db, cast.alice)
    await client.post(f"/v1/observations/{target.number}/undo", headers=cast.alice.headers)
    await read_new_observations(db)

    assert after_merge == {"symbol:b_name": 1}
    assert await names_of(db, cast.alice) == {"symbol:a_name": 1, "symbol:b_name": 1}


async def test_an_entity_goes_with_its_last_mention(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    first = await make.observation(project=cast.alice.project, title="`a_name` and `b_name`")
    await make.observation(project=cast.alice.project, title="`b_name` again")
    await read_new_observations(db)

    await client.delete(f"/v1/observations/{first.number}", headers=cast.alice.headers)

    assert await names_of(db, cast.alice) == {"symbol:b_name": 1}


async def test_a_name_that_is_deleted_before_it_is_read_is_passed_over(db: Db, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, title="`a_name`")
    async with db.tenant(cast.alice.team_id) as conn:
        await conn.execute("DELETE FROM observations WHERE id = %s", [made.id])

    await read_new_observations(db)

    async with db.system() as conn:
        assert await repository.list_unread_teams(conn, READER) == []


async def test_a_process_of_the_version_before_and_this_one_do_not_read_a_team_at_once(db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Changed `a_name`")
    async with db.system() as conn:
        await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('entities:' || %s::text, 0))", [cast.alice.team_id])
        await read_new_observations(db)
        beside = await names_of(db, cast.alice)
    await read_new_observations(db)

    assert beside == {}
    assert await names_of(db, cast.alice) == {"symbol:a_name": 1}


async def test_an_imported_observation_with_a_low_number_is_read(db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="`a_name`")
    later = await make.observation(project=cast.alice.project, title="`b_name`")
    await read_new_observations(db)
    async with db.system() as conn:
        await conn.execute("DELETE FROM observations WHERE number = 1")
        await conn.execute(
            "INSERT INTO observations (id, number, project_id, team_id, origin, content, title)"
            " SELECT gen_random_uuid(), 1, project_id, team_id, 'import', 'x', '`c_name`' FROM observations WHERE id = %s",
            [later.id],
        )

    await read_new_observations(db)

    assert await names_of(db, cast.alice) == {"symbol:b_name": 1, "symbol:c_name": 1}


async def test_first_and_last_times_are_those_of_the_observations(db: Db, cast: Cast, make: Make):
    made = [await make.observation(project=cast.alice.project, title="`a_name`") for _ in range(3)]
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET created_at = created_at - make_interval(days => 10 - number::integer)")
    await read_new_observations(db)

    async def times() -> tuple[float, float]:
        async with db.tenant(cast.alice.team_id) as conn:
            (row,) = await repository.list_entities(
                conn, cast.alice.team_id, project_id=None, type_=None, search=None, after=None, limit=9
            )
        return (row.last_seen_at - row.first_seen_at).total_seconds() // 3600, row.mention_count

    whole = await times()
    async with db.tenant(cast.alice.team_id) as conn:
        await conn.execute("DELETE FROM observations WHERE id = %s", [made[0].id])

    assert whole[1] == 3
    assert whole[0] in {47, 48}
    after = await times()
    assert after[1] == 2
    assert after[0] in {23, 24}


@pytest.mark.parametrize("erased", ["project", "team"])
async def test_what_is_erased_leaves_no_name(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, erased: str):
    await make.observation(project=cast.alice.project, title="`a_name`")
    await make.observation(project=cast.charlie.project, title="`c_name`")
    await read_new_observations(db)
    path = f"/v1/projects/{cast.alice.project.id}" if erased == "project" else f"/v1/teams/{cast.alice.team_id}"

    deleted = await client.delete(path, headers=cast.alice.headers)

    assert deleted.json()["counts"]["entities"] == 1
    async with db.system() as conn:
        left = await (await conn.execute("SELECT name FROM entities")).fetchall()
        mentions = await (await conn.execute("SELECT DISTINCT team_id FROM entity_mentions")).fetchall()
    assert left == [("c_name",)]
    assert mentions == [(UUID(str(cast.charlie.team_id)),)]


async def test_joined_projects_have_the_entities_of_both_and_get_their_own_back(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    api = Api(client, cast.alice)
    project = cast.alice.project.canonical_id
    other = await bound_to(db, cast.alice, "/home/alice/orders")
    await make.observation(project=cast.alice.project, title="`a_name` and `b_name`")
    mine = await make.observation(project=other.project, title="`a_name` and `c_name`")
    await read_new_observations(db)
    ids = {entity["name"]: entity["id"] for entity in (await api("GET", "/entities", project=str(other.project.id)))["entities"]}
    said = {"toId": ids["c_name"], "label": "calls", "evidence": [mine.number]}
    await api("POST", f"/entities/{ids['a_name']}/relations", said, status=201)

    await api("POST", "/projects/%2Fhome%2Falice%2Forders/join", {"into": project})
    joined = await names_of(db, cast.alice)
    a_name = await api.id_of("a_name")
    relations = (await api("GET", f"/entities/{a_name}"))["relations"]
    await api("POST", f"/projects/{other.project.id}/separate")
    await read_new_observations(db)

    assert joined == {"symbol:a_name": 2, "symbol:b_name": 1, "symbol:c_name": 1}
    assert [(relation["label"], relation["evidence"]) for relation in relations] == [("calls", [mine.number])]
    own = (await api("GET", "/entities", project=str(other.project.id)))["entities"]
    rest = (await api("GET", "/entities", project=project))["entities"]
    assert sorted((entity["name"], entity["mentionCount"]) for entity in own) == [("a_name", 1), ("c_name", 1)]
    assert {(entity["name"], entity["mentionCount"]) for entity in rest} >= {("a_name", 1), ("b_name", 1)}


async def test_what_a_model_names_is_kept_beside_what_rules_find(
    client: httpx.AsyncClient, db: Db, notifier: JobNotifier, cast: Cast
):
    def answer(prompt: Prompt) -> Completion:
        tags = prompt.tags
        named = ["technology: Redis", "Person: Ana", "person: hello", "file: a.py", "Redis", "concept: " + "x" * 500]
        return completion(Answer(observations=[DraftObservation(title="Ana changed `retry_queue`", events=tags, entities=named)]))

    provider = Scripted(answer)
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.put(1, session="s1")
    await (await outbox.hand(provider)).work()

    await read_new_observations(db)
    shown = (await client.get("/v1/entities", headers=cast.alice.headers)).json()["entities"]

    found = {(row["type"], row["name"]): row["foundBy"] for row in shown}
    assert found == {("symbol", "retry_queue"): "rules", ("technology", "Redis"): "model", ("person", "Ana"): "model"}


async def test_only_what_a_model_says_is_read_from_metadata(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    by_hand = {"projectId": str(cast.alice.project.id), "title": "x", "metadata": {"entities": ["person: Ana"]}}
    posted = await client.post("/v1/observations", json=by_hand, headers=cast.alice.headers)
    assert posted.status_code == 201, posted.text
    await make.observation(project=cast.alice.project, title="y", metadata={"entities": {"person": ["Ana"]}})
    await make.observation(project=cast.alice.project, title="z", metadata={"entities": [7, None, "place: Oslo"]})

    await read_new_observations(db)

    assert await names_of(db, cast.alice) == {"place:Oslo": 1}


async def test_rules_find_what_a_turn_names_without_a_job(client: httpx.AsyncClient, db: Db, cast: Cast):
    episode = await say(client, cast.alice, "Does PostgreSQL need `retry_queue`?", "No, see src/queue.py")

    await read_new_observations(db)
    found = await entities_of(client, cast.alice)
    entity = found["technology", "PostgreSQL"]
    mentions = (await client.get(f"/v1/entities/{entity['id']}/mentions", headers=cast.alice.headers)).json()["mentions"]

    assert found.keys() == {("technology", "PostgreSQL"), ("symbol", "retry_queue"), ("file", "src/queue.py")}
    assert (await client.get("/v1/jobs", headers=cast.alice.headers)).json()["jobs"] == []
    assert [(row["kind"], row["number"]) for row in mentions] == [("turn", episode["number"])]
    neighbours = (await client.get(f"/v1/entities/{entity['id']}", headers=cast.alice.headers)).json()["neighbours"]
    assert {row["name"] for row in neighbours} == {"retry_queue", "src/queue.py"}


async def test_a_turn_of_a_hook_is_read_when_it_has_ended_and_again_when_more_is_answered(
    client: httpx.AsyncClient, db: Db, cast: Cast
):
    async def send(**fields: str) -> set[str]:
        hook = {"session_id": "h", "cwd": "/work/orders", **fields}
        headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
        assert (await client.post("/v1/hooks/claude-code", json=hook, headers=headers)).status_code == 200
        await read_new_observations(db)
        return {name for _, name in await entities_of(client, cast.alice)}

    asked = await send(hook_event_name="UserPromptSubmit", prompt="Why does `pytest -x tests/api` end with KeyError?")
    answered = await send(hook_event_name="Stop", last_assistant_message="src/cart.py lacks a default.")
    more = await send(hook_event_name="Stop", last_assistant_message="So does src/order.py.")

    assert asked == set()
    assert answered == {"KeyError", "pytest", "src/cart.py"}
    assert more == {"KeyError", "pytest", "src/cart.py", "src/order.py"}
