"""The SQL of time travel. The schema cmserver_past has the tables that are read under their own names, as they were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Query, RowCount, query, unprepared_query
from cmserver.observations.past.model import Clock

OWNS = {"past_values"}
"""Triggers write it (migration 0014), whoever changes a row."""

# A function before pg_catalog, too: now() is the moment.
ENTER = Query(
    str,
    """
    SELECT set_config('cmserver.as_of', %(as_of)s, true) || set_config('cmserver.known_at', %(known_at)s, true)
        || set_config('search_path', 'cmserver_past, pg_catalog, ' || current_setting('search_path'), true)
    """,
)


@query("""
    SELECT clock_timestamp() AS now, min(f.at) AS first_at
      FROM projects p
     CROSS JOIN LATERAL (
           (SELECT occurred_at AS at FROM agent_events WHERE project_id = p.id AND team_id = p.team_id ORDER BY occurred_at LIMIT 1)
            UNION ALL
           (SELECT created_at FROM turns WHERE project_id = p.id AND team_id = p.team_id ORDER BY created_at LIMIT 1)
            UNION ALL
           (SELECT min(created_at) FROM observations WHERE project_id = p.id AND team_id = p.team_id)) f
     WHERE p.team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR p.id = ANY(%(project_ids)s::uuid[]))
    """)
async def clock(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None) -> Clock:
    """The time, and that of the first thing in these projects, or in the team."""
    ...


async def enter(conn: Conn, as_of: datetime | None, known_at: datetime | None) -> None:
    """Until the transaction ends, tables are read as they were: what held then, by what was known then."""
    times = {"as_of": as_of, "known_at": known_at}
    await ENTER.run(conn, **{name: time.isoformat() if time else "" for name, time in times.items()})


@unprepared_query("""
    DELETE FROM past_values
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete what rows of the project said before, or without one of the team; returns how many."""
    ...
