"""All SQL on pins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query, RowCount, query
from cmserver.pins.model import HOLDS, PIN_COLUMNS, OnBreak, Pin

OWNS = {"pins"}

LOCK_TEAM = Query(object, "SELECT pg_advisory_xact_lock(hashtextextended('pins ' || %(team_id)s::text, 0))")
"""Whoever changes or checks a team's pins does it alone, until the transaction ends."""
_OF_PROJECT: LiteralString = """(%(project_id)s::uuid IS NULL OR p.project_id IN (
            SELECT j.id FROM projects j
             WHERE (j.id = %(project_id)s OR j.joined_to = %(project_id)s) AND j.team_id = %(team_id)s))"""
"""Also those of projects that are joined to it."""


@query(f"""
    INSERT INTO pins AS p (id, team_id, project_id, number, question, must, must_not, lines, on_break, from_file, holds)
    VALUES (%(id_)s, %(team_id)s, %(project_id)s, (SELECT coalesce(max(number), 0) + 1 FROM pins WHERE team_id = %(team_id)s),
            %(question)s, %(must)s, %(must_not)s, %(lines)s, %(on_break)s, %(from_file)s, false)
    RETURNING {PIN_COLUMNS}
    """)
async def insert(
    conn: Conn,
    id_: UUID,
    team_id: UUID,
    project_id: UUID,
    *,
    question: str,
    must: Sequence[str],
    must_not: Sequence[str],
    lines: int,
    on_break: OnBreak,
    from_file: bool,
) -> Pin: ...


@query(f"""
    UPDATE pins AS p
       SET question = %(question)s, must = %(must)s, must_not = %(must_not)s, lines = %(lines)s, on_break = %(on_break)s,
           holds = false, updated_at = now()
     WHERE p.id = %(id_)s AND p.team_id = %(team_id)s
    RETURNING {PIN_COLUMNS}
    """)
async def update(
    conn: Conn,
    id_: UUID,
    team_id: UUID,
    *,
    question: str,
    must: Sequence[str],
    must_not: Sequence[str],
    lines: int,
    on_break: OnBreak,
) -> Pin: ...


@query(f"""
    SELECT {PIN_COLUMNS} FROM pins p
     WHERE p.team_id = %(team_id)s AND {_OF_PROJECT}
     ORDER BY p.project_id, p.number
    """)
async def of_team(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[Pin]:
    """The pins of a project, or of all of the team's."""
    ...


@query(f"""
    SELECT {PIN_COLUMNS} FROM pins p
     WHERE p.team_id = %(team_id)s AND {_OF_PROJECT}
       AND NOT (%(only_broken)s AND coalesce({HOLDS}, false))
       AND (%(before)s::timestamptz IS NULL OR (p.created_at, p.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY p.created_at DESC, p.id DESC LIMIT %(limit)s
    """)
async def page(
    conn: Conn,
    team_id: UUID,
    project_id: UUID | None,
    *,
    only_broken: bool = False,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
) -> list[Pin]: ...


@query(f"SELECT count(*) FROM pins p WHERE p.team_id = %(team_id)s AND {_OF_PROJECT} AND NOT {HOLDS}")
async def count_broken(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """How many did not hold at their last check; none for who may not read all words."""
    ...


@query(f"""
    SELECT {PIN_COLUMNS} FROM pins p
     WHERE p.team_id = %(team_id)s AND (%(number)s::bigint IS NULL OR p.number = %(number)s)
       AND (%(id_)s::uuid IS NULL OR p.id = %(id_)s)
    """)
async def find(conn: Conn, team_id: UUID, *, number: int | None, id_: UUID | None) -> Pin | None:
    """The pin of that number, or else of that id: one of them is given."""
    ...


@query("DELETE FROM pins WHERE team_id = %(team_id)s AND id = ANY(%(ids)s::uuid[])")
async def delete(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> RowCount: ...


@query(f"DELETE FROM pins p WHERE p.team_id = %(team_id)s AND {_OF_PROJECT}")
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete the pins of a project, or of all of the team's."""
    ...


@query("""
    UPDATE pins p SET holds = c.holds, checked_at = now()
      FROM unnest(%(ids)s::uuid[], %(holds)s::boolean[]) AS c (id, holds)
     WHERE p.id = c.id AND p.team_id = %(team_id)s
    """)
async def keep_results(conn: Conn, team_id: UUID, ids: Sequence[UUID], holds: Sequence[bool]) -> RowCount: ...


@query("SELECT EXISTS (SELECT FROM pins WHERE team_id = %(team_id)s)")
async def has_pins(conn: Conn, team_id: UUID) -> bool: ...


@query("SELECT DISTINCT team_id FROM pins ORDER BY team_id")
async def teams_with_pins(conn: Conn) -> list[UUID]:
    """Of all teams; for the owner."""
    ...


ENTER_TEAM = Query(
    object,
    """
    SELECT set_config('role', 'cmserver_tenant', true), set_config('cmserver.team_id', %(team)s, true),
           set_config('cmserver.reader', '', true), set_config('cmserver.words', '', true)
    """,
)
"""Of the owner's transaction: as work of the team that reads all words, until `LEAVE_TEAM`."""
LEAVE_TEAM = Query(object, "SELECT set_config('role', 'none', true), set_config('cmserver.team_id', '', true)")
WORDS = Query(str, "SELECT coalesce(current_setting('cmserver.words', true), '')")
"""`own` where the transaction does not read all words."""
READ_WORDS = Query(str, "SELECT set_config('cmserver.words', %(words)s, true)")
"""From now on the transaction reads all words, with '', or as `WORDS` said."""
