"""Many jobs at once over HTTP: retried and cancelled after a count; a job's calls; lanes and workers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx

from cmserver.base.db import Db
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted
from tests.steward.tools import insert_job
from tests.table import try_rows


def refusing(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, "The model refused.")


async def fail_jobs(outbox: Outbox, count: int, session: str = "s1") -> list[UUID]:
    recorded = await outbox.put(count, session=session)
    await (await outbox.hand(Scripted(refusing))).work(max_events=1)
    return [event.job.id for event in recorded if event.job]


async def act(client: httpx.AsyncClient, cast: Cast, verb: str, body: dict[str, Any], key: str = "") -> httpx.Response:
    return await client.post(f"/v1/jobs/{verb}", json=body, headers={"X-Api-Key": key or cast.alice.key})


async def test_a_dry_run_counts_and_changes_nothing(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await fail_jobs(outbox, 3)

    counted = (await act(client, cast, "retry", {"dryRun": True})).json()

    assert (counted["matched"], counted["changed"], counted["dryRun"], counted["hasMore"]) == (3, 0, True, False)
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE status = 'failed'") == 3


async def test_failed_jobs_are_retried_and_then_run(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await fail_jobs(outbox, 3)

    done = (await act(client, cast, "retry", {})).json()
    await (await outbox.hand(Scripted())).work()

    assert (done["matched"], done["changed"]) == (3, 3)
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE status = 'completed'") == 3


async def test_named_jobs_only(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    first, *_ = await fail_jobs(outbox, 3)

    done = (await act(client, cast, "retry", {"jobIds": [str(first)]})).json()

    assert done["changed"] == 1
    assert await outbox.value("SELECT status FROM observation_generation_jobs WHERE id = %s", first) == "queued"


async def test_cancelled_jobs_are_retried_only_on_request(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(2)

    cancelled = (await act(client, cast, "cancel", {"status": "queued"})).json()
    usual = (await act(client, cast, "retry", {})).json()
    asked = (await act(client, cast, "retry", {"status": "cancelled"})).json()

    assert (cancelled["changed"], usual["changed"], asked["changed"]) == (2, 0, 2)


@try_rows(
    ("verb", "body", "path"),
    [
        ("retry", {"status": "completed"}, "$.status"),
        ("cancel", {"status": "failed"}, "$.status"),
        ("retry", {"since": "yesterday"}, "$.since"),
        ("retry", {"jobIds": []}, "$.jobIds"),
        ("retry", {"state": "failed"}, "$"),
    ],
)
async def test_what_cannot_be_is_refused(client: httpx.AsyncClient, cast: Cast, verb: str, body: dict[str, Any], path: str):
    answer = await act(client, cast, verb, body)

    assert answer.status_code == 400
    assert answer.json()["issues"][0]["path"].startswith(path)


async def test_nobody_acts_on_the_jobs_of_another_team_or_project(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    ids = [str(job_id) for job_id in await fail_jobs(outbox, 2)]
    bound = await bound_to(db, cast.alice, "billing")
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["jobs:read"])

    for key in (cast.charlie.key, bound.key):
        for body in ({}, {"jobIds": ids}):
            assert (await act(client, cast, "retry", body, key)).json()["matched"] == 0
    assert (await act(client, cast, "retry", {}, reader)).status_code == 403
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE status = 'failed'") == 2


async def test_only_an_admin_changes_the_steward_s_jobs(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    async with db.system() as conn:
        job_id = await insert_job(conn, cast.alice.team_id, cast.alice.project.id, "derive", status="queued")
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["jobs:write"])

    for body in ({}, {"sourceType": "steward"}, {"jobIds": [str(job_id)]}):
        assert (await act(client, cast, "cancel", body, writer)).json()["matched"] == 0
    for verb in ("cancel", "retry"):
        refused = await client.post(f"/v1/jobs/{job_id}/{verb}", headers={"X-Api-Key": writer})
        assert (refused.status_code, "the scope admin" in refused.text) == (403, True)
    assert await outbox.statuses() == {"queued": 1}
    assert (await act(client, cast, "cancel", {"jobIds": [str(job_id)]})).json()["changed"] == 1


async def test_all_calls_of_a_job_are_listed_newest_first(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    (job_id,) = await fail_jobs(outbox, 1)
    await act(client, cast, "retry", {})
    await (await outbox.hand(Scripted())).work()

    found = (await client.get(f"/v1/jobs/{job_id}/calls", headers=cast.alice.headers)).json()["calls"]
    answers = (await client.get(f"/v1/jobs/{job_id}/calls?include=payload", headers=cast.alice.headers)).json()["calls"]

    assert [call["status"] for call in found] == ["applied", "failed"]
    assert found[1]["errorMessage"] == "The model refused."
    assert "answer" not in found[0]
    assert "answer" in answers[0]
    assert (await client.get(f"/v1/jobs/{job_id}/calls", headers=cast.charlie.headers)).status_code == 404


async def test_lanes_are_listed_with_their_state(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(2)
    hand = await outbox.hand(Scripted())

    due = (await client.get("/v1/lanes", headers=cast.alice.headers)).json()["lanes"]
    await hand.claim()
    working = (await client.get("/v1/lanes?state=working", headers=cast.alice.headers)).json()["lanes"]
    strange = (await client.get("/v1/lanes", headers=cast.charlie.headers)).json()["lanes"]

    assert [(lane["state"], lane["queued"], lane["project"]) for lane in due] == [("due", 2, cast.alice.project.canonical_id)]
    assert [lane["state"] for lane in working] == ["working"]
    assert strange == []


async def test_workers_are_for_the_operator(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    hand = await outbox.hand(Scripted())
    _, admin = await mint(db, cast.alice.team_id, "admin", scopes=["admin"])

    listed = (await client.get("/v1/workers", headers=cast.alice.headers)).json()["workers"]

    assert [(worker["workerId"], worker["alive"], worker["lanes"]) for worker in listed] == [(hand.worker_id, True, 0)]
    assert (await client.get("/v1/workers", headers={"X-Api-Key": admin})).status_code == 403
