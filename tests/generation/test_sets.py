"""Sets: batches by rules whose effects are one transaction. Each of them ends as it would alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest
import structlog

from cmserver.access.model import Project
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from cmserver.generation.batch import Batch
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import OutboxManager, WorkerLimits
from cmserver.generation.model import Claim
from cmserver.generation.operate.manage import cancel_job
from cmserver.generation.prompt import read_events
from cmserver.generation.run_batch import BatchRunner
from cmserver.models.providers.model import Rules
from cmserver.rules.batch import observe
from cmserver.sessions.ledger import repository as ledger
from tests.conftest import Cast
from tests.generation.test_claim import STEWARD_LANES
from tests.generation.test_rules import NOTE, count_transactions
from tests.generation.tools import Hand, Outbox

LANES = [f"lane{place}" for place in range(5)]
ENDS = "SELECT status, attempts, outcome FROM observation_generation_jobs ORDER BY seq"
OBSERVED = {"status": "completed", "attempts": 1, "outcome": "observed"}


@pytest.fixture
async def hand(outbox: Outbox) -> Hand:
    return await outbox.hand(Rules())


async def put_all(outbox: Outbox) -> None:
    for lane in LANES:
        await outbox.put(1, session=lane, payload=NOTE)


async def observed_lanes(outbox: Outbox) -> list[object]:
    """The session of each observation that is stored with its source, in the order of their numbers."""
    rows = await outbox.rows(
        """
        SELECT s.content_session_id AS lane FROM observations o
          JOIN observation_sources c ON c.observation_id = o.id AND c.team_id = o.team_id
          JOIN observation_generation_jobs j ON j.id = c.generation_job_id
          JOIN server_sessions s ON s.id = j.server_session_id ORDER BY o.number
        """
    )
    return [row["lane"] for row in rows]


async def test_a_set_of_any_size_takes_three_transactions(outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch):
    await put_all(outbox)
    begun = count_transactions(monkeypatch)

    claims = await hand.work_as_set()

    assert (len(claims), len(begun)) == (len(LANES), 3)
    assert sorted(map(str, await observed_lanes(outbox))) == LANES
    assert await outbox.rows(ENDS) == [OBSERVED] * len(LANES)
    assert await outbox.rows("SELECT DISTINCT number FROM observations ORDER BY number") == [{"number": n} for n in range(1, 6)]
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'observations.generated'") == len(LANES)
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE worker_id IS NOT NULL OR due_at IS NOT NULL") == 0
    assert await outbox.rows("SELECT DISTINCT generation_status AS it FROM server_sessions") == [{"it": "completed"}]


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules fail on each batch in which an event says that it is poison."""

    def fail(events: Sequence[Any], *rest: Any) -> Any:
        if any("poison" in str(event.payload) for event in events):
            raise RuntimeError("poisoned")
        return observe(events, *rest)

    monkeypatch.setattr("cmserver.generation.run_batch.observe", fail)


async def test_a_batch_that_cannot_be_worded_fails_alone(outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch):
    await put_all(outbox)
    await outbox.put(1, session="poisoned", payload={**NOTE, "poison": True})

    poison(monkeypatch)

    await hand.work_as_set()

    assert await outbox.rows(ENDS) == [*[OBSERVED] * len(LANES), {"status": "queued", "attempts": 1, "outcome": None}]
    assert sorted(map(str, await observed_lanes(outbox))) == LANES


async def test_a_lane_that_was_lost_meanwhile_is_written_by_its_new_claim_alone(outbox: Outbox, hand: Hand):
    await put_all(outbox)
    claims = await hand.claim()
    lost = claims[2]
    await outbox.rows("UPDATE generation_lanes SET claim = claim + 1000 WHERE lane = %s", lost.lane)
    await outbox.rows("UPDATE observation_generation_jobs SET claim = claim + 1000 WHERE lane = %s", lost.lane)

    await hand.runner.run(*claims)

    assert await outbox.statuses() == {"completed": len(LANES) - 1, "processing": 1}
    assert len(await observed_lanes(outbox)) == len(LANES) - 1

    await hand.runner.run(msgspec.structs.replace(lost, claim=lost.claim + 1000))

    assert sorted(map(str, await observed_lanes(outbox))) == LANES


async def test_a_set_that_is_run_again_writes_nothing_twice(outbox: Outbox, hand: Hand):
    await put_all(outbox)
    claims = await hand.work_as_set()

    await hand.runner.run(*claims)

    assert sorted(map(str, await observed_lanes(outbox))) == LANES


async def test_a_job_of_a_set_that_was_cancelled_ends_so_and_is_not_observed(outbox: Outbox, hand: Hand, cast: Cast):
    await put_all(outbox)
    claims = await hand.claim()
    (job_id,) = claims[0].job_ids
    await cancel_job(outbox.db, outbox.notifier, cast.alice.principal, str(job_id))

    await hand.runner.run(*claims)

    assert await outbox.statuses() == {"completed": len(LANES) - 1, "cancelled": 1}
    assert len(await observed_lanes(outbox)) == len(LANES) - 1


async def test_a_worker_claims_few_lanes_first_and_more_when_those_have_ended(outbox: Outbox, hub: NotificationListener):
    limits = WorkerLimits(slots=2, set_lanes=8, max_events=20, max_chars=60_000, lease_seconds=20, heartbeat_seconds=5)
    hand = await outbox.hand(Rules())
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    for place in range(6):
        await outbox.put(1, session=f"s{place}", payload=NOTE)
    sizes: list[int] = []

    while job := await manager.fetch_job(None, hand.worker_id):
        assert job.id is not None
        assert job.id < 0
        claims = manager.look_up_claims(job.id)
        sizes.append(len(claims))
        async with outbox.db.system_statement() as conn:
            assert not (
                await leases.heartbeat(
                    conn, hand.worker_id, lease_seconds=20, within_seconds=5, known=[claim.claim for claim in claims]
                )
            ).has_lost_claims
        await hand.runner.run(*claims)
        await manager.finish_job(job, "succeeded", True)  # pyright: ignore[reportArgumentType]

    assert sizes == [2, 4]
    assert await outbox.statuses() == {"completed": 6}


async def edit_in(outbox: Outbox, project: Project, session: str) -> None:
    """A turn of the session that changes a file: what it did is noted in the ledger of its project."""
    edit = {"file_path": "/src/rows.py", "old_string": f"MAX = {session}1", "new_string": f"MAX = {session}2"}
    other = Outbox(outbox.db, outbox.notifier, outbox.principal, project)
    await other.put(1, session=session, payload={"prompt": "Make it 2."}, event_type="user_prompt")
    await other.put(1, first=1, session=session, payload={"tool_name": "Edit", "tool_input": edit})


async def test_sets_of_the_same_projects_do_not_wait_for_each_other_in_a_circle(
    outbox: Outbox, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    async with outbox.db.tenant(cast.alice.team_id) as conn:
        other, _ = await make_project(conn, cast.alice.principal, "github.com/acme/bills")
    hand = await outbox.hand(Rules())
    for project, session in ((outbox.project, "a1"), (other, "a2"), (outbox.project, "b1"), (other, "b2")):
        await edit_in(outbox, project, session)
    rows = await outbox.rows("SELECT id, content_session_id AS name FROM server_sessions")
    names = {row["id"]: str(row["name"]) for row in rows}
    claims = {names[claim.lane]: claim for claim in await hand.claim()}
    lock, locked = ledger.lock, list[object]()

    async def lock_slowly(conn: Conn, project_id: UUID) -> None:
        await lock(conn, project_id)
        locked.append(project_id)
        await asyncio.sleep(0.3)

    monkeypatch.setattr(ledger, "lock", lock_slowly)
    await asyncio.gather(hand.runner.run(claims["a1"], claims["a2"]), hand.runner.run(claims["b2"], claims["b1"]))

    assert await outbox.statuses() == {"completed": 8}
    assert len(locked) == 4  # a transaction that PostgreSQL had ended to break a circle would lock again


async def test_a_set_is_read_beside_the_event_loop(outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch):
    threads: list[threading.Thread] = []

    def read(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return read_events(*args)

    monkeypatch.setattr("cmserver.generation.batch.read_events", read)
    await put_all(outbox)

    await hand.work_as_set()

    assert len(threads) == len(LANES)
    assert threading.main_thread() not in threads


async def make_manager(outbox: Outbox, hub: NotificationListener, **changes: int) -> OutboxManager:
    """As a worker by rules has it, that has claimed as many lanes at once as it may."""
    values = {"slots": 1, "set_lanes": 32, "max_events": 500, "max_chars": 8_000_000, **changes}
    limits = WorkerLimits(**values, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    manager._lanes = 32  # pyright: ignore[reportPrivateUsage]
    return manager


async def fetch(manager: OutboxManager, hand: Hand) -> list[list[Claim]]:
    """What is ready after one claim, in its order."""
    first = await manager.fetch_job(None, hand.worker_id)
    ready = [first, *manager._ready] if first else []  # pyright: ignore[reportPrivateUsage]
    return [manager.look_up_claims(job.id or 0) for job in ready]


async def test_a_claim_takes_no_more_events_than_its_free_slots_can_begin(outbox: Outbox, hand: Hand, hub: NotificationListener):
    for place in range(6):
        await outbox.put(8, session=f"s{place}")

    (members,) = await fetch(await make_manager(outbox, hub, max_events=10), hand)

    assert [len(claim.job_ids) for claim in members] == [8, 8]
    assert await outbox.statuses() == {"processing": 16, "queued": 32}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs WHERE status = 'queued'") == 0
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE worker_id IS NOT NULL") == 2
    other = await outbox.hand(Rules())
    assert [len(it) for it in await fetch(await make_manager(outbox, hub, slots=2, max_events=10), other)] == [2, 1]


async def test_a_claim_takes_no_more_characters_than_its_free_slots_can_begin(
    outbox: Outbox, hand: Hand, hub: NotificationListener
):
    for place in range(6):
        await outbox.put(1, session=f"s{place}", payload={"text": "x" * 600})

    (members,) = await fetch(await make_manager(outbox, hub, max_chars=1000), hand)

    assert len(members) == 2


async def test_no_more_sets_are_claimed_than_can_begin(outbox: Outbox, hand: Hand, hub: NotificationListener, cast: Cast):
    charlie = Outbox(outbox.db, outbox.notifier, cast.charlie.principal, cast.charlie.project)
    for place in range(3):
        await outbox.put(1, session=f"s{place}", payload=NOTE)
        await charlie.put(1, session=f"s{place}", payload=NOTE)
    manager = await make_manager(outbox, hub)

    (first,) = await fetch(manager, hand)

    assert {claim.team_id for claim in first} == {cast.alice.team_id}
    assert len(first) == 3
    assert await charlie.value("SELECT max(attempts) FROM observation_generation_jobs WHERE status = 'queued'") == 0


async def test_the_steward_takes_no_slot_that_events_wait_for(outbox: Outbox, hand: Hand, hub: NotificationListener):
    await outbox.rows(STEWARD_LANES, outbox.principal.team_id, 1, 1)
    for place in range(3):
        await outbox.put(1, session=f"s{place}", payload=NOTE)

    (only,) = await fetch(await make_manager(outbox, hub), hand)
    assert [claim.lane == claim.project_id for claim in only] == [False] * 3


async def test_events_come_before_the_steward(outbox: Outbox, hand: Hand, hub: NotificationListener):
    await outbox.rows(STEWARD_LANES, outbox.principal.team_id, 1, 1)
    for place in range(3):
        await outbox.put(1, session=f"s{place}", payload=NOTE)

    manager = await make_manager(outbox, hub, slots=4)
    events, steward = await fetch(manager, hand)

    assert ([len(events), len(steward)], steward[0].lane == steward[0].project_id) == ([3, 1], True)


async def test_a_poisoned_event_fails_alone_and_the_rest_of_its_lane_is_done(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    hand = await outbox.hand(Rules(), lease_seconds=300)
    for place in range(7):
        await outbox.put(1, first=place, payload={**NOTE, "poison": True} if place == 3 else NOTE)
    poison(monkeypatch)

    for _ in range(3):
        await hand.work(max_events=500)
        await outbox.rows("UPDATE generation_lanes SET held_until = NULL, due_at = now() WHERE held_until IS NOT NULL")

    assert await outbox.rows("SELECT status, attempts FROM observation_generation_jobs ORDER BY seq") == [
        {"status": "failed" if place == 3 else "completed", "attempts": 3 if place == 3 else 1} for place in range(7)
    ]


async def test_a_stopping_worker_begins_no_batch_of_a_set_that_was_split(
    outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch
):
    await put_all(outbox)
    claims = await hand.claim()
    begun: list[int] = []

    async def work(_: BatchRunner, batches: Sequence[Batch], *rest: object) -> None:
        begun.append(len(batches))
        if len(batches) > 1:
            raise RuntimeError("split")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # all its jobs were cancelled, which is written
            await asyncio.sleep(0)

    monkeypatch.setattr(BatchRunner, "_work_and_apply", work)
    task = asyncio.ensure_future(hand.runner.run(*claims))
    await asyncio.wait([task])

    assert (begun, task.cancelled()) == ([len(LANES), 1], True)


async def test_a_set_that_an_outage_outlasts_is_not_tried_batch_by_batch(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    hand = await outbox.hand(Rules(), lease_seconds=0.2)
    await put_all(outbox)
    async with outbox.db.system_statement() as conn:
        await conn.execute("UPDATE procrastinate_workers SET last_heartbeat = now() + interval '1 minute'")
    claims = await hand.claim()

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(Db, "in_system", fail)
    with structlog.testing.capture_logs() as logs:
        await hand.runner.run(*claims)

    assert (len(claims), [it["event"] for it in logs if it["log_level"] != "debug"]) == (len(LANES), ["lease.lost"])
