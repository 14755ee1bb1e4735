"""Reads the two logs that the stream is drawn from. Owns no table and writes nothing.

The one feed asks for all teams, as the owner; a replay (`TEAMS_...`) is one team's, behind row-level security.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.ops.stream.model import TOLD, Act, Glimpse, Look, Position, Step

OWNS: set[str] = set()

LAST = Query(
    Position,
    """
    SELECT coalesce((SELECT max(id) FROM audit_log), 0) AS audit,
           coalesce((SELECT max(id) FROM observation_generation_job_events), 0) AS jobs
    """,
)

# One statement, so one snapshot: what one transaction wrote into both logs is seen in both or in none, and of a transaction that
# has ended, all that it wrote.
LOOK = Query(
    Look,
    """
    WITH audit AS (
        SELECT id, lag(id, 1, %(audit)s::bigint) OVER (ORDER BY id) AS before
          FROM (SELECT id FROM audit_log WHERE id > %(audit)s ORDER BY id LIMIT %(limit)s) page
    ), jobs AS (
        SELECT id, lag(id, 1, %(jobs)s::bigint) OVER (ORDER BY id) AS before
          FROM (SELECT id FROM observation_generation_job_events WHERE id > %(jobs)s ORDER BY id LIMIT %(limit)s) page
    )
    SELECT coalesce((SELECT max(id) FROM audit), %(audit)s::bigint) AS audit_last,
           ARRAY(SELECT before FROM audit WHERE id > before + 1 ORDER BY before) AS audit_gaps,
           ARRAY(SELECT id - 1 FROM audit WHERE id > before + 1 ORDER BY before) AS audit_gap_ends,
           coalesce((SELECT max(id) FROM jobs), %(jobs)s::bigint) AS jobs_last,
           ARRAY(SELECT before FROM jobs WHERE id > before + 1 ORDER BY before) AS jobs_gaps,
           ARRAY(SELECT id - 1 FROM jobs WHERE id > before + 1 ORDER BY before) AS jobs_gap_ends,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_running
    """,
)

# Not pg_snapshot_xmax: that is the next behind the last that ENDED, and one that still runs may have a higher number.
NEW_TRANSACTION = Query(int, "SELECT pg_current_xact_id()::text::bigint")

ACTS = Query(
    Act,
    """
    SELECT id, team_id, project_id, action, resource_id, created_at,
           CASE WHEN jsonb_typeof(details -> 'observations') = 'array' THEN details -> 'observations' END AS observations
      FROM audit_log
     WHERE id > %(after)s AND id <= %(upto)s AND team_id = ANY(%(teams)s) AND action = ANY(%(actions)s)
     ORDER BY id
    """,
)

STEPS = Query(
    Step,
    """
    SELECT id, team_id, project_id, generation_job_id, event_type, status_after, attempt, created_at
      FROM observation_generation_job_events
     WHERE id > %(after)s AND id <= %(upto)s AND team_id = ANY(%(teams)s)
     ORDER BY id
    """,
)

GLIMPSES = Query(
    Glimpse,
    """
    SELECT id, team_id, project_id, number, server_session_id, kind, type, title, created_at
      FROM observations WHERE id = ANY(%(ids)s)
    """,
)

STANDING = Query(
    UUID,
    """
    SELECT k.id FROM api_keys k JOIN teams t ON t.id = k.team_id
     WHERE k.id = ANY(%(ids)s) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND t.archived_at IS NULL
    """,
)

TEAMS_ACTS = Query(
    Act,
    """
    SELECT id, team_id, project_id, action, resource_id, created_at,
           CASE WHEN jsonb_typeof(details -> 'observations') = 'array' THEN details -> 'observations' END AS observations
      FROM audit_log
     WHERE team_id = %(team_id)s AND id > %(after)s AND id <= %(upto)s AND action = ANY(%(actions)s)
     ORDER BY id LIMIT %(limit)s
    """,
)

TEAMS_STEPS = Query(
    Step,
    """
    SELECT id, team_id, project_id, generation_job_id, event_type, status_after, attempt, created_at
      FROM observation_generation_job_events
     WHERE team_id = %(team_id)s AND id > %(after)s AND id <= %(upto)s
     ORDER BY id LIMIT %(limit)s
    """,
)

TEAMS_GLIMPSES = Query(
    Glimpse,
    """
    SELECT id, team_id, project_id, number, server_session_id, kind, type, title, created_at
      FROM observations WHERE team_id = %(team_id)s AND id = ANY(%(ids)s)
    """,
)

TEAMS_ROWS = Query(
    int,
    """
    SELECT (SELECT count(*) FROM (
                SELECT FROM audit_log
                 WHERE team_id = %(team_id)s AND id > %(audit)s AND id <= %(audit_upto)s AND action = ANY(%(actions)s)
                 LIMIT %(most)s) acts)
         + (SELECT count(*) FROM (
                SELECT FROM observation_generation_job_events
                 WHERE team_id = %(team_id)s AND id > %(jobs)s AND id <= %(jobs_upto)s
                 LIMIT %(most)s) steps)
    """,
)


async def last(conn: Conn) -> Position:
    return await LAST.one(conn)


async def look(conn: Conn, after: Position, limit: int) -> Look:
    """At up to `limit` rows of each log behind the position."""
    return await LOOK.one(conn, audit=after.audit, jobs=after.jobs, limit=limit)


async def new_transaction(conn: Conn) -> int:
    """A number higher than that of every transaction which has written something by now."""
    return await NEW_TRANSACTION.one(conn)


async def acts(conn: Conn, after: int, upto: int, teams: Sequence[UUID]) -> list[Act]:
    return await ACTS.all(conn, after=after, upto=upto, teams=list(teams), actions=list(TOLD))


async def steps(conn: Conn, after: int, upto: int, teams: Sequence[UUID]) -> list[Step]:
    return await STEPS.all(conn, after=after, upto=upto, teams=list(teams))


async def glimpses(conn: Conn, ids: Sequence[UUID]) -> list[Glimpse]:
    """Those that are still there."""
    return await GLIMPSES.all(conn, ids=list(ids))


async def standing(conn: Conn, key_ids: Sequence[UUID]) -> list[UUID]:
    """Those of the keys that may still be used."""
    return await STANDING.all(conn, ids=list(key_ids))


async def acts_of_team(conn: Conn, team_id: UUID, after: int, upto: int, limit: int) -> list[Act]:
    return await TEAMS_ACTS.all(conn, team_id=team_id, after=after, upto=upto, actions=list(TOLD), limit=limit)


async def steps_of_team(conn: Conn, team_id: UUID, after: int, upto: int, limit: int) -> list[Step]:
    return await TEAMS_STEPS.all(conn, team_id=team_id, after=after, upto=upto, limit=limit)


async def glimpses_of_team(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[Glimpse]:
    """Those that are still there."""
    return await TEAMS_GLIMPSES.all(conn, team_id=team_id, ids=list(ids))


async def rows_of_team(conn: Conn, team_id: UUID, after: Position, upto: Position, most: int) -> int:
    """How much there is to tell of the team between the two; counts no further than `most` in each log."""
    return await TEAMS_ROWS.one(
        conn,
        team_id=team_id,
        audit=after.audit,
        jobs=after.jobs,
        audit_upto=upto.audit,
        jobs_upto=upto.jobs,
        actions=list(TOLD),
        most=most,
    )
