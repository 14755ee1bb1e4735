"""The SQL of private sessions: a function of the database gives a session to another team, whatever room owns its rows."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, query

OWNS: set[str] = set()


class ToldSession(msgspec.Struct, frozen=True, kw_only=True):
    """That another session was told of this one: whose, when, why, and which of its numbers of then."""

    session_id: UUID | None
    actor_id: str | None
    reason: str
    at: datetime
    numbers: list[int]


@query("SELECT unnest(give_session(%(session_id)s, %(team_id)s, %(to_team_id)s, %(to_project_id)s))")
async def give_session(conn: Conn, team_id: UUID, session_id: UUID, to_team_id: UUID, to_project_id: UUID) -> list[int]:
    """Give the session to another team; the numbers of observations that were merged with others stop it, and nothing is done."""
    ...


# Who began it, or continued it with a key; a key of before may have been bound to its person since. Where nobody
# knows any more who began it, it is nobody's.
@query("""
    SELECT coalesce(bool_and(coalesce(a.user_id, k.user_id) IS NOT DISTINCT FROM %(user_id)s::uuid)
                    AND bool_or(a.action = 'session.started'), false)
      FROM audit_log a LEFT JOIN api_keys k ON k.id = a.api_key_id AND k.team_id = a.team_id
     WHERE a.team_id = %(team_id)s AND a.action IN ('session.started', 'session.resumed') AND a.resource_type = 'session'
       AND a.resource_id = %(session_id)s::text
    """)
async def is_of_person(conn: Conn, team_id: UUID, session_id: UUID, user_id: UUID) -> bool:
    """Whether it was begun, and each time resumed, by the person or with a key of theirs."""
    ...


@query("""
    SELECT EXISTS (SELECT FROM turns t JOIN server_sessions s ON s.id = t.server_session_id AND s.team_id = t.team_id
                    WHERE s.id = %(session_id)s AND s.team_id = %(team_id)s AND t.actor_id <> ALL(%(own_names)s::text[]))
    """)
async def others_wrote(conn: Conn, team_id: UUID, session_id: UUID, own_names: list[str]) -> bool:
    """Whether a turn of the session came with a key of none of these names."""
    ...


# A line about what runs has no number: whoever was told one while a turn was under way may have been told of this one.
@query("""
    WITH said AS (
        SELECT array_agg(number) AS numbers
          FROM (SELECT number FROM turns WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
                 UNION ALL
                SELECT number FROM observations WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s) n
    )
    SELECT c.server_session_id AS session_id, s.actor_id, c.reason, c.created_at AS at, coalesce(t.numbers, '{}') AS numbers
      FROM said
      JOIN context_injections c ON c.team_id = %(team_id)s AND c.server_session_id IS DISTINCT FROM %(session_id)s
       AND ((c.numbers || c.told) && said.numbers
            OR (strpos(c.text, E'\\nAnother session is at work here now') > 0
                AND EXISTS (SELECT FROM turns r
                             WHERE r.server_session_id = %(session_id)s AND r.team_id = c.team_id AND r.project_id = c.project_id
                               AND c.created_at BETWEEN r.created_at AND coalesce(r.ended_at, 'infinity'))))
      LEFT JOIN server_sessions s ON s.id = c.server_session_id AND s.team_id = c.team_id
     CROSS JOIN LATERAL (SELECT array_agg(DISTINCT one ORDER BY one) AS numbers FROM unnest(c.numbers || c.told) one
                          WHERE one = ANY(said.numbers)) t
     ORDER BY c.created_at DESC, c.id LIMIT 500
    """)
async def told(conn: Conn, team_id: UUID, session_id: UUID) -> list[ToldSession]:
    """Who was told of the session, newest first, at most 500."""
    ...
