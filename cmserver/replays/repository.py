"""All SQL on replays and their lines, and what a replay reads of sessions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.base.db import READS_ALL_WORDS
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.replays.model import (
    REPLAY_COLUMNS,
    ErasedRows,
    NewLine,
    Replay,
    ReplayedBatch,
    ReplayLine,
    ReplayScope,
    SessionToReplay,
)

OWNS = {"replays", "replay_lines"}

LOCK_TEAM = Query(object, "SELECT pg_advisory_xact_lock(hashtextextended('replays ' || %(team_id)s::text, 0))")
"""Whoever begins, takes over, undoes or removes a replay of the team does it alone, until the transaction ends."""
TRY_LOCK = Query(bool, "SELECT pg_try_advisory_lock(hashtextextended('replay ' || %(replay_id)s::text, 0))")
"""Of the session that runs it: gone when that ends, however it does."""

READS_ALL = Query(bool, f"SELECT {READS_ALL_WORDS}")
"""Whether the transaction reads the words of all people of the team."""

# A line whose row is shown no more tells of what people have taken away; but one that was lost by a take-over is its own doing.
_IS_SHOWN: LiteralString = """(l.observation_id IS NULL OR EXISTS (
            SELECT FROM observations o
             WHERE o.id = l.observation_id AND o.team_id = l.team_id AND o.superseded_at IS NULL AND o.taken_at IS NULL
               AND (o.expires_at IS NULL OR o.expires_at > now() OR (l.difference = 'lost' AND l.undo IS NOT NULL))))"""
_IS_OPEN: LiteralString = """NOT EXISTS (SELECT FROM projects p JOIN replays w ON w.id = l.replay_id AND w.team_id = l.team_id
                        WHERE p.id = l.project_id AND p.team_id = l.team_id AND p.isolated
                          AND w.project_id IS DISTINCT FROM p.id)"""
"""Nor is what is isolated told to who did not name it."""
_SHOWN: LiteralString = f"{_IS_SHOWN} AND {_IS_OPEN}"
_COUNTS: LiteralString = f"""
      CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE l.difference = 'lost') AS lost, count(*) FILTER (WHERE l.difference = 'new') AS new,
                   count(*) FILTER (WHERE l.difference = 'reworded') AS reworded
              FROM replay_lines l WHERE l.replay_id = r.id AND l.team_id = r.team_id AND {_SHOWN}) c"""
_COUNTED: LiteralString = f"{REPLAY_COLUMNS}, c.lost, c.new, c.reworded"

# Whole sessions of projects that are open, of which everything that ends has ended.
_SESSIONS: LiteralString = """
      FROM server_sessions s
      JOIN projects p ON p.id = s.project_id AND p.team_id = s.team_id AND p.archived_at IS NULL
     WHERE s.team_id = %(team_id)s
       AND CASE WHEN %(project_id)s::uuid IS NULL THEN NOT p.isolated ELSE s.project_id = %(project_id)s::uuid END
       AND s.started_at > '-infinity' AND (%(since)s::timestamptz IS NULL OR s.started_at >= %(since)s::timestamptz)
       AND EXISTS (SELECT FROM observation_generation_jobs j
                    WHERE j.server_session_id = s.id AND j.team_id = s.team_id
                      AND j.source_type IN ('agent_event', 'session_summary') AND j.created_at <= %(until)s::timestamptz)"""
_WAITS: LiteralString = """EXISTS (
            SELECT FROM observation_generation_jobs j
             WHERE j.server_session_id = s.id AND j.team_id = s.team_id AND j.source_type IN ('agent_event', 'session_summary')
               AND (j.phase = 'open' OR j.phase = 'cancelled') AND j.created_at <= %(until)s::timestamptz)"""
_PURGED: LiteralString = """EXISTS (
            SELECT FROM agent_events e
             WHERE e.project_id = s.project_id AND e.server_session_id = s.id AND e.team_id = s.team_id
               AND e.generate AND e.payload_purged_at IS NOT NULL)"""


@unprepared_query(f"""
    WITH chosen AS MATERIALIZED (SELECT s.id, s.team_id, {_WAITS} AS waits, {_PURGED} AS purged {_SESSIONS}),
    jobs AS (
        SELECT j.server_session_id, count(*) FILTER (WHERE j.source_type = 'agent_event') AS events,
               count(*) FILTER (WHERE j.source_type <> 'agent_event') AS summaries, sum(j.size_chars) AS chars
          FROM chosen s
          JOIN observation_generation_jobs j ON j.server_session_id = s.id AND j.team_id = s.team_id
         WHERE NOT s.waits AND NOT s.purged AND j.source_type IN ('agent_event', 'session_summary')
           AND j.created_at <= %(until)s::timestamptz
         GROUP BY j.server_session_id
    )
    SELECT (SELECT count(*) FROM jobs) AS sessions, coalesce((SELECT sum(events) FROM jobs), 0)::bigint AS events,
           (SELECT count(*) FROM chosen WHERE purged AND NOT waits) AS purged, (SELECT count(*) FROM chosen WHERE waits) AS waiting,
           coalesce((SELECT sum(chars) FROM jobs), 0)::bigint AS chars,
           coalesce((SELECT sum(summaries + greatest(ceil(events / %(batch_events)s::numeric),
                                                     ceil(chars / %(batch_chars)s::numeric))) FROM jobs), 0)::bigint AS calls
    """)
async def measure(
    conn: Conn,
    team_id: UUID,
    project_id: UUID | None,
    since: datetime | None,
    until: datetime,
    batch_events: int,
    batch_chars: int,
) -> ReplayScope:
    """What a replay of these sessions would run."""
    ...


@query(f"""
    SELECT s.id, s.project_id, s.started_at,
           EXISTS (SELECT FROM turns t
                    CROSS JOIN LATERAL regexp_matches(t.prompt, '#([0-9]{{1,9}})', 'g') AS named
                     JOIN observations o ON o.team_id = t.team_id AND o.number = named[1]::bigint
                    WHERE t.server_session_id = s.id AND t.team_id = s.team_id AND o.project_id = s.project_id
                      AND o.state IS NOT NULL AND o.server_session_id IS DISTINCT FROM s.id) AS names_others
    {_SESSIONS}
       AND NOT {_WAITS} AND NOT {_PURGED}
       AND (%(done_to)s::timestamptz IS NULL OR (s.started_at, s.id) > (%(done_to)s::timestamptz, %(done_to_id)s::uuid))
     ORDER BY s.started_at, s.id LIMIT %(limit)s
    """)
async def next_sessions(
    conn: Conn,
    team_id: UUID,
    project_id: UUID | None,
    since: datetime | None,
    until: datetime,
    done_to: datetime | None,
    done_to_id: UUID | None,
    limit: int,
) -> list[SessionToReplay]:
    """The sessions whose turn it is."""
    ...


# As they were worded: the jobs of a claim together, in the order in which the claims ended.
@query("""
    SELECT j.lane, j.project_id, coalesce(j.claim, 0) AS claim, array_agg(j.id ORDER BY j.seq) AS job_ids,
           bool_and(j.source_type = 'agent_event') AS is_plain, coalesce(sum(j.size_chars), 0)::bigint AS chars,
           max(coalesce(j.completed_at, j.failed_at)) AS ended_at
      FROM observation_generation_jobs j
     WHERE j.server_session_id = ANY(%(session_ids)s::uuid[]) AND j.team_id = %(team_id)s
       AND j.source_type IN ('agent_event', 'session_summary') AND j.status IN ('completed', 'failed')
       AND j.created_at <= %(until)s
     GROUP BY j.lane, j.project_id, coalesce(j.claim, 0)
     ORDER BY j.lane, min(j.seq)
    """)
async def batches(conn: Conn, team_id: UUID, session_ids: Collection[UUID], until: datetime) -> list[ReplayedBatch]:
    """The batches of the sessions, one session after another."""
    ...


@unprepared_query("""
    SELECT g.job_ids, g.count
      FROM audit_log a
     CROSS JOIN LATERAL (
           SELECT ARRAY(SELECT jsonb_array_elements_text(a.details -> 'jobs')::uuid) AS job_ids, count(*)::integer AS count
             FROM jsonb_array_elements_text(a.details -> 'observations') AS made(id)
            WHERE NOT EXISTS (SELECT FROM observations o WHERE o.id = made.id::uuid)) g
     WHERE a.team_id = %(team_id)s AND a.action = 'observations.generated' AND g.count > 0
    """)
async def erased(conn: Conn, team_id: UUID) -> list[ErasedRows]:
    """Of which jobs observations were made that are gone, and how many."""
    ...


@query(f"""
    INSERT INTO replays AS r (id, team_id, project_id, number, since, provider, program, session_count, event_count, purged_count)
    VALUES (%(id_)s, %(team_id)s, %(project_id)s,
            (SELECT coalesce(max(number), 0) + 1 FROM replays WHERE team_id = %(team_id)s),
            %(since)s, %(provider)s, %(program)s, %(session_count)s, %(event_count)s, %(purged_count)s)
    RETURNING {REPLAY_COLUMNS}
    """)
async def insert(
    conn: Conn,
    id_: UUID,
    team_id: UUID,
    *,
    project_id: UUID | None,
    since: datetime | None,
    provider: str,
    program: str,
    session_count: int,
    event_count: int,
    purged_count: int,
) -> Replay: ...


@query("SELECT count(*) FROM replays WHERE team_id = %(team_id)s")
async def count(conn: Conn, team_id: UUID) -> int:
    """How many the team has."""
    ...


@query(f"""
    SELECT {_COUNTED} FROM replays r {_COUNTS}
     WHERE r.team_id = %(team_id)s AND (%(bound_to)s::uuid IS NULL OR r.project_id = %(bound_to)s::uuid)
       AND (%(before)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY r.created_at DESC, r.id DESC LIMIT %(limit)s
    """)
async def page(
    conn: Conn, team_id: UUID, bound_to: UUID | None, *, before: datetime | None, before_id: UUID | None, limit: int
) -> list[Replay]:
    """Replays, newest first; of a key that is bound to a project only those of that."""
    ...


@query(f"""
    SELECT {_COUNTED} FROM replays r {_COUNTS}
     WHERE r.team_id = %(team_id)s AND (%(number)s::bigint IS NULL OR r.number = %(number)s)
       AND (%(id_)s::uuid IS NULL OR r.id = %(id_)s)
    """)
async def find(conn: Conn, team_id: UUID, *, number: int | None, id_: UUID | None) -> Replay | None:
    """The replay of that number, or else of that id: one of them is given."""
    ...


@query(f"""
    SELECT {REPLAY_COLUMNS} FROM replays r WHERE r.state = 'running' ORDER BY r.created_at, r.id
    """)
async def running(conn: Conn) -> list[Replay]:
    """Those that are to be run, of all teams; for the owner."""
    ...


@query("""
    UPDATE replays AS r
       SET sessions_done = sessions_done + %(sessions)s, events_done = events_done + %(events)s, kept = kept + %(kept)s,
           by_people = by_people + %(by_people)s, done_to = %(done_to)s, done_to_id = %(done_to_id)s, updated_at = now()
     WHERE id = %(id_)s AND team_id = %(team_id)s AND state IN ('running', 'stopped')
       AND (r.done_to, r.done_to_id) IS NOT DISTINCT FROM (%(from_)s::timestamptz, %(from_id)s::uuid)
    RETURNING r.state
    """)
async def note_progress(
    conn: Conn,
    team_id: UUID,
    id_: UUID,
    *,
    sessions: int,
    events: int,
    kept: int,
    by_people: int,
    from_: datetime | None,
    from_id: UUID | None,
    done_to: datetime,
    done_to_id: UUID,
) -> str | None:
    """Note that the sessions behind that one are done; the state that it is in, or None when it was removed, or another worker did
    them.
    """
    ...


@query("""
    UPDATE replays SET state = %(state)s, reason = %(reason)s, updated_at = now()
     WHERE id = %(id_)s AND team_id = %(team_id)s AND state = ANY(%(from_states)s)
    """)
async def set_state(
    conn: Conn, team_id: UUID, id_: UUID, state: str, from_states: Collection[str], reason: str | None = None
) -> RowCount:
    """Change its state, if it is in one of those."""
    ...


@query("DELETE FROM replays WHERE team_id = %(team_id)s AND id = %(id_)s")
async def delete(conn: Conn, team_id: UUID, id_: UUID) -> RowCount:
    """Delete the replay with its lines."""
    ...


# A session, turn or row that was erased meanwhile has no line.
INSERT_LINES = Query(
    int,
    """
    INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, turn_id, observation_id, place, difference,
                              what, version, before, after, new_row)
    SELECT n.id, %(team_id)s, %(replay_id)s, s.project_id, s.id, n.turn_id, n.observation_id,
           (SELECT coalesce(max(l.place), 0) FROM replay_lines l WHERE l.replay_id = %(replay_id)s) + n.place,
           n.difference, n.what, n.version, n.before, n.after, n.new_row
      FROM (SELECT row_number() OVER (ORDER BY r.id) AS place, r.*
              FROM jsonb_to_recordset(%(rows)s)
                   AS r(id uuid, server_session_id uuid, turn_id uuid, observation_id uuid, difference text, what text,
                        version integer, before jsonb, after jsonb, new_row jsonb)) n
      JOIN server_sessions s ON s.id = n.server_session_id AND s.team_id = %(team_id)s
     WHERE (n.turn_id IS NULL OR EXISTS (
                SELECT FROM turns t WHERE t.id = n.turn_id AND t.project_id = s.project_id AND t.team_id = s.team_id))
       AND (n.observation_id IS NULL OR EXISTS (
                SELECT FROM observations o
                 WHERE o.id = n.observation_id AND o.project_id = s.project_id AND o.team_id = s.team_id))
    """,
)


async def insert_lines(conn: Conn, team_id: UUID, replay_id: UUID, lines: Sequence[NewLine]) -> None:
    """Store the lines behind those that are there."""
    if lines:
        await INSERT_LINES.run(conn, team_id=team_id, replay_id=replay_id, rows=Jsonb(list(lines)))


_LINE: LiteralString = """l.id, l.project_id, l.server_session_id, l.turn_id, l.observation_id, l.place, l.difference, l.what,
           coalesce((SELECT o.number FROM observations o WHERE o.id = l.observation_id AND o.team_id = l.team_id),
                    (SELECT t.number FROM turns t WHERE t.id = l.turn_id AND t.team_id = l.team_id AND l.what = 'turn')) AS number,
           l.version, l.before, l.after"""


@query(f"""
    SELECT {_LINE} FROM replay_lines l
     WHERE l.team_id = %(team_id)s AND l.replay_id = %(replay_id)s AND {_SHOWN}
       AND (%(difference)s::text IS NULL OR l.difference = %(difference)s::text) AND l.place > %(after)s
     ORDER BY l.place LIMIT %(limit)s
    """)
async def lines(conn: Conn, team_id: UUID, replay_id: UUID, *, difference: str | None, after: int, limit: int) -> list[ReplayLine]:
    """Lines in the order of the sessions, behind that place."""
    ...


@query(f"""
    SELECT {_LINE}, l.new_row, l.undo, {_IS_SHOWN} AS is_shown FROM replay_lines l
     WHERE l.team_id = %(team_id)s AND l.replay_id = %(replay_id)s AND l.place > %(after)s AND ({_IS_OPEN} OR l.undo IS NOT NULL)
     ORDER BY l.place LIMIT %(limit)s
    """)
async def whole_lines(conn: Conn, team_id: UUID, replay_id: UUID, *, after: int, limit: int) -> list[ReplayLine]:
    """Lines with all that is needed to write them into the memory, or to take that back."""
    ...


SET_UNDO = Query(
    int,
    """
    UPDATE replay_lines
       SET undo = %(undo)s, observation_id = %(observation_id)s, version = coalesce(%(version)s::integer, version)
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)


NOTE_STORED = Query(
    int,
    """
    UPDATE replay_lines l SET undo = %(undo)s, observation_id = n.observation_id
      FROM unnest(%(ids)s::uuid[], %(observation_ids)s::uuid[]) AS n(id, observation_id)
     WHERE l.id = n.id AND l.team_id = %(team_id)s
    """,
)


async def note_stored(conn: Conn, team_id: UUID, ids: Sequence[UUID], *, undo: object, observation_ids: Sequence[UUID]) -> None:
    """Note of lines which observations were made of them, in their order, and how that is taken back."""
    await NOTE_STORED.run(conn, ids=list(ids), team_id=team_id, undo=Jsonb(undo), observation_ids=list(observation_ids))


async def set_undo(
    conn: Conn, team_id: UUID, id_: UUID, *, undo: object, observation_id: UUID | None, version: int | None = None
) -> None:
    """Note what was there, or with None that it is there again, in the row's version of that number."""
    noted = None if undo is None else Jsonb(undo)
    await SET_UNDO.run(conn, id=id_, team_id=team_id, undo=noted, observation_id=observation_id, version=version)
