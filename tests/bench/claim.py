"""What one claim costs beside a large backlog, compared with the same claim in an otherwise empty queue."""

from __future__ import annotations

import asyncio
import time

import psycopg
import uvloop
from psycopg import AsyncConnection

from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.leases import repository as leases
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import Place, World

HOW = (
    "The claim statement as a worker sends it, commit included, by one connection: four lanes with two jobs each are due "
    "and taken (a worker with four free slots). The cost grows with the jobs that are taken: with five in each lane it is over "
    "the aim. Beside them the queue holds 100,000 jobs in backoff, each in a lane of its "
    "own; or one lane of 100,000 queued jobs that another worker works on; or nothing, which is the yardstick. After VACUUM "
    "ANALYZE."
)
DUE_LANES = 4
JOBS_A_LANE = 2
_LEASE_SECONDS = 3600.0
_AIM = Aim(of="median", at_least=False, bound=2)

_REGISTER = "SELECT worker_id FROM procrastinate_register_worker_v1()"

# Made by the superuser without triggers, since only the rows matter: their events are not there.
_SEED = """
    WITH lane AS (
        SELECT gen_random_uuid() AS lane FROM generate_series(1, %(lanes)s)
    ), job AS (
        INSERT INTO observation_generation_jobs
               (id, team_id, project_id, lane, agent_event_id, source_type, source_id, job_type, idempotency_key, size_chars,
                attempts, next_attempt_at)
        SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, lane, event, 'agent_event', event, 'bench', 'bench:' || event, 1500,
               CASE WHEN %(later)s THEN 1 ELSE 0 END, CASE WHEN %(later)s THEN now() + interval '1 hour' END
          FROM lane CROSS JOIN LATERAL (
               SELECT gen_random_uuid() AS event, lane.lane AS of FROM generate_series(1, %(jobs)s)) AS source
    )
    INSERT INTO generation_lanes (lane, team_id, project_id, due_at, held_until, worker_id, claim, locked_at)
    SELECT lane, %(team_id)s, %(project_id)s,
           CASE WHEN %(later)s THEN now() + interval '1 hour' + random() * interval '1 hour'
                WHEN %(held_by)s::bigint IS NULL THEN now() - interval '1 second' END,
           CASE WHEN %(later)s THEN now() + interval '1 hour' END,
           %(held_by)s, CASE WHEN %(held_by)s::bigint IS NOT NULL THEN nextval('generation_claims') END,
           CASE WHEN %(held_by)s::bigint IS NOT NULL THEN now() END
      FROM lane
"""


def run(world: World, scale: Scale) -> list[Figure]:
    """The three queues in turn, many claims a round; after each claim its jobs are put back, which is not measured."""
    places = [world.place() for _ in range(3)]
    _seed(places[0])
    _seed(places[1], backlog_lanes=scale.backlog)
    _seed(places[2], busy_jobs=scale.backlog)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        empty, backoff, busy = runner.run(_measured([place.url for place in places], scale))
    return [
        _figure(f"claim beside {scale.backlog:,} jobs in backoff", backoff, empty),
        _figure(f"claim beside one busy lane of {scale.backlog:,} jobs", busy, empty),
    ]


def _figure(name: str, rounds: list[list[float]], empty: list[list[float]]) -> Figure:
    return Figure(
        name=name,
        unit="ms",
        yardstick="the same claim in an otherwise empty queue",
        pairs=[(percentile(here, 50), percentile(there, 50)) for here, there in zip(rounds, empty, strict=True)],
        aim=_AIM,
        note=f"{_spread(rounds)}; empty {_spread(empty)}",
    )


def _spread(rounds: list[list[float]]) -> str:
    return spread([each for one in rounds for each in one])


def _seed(place: Place, *, backlog_lanes: int = 0, busy_jobs: int = 0) -> None:
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        row = conn.execute(_REGISTER).fetchone()
        assert row is not None
        common = {"team_id": place.team_id, "project_id": place.project_id, "later": False, "held_by": None}
        if backlog_lanes:
            conn.execute(_SEED, {**common, "lanes": backlog_lanes, "jobs": 1, "later": True})
        if busy_jobs:
            conn.execute(_SEED, {**common, "lanes": 1, "jobs": busy_jobs, "held_by": row[0]})
        conn.execute(_SEED, {**common, "lanes": DUE_LANES, "jobs": JOBS_A_LANE})
        conn.execute("VACUUM ANALYZE")


async def _measured(urls: list[str], scale: Scale) -> list[list[list[float]]]:
    """For each queue, for each round, the milliseconds of its claims."""
    connections = [await AsyncConnection.connect(url, autocommit=True) for url in urls]
    queues = [(conn, await _registered(conn)) for conn in connections]
    try:
        for queue in queues:
            await _claims(*queue, scale.claims)
        rounds = [[await _claims(*queue, scale.claims) for queue in queues] for _ in range(scale.rounds)]
    finally:
        for conn in connections:
            await conn.close()
    return [[one[place] for one in rounds] for place in range(len(queues))]


async def _registered(conn: Conn) -> int:
    row = await (await conn.execute(_REGISTER)).fetchone()
    assert row is not None
    return row[0]


async def _claims(conn: Conn, worker_id: int, times: int) -> list[float]:
    milliseconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        claims = await repository.claim(
            conn,
            worker_id=worker_id,
            label="bench",
            lease_seconds=_LEASE_SECONDS,
            slots=DUE_LANES,
            max_events=20,
            max_chars=60_000,
        )
        milliseconds.append((time.perf_counter() - began) * 1000)
        if sum(len(claim.job_ids) for claim in claims) != DUE_LANES * JOBS_A_LANE:
            raise RuntimeError(f"The claim took {claims}, not the lanes that are due.")
        async with conn.transaction():
            await leases.requeue_all(conn, worker_id)
    return milliseconds
