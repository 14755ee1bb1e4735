"""Sets: batches by rules whose effects are one transaction. Each of them ends as it would alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from cmserver.base.notifications import NotificationListener
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import OutboxManager, WorkerLimits
from cmserver.generation.model import Claim
from cmserver.generation.operate.manage import cancel_job
from cmserver.providers.model import Rules
from cmserver.rules.batch import observe
from tests.conftest import Cast
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


async def test_a_batch_that_cannot_be_worded_fails_alone(outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch):
    await put_all(outbox)
    await outbox.put(1, session="poisoned", payload={**NOTE, "poison": True})

    def fail(events: Sequence[Any], *rest: Any) -> Any:
        if any("poison" in str(event.payload) for event in events):
            raise RuntimeError("poisoned")
        return observe(events, *rest)

    monkeypatch.setattr("cmserver.generation.run_batch.observe", fail)

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
    async with outbox.db.tenant(cast.alice.team_id) as conn:
        await cancel_job(conn, cast.alice.principal, str(job_id))

    await hand.runner.run(*claims)

    assert await outbox.statuses() == {"completed": len(LANES) - 1, "cancelled": 1}
    assert len(await observed_lanes(outbox)) == len(LANES) - 1


def claim_of(team_id: UUID, number: int, *, jobs: int = 1, chars: int = 10, is_plain: bool = True) -> Claim:
    ids = [uuid4() for _ in range(jobs)]
    return Claim(lane=uuid4(), team_id=team_id, project_id=team_id, claim=number, job_ids=ids, chars=chars, is_plain=is_plain)


def test_plain_batches_of_a_team_are_a_set_within_its_limits(outbox: Outbox, hub: NotificationListener):
    one, other = uuid4(), uuid4()
    limits = WorkerLimits(slots=4, set_lanes=3, max_events=500, max_chars=1000, lease_seconds=20, heartbeat_seconds=5)
    manager = OutboxManager(None, outbox.db, hub, outbox.notifier, label="t", limits=limits)  # pyright: ignore[reportArgumentType]
    claims = [
        claim_of(one, 1),
        claim_of(other, 2),
        claim_of(one, 3, is_plain=False),
        claim_of(one, 4),
        claim_of(one, 5),
        claim_of(one, 6),
        claim_of(one, 7, chars=995),
        claim_of(one, 8, jobs=600),
        claim_of(one, 9, jobs=401),
        claim_of(one, 10, jobs=400),
    ]

    sets = manager._make_sets(claims)  # pyright: ignore[reportPrivateUsage]

    numbers = [[claim.claim for claim in members] for members in sets]
    assert numbers == [[1, 4, 5], [2], [3], [6], [7], [8], [9, 10]]


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
