"""SQL of workers' leases: registration, heartbeat, and the return of what a stopped or lost worker held."""

from __future__ import annotations

from typing import LiteralString

from cmserver.base.sql import Conn, Query, query
from cmserver.generation.leases.model import Heartbeat, ReaperResult, Worker

OWNS = {"generation_workers"}
BORROWS = {"procrastinate_workers"}  # the heartbeat is the lease


UNREGISTER = Query(int, "DELETE FROM generation_workers WHERE worker_id = %(worker_id)s")

_DUE_SECONDS: LiteralString = """
    (SELECT extract(epoch FROM min(greatest(due_at, now())) - now())::float8 FROM generation_lanes
      WHERE worker_id IS NULL AND due_at <= now() + make_interval(secs => %(within_seconds)s))"""

# A late heartbeat does not count: the worker must return under a new id. The same statement looks for what no notification told of.
HEARTBEAT = Query(
    Heartbeat,
    f"""
    WITH renewed AS (
        UPDATE procrastinate_workers SET last_heartbeat = now()
         WHERE id = %(worker_id)s AND last_heartbeat > now() - make_interval(secs => %(lease_seconds)s) RETURNING id
    )
    SELECT EXISTS (SELECT FROM renewed) AS is_alive,
           EXISTS (SELECT FROM generation_lanes
                    WHERE worker_id = %(worker_id)s AND claim <> ALL(%(known)s::bigint[])) AS has_lost_claims,
           {_DUE_SECONDS} AS due_seconds
    """,
)


REQUEUE_JOBS = Query(
    int,
    """
    WITH held AS (
        SELECT j.id FROM generation_lanes l
          JOIN observation_generation_jobs j ON j.lane = l.lane AND j.phase = 'open' AND j.status = 'processing'
         WHERE l.worker_id = %(worker_id)s AND l.claim <> ALL(%(kept)s::bigint[]) AND j.worker_id = %(worker_id)s
         ORDER BY j.id FOR UPDATE OF j
    )
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN %(counted)s::boolean AND j.attempts >= j.max_attempts THEN 'failed' ELSE 'queued' END,
           attempts = CASE WHEN %(counted)s::boolean THEN j.attempts ELSE j.attempts - 1 END,
           last_error = jsonb_build_object('reason', %(reason)s::text)
      FROM held WHERE j.id = held.id
    """,
)

FREE_LANES = Query(
    int,
    """
    WITH held AS (
        SELECT lane FROM generation_lanes
         WHERE worker_id = %(worker_id)s AND claim <> ALL(%(kept)s::bigint[]) ORDER BY lane FOR UPDATE
    )
    UPDATE generation_lanes l SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM held WHERE l.lane = held.lane
    """,
)

# All registered workers of the server, the newest first.
WORKERS = Query(
    Worker,
    """
    SELECT g.worker_id, g.label, g.lease_seconds, g.started_at, w.last_heartbeat,
           coalesce(w.last_heartbeat > now() - make_interval(secs => g.lease_seconds), false) AS alive,
           count(l.lane) AS lanes, min(l.locked_at) AS oldest_batch_at
      FROM generation_workers g
      LEFT JOIN procrastinate_workers w ON w.id = g.worker_id
      LEFT JOIN generation_lanes l ON l.worker_id = g.worker_id
     GROUP BY g.worker_id, g.label, g.lease_seconds, g.started_at, w.last_heartbeat
     ORDER BY g.started_at DESC, g.worker_id DESC
    """,
)


# Make lanes due that have due jobs; return how many were not.
MAKE_STRAY_LANES_DUE = Query(int, "SELECT wake_sleeping_lanes()")

_NONE: list[int] = []


@query("""
    INSERT INTO generation_workers (worker_id, label, lease_seconds, knows_steward)
    VALUES (%(worker_id)s, %(label)s, %(lease_seconds)s, true)
    """)
async def register(conn: Conn, worker_id: int, label: str, lease_seconds: float) -> None:
    """Store the worker's label (host and process) and the length of its lease."""
    ...


async def heartbeat(conn: Conn, worker_id: int, *, lease_seconds: float, within_seconds: float, known: list[int]) -> Heartbeat:
    """Renew the lease, and look for lanes that are due within that time. `known` are the worker's claims."""
    return await HEARTBEAT.one(conn, worker_id=worker_id, lease_seconds=lease_seconds, within_seconds=within_seconds, known=known)


@query(f"SELECT {_DUE_SECONDS}")
async def next_due_seconds(conn: Conn, within_seconds: float) -> float | None:
    """In how many seconds the next free lane is due, 0 if one is; None when none is within that time."""
    ...


# A worker asks often: it reads no more of a lane than a batch may have.
@query("""
    SELECT j.claim FROM generation_lanes l
     CROSS JOIN LATERAL (
           SELECT n.claim, n.status, n.cancel_requested_at FROM observation_generation_jobs n
            WHERE n.lane = l.lane AND n.phase = 'open' ORDER BY n.seq LIMIT 500) j
     WHERE l.worker_id = %(worker_id)s AND j.status = 'processing' AND j.claim = l.claim
     GROUP BY j.claim HAVING bool_and(j.cancel_requested_at IS NOT NULL)
    """)
async def claims_to_abort(conn: Conn, worker_id: int) -> list[int]: ...


async def requeue_all(conn: Conn, worker_id: int) -> int:
    """Requeue all jobs of a stopping worker, without counting the attempt; return their number."""
    jobs = await REQUEUE_JOBS.run(conn, worker_id=worker_id, kept=_NONE, counted=False, reason="worker stopped")
    await FREE_LANES.run(conn, worker_id=worker_id, kept=_NONE)
    await UNREGISTER.run(conn, worker_id=worker_id)
    return jobs


async def requeue_lost(conn: Conn, worker_id: int, kept: list[int]) -> int:
    """Requeue jobs of claims that the worker does not know, their attempt counted, and free their lanes, which are counted."""
    await REQUEUE_JOBS.run(conn, worker_id=worker_id, kept=kept, counted=True, reason="claim lost")
    return await FREE_LANES.run(conn, worker_id=worker_id, kept=kept)


@query("""
    SELECT ARRAY(SELECT requeue_stale(%(hard_limit_seconds)s)) AS jobs,
           EXISTS (SELECT FROM generation_lanes WHERE worker_id IS NOT NULL) AS is_any_held
    """)
async def reap(conn: Conn, *, hard_limit_seconds: float) -> ReaperResult:
    """Requeue the jobs of dead workers."""
    ...
