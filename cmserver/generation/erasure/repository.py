"""The outbox of a project or of a whole team goes for good: jobs, lanes and provider calls."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Query

OWNS: set[str] = set()  # the room's other repositories say it

LOCK_JOBS = Query(
    int,
    """
    WITH locked AS MATERIALIZED (
        SELECT id FROM observation_generation_jobs
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
         ORDER BY id FOR UPDATE
    )
    SELECT count(*) FROM locked
    """,
    prepare=False,
)

LOCK_LANES = Query(
    int,
    """
    WITH locked AS MATERIALIZED (
        SELECT lane FROM generation_lanes
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
         ORDER BY lane FOR UPDATE
    )
    SELECT count(*) FROM locked
    """,
    prepare=False,
)

# Their lifecycle log goes with them.
ERASE_JOBS = Query(
    int,
    """
    DELETE FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)

ERASE_LANES = Query(
    int,
    """
    DELETE FROM generation_lanes
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)

ERASE_RUNS = Query(
    int,
    """
    DELETE FROM generation_runs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)


async def lock_all(conn: Conn, team_id: UUID, project_id: UUID | None) -> None:
    """Every job, then every lane, of the project or of the team without one."""
    await LOCK_JOBS.one(conn, team_id=team_id, project_id=project_id)
    await LOCK_LANES.one(conn, team_id=team_id, project_id=project_id)


async def erase_jobs(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """All of the project, or of the team without one; how many."""
    return await ERASE_JOBS.run(conn, team_id=team_id, project_id=project_id)


async def erase_lanes(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """All of the project, or of the team without one; how many."""
    return await ERASE_LANES.run(conn, team_id=team_id, project_id=project_id)


async def erase_runs(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """All of the project, or of the team without one; how many."""
    return await ERASE_RUNS.run(conn, team_id=team_id, project_id=project_id)
