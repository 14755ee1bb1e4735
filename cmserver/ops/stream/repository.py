"""Reads the two logs of the stream. Owns no table and writes nothing.

The feed reads all teams, as the owner; a replay (`TEAM_...`) reads one team, behind row-level security.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.log_position import look_at
from cmserver.base.sql import Conn, Query, query
from cmserver.observations.model import LIVE
from cmserver.ops.stream.model import STREAM_NAMES, AuditRow, JobStepRow, Looks, ObservationPreview, Position

OWNS: set[str] = set()

_SELECT_AUDIT_ROWS = """\
SELECT id, team_id, project_id, coalesce(project_id IN (SELECT id FROM projects WHERE isolated), false) AS is_isolated,
           action, resource_id, created_at,
           CASE WHEN jsonb_typeof(details -> 'observations') = 'array' THEN details -> 'observations' END AS observations
      FROM audit_log"""
_SELECT_JOB_STEPS = """\
SELECT id, team_id, project_id, project_id IN (SELECT id FROM projects WHERE isolated) AS is_isolated,
           generation_job_id, event_type, status_after, attempt, created_at
      FROM observation_generation_job_events"""
_SELECT_PREVIEWS = """\
SELECT id, team_id, project_id, number, server_session_id, kind, type, title, created_at,
           (SELECT ARRAY(SELECT m.account_id FROM team_members m
                          WHERE m.team_id = t.id AND m.role = 'owner' AND t.words = 'owners' AND m.account_id IS NOT NULL)
                   || observations.person_id
              FROM teams t
             WHERE t.id = observations.team_id AND t.words <> 'members' AND observations.person_id IS NOT NULL) AS readers
      FROM observations"""


# One statement, so one snapshot: rows that one transaction wrote into both logs are seen together.
LOOK = Query(
    Looks,
    f"SELECT {look_at('audit_log', 'audit')} AS audit, {look_at('observation_generation_job_events', 'jobs')} AS jobs",
)

AUDIT_ROWS = Query(
    AuditRow,
    f"""
    {_SELECT_AUDIT_ROWS}
     WHERE id > %(after)s AND id <= %(upto)s AND team_id = ANY(%(teams)s) AND action = ANY(%(actions)s)
     ORDER BY id
    """,
)


TEAM_AUDIT_ROWS = Query(
    AuditRow,
    f"""
    {_SELECT_AUDIT_ROWS}
     WHERE team_id = %(team_id)s AND id > %(after)s AND id <= %(upto)s AND action = ANY(%(actions)s)
     ORDER BY id LIMIT %(limit)s
    """,
)


TEAM_ROW_COUNT = Query(
    int,
    """
    SELECT (SELECT count(*) FROM (
                SELECT FROM audit_log
                 WHERE team_id = %(team_id)s AND id > %(audit)s AND id <= %(audit_upto)s AND action = ANY(%(actions)s)
                 LIMIT %(limit)s) acts)
         + (SELECT count(*) FROM (
                SELECT FROM observation_generation_job_events
                 WHERE team_id = %(team_id)s AND id > %(jobs)s AND id <= %(jobs_upto)s
                 LIMIT %(limit)s) steps)
    """,
)


@query("""
    SELECT coalesce((SELECT max(id) FROM audit_log), 0) AS audit,
           coalesce((SELECT max(id) FROM observation_generation_job_events), 0) AS jobs
    """)
async def last(conn: Conn) -> Position: ...


async def look(conn: Conn, after: Position, limit: int) -> Looks:
    """Look at up to `limit` rows of each log after the position."""
    return await LOOK.one(conn, audit=after.audit, jobs=after.jobs, limit=limit)


async def audit_rows(conn: Conn, after: int, upto: int, teams: Sequence[UUID]) -> list[AuditRow]:
    return await AUDIT_ROWS.all(conn, after=after, upto=upto, teams=list(teams), actions=list(STREAM_NAMES))


@query(f"""
    {_SELECT_JOB_STEPS}
     WHERE id > %(after)s AND id <= %(upto)s AND team_id = ANY(%(teams)s)
     ORDER BY id
    """)
async def job_steps(conn: Conn, after: int, upto: int, teams: Sequence[UUID]) -> list[JobStepRow]: ...


@query(f"""
    {_SELECT_PREVIEWS} WHERE id = ANY(%(ids)s) AND {LIVE}
    """)
async def previews(conn: Conn, ids: Sequence[UUID]) -> list[ObservationPreview]:
    """Return the observations that still exist."""
    ...


@query("""
    SELECT k.id FROM api_keys k JOIN teams t ON t.id = k.team_id
     WHERE k.id = ANY(%(key_ids)s) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
       AND t.archived_at IS NULL
    """)
async def valid_keys(conn: Conn, key_ids: Sequence[UUID]) -> list[UUID]:
    """Return the keys that are still valid."""
    ...


async def team_audit_rows(conn: Conn, team_id: UUID, after: int, upto: int, limit: int) -> list[AuditRow]:
    return await TEAM_AUDIT_ROWS.all(conn, team_id=team_id, after=after, upto=upto, actions=list(STREAM_NAMES), limit=limit)


@query(f"""
    {_SELECT_JOB_STEPS}
     WHERE team_id = %(team_id)s AND id > %(after)s AND id <= %(upto)s
     ORDER BY id LIMIT %(limit)s
    """)
async def team_job_steps(conn: Conn, team_id: UUID, after: int, upto: int, limit: int) -> list[JobStepRow]: ...


@query(f"""
    {_SELECT_PREVIEWS} WHERE team_id = %(team_id)s AND id = ANY(%(ids)s) AND {LIVE}
    """)
async def team_previews(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[ObservationPreview]:
    """Return the observations that still exist."""
    ...


async def count_team_rows(conn: Conn, team_id: UUID, after: Position, upto: Position, limit: int) -> int:
    """Return how many rows of the team are between the positions, counting up to `limit` in each log."""
    return await TEAM_ROW_COUNT.one(
        conn,
        team_id=team_id,
        audit=after.audit,
        jobs=after.jobs,
        audit_upto=upto.audit,
        jobs_upto=upto.jobs,
        actions=list(STREAM_NAMES),
        limit=limit,
    )
