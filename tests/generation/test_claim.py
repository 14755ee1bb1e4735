"""Claims by lane and batch: order, bounds, fences, and what wakes a lane."""

from __future__ import annotations

import asyncio

import pytest

from cmserver.base.db import Db
from cmserver.generation import repository
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.ingest import session_lifecycle as sessions
from tests.conftest import Cast
from tests.generation.tools import Hand, Outbox, Scripted
from tests.timeouts import until

_WAITING_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"
)


@pytest.fixture
async def hand(outbox: Outbox) -> Hand:
    return await outbox.hand(Scripted())


async def test_a_lane_is_claimed_once_and_in_the_order_of_its_events(outbox: Outbox, hand: Hand):
    recorded = await outbox.put(5)
    other = await outbox.hand(Scripted())

    claims = await hand.claim(max_events=3)
    none = await other.claim()

    assert [claim.job_ids for claim in claims] == [[event.job.id for event in recorded[:3] if event.job]]
    assert none == []


async def test_several_workers_at_once_never_get_the_same_lane(outbox: Outbox):
    for n in range(30):
        await outbox.put(2, session=f"s{n}")
    hands = [await outbox.hand(Scripted()) for _ in range(5)]

    claims = [claim for got in await asyncio.gather(*(worker.claim(slots=20) for worker in hands)) for claim in got]

    assert len(claims) == 30
    assert len({claim.lane for claim in claims}) == 30
    assert len({claim.claim for claim in claims}) == 30


STEWARD_LANES = """
WITH p AS (
    INSERT INTO projects (id, team_id, canonical_id, name)
    SELECT gen_random_uuid(), %s, 'steward' || n, 'p' FROM generate_series(1, %s) n RETURNING id, team_id
), j AS (
    INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, job_type)
    SELECT gen_random_uuid(), team_id, id, id, 'steward', id, 'derive' FROM p
)
INSERT INTO generation_lanes (lane, team_id, project_id, due_at) SELECT id, team_id, id, now() - make_interval(secs => %s) FROM p
"""


async def test_the_steward_has_what_events_leave_one_lane_a_worker(outbox: Outbox, hand: Hand):
    await outbox.rows(STEWARD_LANES, outbox.principal.team_id, 10, 1)
    (event,) = await outbox.put(1)
    other = await outbox.hand(Scripted())

    (first,) = await hand.claim(slots=1)
    rest, of_other = await hand.claim(slots=10), await other.claim(slots=1)

    assert event.job is not None
    assert first.job_ids == [event.job.id]
    assert [claim.lane == claim.project_id for claim in [*rest, *of_other]] == [True, True]
    assert await hand.claim(slots=9) == []
    await outbox.put(1, session="s2")
    assert len(await hand.claim(slots=9)) == 1


async def test_the_steward_has_its_turn_among_events_that_never_end_a_minute_late(outbox: Outbox, hand: Hand):
    await outbox.rows(STEWARD_LANES, outbox.principal.team_id, 1, 1200)
    for session, seconds in (("s1", 1190), ("s2", 1150), ("s3", 1100), ("s4", 1000)):
        await outbox.put(1, session=session)
        await outbox.rows(
            "UPDATE generation_lanes SET due_at = now() - make_interval(secs => %s) WHERE due_at > now() - interval '10 minutes'",
            seconds,
        )

    turns: list[bool] = []
    while claims := await hand.claim(slots=1):
        turns.append(claims[0].lane == claims[0].project_id)
        await hand.runner.run(claims[0])

    assert turns == [False, False, True, False, False]


async def test_a_batch_ends_at_its_bound_of_characters_but_holds_at_least_one_event(outbox: Outbox, hand: Hand):
    await outbox.put(1, payload={"text": "x" * 5000})
    await outbox.put(3, first=1, payload={"text": "y" * 400})

    (first,) = await hand.claim(max_chars=1000)
    await hand.runner.run(first)
    (second,) = await hand.claim(max_chars=1000)

    assert [len(first.job_ids), len(second.job_ids)] == [1, 2]


async def test_a_summary_is_taken_alone_and_events_before_it_without_it(outbox: Outbox, hand: Hand, cast: Cast):
    recorded = await outbox.put(2)
    session_id = recorded[0].event.server_session_id
    assert session_id is not None
    async with outbox.db.tenant(cast.alice.team_id) as conn:
        await sessions.end(conn, cast.alice.principal, session_id, source_adapter="api")
    await outbox.put(2, first=2)

    sizes: list[int] = []
    while claims := await hand.claim():
        sizes.append(len(claims[0].job_ids))
        await hand.runner.run(claims[0])

    assert sizes == [2, 1, 2]


async def test_the_lane_is_due_only_after_the_debounce_and_at_once_when_asked(db: Db, notifier: JobNotifier, cast: Cast):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project, debounce_seconds=3600)
    hand = await outbox.hand(Scripted())
    await outbox.put(2)
    assert await hand.claim() == []

    await outbox.put(1, first=2, at_once=True)

    assert [len(claim.job_ids) for claim in await hand.claim()] == [3]


async def test_an_event_that_comes_while_its_lane_is_worked_on_is_found_at_the_release(outbox: Outbox, hand: Hand):
    await outbox.put(1)
    (claim,) = await hand.claim()
    await outbox.put(1, first=1)
    assert await hand.claim() == []

    await hand.runner.run(claim)

    assert [len(claim.job_ids) for claim in await hand.claim()] == [1]


async def test_an_event_that_commits_while_the_release_waits_for_its_lock_is_not_slept_over(outbox: Outbox, hand: Hand):
    recorded = await outbox.put(1)
    (claim,) = await hand.claim()
    lane = recorded[0].event.server_session_id
    async with outbox.db.system() as ingest:
        # What ingest does last: it holds the lane's row until it commits.
        await ingest.execute("UPDATE generation_lanes SET due_at = least(due_at, now()) WHERE lane = %s", [lane])
        running = asyncio.create_task(hand.runner.run(claim))
        await until("it waits for a lock", lambda: outbox.value(_WAITING_FOR_A_LOCK), running)
    await running

    assert await outbox.value("SELECT due_at IS NOT NULL FROM generation_lanes WHERE lane = %s", lane) is True


async def test_a_lane_that_turns_out_empty_goes_to_sleep_and_wakes_with_the_next_event(outbox: Outbox, hand: Hand):
    await outbox.put(1)
    await hand.work()
    await outbox.rows("UPDATE generation_lanes SET due_at = now()")

    (claim,) = await hand.claim()
    assert claim.job_ids == []
    async with outbox.db.system_statement() as conn:
        assert await repository.release(conn, [claim])

    assert await hand.claim() == []
    await outbox.put(1, first=1)
    assert len(await hand.claim()) == 1


async def test_a_worker_whose_heartbeat_is_not_alive_claims_nothing(outbox: Outbox, hand: Hand):
    await outbox.put(1)
    await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")

    assert await hand.claim() == []
    async with outbox.db.system_statement() as conn:
        assert not (await leases.heartbeat(conn, hand.worker_id, lease_seconds=20, within_seconds=5, known=[])).is_alive


async def test_the_work_of_a_dead_worker_goes_back_and_its_attempt_counts(outbox: Outbox, hand: Hand):
    recorded = await outbox.put(2)
    await hand.claim()
    await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '21 seconds'")

    async with outbox.db.system() as conn:
        jobs = (await leases.reap(conn, hard_limit_seconds=300)).jobs

    assert set(jobs) == {event.job.id for event in recorded if event.job}
    assert recorded[0].job is not None
    assert await outbox.lifecycle(recorded[0].job.id) == ["queued", "processing", "retry_scheduled"]
    rows = await outbox.rows("SELECT attempts, last_error ->> 'reason' AS reason FROM observation_generation_jobs")
    assert rows == [{"attempts": 1, "reason": "worker lost"}] * 2
    assert await outbox.value("SELECT due_at <= now() AND worker_id IS NULL FROM generation_lanes") is True


async def test_a_batch_held_longer_than_the_hard_limit_goes_back_from_a_live_worker(outbox: Outbox, hand: Hand):
    await outbox.put(1)
    await hand.claim()
    await outbox.rows("UPDATE observation_generation_jobs SET locked_at = now() - interval '6 minutes'")
    await outbox.rows("UPDATE generation_lanes SET locked_at = now() - interval '6 minutes'")

    async with outbox.db.system() as conn:
        assert len((await leases.reap(conn, hard_limit_seconds=300)).jobs) == 1


async def test_the_reaper_leaves_alone_what_a_transaction_may_still_commit(outbox: Outbox, hand: Hand):
    await outbox.put(2)
    (claim,) = await hand.claim()
    await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")

    async with outbox.db.system() as effects:
        await repository.still_held(effects, [claim.claim], claim.job_ids)
        async with outbox.db.system() as conn:
            assert (await leases.reap(conn, hard_limit_seconds=300)).jobs == []

    assert await outbox.value("SELECT worker_id FROM generation_lanes") == hand.worker_id
    async with outbox.db.system() as conn:
        assert len((await leases.reap(conn, hard_limit_seconds=300)).jobs) == 2


async def test_a_claim_that_another_has_taken_over_holds_nothing(outbox: Outbox, hand: Hand):
    await outbox.put(2)
    (claim,) = await hand.claim()
    async with outbox.db.system() as conn:
        assert await repository.still_held(conn, [claim.claim], claim.job_ids) == set(claim.job_ids)

    await outbox.rows("UPDATE observation_generation_jobs SET claim = claim + 1")

    async with outbox.db.system() as conn:
        assert await repository.still_held(conn, [claim.claim], claim.job_ids) == set()


async def test_what_a_stopping_worker_holds_goes_back_without_using_up_an_attempt(outbox: Outbox, hand: Hand):
    await outbox.put(2)
    await hand.claim()

    async with outbox.db.system() as conn:
        assert await leases.requeue_all(conn, hand.worker_id) == 2

    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0
    other = await outbox.hand(Scripted())
    assert len(await other.claim()) == 1


async def test_the_lane_of_a_single_job_is_gone_when_the_job_has_ended(outbox: Outbox, hand: Hand):
    await outbox.put(3, session=None)
    assert await outbox.value("SELECT count(*) FROM generation_lanes") == 3

    await hand.work()

    assert await outbox.statuses() == {"completed": 3}
    assert await outbox.value("SELECT count(*) FROM generation_lanes") == 0


async def test_a_failing_lane_does_not_delay_another(outbox: Outbox, hand: Hand):
    await outbox.put(1, session="held")
    await outbox.rows("UPDATE generation_lanes SET held_until = now() + interval '1 hour', due_at = now() + interval '1 hour'")
    await outbox.put(1, session="free")
    await outbox.put(1, session="held", first=1)

    await hand.work()

    rows = await outbox.rows("SELECT status FROM observation_generation_jobs ORDER BY seq")
    assert [row["status"] for row in rows] == ["queued", "completed", "queued"]


async def test_idle_lanes_are_removed_after_a_day_and_waiting_ones_never(outbox: Outbox, hand: Hand):
    await outbox.put(1, session="done")
    await hand.work()
    await outbox.put(1, session="waiting")
    await outbox.rows("UPDATE generation_lanes SET locked_at = now() - interval '25 hours'")

    async with outbox.db.system_statement() as conn:
        assert await repository.REMOVE_IDLE_LANES.run(conn) == 1

    assert len(await hand.claim()) == 1
