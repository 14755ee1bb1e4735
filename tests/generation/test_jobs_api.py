"""Jobs over HTTP: lists, one job and its life, sending back and cancelling; and that nobody reaches what is not his."""

from __future__ import annotations

import asyncio
from typing import Any
from typing import cast as cast_to
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.generation.job_notifier import CANCEL, JobNotifier
from cmserver.generation.operate import manage
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted, completion, each_observed
from tests.table import try_rows

ROW = {
    "id",
    "projectId",
    "teamId",
    "sourceType",
    "sourceId",
    "status",
    "attempts",
    "maxAttempts",
    "createdAtEpoch",
    "completedAtEpoch",
    "failedAtEpoch",
    "lastError",
    "waitsFor",
}
MORE = {
    "agentEventId",
    "serverSessionId",
    "jobType",
    "bullmqJobId",
    "nextAttemptAtEpoch",
    "cancelledAtEpoch",
    "updatedAtEpoch",
    "outcome",
    "outcomeReason",
    "cancelRequestedAtEpoch",
    "sourceRun",
}


def refusing(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, "The model refused.")


async def one_job(outbox: Outbox, session: str = "s1") -> UUID:
    recorded = await outbox.put(1, session=session)
    assert recorded[0].job is not None
    return recorded[0].job.id


async def get(client: httpx.AsyncClient, cast: Cast, path: str, **params: Any) -> Any:
    response = await client.get(path, headers=cast.alice.headers, params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_list_has_the_shape_that_clients_of_claude_mem_know(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(3)

    listed = await get(client, cast, "/v1/jobs")

    assert listed.keys() == {"jobs", "total", "totalIsCapped", "limit", "offset", "nextCursor", "requestId"}
    assert (listed["total"], listed["limit"], listed["offset"], listed["nextCursor"]) == (3, 50, 0, None)
    assert all(job.keys() == ROW | {"jobType", "serverSessionId", "project", "sessionTitle"} for job in listed["jobs"])
    assert listed["jobs"][0]["lastError"] is None


async def test_one_job_says_more(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await one_job(outbox)

    job = (await get(client, cast, f"/v1/jobs/{job_id}"))["generationJob"]

    assert job.keys() == ROW | MORE
    assert job["bullmqJobId"] == job["id"] == str(job_id)
    assert (job["status"], job["sourceRun"], job["outcome"]) == ("queued", 1, None)


async def test_a_failed_job_says_why(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1)
    await (await outbox.hand(Scripted(refusing))).work()

    (job,) = (await get(client, cast, "/v1/jobs", status="failed"))["jobs"]

    assert job["lastError"] == {"reason": "refused", "message": "The model refused."}
    assert job["failedAtEpoch"] is not None


async def test_pages_join_without_a_gap_whatever_state_jobs_are_in(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(5, session="done")
    await (await outbox.hand(Scripted())).work()
    await outbox.put(4, session="cancelled")
    await outbox.rows("UPDATE observation_generation_jobs SET status = 'cancelled' WHERE status = 'queued'")
    await outbox.put(4, session="waiting")
    seen: list[str] = []
    cursor: dict[str, str] = {}

    while True:
        page = await get(client, cast, "/v1/jobs", limit=3, **cursor)
        seen += [job["id"] for job in page["jobs"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}

    newest_first = await outbox.rows("SELECT id FROM observation_generation_jobs ORDER BY created_at DESC, id DESC")
    assert seen == [str(row["id"]) for row in newest_first]
    by_offset = await get(client, cast, "/v1/jobs", limit=3, offset=6)
    assert [job["id"] for job in by_offset["jobs"]] == seen[6:9]


async def test_jobs_of_one_session(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    recorded = await outbox.put(2, session="s1")
    await outbox.put(1, session="s2")
    session_id = str(recorded[0].event.server_session_id)

    by_id = await get(client, cast, "/v1/jobs", session=session_id)
    by_name = await get(client, cast, "/v1/jobs", session="s1", status="queued")
    unknown = await client.get("/v1/jobs?session=nobody", headers=cast.alice.headers)
    strange = await client.get("/v1/jobs", params={"session": session_id}, headers=cast.charlie.headers)

    assert [job["sourceId"] for job in by_id["jobs"]] == [str(event.event.id) for event in reversed(recorded)]
    assert by_id["total"] == 2
    assert by_name["jobs"] == by_id["jobs"]
    assert (unknown.status_code, strange.status_code) == (404, 404)


async def test_filters_choose(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    await outbox.put(2)
    await outbox.rows("UPDATE observation_generation_jobs SET created_at = now() - interval '2 days'")
    await client.post("/v1/reindex", headers=cast.alice.headers, json={"projectId": "orders"})
    await bound_to(db, cast.alice, "github.com/acme/other")

    async def found(**params: str) -> list[str]:
        return [job["sourceType"] for job in (await get(client, cast, "/v1/jobs", **params))["jobs"]]

    assert await found(source_type="agent_event") == ["agent_event"] * 2
    assert await found(source_type="observation_reindex", status="queued") == ["observation_reindex"]
    assert await found(status="failed") == []
    assert await found(since="2020-01-01T00:00:00Z") == ["observation_reindex", "agent_event", "agent_event"]
    yesterday = str(
        await outbox.value("SELECT to_char((now() - interval '1 day') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')")
    )
    assert await found(since=yesterday) == ["observation_reindex"]
    assert (await get(client, cast, "/v1/jobs", since=yesterday))["total"] == 1
    assert await found(project="github.com/acme/other") == []
    assert len(await found(project="https://github.com/acme/orders.git")) == 3


async def test_jobs_of_a_team_and_of_a_project_have_lists_of_their_own(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(2)

    for path in (
        f"/v1/teams/{cast.alice.team_id}/jobs",
        "/v1/teams/blue/jobs",
        f"/v1/projects/{cast.alice.project.id}/jobs",
        "/v1/projects/github.com%2Facme%2Forders/jobs",
        "/v1/projects/orders/jobs",
    ):
        assert (await get(client, cast, path))["total"] == 2, path


@try_rows(
    ("params", "words"),
    [
        ({"offset": "10001"}, "nextCursor"),
        ({"cursor": "rubbish"}, "not a cursor"),
        ({"since": "yesterday"}, "ISO 8601"),
        ({"status": "stuck"}, "status"),
        ({"limit": "201"}, "limit"),
    ],
)
async def test_what_cannot_be_listed_is_said(client: httpx.AsyncClient, cast: Cast, params: dict[str, str], words: str):
    response = await client.get("/v1/jobs", headers=cast.alice.headers, params=params)

    assert response.status_code == 400
    assert words in response.text


async def test_a_total_is_counted_up_to_a_bound(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    await outbox.put(3)
    monkeypatch.setattr(manage, "MAX_TOTAL", 2)

    listed = await get(client, cast, "/v1/jobs")

    assert (listed["total"], listed["totalIsCapped"], len(listed["jobs"])) == (2, True, 3)


async def test_payloads_are_shown_to_admins_who_ask(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    recorded = await outbox.put(1, payload={"tool_name": "Write", "about": "wombats"})
    assert recorded[0].job is not None
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["jobs:read"])

    shown = (await get(client, cast, "/v1/jobs", include="payload"))["jobs"][0]["payload"]
    payload = (await get(client, cast, f"/v1/jobs/{recorded[0].job.id}", include="payload"))["generationJob"]["payload"]
    for path in ("/v1/jobs", f"/v1/jobs/{recorded[0].job.id}"):
        hidden = await client.get(path, headers={"X-Api-Key": reader})
        refused = await client.get(path, headers={"X-Api-Key": reader}, params={"include": "payload"})
        assert "wombats" not in hidden.text
        assert refused.status_code == 403

    event = {"id": str(recorded[0].event.id), "type": "tool_use", "payload": {"tool_name": "Write", "about": "wombats"}}
    assert shown == payload == {"job": {}, "event": event}


async def test_the_life_of_a_job_is_told_in_order_and_in_pages(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await one_job(outbox)
    await (await outbox.hand(Scripted())).work()

    whole = await get(client, cast, f"/v1/jobs/{job_id}/events")
    first = await get(client, cast, f"/v1/jobs/{job_id}/events", limit=2)
    rest = await get(client, cast, f"/v1/jobs/{job_id}/events", limit=2, cursor=first["nextCursor"])

    assert [step["eventType"] for step in whole["events"]] == ["queued", "processing", "completed"]
    assert whole["events"][2].keys() == {"id", "eventType", "statusAfter", "attempt", "details", "createdAtEpoch"}
    assert whole["events"][2]["details"] == {"outcome": "observed"}
    assert first["events"] + rest["events"] == whole["events"]
    assert rest["nextCursor"] is None


async def test_a_failed_job_is_sent_back_with_three_more_attempts(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await one_job(outbox)
    await (await outbox.hand(Scripted(refusing))).work()

    again = await client.post(f"/v1/jobs/{job_id}/retry", headers=cast.alice.headers)
    twice = await client.post(f"/v1/jobs/{job_id}/retry", headers=cast.alice.headers)

    assert again.status_code == twice.status_code == 200
    assert again.json().keys() == {"generationJob", "retriedCount", "alreadyQueued", "requestId"}
    assert (again.json()["retriedCount"], again.json()["alreadyQueued"]) == (1, False)
    assert (twice.json()["retriedCount"], twice.json()["alreadyQueued"]) == (0, True)
    job = again.json()["generationJob"]
    assert (job["status"], job["attempts"], job["maxAttempts"]) == ("queued", 1, 4)
    await (await outbox.hand(Scripted())).work()
    assert await outbox.statuses() == {"completed": 1}
    rows = await outbox.rows("SELECT resource_id, details FROM audit_log WHERE action = 'job.retried'")
    assert rows == [{"resource_id": str(job_id), "details": {"was": "failed"}}]


async def test_api_and_psql_leave_the_same_trace(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    by_api, by_psql = await one_job(outbox, "s1"), await one_job(outbox, "s2")

    for act in ("cancel", "retry"):
        await client.post(f"/v1/jobs/{by_api}/{act}", headers=cast.alice.headers)
        await outbox.value(f"SELECT {act}_job(%s)", by_psql)

    assert await outbox.lifecycle(by_api) == await outbox.lifecycle(by_psql) == ["queued", "cancelled", "queued"]
    columns = "status, attempts, max_attempts, next_attempt_at, cancel_requested_at, cancelled_at, last_error, outcome, claim"
    (row,) = await outbox.rows(f"SELECT DISTINCT {columns} FROM observation_generation_jobs")
    assert row["status"] == "queued"
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE due_at <= now()") == 2


@pytest.mark.parametrize("by", ["api", "psql"])
async def test_who_sends_a_job_back_whose_key_was_revoked_answers_for_it(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db, notifier: JobNotifier, by: str
):
    principal, _ = await mint(db, cast.alice.team_id, "hook", scopes=["memories:write"])
    job_id = await one_job(Outbox(db, notifier, principal, cast.alice.project))
    await outbox.rows("UPDATE api_keys SET revoked_at = now() WHERE id = %s", principal.key_id)
    hand = await outbox.hand(Scripted())
    await hand.work()
    assert await outbox.statuses() == {"failed": 1}

    if by == "api":
        await client.post(f"/v1/jobs/{job_id}/retry", headers=cast.bob.headers)
    else:
        await outbox.value("SELECT retry_job(%s)", job_id)
    await hand.work()

    assert await outbox.statuses() == {"completed": 1}
    (row,) = await outbox.rows("SELECT api_key_id, actor_id FROM observation_generation_jobs")
    expected = (cast.bob.principal.key_id, "bob") if by == "api" else (None, "hook")
    assert (row["api_key_id"], row["actor_id"]) == expected


async def test_a_team_is_told_neither_of_claims_nor_of_workers(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await one_job(outbox)
    hand = await outbox.hand(Scripted())
    await hand.claim()
    await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = '-infinity'")
    await outbox.value("SELECT requeue_stale()")
    stored = await outbox.rows("SELECT details FROM observation_generation_job_events ORDER BY id DESC LIMIT 2")
    assert {"worker", "by", "claim"} <= {name for row in stored for name in row["details"]}  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]

    steps = (await get(client, cast, f"/v1/jobs/{job_id}/events"))["events"]
    job = (await get(client, cast, f"/v1/jobs/{job_id}"))["generationJob"]

    assert [step["details"] for step in steps] == [{}, {}, {"reason": "worker lost"}]
    assert [step["id"] for step in steps] == ["1", "2", "3"]
    assert job["lastError"] == {"reason": "worker lost"}


async def test_a_waiting_job_is_cancelled_at_once_and_again_is_the_same(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await one_job(outbox)

    once = await client.post(f"/v1/jobs/{job_id}/cancel", headers=cast.alice.headers)
    twice = await client.post(f"/v1/jobs/{job_id}/cancel", headers=cast.alice.headers)

    assert once.json().keys() == {"generationJob", "alreadyCancelled", "requestId"}
    assert (once.json()["generationJob"]["status"], once.json()["alreadyCancelled"]) == ("cancelled", False)
    assert (twice.json()["generationJob"]["status"], twice.json()["alreadyCancelled"]) == ("cancelled", True)
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'job.cancelled'") == 1
    provider = Scripted()
    await (await outbox.hand(provider)).work()
    assert provider.prompts == []


async def test_a_running_job_is_marked_told_to_stop_and_writes_nothing(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, hub: NotificationListener
):
    job_id = await one_job(outbox)
    payloads: list[str] = []
    hub.subscribe(CANCEL, payloads.append)

    async def reply(prompt: Prompt) -> Completion:
        marked = await client.post(f"/v1/jobs/{job_id}/cancel", headers=cast.alice.headers)
        again = await client.post(f"/v1/jobs/{job_id}/cancel", headers=cast.alice.headers)
        assert marked.json()["generationJob"]["status"] == "processing"
        assert marked.json()["generationJob"]["cancelRequestedAtEpoch"] is not None
        assert (marked.json()["alreadyCancelled"], again.json()["alreadyCancelled"]) == (False, True)
        return completion(each_observed(prompt))

    await (await outbox.hand(Scripted(reply))).work()

    assert payloads == [str(job_id)]
    assert await outbox.statuses() == {"cancelled": 1}
    assert await outbox.value("SELECT count(*) FROM observations") == 0


async def test_what_has_ended_otherwise_is_a_conflict(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    completed = await one_job(outbox)
    await (await outbox.hand(Scripted())).work()
    failed = await one_job(outbox, "s2")
    await (await outbox.hand(Scripted(refusing))).work()
    processing = await one_job(outbox, "s3")
    await (await outbox.hand(Scripted())).claim()

    acts = [(completed, "retry"), (completed, "cancel"), (failed, "cancel"), (processing, "retry")]
    answers = [await client.post(f"/v1/jobs/{job}/{act}", headers=cast.alice.headers) for job, act in acts]

    assert [answer.status_code for answer in answers] == [409] * 4
    assert await outbox.statuses() == {"completed": 1, "failed": 1, "processing": 1}


async def test_whoever_waits_for_a_job_hears_that_it_was_cancelled(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, hub: NotificationListener
):
    recorded = await outbox.put(1)
    assert recorded[0].job is not None
    notified = asyncio.Event()
    hub.subscribe(
        "cmserver_done", lambda payload: notified.set() if payload == str(recorded[0].job and recorded[0].job.lane) else None
    )

    await client.post(f"/v1/jobs/{recorded[0].job.id}/cancel", headers=cast.alice.headers)

    assert notified.is_set()


async def test_a_key_of_one_project_sees_and_counts_only_its_jobs(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    await outbox.put(2)
    elsewhere = await bound_to(db, cast.alice, "other")
    headers, other = elsewhere.headers, elsewhere.project.id

    for path in ("/v1/jobs", "/v1/teams/blue/jobs", f"/v1/projects/{other}/jobs"):
        listed = (await client.get(path, headers=headers)).json()
        assert (listed["jobs"], listed["total"]) == ([], 0), path
    for path in (f"/v1/projects/{cast.alice.project.id}/jobs", "/v1/jobs?project=orders", "/v1/teams/blue/jobs?project=orders"):
        assert (await client.get(path, headers=headers)).status_code == 404, path


async def test_a_call_of_the_provider_is_audited_before_it_is_made(outbox: Outbox):
    recorded = await outbox.put(2)
    seen: list[dict[str, object]] = []

    async def reply(prompt: Prompt) -> Completion:
        seen.extend(
            await outbox.rows("SELECT resource_type, resource_id, details FROM audit_log WHERE action = 'generation.started'")
        )
        return completion(each_observed(prompt))

    await (await outbox.hand(Scripted(reply))).work()

    (started,) = seen
    jobs = [str(event.job.id) for event in recorded if event.job]
    assert started["resource_id"] == str(await outbox.value("SELECT id FROM generation_runs"))
    assert started["details"] == {"jobs": jobs, "kind": "observations", "provider": "scripted"}
    generated = cast_to(
        "dict[str, list[str]]", await outbox.value("SELECT details FROM audit_log WHERE action = 'observations.generated'")
    )
    assert generated["jobs"] == sorted(jobs)
    stored = await outbox.rows("SELECT id FROM observations")
    assert sorted(generated["observations"]) == sorted(str(row["id"]) for row in stored)


async def test_a_batch_that_was_lost_before_its_call_is_not_sent(outbox: Outbox):
    await outbox.put(1)
    provider = Scripted()
    hand = await outbox.hand(provider)
    (claim,) = await hand.claim()
    await outbox.rows("UPDATE observation_generation_jobs SET claim = claim + 1")

    await hand.runner.run(claim)

    assert provider.prompts == []
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'generation.started'") == 0


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-22", "20261122T080000Z"])
async def test_any_time_that_can_be_written_is_understood(client: httpx.AsyncClient, cast: Cast, since: str):
    listed = await client.get("/v1/jobs", headers=cast.alice.headers, params={"since": since})

    assert listed.status_code == 200, listed.text
