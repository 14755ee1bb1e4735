"""What a review found at the edges of the queue, and what holds there now."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest
from structlog.testing import capture_logs

from cmserver import worker
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.waiting import run_beside
from cmserver.generation import repository
from cmserver.generation.job_notifier import JobNotifier, wait_for_jobs
from cmserver.generation.leases import repository as leases
from cmserver.generation.leases.model import Heartbeat, ReaperResult
from cmserver.generation.manager import OutboxManager, WorkerLimits
from cmserver.generation.model import Claim
from cmserver.generation.operate.manage import resume_provider
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Skip
from tests.conftest import Cast
from tests.generation.tools import Hand, Outbox, Scripted, completion, each_observed
from tests.timeouts import ENOUGH_SECONDS


async def _crash_after_the_answer(outbox: Outbox, hand: Hand, claim: Claim) -> None:
    """Run the batch until its answer is stored, and no further; then the worker is dead."""
    stored = asyncio.Event()

    async def never(_batch: object) -> None:
        stored.set()
        await asyncio.Event().wait()

    hand.runner._apply = never  # pyright: ignore[reportAttributeAccessIssue]
    running = asyncio.create_task(hand.runner.run(claim))
    await stored.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", hand.worker_id)
    async with outbox.db.system() as conn:
        await leases.reap(conn, hard_limit_seconds=300)


async def test_a_session_s_end_and_events_at_the_same_moment_do_not_deadlock(
    outbox: Outbox, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cmserver.base.db._DEADLOCK_PAUSES_SECONDS", ())  # the first one fails the transaction
    for n in range(25):
        session = f"s{n}"
        session_id = (await outbox.put(1, session=session))[0].event.server_session_id
        assert session_id is not None

        async def end(session_id: UUID = session_id) -> None:
            await outbox.db.in_tenant(
                cast.alice.team_id,
                lambda conn: sessions.end(conn, cast.alice.principal, session_id, source_adapter="api"),
            )

        await asyncio.gather(end(), *(outbox.put(1, session=session, first=k) for k in (1, 2, 3)))

    assert await outbox.value("SELECT count(*) FROM agent_events") == 100


async def test_an_enormous_text_is_cut_and_harms_nobody(outbox: Outbox):
    rng = random.Random(1)
    huge = " ".join(f"{rng.getrandbits(40):x}" for _ in range(150_000))
    answer = Answer(
        observations=[DraftObservation(title="good", events=["e1"]), DraftObservation(title="huge", narrative=huge, events=["e2"])]
    )
    await outbox.put(2)

    await (await outbox.hand(Scripted(lambda _: completion(answer)))).work()

    assert await outbox.statuses() == {"completed": 2}
    assert await outbox.value("SELECT max(length(narrative)) FROM observations") == 20_000


async def test_nul_and_lone_surrogates_anywhere_in_an_answer_harm_nobody(outbox: Outbox):
    texts = [
        completion(
            Answer(observations=[DraftObservation(title="a\x00b", events=["e1"])], skipped=[Skip(event="e2", reason="x\x00y")])
        ),
        Completion(text='{"observations": [{"title": "c\\ud800d", "events": ["e1"]}]}', model="m"),
    ]
    hand = await outbox.hand(Scripted(lambda _: texts.pop(0)))
    for session in ("s1", "s2"):
        await outbox.put(2, session=session)
        await hand.work()

    assert await outbox.statuses() == {"completed": 4}
    titles = await outbox.rows("SELECT title FROM observations ORDER BY number")
    assert [row["title"] for row in titles] == ["a\ufffdb", "c\ufffdd"]
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE outcome_reason = 'x\ufffdy'") == 1


async def test_a_stored_answer_forms_exactly_its_batch_however_small_the_next_worker_s_batches_are(outbox: Outbox):
    await outbox.put(4)
    answer = Answer(observations=[DraftObservation(title="first and last", events=["e1", "e4"])])
    provider = Scripted(lambda _: completion(answer))
    first = await outbox.hand(provider)
    (claim,) = await first.claim()
    await _crash_after_the_answer(outbox, first, claim)

    await (await outbox.hand(provider)).work(max_events=2)

    assert len(provider.prompts) == 1
    outcomes = await outbox.rows("SELECT outcome FROM observation_generation_jobs ORDER BY seq")
    assert [row["outcome"] for row in outcomes] == ["observed", "skipped", "skipped", "observed"]


async def test_a_release_that_fails_does_not_forget_the_batches_claimed_beside_it(
    outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    await outbox.put(1, session="empty")
    hand = await outbox.hand(Scripted())
    await hand.work()
    await outbox.rows("UPDATE generation_lanes SET due_at = now() - interval '1 second'")
    await outbox.put(1, session="full")
    limits = WorkerLimits(slots=4, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]

    async def broken(*_: object) -> bool:
        raise Unavailable("The database is away.")

    monkeypatch.setattr(repository, "release", broken)

    job = await manager.fetch_job(None, hand.worker_id)

    assert job is not None
    assert job.id is not None
    assert [len(claim.job_ids) for claim in manager.look_up_claims(job.id)] == [1]


async def test_a_claim_whose_answer_was_lost_is_requeued_at_the_next_heartbeat(
    outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    hand = await outbox.hand(Scripted())
    limits = WorkerLimits(slots=1, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    await outbox.put(2, session="known")
    known = await manager.fetch_job(None, hand.worker_id)
    claim = repository.claim

    async def lose_answer(conn: Conn, **arguments: Any) -> list[Claim]:
        await claim(conn, **arguments)
        raise Unavailable("The primary is gone.")

    await outbox.put(3, session="lost")
    monkeypatch.setattr(repository, "claim", lose_answer)
    manager._limits = msgspec.structs.replace(limits, slots=2)
    assert await manager.fetch_job(None, hand.worker_id) is None
    assert await outbox.statuses() == {"processing": 5}

    await manager.update_heartbeat(hand.worker_id)

    assert await outbox.statuses() == {"processing": 2, "queued": 3}
    assert known is not None
    assert known.id is not None
    await hand.runner.run(*manager.look_up_claims(known.id))
    monkeypatch.setattr(repository, "claim", claim)
    assert await hand.work() == 1
    assert await outbox.statuses() == {"completed": 5}


@pytest.mark.parametrize("due_in", ["0 seconds", "0.3 seconds", "-infinity"])
async def test_a_lane_of_which_no_notification_told_is_found_by_the_next_heartbeat(
    outbox: Outbox, hub: NotificationListener, due_in: str
):
    hand = await outbox.hand(Scripted())
    limits = WorkerLimits(slots=1, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    woken = asyncio.Event()

    async def wake(**_: object) -> None:
        woken.set()

    async with run_beside(manager.listen_for_jobs(on_notification=wake)):
        await asyncio.sleep(0)
        await manager.update_heartbeat(hand.worker_id)
        is_woken_by_nothing = woken.is_set()
        await outbox.put(1)
        due_at = "timestamptz '-infinity'" if due_in == "-infinity" else f"now() + interval '{due_in}'"
        await outbox.rows(f"UPDATE generation_lanes SET due_at = {due_at}")
        woken.clear()
        await manager.update_heartbeat(hand.worker_id)
        async with asyncio.timeout(ENOUGH_SECONDS):
            await woken.wait()

    assert not is_woken_by_nothing


async def test_a_job_behind_many_due_lanes_without_jobs_is_done_at_once(outbox: Outbox, hub: NotificationListener):
    hand = await outbox.hand(Scripted())
    limits = WorkerLimits(slots=4, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    for place in range(40):
        await outbox.put(1, session=f"done{place}")
    await hand.work()
    await outbox.put(1, session="new")
    statement = "UPDATE generation_lanes SET due_at = now() - interval '1 second' WHERE due_at IS NULL RETURNING lane"
    assert len(await outbox.rows(statement)) == 40
    woken = asyncio.Event()

    async def wake(**_: object) -> None:
        woken.set()

    async with run_beside(manager.listen_for_jobs(on_notification=wake)), asyncio.timeout(ENOUGH_SECONDS):
        await asyncio.sleep(0)
        while await manager.fetch_job(None, hand.worker_id) is None:  # no heartbeat comes
            await woken.wait()
            woken.clear()


async def test_of_two_times_to_claim_the_earlier_holds_until_the_worker_ends(
    outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    hand = await outbox.hand(Scripted())
    limits = WorkerLimits(slots=1, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=600)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    await outbox.put(1)
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(delay: float, callback: Callable[..., object], *args: object, **more: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *args, **more)
        if delay > 50:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", noted)
    for seconds in (300, 500, 100):
        await outbox.rows(f"UPDATE generation_lanes SET due_at = now() + interval '{seconds} seconds'")
        await manager.update_heartbeat(hand.worker_id)
    cancelled = [timer.cancelled() for timer in timers]
    await manager.unregister_worker(hand.worker_id)

    assert cancelled == [True, False]
    assert timers[-1].cancelled()


async def test_a_heartbeat_that_fails_by_a_bug_stops_the_worker(
    outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    hand = await outbox.hand(Scripted())
    limits = WorkerLimits(slots=1, set_lanes=None, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    stopped: list[bool] = []
    manager.stop_worker = lambda: stopped.append(True)

    async def broken(*_: object, **__: object) -> Heartbeat:
        raise TypeError("A bug.")

    monkeypatch.setattr(leases, "heartbeat", broken)
    with capture_logs() as logged:
        await manager.update_heartbeat(hand.worker_id)

    assert stopped == [True]
    assert [line["event"] for line in logged] == ["heartbeat.failed"]


async def test_the_reaper_looks_often_after_a_lane_was_held_or_a_look_failed(
    settings: Settings, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
):
    looks: list[ReaperResult | Exception] = []
    pauses: list[float] = []

    async def look(*_: object, **__: object) -> ReaperResult:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def run(act: Callable[[], Awaitable[object]], _: object, *, seconds: Callable[[], float], **__: object) -> None:
        while looks:
            with contextlib.suppress(Unavailable):
                await act()
            pauses.append(seconds())

    monkeypatch.setattr(leases, "reap", look)
    monkeypatch.setattr(worker, "run_periodically", run)
    patient = msgspec.structs.replace(settings, lease_seconds=3600)
    held, free = (ReaperResult(jobs=[], is_any_held=is_any_held) for is_any_held in (True, False))
    for found in ([free, held, free], [free, Unavailable("Away."), free]):
        looks += found
        await worker._reap(patient, outbox.db, outbox.notifier, asyncio.Event())

    assert pauses == [1800, worker.REAP_SECONDS, worker.REAP_SECONDS] * 2


async def test_jobs_in_lanes_that_sleep_or_are_missing_are_found(outbox: Outbox):
    await outbox.put(1, session="asleep")
    await outbox.put(1, session="missing")
    await outbox.put(1, session="held")
    await outbox.rows(
        "UPDATE generation_lanes SET due_at = NULL WHERE lane = (SELECT lane FROM observation_generation_jobs ORDER BY seq LIMIT 1)"
    )
    await outbox.rows(
        "DELETE FROM generation_lanes WHERE lane = (SELECT lane FROM observation_generation_jobs ORDER BY seq OFFSET 1 LIMIT 1)"
    )
    await outbox.rows(
        "UPDATE generation_lanes SET due_at = now() + interval '1 hour', held_until = now() + interval '1 hour'"
        " WHERE due_at IS NOT NULL"
    )
    hand = await outbox.hand(Scripted())
    assert await hand.work() == 0

    async with outbox.db.system() as conn:
        assert await leases.MAKE_STRAY_LANES_DUE.one(conn) == 2

    assert await hand.work() == 2
    assert await outbox.statuses() == {"completed": 2, "queued": 1}


async def test_a_batch_does_not_call_the_provider_past_its_hard_limit(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    await outbox.put(8)
    provider = Scripted(lambda _: Completion(text="no answer", model="m"))
    monkeypatch.setattr(Settings, "job_seconds", 120.0)  # as long as the timeout of a call
    hand = await outbox.hand(provider)

    (claim,) = await hand.claim()
    await hand.runner.run(claim)

    assert provider.prompts == []
    assert await outbox.statuses() == {"queued": 8}
    assert await outbox.value("SELECT DISTINCT last_error ->> 'reason' FROM observation_generation_jobs") == "out_of_time"


async def test_the_end_of_a_pause_leaves_back_offs_and_other_providers_alone(outbox: Outbox):
    await outbox.put(1, session="paused")
    bad_key = ProviderError(FailureKind.AUTH_INVALID, "The key is wrong.")

    def reply(_: Prompt) -> Completion:
        raise bad_key

    await (await outbox.hand(Scripted(reply))).work()
    await outbox.put(1, session="backing off")
    await outbox.rows(
        "UPDATE generation_lanes SET held_until = now() + interval '10 minutes', due_at = now() + interval '10 minutes',"
        " held_reason = 'back-off: rate_limited' WHERE held_for IS NULL"
    )

    async with outbox.db.system() as conn:
        assert await resume_provider(conn, "scripted")

    rows = await outbox.rows("SELECT held_until IS NULL AS free FROM generation_lanes ORDER BY held_until NULLS FIRST")
    assert [row["free"] for row in rows] == [True, False]


async def test_a_long_retry_after_is_honoured_however_often_it_is_said(outbox: Outbox):
    for _ in range(3):
        async with outbox.db.system() as conn:
            pause = await calls.pause_provider(conn, "scripted", "quota_exhausted", "Tomorrow.", 7200)
        assert pause is not None
        assert pause.seconds_left > 7100
        await outbox.rows("UPDATE provider_pauses SET until_at = now()")


async def test_whoever_waits_hears_of_a_job_that_was_cancelled_before_it_ran(
    db: Db, notifier: JobNotifier, hub: NotificationListener, cast: Cast
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project, debounce_seconds=3600)
    job = (await outbox.put(1))[0].job
    assert job is not None
    waiting = asyncio.create_task(wait_for_jobs(db, hub, cast.alice.team_id, [job], 20))
    await asyncio.sleep(0)

    await outbox.value("SELECT cancel_job(%s)", job.id)

    assert [job.status for job in (await waiting).values()] == ["cancelled"]


async def test_a_worker_that_lost_its_lease_pauses_no_provider_and_its_call_is_lost(outbox: Outbox):
    await outbox.put(1)

    async def reply(_: Prompt) -> Completion:
        await outbox.rows("DELETE FROM procrastinate_workers")
        async with outbox.db.system() as conn:
            await leases.reap(conn, hard_limit_seconds=300)
        raise ProviderError(FailureKind.QUOTA_EXHAUSTED, "Used up.")

    hand = await outbox.hand(Scripted(reply))
    (claim,) = await hand.claim()
    await hand.runner.run(claim)

    assert await outbox.value("SELECT count(*) FROM provider_pauses") == 0
    assert await outbox.value("SELECT status FROM generation_runs") == "lost"


async def test_a_prompt_shows_the_first_request_and_the_newest_not_all(outbox: Outbox, db: Db):
    recorded = await outbox.put(1)
    session_id = recorded[0].event.server_session_id
    await outbox.rows(
        "INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt)"
        " SELECT gen_random_uuid(), 1001, team_id, project_id, server_session_id, id, 1, repeat('x', 9000) FROM agent_events"
    )
    for n in range(2, 60):
        await outbox.rows(
            "WITH e AS (INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, idempotency_key,"
            " event_type, origin, generate, size_chars, payload, occurred_at)"
            " SELECT gen_random_uuid(), project_id, team_id, server_session_id, 'api', 'k' || %s, 'user_prompt', 'api', false, 2,"
            " '{}', now() FROM agent_events WHERE generate LIMIT 1 RETURNING *)"
            " INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt)"
            " SELECT gen_random_uuid(), 1000 + %s, team_id, project_id, server_session_id, id, %s, 'request ' || %s FROM e",
            n,
            n,
            n,
            n,
        )
    await outbox.put(1, first=1)
    provider = Scripted(lambda prompt: completion(each_observed(prompt)))

    await (await outbox.hand(provider)).work()

    assert session_id is not None
    (resent,) = provider.prompts
    assert [len(resent.requests[0]), *resent.requests[1:]] == [4000, *(f"request {n}" for n in range(40, 60))]
