"""All SQL on turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from msgspec.structs import asdict

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, Query, RowCount, query, unprepared_query
from cmserver.sessions.turns.model import (
    MAX_SIDE_CHARS,
    TURN_COLUMNS,
    NewTurn,
    SessionPrompt,
    SessionReply,
    SessionTurn,
    TurnPlace,
)

OWNS = {"turns"}

_T_COLUMNS: LiteralString = "t." + TURN_COLUMNS.replace(", ", ", t.")

INSERT = Query(
    int,
    """
    INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, agent_id, prompt, reply,
                       actor_id, created_at, ended_at, search_language)
    SELECT %(id)s, %(number)s, %(team_id)s, %(project_id)s, %(session_id)s, %(event_id)s,
           CASE WHEN %(agent_id)s::text IS NULL THEN coalesce(max(prompt_number), 0) + 1 END,
           %(agent_id)s, %(prompt)s, %(reply)s, %(actor_id)s,
           coalesce(time_of_event(%(occurred_at)s::timestamptz, %(received_at)s::timestamptz), clock_timestamp()),
           CASE WHEN %(reply)s::text IS NOT NULL THEN clock_timestamp() END,
           coalesce((SELECT p.search_language FROM projects p
                      WHERE p.id = %(project_id)s AND p.team_id = %(team_id)s FOR KEY SHARE), 'english')
      FROM turns WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
    ON CONFLICT (agent_event_id) DO NOTHING
    """,
)

# An agent that goes on by itself answers more than once: all of it is kept.
_LONGER_REPLY: LiteralString = """CASE WHEN t.reply IS NULL THEN %(reply)s
                        WHEN t.reply = %(reply)s OR length(t.reply) + length(%(reply)s) > %(max_chars)s THEN %(reply)s
                        ELSE t.reply || E'\\n\\n' || %(reply)s END"""

# The newest turn that had begun by then.
ADD_REPLY = Query(
    UUID,
    f"""
    UPDATE turns t
       SET reply = {_LONGER_REPLY},
           ended_at = greatest(t.created_at, m.moment)
      FROM (SELECT CASE WHEN %(is_exact)s THEN %(occurred_at)s ELSE time_of_event(%(occurred_at)s, now()) END AS moment) m
     WHERE t.team_id = %(team_id)s
       AND t.id = (SELECT l.id FROM turns l
                    WHERE l.server_session_id = %(session_id)s AND l.team_id = %(team_id)s AND l.agent_id IS NULL
                    ORDER BY l.created_at <= m.moment DESC, l.prompt_number DESC LIMIT 1)
    RETURNING t.id
    """,
)

# What it was asked may come after its answer.
ADD_TO_SUBAGENT = Query(
    UUID,
    f"""
    UPDATE turns t
       SET prompt = CASE WHEN t.prompt = '' THEN %(prompt)s ELSE t.prompt END,
           reply = CASE WHEN %(reply)s::text IS NULL THEN t.reply ELSE {_LONGER_REPLY} END,
           ended_at = CASE WHEN %(reply)s::text IS NULL THEN t.ended_at ELSE greatest(t.created_at, now()) END
     WHERE t.team_id = %(team_id)s AND t.server_session_id = %(session_id)s AND t.agent_id = %(agent_id)s
    RETURNING t.id
    """,
)

IS_UNANSWERED = Query(
    bool,
    """
    SELECT reply IS NULL FROM turns
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND agent_id IS NULL AND created_at <= %(at)s
     ORDER BY prompt_number DESC LIMIT 1
    """,
)


# Of a long side what a line may be made of.
_TOLD_COLUMNS: LiteralString = TURN_COLUMNS.replace(
    "prompt, reply,",
    """left(prompt, 6000) AS prompt,
    CASE WHEN length(reply) > 6000 THEN left(reply, 3000) || chr(10) || chr(10) || right(reply, 3000) ELSE reply END AS reply,""",
)


DELETE = Query(int, "DELETE FROM turns WHERE id = %(id)s AND team_id = %(team_id)s")


async def insert(conn: Conn, team_id: UUID, turn: NewTurn) -> None:
    """Insert a turn, unless its event has one already. The caller has locked the session."""
    await INSERT.run(conn, team_id=team_id, **asdict(turn))


async def add_reply(
    conn: Conn, team_id: UUID, session_id: UUID, reply: str, occurred_at: datetime, *, is_exact: bool = False
) -> UUID | None:
    """Add the agent's last message to the turn that it ends; the turn's id, or None where the session has none.

    `is_exact` takes the client's time as it is; else one that is about now is the server's. The caller has locked the session.
    """
    return await ADD_REPLY.first(
        conn,
        team_id=team_id,
        session_id=session_id,
        reply=reply,
        occurred_at=occurred_at,
        is_exact=is_exact,
        max_chars=MAX_SIDE_CHARS,
    )


async def add_to_subagent(conn: Conn, team_id: UUID, turn: NewTurn) -> bool:
    """Complete the sub-agent's turn by what the new one has; returns whether there was one. The caller has locked the session."""
    found_id = await ADD_TO_SUBAGENT.first(
        conn,
        team_id=team_id,
        session_id=turn.session_id,
        agent_id=turn.agent_id,
        prompt=turn.prompt,
        reply=turn.reply,
        max_chars=MAX_SIDE_CHARS,
    )
    return found_id is not None


async def is_unanswered(conn: Conn, team_id: UUID, session_id: UUID, at: datetime) -> bool:
    """Whether the session's turn that was under way then has no reply; False without one."""
    return await IS_UNANSWERED.first(conn, team_id=team_id, session_id=session_id, at=at) is True


@query("""
    UPDATE turns SET ended_at = greatest(created_at, now())
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND ended_at IS NULL
    """)
async def end(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Note that nothing more comes of the session's turns that have not ended."""
    ...


@query("""
    UPDATE turns SET files = %(files)s, checks = %(checks)s, commits = %(commits)s
     WHERE id = %(turn_id)s AND team_id = %(team_id)s
       AND (files, checks, commits) = (%(old_files)s::text[], %(old_checks)s::text[], %(old_commits)s::text[])
    """)
async def replace_work(
    conn: Conn,
    team_id: UUID,
    turn_id: UUID,
    *,
    files: list[str],
    checks: list[str],
    commits: list[str],
    old_files: list[str],
    old_checks: list[str],
    old_commits: list[str],
) -> RowCount:
    """Put what was done in the turn in the place of what is noted, unless something else is noted by now."""
    ...


@query("""
    UPDATE turns t
       SET files = ARRAY(SELECT DISTINCT f FROM unnest(t.files || %(files)s::text[]) AS f ORDER BY f LIMIT %(max_items)s),
           checks = (t.checks || %(checks)s::text[])[1:%(max_items)s],
           commits = (t.commits || %(commits)s::text[])[1:%(max_items)s]
     WHERE t.server_session_id = %(session_id)s AND t.team_id = %(team_id)s AND t.prompt_number = %(prompt_number)s
    """)
async def add_work(
    conn: Conn,
    team_id: UUID,
    session_id: UUID,
    prompt_number: int,
    *,
    files: Collection[str],
    checks: Collection[str],
    commits: Collection[str],
    max_items: int,
) -> None:
    """Add what was done in a turn, at most `max_items` of each kind."""
    ...


@query("""
    SELECT t.server_session_id AS session_id, t.prompt_number, left(t.prompt, %(max_chars)s) AS text, t.created_at
      FROM unnest(%(session_ids)s::uuid[], %(last)s::integer[]) AS wanted(session_id, last)
      JOIN turns t ON t.server_session_id = wanted.session_id AND t.team_id = %(team_id)s AND t.prompt_number <= wanted.last
                  AND (t.prompt_number = 1 OR t.prompt_number > wanted.last - %(newest)s::integer)
     ORDER BY t.server_session_id, t.prompt_number
    """)
async def prompts(
    conn: Conn, team_id: UUID, session_ids: Sequence[UUID], last: Sequence[int], *, newest: int, max_chars: int
) -> list[SessionPrompt]:
    """Each session's first prompt and its newest ones up to its number in `last`, oldest first, each cut to `max_chars`."""
    ...


@query("""
    SELECT t.server_session_id AS session_id, t.reply
      FROM unnest(%(session_ids)s::uuid[], %(prompt_numbers)s::integer[]) AS wanted(session_id, prompt_number)
      JOIN turns t ON t.server_session_id = wanted.session_id AND t.team_id = %(team_id)s
                  AND t.prompt_number = wanted.prompt_number - 1
     WHERE t.reply IS NOT NULL
    """)
async def replies_before(
    conn: Conn, team_id: UUID, session_ids: Sequence[UUID], prompt_numbers: Sequence[int]
) -> list[SessionReply]:
    """What the agent said last in each session before its prompt of that number."""
    ...


# Of each project as many as the page may need, each read from the end of its index, and the newest of them all.
@unprepared_query(f"""
    SELECT {_T_COLUMNS}
      FROM unnest(%(project_ids)s::uuid[]) AS one(project_id)
     CROSS JOIN LATERAL (
           SELECT q.* FROM turns q
            WHERE q.project_id = one.project_id AND q.team_id = %(team_id)s AND q.agent_id IS NULL
              AND (%(platform)s::text IS NULL
                   OR strpos(coalesce((SELECT lower(s.platform_source) FROM server_sessions s
                                        WHERE s.id = q.server_session_id AND s.team_id = q.team_id), 'claude'),
                             %(platform)s::text) > 0)
            ORDER BY q.created_at DESC, q.id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint) t
     ORDER BY t.created_at DESC, t.id DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint
    """)
async def listed(
    conn: Conn, team_id: UUID, project_ids: Collection[UUID], *, platform: str | None, limit: int, offset: int
) -> list[SessionTurn]:
    """Newest first. `platform` matches part of the agent's name."""
    ...


# Newest first; `before` and `before_id` are the keyset of the last one on the page before.
@unprepared_query(f"""
    SELECT {TURN_COLUMNS}
      FROM turns
     WHERE team_id = %(team_id)s AND created_at > '-infinity' -- all are: see rule 3 of migration 0001
       AND {IN_REACH} AND (agent_id IS NULL OR NOT %(of_users)s)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s OFFSET %(offset)s
    """)
async def newest(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    session_id: UUID | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
    offset: int = 0,
    of_users: bool = False,
) -> list[SessionTurn]:
    """A page of turns, newest first; None for no filter, `of_users` without those of sub-agents."""
    ...


@query(f"""
    SELECT {_TOLD_COLUMNS}
      FROM turns
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND agent_id IS NULL AND prompt <> ''
       AND own_line IS DISTINCT FROM ''
       AND (ended_at IS NOT NULL OR reply IS NOT NULL OR files <> '{{}}' OR checks <> '{{}}')
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """)
async def newest_ended(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[SessionTurn]:
    """The users' newest turns of the project that are over, or in which something was done, newest first."""
    ...


# What sub-agents said last, of sessions whose turns are told.
@query(f"""
    SELECT {_TOLD_COLUMNS}
      FROM turns
     WHERE server_session_id = ANY(%(session_ids)s) AND team_id = %(team_id)s AND agent_id IS NOT NULL AND reply IS NOT NULL
     ORDER BY number DESC LIMIT %(limit)s
    """)
async def subagents(conn: Conn, team_id: UUID, session_ids: Collection[UUID], limit: int) -> list[SessionTurn]:
    """The turns of sub-agents of these sessions that have an answer, newest first."""
    ...


@query(f"SELECT {TURN_COLUMNS} FROM turns WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
async def by_ids(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> list[SessionTurn]:
    """The existing ones of these turns, in no order."""
    ...


@query(f"SELECT {TURN_COLUMNS} FROM turns WHERE number = ANY(%(numbers)s::bigint[]) AND team_id = %(team_id)s")
async def by_numbers(conn: Conn, team_id: UUID, numbers: Collection[int]) -> list[SessionTurn]:
    """The turns with these numbers, those that exist, in no order."""
    ...


@query("""
    SELECT number, server_session_id AS session_id FROM turns
     WHERE team_id = %(team_id)s AND number = ANY(%(numbers)s::bigint[])
    """)
async def places(conn: Conn, team_id: UUID, numbers: Collection[int]) -> list[TurnPlace]:
    """The sessions of the turns with these numbers."""
    ...


@unprepared_query("""
    DELETE FROM turns
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete all rows of the project, or without one of the team; returns their number."""
    ...


async def delete(conn: Conn, team_id: UUID, turn_id: UUID) -> bool:
    """Delete the turn; returns whether it was there."""
    return await DELETE.run(conn, id=turn_id, team_id=team_id) > 0


@query(f"UPDATE turns SET own_line = %(line)s WHERE id = %(turn_id)s AND team_id = %(team_id)s RETURNING {TURN_COLUMNS}")
async def set_line(conn: Conn, team_id: UUID, turn_id: UUID, line: str | None) -> SessionTurn:
    """Set what the turn's line shall be; returns the turn."""
    ...
