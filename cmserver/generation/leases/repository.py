"""SQL of who works: a worker signs on and keeps its lease; what it holds comes back when it stops or falls silent."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Query

OWNS = {"generation_workers"}
BORROWS = {"procrastinate_workers"}  # our worker's heartbeat is its lease, and has its own rule

SIGN_ON = Query(
    int,
    """
    INSERT INTO generation_workers (worker_id, label, lease_seconds) VALUES (%(worker_id)s, %(label)s, %(lease_seconds)s)
    """,
)

SIGN_OFF = Query(int, "DELETE FROM generation_workers WHERE worker_id = %(worker_id)s")

# The lease: a heartbeat that comes too late does not count; the worker must come back under a new id.
HEARTBEAT = Query(
    int,
    """
    UPDATE procrastinate_workers SET last_heartbeat = now()
     WHERE id = %(worker_id)s AND last_heartbeat > now() - make_interval(secs => %(lease_seconds)s)
    RETURNING id
    """,
)

TO_ABORT = Query(
    int,
    """
    SELECT claim FROM observation_generation_jobs
     WHERE worker_id = %(worker_id)s AND status = 'processing'
     GROUP BY claim HAVING bool_and(cancel_requested_at IS NOT NULL)
    """,
)

PUT_BACK_JOBS = Query(
    int,
    """
    WITH mine AS (
        SELECT id FROM observation_generation_jobs
         WHERE worker_id = %(worker_id)s AND status = 'processing' ORDER BY id FOR UPDATE
    )
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE 'queued' END,
           attempts = j.attempts - 1, last_error = jsonb_build_object('reason', 'worker stopped')
      FROM mine WHERE j.id = mine.id
    """,
)

PUT_BACK_LANES = Query(
    int,
    """
    WITH mine AS (SELECT lane FROM generation_lanes WHERE worker_id = %(worker_id)s ORDER BY lane FOR UPDATE)
    UPDATE generation_lanes l SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM mine WHERE l.lane = mine.lane
    """,
)

REAP = Query(UUID, "SELECT requeue_stale(%(hard_limit_seconds)s)")

WAKE_SLEEPING_LANES = Query(int, "SELECT wake_sleeping_lanes()")


async def sign_on(conn: Conn, worker_id: int, label: str, lease_seconds: float) -> None:
    """Note who a worker is (host and process), and how long its silence may last."""
    await SIGN_ON.run(conn, worker_id=worker_id, label=label, lease_seconds=lease_seconds)


async def heartbeat(conn: Conn, worker_id: int, lease_seconds: float) -> bool:
    """False when the lease is over or the row is gone."""
    return await HEARTBEAT.first(conn, worker_id=worker_id, lease_seconds=lease_seconds) is not None


async def claims_to_abort(conn: Conn, worker_id: int) -> list[int]:
    return await TO_ABORT.all(conn, worker_id=worker_id)


async def put_back(conn: Conn, worker_id: int) -> int:
    """All that a stopping worker holds; its attempts do not count. How many jobs."""
    jobs = await PUT_BACK_JOBS.run(conn, worker_id=worker_id)
    await PUT_BACK_LANES.run(conn, worker_id=worker_id)
    await SIGN_OFF.run(conn, worker_id=worker_id)
    return jobs


async def reap(conn: Conn, *, hard_limit_seconds: float) -> list[UUID]:
    """Give back what dead workers hold; the jobs."""
    return await REAP.all(conn, hard_limit_seconds=hard_limit_seconds)


async def wake_sleeping_lanes(conn: Conn) -> int:
    """Make lanes due that should be and are not; how many."""
    return await WAKE_SLEEPING_LANES.one(conn)
