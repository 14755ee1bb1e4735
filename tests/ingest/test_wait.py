"""`?wait=true`: the answer comes when the observations are there, without polling, and after its bound at the latest."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier, wait_for_jobs
from cmserver.ingest import intake
from tests.conftest import Cast
from tests.generation.test_worker import working
from tests.generation.tools import Outbox, Scripted
from tests.ingest.test_api import event
from tests.timeouts import until


async def test_the_answer_names_the_observations(
    client: httpx.AsyncClient, cast: Cast, settings: Settings, hub: NotificationListener, notifier: JobNotifier, db: Db
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    async with working(settings, outbox, hub, Scripted()):
        single = await client.post("/v1/events?wait=true", json=event(contentSessionId="c1"), headers=cast.alice.headers)
        many = await client.post(
            "/v1/events/batch?wait=true", json=[event(payload={"n": n}) for n in range(5)], headers=cast.alice.headers
        )

    answer = single.json()
    assert answer["generationJob"]["status"] == "completed"
    assert len(answer["observationIds"]) == 1
    assert "waitTimedOut" not in answer
    assert [len(recorded["observationIds"]) for recorded in many.json()["events"]] == [1] * 5


async def test_without_a_worker_the_answer_says_that_the_time_is_up(
    client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(intake, "WAIT_SECONDS", 0.05)

    response = await client.post("/v1/events?wait=true", json=event(), headers=cast.alice.headers)

    assert response.status_code == 201
    assert response.json()["waitTimedOut"] is True
    assert response.json()["observationIds"] == []
    assert response.json()["generationJob"]["status"] == "queued"


async def test_a_server_that_stops_answers_whoever_waits(
    client: httpx.AsyncClient, cast: Cast, hub: NotificationListener, db: Db, notifier: JobNotifier
):
    request = asyncio.create_task(client.post("/v1/events?wait=true", json=event(), headers=cast.alice.headers))
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await until("its job is there", outbox.statuses, request)

    hub.close()
    response = await asyncio.wait_for(request, intake.WAIT_SECONDS / 3)

    assert response.status_code == 201
    assert response.json()["waitTimedOut"] is True


async def test_a_job_that_is_erased_is_not_waited_for(cast: Cast, notifier: JobNotifier, db: Db, hub: NotificationListener):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    job = (await outbox.put(1))[0].job
    assert job is not None
    await outbox.rows("DELETE FROM observation_generation_jobs")

    ended = await wait_for_jobs(db, hub, cast.alice.team_id, [job], timeout_seconds=60)

    assert ended[job.id].status == "cancelled"


async def test_an_event_that_had_been_generated_before_is_answered_at_once(
    client: httpx.AsyncClient, cast: Cast, notifier: JobNotifier, db: Db
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await client.post("/v1/events", json=event(), headers=cast.alice.headers)
    await (await outbox.hand(Scripted())).work()

    again = await client.post("/v1/events?wait=true", json=event(), headers=cast.alice.headers)

    assert again.json()["generationJob"]["status"] == "completed"
    assert len(again.json()["observationIds"]) == 1
