"""The SQL of a project's activity. None of it grows with the project: days are a month, kinds and files are of the newest."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, query
from cmserver.observations.model import LIVE, LIVE_O

OWNS: set[str] = set()


class ActivityDay(msgspec.Struct, frozen=True, kw_only=True):
    """A day (UTC, `2026-11-24`): `observations` is how many were made on it; `sessions` is how many began on it."""

    day: str
    observations: int
    sessions: int


class ObservationKindCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many observations of a kind and type there are. `kind` is observation, summary or manual."""

    kind: str
    type: str
    count: int


class FileCount(msgspec.Struct, frozen=True, kw_only=True):
    """A file, how many observations name it, and when the last was made."""

    path: str
    count: int
    last_at: datetime


@query(f"""
    WITH made AS (
        SELECT date_trunc('day', created_at, 'UTC') AS day, count(*) AS count
          FROM (SELECT created_at FROM observations
                 WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND {LIVE}
                   AND created_at >= date_trunc('day', now(), 'UTC') - make_interval(days => %(count)s::integer - 1)
                 ORDER BY created_at DESC, id DESC LIMIT %(newest)s) newest
         GROUP BY 1
    ), begun AS (
        SELECT date_trunc('day', started_at, 'UTC') AS day, count(*) AS count FROM server_sessions
         WHERE project_id = %(project_id)s AND team_id = %(team_id)s
           AND started_at >= date_trunc('day', now(), 'UTC') - make_interval(days => %(count)s::integer - 1)
         GROUP BY 1
    )
    SELECT to_char(calendar.day AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, coalesce(made.count, 0)::integer AS observations,
           coalesce(begun.count, 0)::integer AS sessions
      FROM generate_series(0, %(count)s::integer - 1) AS ago
     CROSS JOIN LATERAL (SELECT date_trunc('day', now(), 'UTC') - make_interval(days => ago) AS day) calendar
      LEFT JOIN made USING (day) LEFT JOIN begun USING (day)
     ORDER BY calendar.day
    """)
async def days(conn: Conn, team_id: UUID, project_id: UUID, count: int, *, newest: int) -> list[ActivityDay]:
    """The last `count` days, today the last of them. Only the `newest` observations are counted."""
    ...


@query(f"""
    SELECT kind, type, count(*)::integer AS count
      FROM (SELECT kind, type FROM observations
             WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND {LIVE}
             ORDER BY created_at DESC, id DESC LIMIT %(newest)s) newest
     GROUP BY kind, type ORDER BY 3 DESC, kind, type
    """)
async def kinds(conn: Conn, team_id: UUID, project_id: UUID, *, newest: int) -> list[ObservationKindCount]:
    """Of the `newest` observations, the most frequent first."""
    ...


@query(f"""
    SELECT file.path, count(*)::integer AS count, max(newest.created_at) AS last_at
      FROM (SELECT o.id, o.created_at, o.files_modified, o.files_read FROM observations o
             WHERE o.project_id = %(project_id)s AND o.team_id = %(team_id)s AND {LIVE_O}
             ORDER BY o.created_at DESC, o.id DESC LIMIT %(newest)s) newest
     CROSS JOIN LATERAL (SELECT DISTINCT path FROM unnest(array_cat(newest.files_modified, newest.files_read)) AS path) file
     WHERE file.path IS NOT NULL
     GROUP BY file.path ORDER BY 2 DESC, 3 DESC, 1 LIMIT %(limit)s
    """)
async def files(conn: Conn, team_id: UUID, project_id: UUID, *, newest: int, limit: int) -> list[FileCount]:
    """The files that most of the `newest` observations name."""
    ...
