"""What people and the steward made survives joins, moves and separations; what is isolated is not given away."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.generation.batch import Batch, Effect
from cmserver.graph.read_observations import read_new_observations
from cmserver.ops.joining import normalise
from cmserver.ops.joining.normalise import normalise_all
from tests.conftest import Cast
from tests.ops.test_joining import NEW, OLD, act, join, older_pair, separate, write
from tests.rows import rows
from tests.steward.conftest import keeper
from tests.steward.test_runs import find_case, plant_pair
from tests.steward.test_undo import undo
from tests.steward.tools import Keeper, Planted, plant

__all__ = ["keeper"]

Json = dict[str, Any]


async def add_entity(client: httpx.AsyncClient, cast: Cast, project: str, name: str, notes: str | None = None) -> str:
    body = {"projectId": project, "type": "technology", "name": name, "notes": notes}
    answered = await client.post("/v1/entities", json=body, headers=cast.alice.headers)
    assert answered.is_success, answered.text
    return answered.json()["entity"]["id"]


async def list_entities(client: httpx.AsyncClient, cast: Cast, project: str) -> dict[str, tuple[str | None, str, int]]:
    """The notes, the finder and the number of mentions of the project's entities, by name."""
    page = await act(client, cast, "GET", f"/v1/entities?project={project}&limit=100")
    return {row["name"]: (row["notes"], row["foundBy"], row["mentionCount"]) for row in page["entities"]}


@pytest.fixture
async def old(client: httpx.AsyncClient, cast: Cast, db: Db) -> str:
    """The id of a project whose people wrote on Redis, which rules found in the other one, too, and made entities of their own."""
    old = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD}, 201))["project"]["id"]
    for project in (OLD, NEW):
        await write(client, cast, project, "The queue needs `redis`", filesModified=["src/queue.py"])
    await read_new_observations(db)
    redis = await add_entity(client, cast, OLD, "redis", "Alice runs it.")
    queue = await add_entity(client, cast, OLD, "Orders queue")
    alias = await add_entity(client, cast, OLD, "The old queue")
    await act(client, cast, "POST", f"/v1/entities/{alias}/merge", {"intoId": queue})
    await act(client, cast, "POST", f"/v1/entities/{queue}/relations", {"toId": redis, "label": "waits for"}, 201)
    return old


async def test_what_people_wrote_on_entities_is_joined_and_goes_back(client: httpx.AsyncClient, cast: Cast, old: str):
    before = [await list_entities(client, cast, project) for project in (OLD, NEW)]
    assert before[1]["Redis"] == (None, "rules", 1)

    await join(client, cast)
    during = await list_entities(client, cast, NEW)
    (queue,) = (await act(client, cast, "GET", f"/v1/entities?project={NEW}&search=orders"))["entities"]
    around = await act(client, cast, "GET", f"/v1/entities/{queue['id']}")
    everywhere = (await act(client, cast, "GET", "/v1/entities?limit=100"))["entities"]
    await separate(client, cast, old)

    assert during["Redis"] == ("Alice runs it.", "people", 2)
    assert [alias["name"] for alias in around["aliases"]] == ["The old queue"]
    assert [(row["label"], row["toName"]) for row in around["relations"]] == [("waits for", "Redis")]
    assert {row["projectId"] for row in everywhere} == {str(cast.alice.project.id)}, "the joined one's own wait unseen"
    assert [await list_entities(client, cast, project) for project in (OLD, NEW)] == before
    (queue,) = (await act(client, cast, "GET", f"/v1/entities?project={OLD}&search=orders"))["entities"]
    around = await act(client, cast, "GET", f"/v1/entities/{queue['id']}")
    assert [alias["name"] for alias in around["aliases"]] == ["The old queue"]
    assert [(row["label"], row["toName"]) for row in around["relations"]] == [("waits for", "Redis")]


async def test_notes_of_both_are_kept_and_each_gets_its_own_back(client: httpx.AsyncClient, cast: Cast, old: str):
    await add_entity(client, cast, NEW, "redis", "Bob pays for it.")

    await join(client, cast)
    during = (await list_entities(client, cast, NEW))["Redis"][0]
    await separate(client, cast, old)

    assert during == "Bob pays for it.\n\nAlice runs it."
    assert [(await list_entities(client, cast, project))["Redis"][0] for project in (OLD, NEW)] == [
        "Alice runs it.",
        "Bob pays for it.",
    ]


async def test_of_several_joined_projects_each_gets_its_own_notes_back(client: httpx.AsyncClient, cast: Cast, old: str):
    third = "github.com/acme/third"
    joined_last = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": third}, 201))["project"]["id"]
    await add_entity(client, cast, NEW, "redis", "Bob pays for it.")
    await add_entity(client, cast, third, "redis", "Alice runs it. Carol, too.")

    await join(client, cast)
    await act(client, cast, "POST", f"/v1/projects/{quote(third, safe='')}/join", {"into": NEW})
    await separate(client, cast, old)
    between = [(await list_entities(client, cast, project))["Redis"][0] for project in (OLD, NEW)]
    await separate(client, cast, joined_last)

    assert between == ["Alice runs it.", "Bob pays for it.\n\nAlice runs it. Carol, too."]
    assert (await list_entities(client, cast, NEW))["Redis"][0] == "Bob pays for it."
    assert (await list_entities(client, cast, third))["redis"][0] == "Alice runs it. Carol, too."


async def test_of_projects_that_are_joined_to_one_without_notes_each_gets_its_own_back(
    client: httpx.AsyncClient, cast: Cast, old: str
):
    third = "github.com/acme/third"
    joined_last = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": third}, 201))["project"]["id"]
    await add_entity(client, cast, third, "redis", "Carol pays for it.")

    await join(client, cast)
    await act(client, cast, "POST", f"/v1/projects/{quote(third, safe='')}/join", {"into": NEW})
    during = (await list_entities(client, cast, NEW))["Redis"][0]
    await separate(client, cast, old)
    between = [(await list_entities(client, cast, project))["Redis"][0] for project in (OLD, NEW)]
    await separate(client, cast, joined_last)

    assert during == "Alice runs it.\n\nCarol pays for it."
    assert between == ["Alice runs it.", "Carol pays for it."]
    assert (await list_entities(client, cast, third))["redis"][0] == "Carol pays for it."


async def test_what_people_change_or_delete_after_a_join_stays_so(client: httpx.AsyncClient, cast: Cast, db: Db, old: str):
    await join(client, cast)
    ids = {row["name"]: row["id"] for row in (await act(client, cast, "GET", f"/v1/entities?project={NEW}"))["entities"]}
    await act(client, cast, "PATCH", f"/v1/entities/{ids['Redis']}", {"notes": "Carol runs it."})
    await act(client, cast, "DELETE", f"/v1/entities/{ids['Orders queue']}")
    kept = await rows(db, "SELECT name FROM entities WHERE name IN ('Orders queue', 'The old queue')")

    await separate(client, cast, old)

    assert kept == []
    mine = await list_entities(client, cast, OLD)
    assert mine["Redis"][0] == "Carol runs it."
    assert "Orders queue" not in mine


async def two_that_derive(keeper: Keeper) -> list[Planted]:
    """Two projects with the same errors and remedies."""
    case = find_case("derivable-0")
    return [await plant(keeper.db, keeper.principal, msgspec.structs.replace(case, name=f"{case.name}-{name}")) for name in "pq"]


async def test_projects_that_derived_the_same_are_joined_and_separated(client: httpx.AsyncClient, cast: Cast, keeper: Keeper):
    source, target = await two_that_derive(keeper)
    await keeper.switch("write")
    await keeper.work("derive")
    where = "SELECT d.id, p.canonical_id FROM observation_derivations d JOIN projects p ON p.id = d.project_id ORDER BY d.id"
    before = await rows(keeper.db, where)

    await act(client, cast, "POST", f"/v1/projects/{source.project.id}/join", {"into": str(target.project.id)})
    joined = await rows(keeper.db, where)
    runs = await keeper.work("derive")
    again = await rows(keeper.db, where)
    await separate(client, cast, str(source.project.id))

    assert len(before) == 2
    assert {row["canonical_id"] for row in joined} == {target.project.canonical_id}
    assert again == joined
    assert {run.project for run in runs} == {target.project.canonical_id}
    assert await rows(keeper.db, where) == before


@pytest.mark.parametrize("way", ["join", "move"])
async def test_what_people_took_back_is_not_derived_again_elsewhere(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper, way: str
):
    planted = await plant_pair(keeper, "derivable-0")
    await keeper.switch("write")
    (run,) = [run for run in await keeper.work("derive") if run.status == "succeeded"]
    await undo(keeper, run)

    if way == "join":
        await act(client, cast, "POST", f"/v1/projects/{planted.project.id}/join", {"into": NEW})
    else:
        for session_id in {note.server_session_id for note in planted.notes}:
            await act(client, cast, "POST", f"/v1/sessions/{session_id}/move", {"into": NEW})
    await keeper.work("derive")

    found = await keeper.observations(cast.alice.project)
    assert len(found) == len(planted.notes)
    assert [row.agent for row in found if row.agent == "steward"] == []


async def test_a_suggestion_that_was_queued_is_judged_in_the_other_project(client: httpx.AsyncClient, cast: Cast, keeper: Keeper):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    (job_id,) = await keeper.plan("auto_merge")

    await act(client, cast, "POST", f"/v1/projects/{planted.project.id}/join", {"into": NEW})
    (moved,) = await rows(keeper.db, "SELECT lane FROM observation_generation_jobs WHERE id = %s", job_id)
    await keeper.drain()

    assert moved["lane"] == cast.alice.project.id
    job = await keeper.job(job_id)
    assert (job.project_id, job.decision and job.decision["decision"]) == (cast.alice.project.id, "merge")
    assert len(await keeper.observations(cast.alice.project)) == 1


async def test_a_project_is_not_joined_while_the_steward_works_on_it(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
):
    planted = await plant_pair(keeper)
    await keeper.switch("write")
    await keeper.plan("auto_merge")
    work = keeper.steward.work

    async def join_meanwhile(batch: Batch) -> Effect:
        await act(client, cast, "POST", f"/v1/projects/{planted.project.id}/join", {"into": NEW}, 409)
        return await work(batch)

    monkeypatch.setattr(keeper.steward, "work", join_meanwhile)
    await keeper.drain()

    assert [run.status for run in await keeper.runs()] == ["succeeded"]


async def test_a_job_that_is_moved_while_it_runs_writes_nothing_and_is_run_again(
    cast: Cast, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
):
    await plant_pair(keeper)
    await keeper.switch("write")
    (job_id,) = await keeper.plan("auto_merge")
    work, moved = keeper.steward.work, list[str]()

    async def move_meanwhile(batch: Batch) -> Effect:
        effect = await work(batch)
        if not moved:
            await rows(
                keeper.db,
                "WITH e AS (DELETE FROM observation_generation_job_events WHERE generation_job_id = %s)"
                " UPDATE observation_generation_jobs SET project_id = %s WHERE id = %s",
                *(job_id, cast.alice.project.id, job_id),
            )
            moved.append((await keeper.job(job_id)).status)
        return effect

    monkeypatch.setattr(keeper.steward, "work", move_meanwhile)
    await keeper.drain()

    assert moved == ["running"]
    job = await keeper.job(job_id)
    assert (job.status, job.attempt_count, job.decision and job.decision["reasons"]) == ("succeeded", 1, ["other_project"])


async def test_a_job_that_was_moved_while_it_ran_keeps_its_lane_until_it_is_sent_back(cast: Cast, keeper: Keeper):
    await plant_pair(keeper)
    await keeper.switch("write")
    (job_id,) = await keeper.plan("auto_merge")
    of_job = "SELECT lane, project_id FROM observation_generation_jobs WHERE id = %s"
    [before] = await rows(keeper.db, of_job, job_id)
    change = "UPDATE observation_generation_jobs SET"

    await rows(
        keeper.db,
        f"{change} status = 'processing', locked_at = now(), locked_by = 'w', worker_id = 0, claim = 0 WHERE id = %s",
        job_id,
    )
    forgotten = "WITH e AS (DELETE FROM observation_generation_job_events WHERE generation_job_id = %s)"
    await rows(keeper.db, f"{forgotten} {change} project_id = %s WHERE id = %s", job_id, cast.alice.project.id, job_id)
    assert [row["lane"] for row in await rows(keeper.db, of_job, job_id)] == [before["lane"]]

    await rows(
        keeper.db,
        f"{change} status = 'queued', locked_at = NULL, locked_by = NULL, worker_id = NULL, claim = NULL WHERE id = %s",
        job_id,
    )
    assert [row["lane"] for row in await rows(keeper.db, of_job, job_id)] == [cast.alice.project.id]
    due = "SELECT due_at <= now() AS due FROM generation_lanes WHERE lane = %s"
    assert await rows(keeper.db, due, cast.alice.project.id) == [{"due": True}]


async def test_one_team_that_fails_does_not_stop_the_others(
    client: httpx.AsyncClient, cast: Cast, db: Db, monkeypatch: pytest.MonkeyPatch
):
    shop, other = await older_pair(client, cast, db)
    whole = normalise.normalise_projects

    async def fail(db: Db, principal: Any) -> int:
        if principal.team_id == cast.charlie.team_id:
            raise RuntimeError("a bug")
        return await whole(db, principal)

    monkeypatch.setattr(normalise, "normalise_projects", fail)
    monkeypatch.setattr(normalise.access, "all_teams", _charlie_first(cast, normalise.access.all_teams))
    await normalise_all(db)

    assert (await act(client, cast, "GET", f"/v1/projects/{other}"))["project"]["joinedTo"] == shop


def _charlie_first(cast: Cast, all_teams: Any) -> Any:
    async def listed(conn: Any) -> list[Any]:
        return sorted(await all_teams(conn), key=lambda team: team.id != cast.charlie.team_id)

    return listed


async def isolate(client: httpx.AsyncClient, cast: Cast, project: str, *, isolated: bool = True) -> None:
    await act(client, cast, "PATCH", f"/v1/projects/{project}", {"isolated": isolated})


async def test_an_isolated_project_is_not_joined_to_an_open_one(client: httpx.AsyncClient, cast: Cast, old: str):
    await isolate(client, cast, old)

    refused = await join(client, cast, status=409)
    await act(client, cast, "POST", f"/v1/projects/{NEW}/join", {"into": OLD}, 409)
    await isolate(client, cast, NEW)
    await join(client, cast)

    assert "isolated" in refused["message"]


async def test_an_open_project_without_memory_is_joined_to_an_isolated_one(client: httpx.AsyncClient, cast: Cast):
    await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD}, 201)
    await isolate(client, cast, NEW)

    await join(client, cast)


async def test_a_project_that_has_only_turns_has_memory(client: httpx.AsyncClient, cast: Cast):
    project = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD}, 201))["project"]
    session = await act(client, cast, "POST", "/sessions", {"externalId": "s1", "projectId": project["id"]}, 201)
    episode = {"sessionId": session["id"], "userMessage": "Who runs Redis?", "aiResponse": "Alice does."}
    await act(client, cast, "POST", "/episodes", episode, 201)
    await isolate(client, cast, NEW)

    assert "isolated" in (await join(client, cast, 409))["message"]


async def test_a_project_that_has_only_entities_of_people_has_memory(client: httpx.AsyncClient, cast: Cast):
    await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD}, 201)
    await add_entity(client, cast, OLD, "Redis")
    await isolate(client, cast, NEW)

    assert "isolated" in (await join(client, cast, 409))["message"]


async def test_what_was_isolated_while_it_was_joined_stays_so_when_it_is_separated(client: httpx.AsyncClient, cast: Cast, old: str):
    await join(client, cast)
    await isolate(client, cast, NEW)

    assert (await separate(client, cast, old))["project"]["isolated"] is True


async def test_a_session_does_not_leave_an_isolated_project_for_an_open_one(client: httpx.AsyncClient, cast: Cast, old: str):
    start = {"projectId": OLD, "externalSessionId": "s"}
    session = (await act(client, cast, "POST", "/v1/sessions/start", start, 201))["session"]["id"]
    await isolate(client, cast, old)

    refused = await act(client, cast, "POST", f"/v1/sessions/{session}/move", {"into": NEW}, 409)
    await isolate(client, cast, NEW)
    await isolate(client, cast, old, isolated=False)
    await act(client, cast, "POST", f"/v1/sessions/{session}/move", {"into": NEW})

    assert "isolated" in refused["message"]


async def test_an_isolated_project_is_not_joined_by_itself(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, other = await older_pair(client, cast, db)
    await write(client, cast, other, "Of a client")
    await isolate(client, cast, other)

    await normalise_all(db)

    assert (await act(client, cast, "GET", f"/v1/projects/{other}"))["project"]["joinedTo"] is None
