"""All SQL on what turns did and on what is over of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.sessions.ledger.model import (
    Entry,
    FileTrace,
    NewEntry,
    NewTrace,
    Scope,
    Trace,
    TracedTurn,
    TraceKind,
    TurnCommit,
    TurnRuns,
    UntracedTurn,
)

OWNS = {"turn_traces", "turn_ledger", "untraced_turns"}

PUT = Query(
    int,
    """
    INSERT INTO turn_traces (team_id, project_id, turn_id, kind, name, put_in, took_out, results)
    SELECT %(team_id)s, %(project_id)s, n.turn_id, %(kind)s, n.name, n.put_in, n.took_out, n.results
      FROM jsonb_to_recordset(%(rows)s) AS n(turn_id uuid, name text, put_in integer[], took_out integer[], results jsonb)
    ON CONFLICT (turn_id, kind, name)
    DO UPDATE SET put_in = EXCLUDED.put_in, took_out = EXCLUDED.took_out, results = EXCLUDED.results,
                  commit = CASE WHEN EXCLUDED.name = ANY(%(edited)s::text[]) THEN NULL ELSE turn_traces.commit END
    """,
)

# A turn that has done something to both names keeps them apart. What later turns call by the old name is another file.
RENAME = Query(
    int,
    """
    UPDATE turn_traces r SET name = %(new)s
      FROM turns n, turns t
     WHERE n.id = %(turn_id)s AND n.team_id = %(team_id)s AND t.id = r.turn_id AND t.team_id = r.team_id
       AND (t.created_at, t.number) <= (n.created_at, n.number)
       AND r.project_id = %(project_id)s AND r.team_id = %(team_id)s AND r.kind = 'edit' AND r.name = %(old)s
       AND NOT EXISTS (SELECT FROM turn_traces o WHERE o.turn_id = r.turn_id AND o.kind = 'edit' AND o.name = %(new)s)
    """,
)
RENAME_ENTRIES = Query(
    int,
    """
    UPDATE turn_ledger l SET name = %(new)s
      FROM turn_traces r
     WHERE r.project_id = %(project_id)s AND r.team_id = %(team_id)s AND r.kind = 'edit' AND r.name = %(new)s
       AND l.earlier_id = r.turn_id AND l.team_id = r.team_id AND l.kind = 'edit' AND l.name = %(old)s
       AND NOT EXISTS (SELECT FROM turn_ledger o
                        WHERE o.earlier_id = l.earlier_id AND o.kind = 'edit' AND o.name = %(new)s AND o.token = l.token)
    """,
)


# What is in both lists is written over, not deleted: no row is touched twice.
WRITE = Query(
    int,
    """
    WITH entry AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(%(entries)s)
               AS n(earlier_id uuid, later_id uuid, name text, token integer, instead integer[])
    ), gone AS (
        DELETE FROM turn_ledger l
         USING jsonb_to_recordset(%(scopes)s) AS s(turn_ids uuid[], name text, tokens integer[])
         WHERE l.team_id = %(team_id)s AND l.earlier_id = ANY(s.turn_ids) AND l.kind = %(kind)s
           AND l.name = s.name AND l.token = ANY(s.tokens)
           AND NOT EXISTS (SELECT FROM entry n
                            WHERE n.earlier_id = l.earlier_id AND n.name = l.name AND n.token = l.token)
    )
    INSERT INTO turn_ledger (team_id, earlier_id, earlier_project_id, later_id, later_project_id, kind, name, token, instead)
    SELECT %(team_id)s, n.earlier_id, %(project_id)s, n.later_id, %(project_id)s, %(kind)s, n.name, n.token, n.instead FROM entry n
    ON CONFLICT (earlier_id, kind, name, token)
    DO UPDATE SET later_id = EXCLUDED.later_id, later_project_id = EXCLUDED.later_project_id, instead = EXCLUDED.instead
    """,
)


# One worker at a time: what turns did is noted in their order.
LOCK_UNTRACED = Query(bool, "SELECT pg_try_advisory_xact_lock(hashtextextended('untraced_turns', 0))")

NEXT_UNTRACED = Query(
    UntracedTurn,
    """
    SELECT t.id, t.team_id, t.server_session_id, coalesce(t.prompt_number, 0) AS prompt_number,
           t.files = '{}' AND t.checks = '{}' AND t.commits = '{}' AS lacks_work
      FROM untraced_turns u JOIN turns t ON t.id = u.turn_id
     ORDER BY u.place LIMIT 1 FOR NO KEY UPDATE OF t
    """,
)

END_UNTRACED = Query(
    bool,
    """
    DELETE FROM untraced_turns u WHERE u.turn_id = %(turn_id)s
    RETURNING NOT EXISTS (SELECT FROM turn_traces r WHERE r.turn_id = u.turn_id)
    """,
)


# Two sessions that end turns at the same time must see each other's traces.
@query("SELECT pg_advisory_xact_lock(hashtextextended('turn_traces:' || %(project_id)s::text, 0))::text")
async def lock(conn: Conn, project_id: UUID) -> None:
    """Let other turns of the project wait with their traces until the transaction ends."""
    ...


@query("""
    SELECT id, project_id, server_session_id FROM turns
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND prompt_number = %(prompt_number)s
    """)
async def turn(conn: Conn, team_id: UUID, session_id: UUID, prompt_number: int) -> TracedTurn | None: ...


@query("""
    SELECT turn_id, name, put_in, took_out, results, commit FROM turn_traces
     WHERE turn_id = %(turn_id)s AND team_id = %(team_id)s AND kind = %(kind)s ORDER BY name
    """)
async def of_turn(conn: Conn, team_id: UUID, turn_id: UUID, kind: TraceKind) -> list[Trace]: ...


# The newest turns that did something to each of them, oldest first.
@query("""
    SELECT n.turn_id, n.name, n.put_in, n.took_out, n.results, n.commit
      FROM unnest(%(names)s::text[]) AS asked (name)
     CROSS JOIN LATERAL (SELECT r.*, t.created_at, t.number
                           FROM turn_traces r JOIN turns t ON t.id = r.turn_id AND t.team_id = r.team_id
                          WHERE r.project_id = %(project_id)s AND r.team_id = %(team_id)s AND r.kind = %(kind)s
                            AND r.name = asked.name
                          ORDER BY t.created_at DESC, t.number DESC LIMIT %(limit)s) n
     ORDER BY n.name, n.created_at, n.number
    """)
async def of_names(conn: Conn, team_id: UUID, project_id: UUID, kind: TraceKind, names: Collection[str], limit: int) -> list[Trace]:
    """The newest `limit` traces of each of these files or programs in the project, one name after the other, oldest first."""
    ...


# The newest turns that ran checks of these programs, oldest first.
@query("""
    SELECT n.number, n.created_at, n.server_session_id, n.results
      FROM (SELECT t.number, t.created_at, t.server_session_id, r.name, r.results
              FROM turn_traces r JOIN turns t ON t.id = r.turn_id AND t.team_id = r.team_id
             WHERE r.project_id = %(project_id)s AND r.team_id = %(team_id)s AND r.kind = 'check' AND r.name = ANY(%(names)s)
             ORDER BY t.created_at DESC, t.number DESC LIMIT %(limit)s) n
     ORDER BY n.created_at, n.number, n.name
    """)
async def runs(conn: Conn, team_id: UUID, project_id: UUID, names: Collection[str], limit: int) -> list[TurnRuns]:
    """How the newest turns of the project ran checks of these programs, oldest first."""
    ...


# Of the session before that turn, newest first.
@query("""
    SELECT r.turn_id, r.name, r.put_in, r.took_out, r.results, r.commit
      FROM turns n
      JOIN turns t ON t.server_session_id = n.server_session_id AND t.team_id = n.team_id
      JOIN turn_traces r ON r.turn_id = t.id AND r.team_id = t.team_id
     WHERE n.id = %(turn_id)s AND n.team_id = %(team_id)s AND r.kind = 'edit' AND t.prompt_number < n.prompt_number
     ORDER BY t.prompt_number DESC, r.name LIMIT %(limit)s
    """)
async def of_session(conn: Conn, team_id: UUID, turn_id: UUID, limit: int) -> list[Trace]:
    """What the turns before that one did to files, in its session, newest first."""
    ...


async def put(
    conn: Conn, team_id: UUID, project_id: UUID, kind: TraceKind, rows: Sequence[NewTrace], edited: Collection[str] = ()
) -> None:
    """Note what turns did to files or how they ran programs' checks, in the place of what is noted of that.

    What of the files `edited` a commit had is not all of it any more.
    """
    if rows:
        await PUT.run(conn, team_id=team_id, project_id=project_id, kind=kind, rows=Jsonb(list(rows)), edited=list(edited))


async def rename(conn: Conn, team_id: UUID, turn: TracedTurn, old: str, new: str) -> None:
    """Note that a file has another name since that turn."""
    project_id = turn.project_id
    await RENAME.run(conn, team_id=team_id, project_id=project_id, turn_id=turn.id, old=old, new=new)
    await RENAME_ENTRIES.run(conn, team_id=team_id, project_id=project_id, old=old, new=new)


@query("""
    UPDATE turn_traces r SET commit = %(commit)s
      FROM turns n, turns t
     WHERE n.id = %(turn_id)s AND n.team_id = %(team_id)s
       AND t.server_session_id = n.server_session_id AND t.team_id = n.team_id AND t.prompt_number <= n.prompt_number
       AND r.turn_id = t.id AND r.team_id = t.team_id AND r.kind = 'edit' AND r.commit IS NULL
       AND NOT (t.id = n.id AND r.name = ANY(%(loose)s::text[]))
    """)
async def commit(conn: Conn, team_id: UUID, turn_id: UUID, commit: str, loose: Collection[str]) -> None:
    """Note that a commit has what its session did until then, but for the `loose` files of the turn itself."""
    ...


@query("""
    INSERT INTO turn_traces (team_id, project_id, turn_id, kind, name, commit)
    SELECT t.team_id, t.project_id, t.id, 'commit', %(name)s, %(commit)s FROM turns t
     WHERE t.id = %(turn_id)s AND t.team_id = %(team_id)s
    ON CONFLICT (turn_id, kind, name) DO UPDATE SET commit = EXCLUDED.commit
    """)
async def add_commit(conn: Conn, team_id: UUID, turn_id: UUID, name: str, commit: str) -> None:
    """Note a commit that the turn made; `name` is the beginning of its hash."""
    ...


@query("""
    SELECT r.turn_id, coalesce(r.commit, '') AS commit FROM turn_traces r JOIN turns t ON t.id = r.turn_id AND t.team_id = r.team_id
     WHERE r.project_id = %(project_id)s AND r.team_id = %(team_id)s AND r.kind = 'commit' AND r.name = %(name)s
     ORDER BY t.created_at DESC, t.number DESC LIMIT %(limit)s
    """)
async def commits(conn: Conn, team_id: UUID, project_id: UUID, name: str, limit: int) -> list[TurnCommit]:
    """The commits of the project's turns whose hash begins so, those of the newest turns first."""
    ...


# Of a turn that calls the file otherwise in another place, each. A turn's id begins with the time at which it was stored: of a file
# that everybody edits, the last ones are joined.
@query("""
    SELECT r.turn_id, t.number, t.created_at, r.commit
      FROM (SELECT turn_id, team_id, commit FROM turn_traces
             WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND kind = 'edit' AND name = ANY(%(names)s::text[])
             ORDER BY turn_id DESC LIMIT %(most)s) r
      JOIN turns t ON t.id = r.turn_id AND t.team_id = r.team_id
     WHERE t.created_at <= %(until)s
     ORDER BY t.created_at DESC, t.number DESC LIMIT %(limit)s
    """)
async def of_file(
    conn: Conn, team_id: UUID, project_id: UUID, names: Collection[str], *, until: datetime, most: int, limit: int
) -> list[FileTrace]:
    """The edits of the file of any of these names, by turns that had begun by then, of the last `most`, newest first."""
    ...


async def write(
    conn: Conn, team_id: UUID, project_id: UUID, kind: TraceKind, scopes: Sequence[Scope], entries: Sequence[NewEntry]
) -> None:
    """Put these entries in the place of all that there are in the scopes. No two are of one turn, name and token."""
    if scopes:
        await WRITE.run(
            conn,
            team_id=team_id,
            project_id=project_id,
            kind=kind,
            scopes=Jsonb(list(scopes)),
            entries=Jsonb(list(entries)),
        )


# What stands in several files is over when it is out of each. Later is what is later in the order of all.
@query("""
    SELECT l.earlier_id, l.later_id, l.kind, l.name, l.token, l.instead, n.number AS later_number, n.created_at AS later_at
      FROM turn_ledger l
      JOIN turns t ON t.id = l.earlier_id AND t.team_id = l.team_id
      JOIN turns n ON n.id = l.later_id AND n.team_id = l.team_id
     WHERE t.number = ANY(%(numbers)s::bigint[]) AND t.team_id = %(team_id)s AND l.earlier_project_id = l.later_project_id
       AND (t.created_at, t.number) < (n.created_at, n.number)
       AND NOT EXISTS (SELECT FROM turn_traces r
                        WHERE l.kind = 'edit' AND r.turn_id = l.earlier_id AND r.team_id = l.team_id AND r.kind = 'edit'
                          AND l.token = ANY(r.put_in)
                          AND NOT EXISTS (SELECT FROM turn_ledger o
                                           WHERE o.earlier_id = l.earlier_id AND o.team_id = l.team_id AND o.kind = 'edit'
                                             AND o.name = r.name AND o.token = l.token))
     ORDER BY n.created_at, n.number
    """)
async def of_turns(conn: Conn, team_id: UUID, numbers: Collection[int]) -> list[Entry]:
    """What is over of the turns with these numbers, in the order of the later ones."""
    ...


async def next_untraced(conn: Conn) -> UntracedTurn | None:
    """The turn of which shall be noted next what it did, locked until the transaction ends; None while another worker has one."""
    return await NEXT_UNTRACED.first(conn) if await LOCK_UNTRACED.one(conn) else None


async def end_untraced(conn: Conn, turn_id: UUID) -> bool:
    """Note that a turn waits no more; returns whether it still had no traces."""
    return await END_UNTRACED.first(conn, turn_id=turn_id) is True


@query("""
    INSERT INTO untraced_turns (turn_id, team_id, project_id)
    SELECT t.id, t.team_id, t.project_id
      FROM turns t
     WHERE t.team_id = %(team_id)s AND t.prompt_number IS NOT NULL
       AND NOT EXISTS (SELECT FROM turn_traces r WHERE r.turn_id = t.id)
       AND EXISTS (SELECT FROM agent_events e
                    WHERE e.project_id = t.project_id AND e.server_session_id = t.server_session_id
                      AND e.origin = 'import' AND e.payload_purged_at IS NULL)
     ORDER BY t.created_at, t.number
    ON CONFLICT (turn_id) DO NOTHING
    """)
async def add_imported(conn: Conn, team_id: UUID) -> None:
    """Let those of the team's turns wait whose events were imported and of which nothing is noted."""
    ...
