"""All SQL in a shadow, on its temporary tables. `public.` before a table's name is the real one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from psycopg import sql

from cmserver.base.sql import Conn, Query
from cmserver.replays.model import Comparison, ErasedRows, ReplayedBatch, ReplayedRow, ReplayedTurn

OWNS: set[str] = set()

_COPIED: tuple[LiteralString, ...] = (
    *("observation_generation_jobs", "generation_lanes", "generation_runs", "observations", "observation_sources"),
    *("observation_counters", "audit_log", "server_sessions", "turns", "turn_traces", "turn_ledger", "rule_approvals"),
    *("personal_observations", "personal_counters", "budgets", "provider_pauses", "projects", "api_keys"),
)
"""Every table that a batch writes, or whose rows it locks."""
_OF_GROUP: tuple[LiteralString, ...] = tuple(name for name in _COPIED if name not in {"projects", "api_keys"})

_INDEXES: tuple[LiteralString, ...] = (
    "UNIQUE INDEX ON pg_temp.observation_generation_jobs (id)",
    "INDEX ON pg_temp.observation_generation_jobs (lane, seq)",
    "UNIQUE INDEX ON pg_temp.generation_lanes (lane)",
    "UNIQUE INDEX ON pg_temp.generation_runs (id)",
    "UNIQUE INDEX ON pg_temp.observations (id)",
    "UNIQUE INDEX ON pg_temp.observations (generation_key, project_id, team_id)",
    "INDEX ON pg_temp.observations (project_id, server_session_id, created_at)",
    "INDEX ON pg_temp.observations (number)",
    "INDEX ON pg_temp.observations (team_id, project_id, number) WHERE state = 'open'",
    "UNIQUE INDEX ON pg_temp.observation_sources (observation_id, source_type, source_id)",
    "UNIQUE INDEX ON pg_temp.observation_counters (team_id)",
    "UNIQUE INDEX ON pg_temp.server_sessions (id)",
    "UNIQUE INDEX ON pg_temp.turns (id)",
    "INDEX ON pg_temp.turns (server_session_id, prompt_number)",
    "INDEX ON pg_temp.turns (agent_event_id)",
    "INDEX ON pg_temp.turns (number)",
    "UNIQUE INDEX ON pg_temp.turn_traces (turn_id, kind, name)",
    "INDEX ON pg_temp.turn_traces (project_id, kind, name)",
    "UNIQUE INDEX ON pg_temp.turn_ledger (earlier_id, kind, name, token)",
    "UNIQUE INDEX ON pg_temp.rule_approvals (observation_id)",
    "UNIQUE INDEX ON pg_temp.personal_counters (team_id, user_id)",
    "UNIQUE INDEX ON pg_temp.provider_pauses (provider)",
    "UNIQUE INDEX ON pg_temp.projects (id)",
    "UNIQUE INDEX ON pg_temp.api_keys (id)",
)

# A key that was revoked since had asked for its events when it could. Sessions of a project that is closed are not replayed.
_LOAD_TEAM: tuple[LiteralString, ...] = (
    "INSERT INTO pg_temp.projects OVERRIDING SYSTEM VALUE SELECT * FROM public.projects WHERE team_id = %(team_id)s",
    "INSERT INTO pg_temp.api_keys OVERRIDING SYSTEM VALUE SELECT * FROM public.api_keys WHERE team_id = %(team_id)s",
    "UPDATE pg_temp.api_keys SET revoked_at = NULL, expires_at = NULL, scopes = '[\"*\"]', project_id = NULL",
)

# What was done in turns is noted anew, and no number is taken for one of a real observation or turn.
_LOAD_GROUP: tuple[LiteralString, ...] = (
    "INSERT INTO pg_temp.server_sessions SELECT * FROM public.server_sessions WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s",
    "INSERT INTO pg_temp.turns SELECT * FROM public.turns WHERE server_session_id = ANY(%(ids)s) AND team_id = %(team_id)s",
    "UPDATE pg_temp.turns SET files = '{}', checks = '{}', commits = '{}'",
    "INSERT INTO pg_temp.observation_counters (team_id, last_number) VALUES (%(team_id)s, 1000000000000)",
    """
    INSERT INTO pg_temp.generation_lanes (lane, team_id, project_id, worker_id, claim)
    SELECT id, team_id, project_id, 0, 0 FROM pg_temp.server_sessions
    """,
    """
    INSERT INTO pg_temp.observation_generation_jobs
           (id, seq, project_id, team_id, lane, agent_event_id, source_type, source_id, source_run, server_session_id, job_type,
            status, attempts, max_attempts, locked_at, locked_by, worker_id, claim, payload, size_chars, api_key_id, actor_id,
            source_adapter, request_id, created_at)
    SELECT j.id, j.seq, j.project_id, j.team_id, j.lane, j.agent_event_id, j.source_type, j.source_id, j.source_run,
           j.server_session_id, j.job_type, 'processing', 1, 3, now(), 'replay', 0, coalesce(j.claim, 0), j.payload, j.size_chars,
           j.api_key_id, j.actor_id, j.source_adapter, j.request_id, j.created_at
      FROM public.observation_generation_jobs j
     WHERE j.server_session_id = ANY(%(ids)s) AND j.team_id = %(team_id)s
       AND j.source_type IN ('agent_event', 'session_summary') AND j.status IN ('completed', 'failed')
       AND j.created_at <= %(until)s
    """,
)

# People close what another session left open by its number. So that stands there, too, as long as it was open.
_OPEN_ELSEWHERE: tuple[LiteralString, ...] = (
    """
    DELETE FROM pg_temp.observations WHERE state IS NOT NULL AND server_session_id IS DISTINCT FROM %(lane)s
    """,
    """
    INSERT INTO pg_temp.observations
    SELECT o.* FROM public.observations o
     WHERE o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND o.state IS NOT NULL
       AND o.server_session_id IS DISTINCT FROM %(lane)s
       AND greatest(o.created_at, recorded_at(o.id, o.created_at)) < %(ended)s
       AND (o.closed_at IS NULL OR o.closed_at >= %(ended)s)
       AND (o.superseded_at IS NULL OR o.superseded_at >= %(ended)s) AND (o.expires_at IS NULL OR o.expires_at >= %(ended)s)
    """,
    """
    UPDATE pg_temp.observations
       SET state = 'open', closed_by = NULL, closed_at = NULL, superseded_by = NULL, superseded_at = NULL, expires_at = NULL
     WHERE state IS NOT NULL AND server_session_id IS DISTINCT FROM %(lane)s
    """,
)

# Numbers and times are those of the rows that say the same, so that what people wrote of a number finds it; other rows are dated as
# they would have been.
_AGE_ROWS: LiteralString = """
    UPDATE pg_temp.observations o
       SET number = coalesce(n.number, o.number),
           created_at = CASE WHEN o.created_at >= %(began)s THEN n.ended ELSE o.created_at END
      FROM (SELECT m.id, b.ended, r.number
              FROM unnest(%(job_ids)s::uuid[], %(ended)s::timestamptz[]) AS b(job_id, ended)
              JOIN pg_temp.observations m ON m.created_by_job_id = b.job_id
              LEFT JOIN public.observations r
                ON r.generation_key = m.generation_key AND r.project_id = m.project_id AND r.team_id = m.team_id) n
     WHERE n.id = o.id
"""
_LEFT: LiteralString = """
    SELECT id FROM pg_temp.observation_generation_jobs
     WHERE id = ANY(%(job_ids)s) AND status IN ('queued', 'processing') ORDER BY seq
"""
_HOLD_LANES: LiteralString = """
    UPDATE pg_temp.generation_lanes SET worker_id = 0, claim = %(claim)s, held_until = NULL, due_at = NULL
     WHERE lane = ANY(%(lanes)s)
"""
_HOLD_JOBS: LiteralString = """
    UPDATE pg_temp.observation_generation_jobs
       SET status = 'processing', claim = %(claim)s, attempts = 1, worker_id = 0, locked_at = now(), locked_by = 'replay'
     WHERE id = ANY(%(job_ids)s)
"""
_NOT_NULLS: LiteralString = """
    SELECT attname FROM pg_attribute
     WHERE attrelid = to_regclass('pg_temp.' || %s) AND attnum > 0 AND attnotnull AND NOT attisdropped
"""

# What people and agents wrote by hand before a session's summary stands in that.
_LOAD_NOTES: LiteralString = """
    INSERT INTO pg_temp.observations
    SELECT o.* FROM public.observations o
     WHERE o.project_id = %(project_id)s AND o.server_session_id = %(lane)s AND o.team_id = %(team_id)s AND o.kind = 'manual'
       AND coalesce(o.recorded_at, o.created_at) <= %(ended)s
    ON CONFLICT DO NOTHING
"""


# What was made of events and of sessions; what the steward drew, or people wrote, has no such source.
_STORED: LiteralString = """
    SELECT o.id, o.number, o.server_session_id, t.id AS turn_id, o.kind, o.generation_key, s.job_ids, o.version,
           o.version = 1 AND o.superseded_at IS NULL AND o.taken_at IS NULL AND o.expires_at IS NULL AS is_untouched,
           jsonb_build_object(
               'type', o.type, 'title', o.title, 'subtitle', o.subtitle, 'narrative', o.narrative,
               'facts', coalesce(o.facts, '{}'), 'concepts', coalesce(o.concepts, '{}'),
               'files_read', coalesce(o.files_read, '{}'), 'files_modified', coalesce(o.files_modified, '{}'),
               'quote', o.quote, 'content', o.content, 'importance', o.importance, 'is_open', o.state IS NOT NULL) AS told,
           NULL::jsonb AS row
      FROM public.observations o
     CROSS JOIN LATERAL (
           SELECT array_agg(s.generation_job_id ORDER BY s.generation_job_id) AS job_ids
             FROM public.observation_sources s
             JOIN pg_temp.observation_generation_jobs j ON j.id = s.generation_job_id
            WHERE s.observation_id = o.id AND s.team_id = o.team_id) s
      LEFT JOIN public.turns t ON t.number = o.turn_number AND t.team_id = o.team_id
     WHERE o.server_session_id = ANY(%(session_ids)s) AND o.team_id = %(team_id)s AND o.project_id = ANY(%(project_ids)s)
       AND o.kind <> 'manual' AND s.job_ids IS NOT NULL
     ORDER BY o.created_at, o.number
"""
_WHOLE_ROW: LiteralString = """
           to_jsonb(o) - '{content_search,content_words}'::text[] || jsonb_build_object('sources', (
               SELECT jsonb_agg(jsonb_build_object('source_type', c.source_type, 'source_id', c.source_id,
                                                   'agent_event_id', c.agent_event_id, 'generation_job_id', c.generation_job_id))
                 FROM pg_temp.observation_sources c WHERE c.observation_id = o.id)) AS row"""
_MADE: LiteralString = (
    _STORED.replace("public.observations o", "pg_temp.observations o")
    .replace("public.observation_sources s", "pg_temp.observation_sources s")
    .replace("NULL::jsonb AS row", _WHOLE_ROW)
)

_TURNS: LiteralString = """
    SELECT t.id, t.number, t.server_session_id,
           jsonb_build_object('files', t.files, 'checks', t.checks, 'commits', t.commits) AS before,
           jsonb_build_object('files', n.files, 'checks', n.checks, 'commits', n.commits) AS after
      FROM pg_temp.turns n JOIN public.turns t ON t.id = n.id
     WHERE t.team_id = %(team_id)s AND t.files || t.checks || t.commits || n.files || n.checks || n.commits <> '{}'
     ORDER BY t.number
"""

# Of jobs that observed something of which nothing is left, where no log says it any more.
_WITHOUT_ROWS: LiteralString = """
    SELECT ARRAY[r.id] AS job_ids, 1000 AS count
      FROM pg_temp.observation_generation_jobs j JOIN public.observation_generation_jobs r ON r.id = j.id
     WHERE r.team_id = %(team_id)s AND r.outcome = 'observed'
       AND NOT EXISTS (SELECT FROM public.observation_sources s WHERE s.generation_job_id = r.id)
"""
_READ_ONLY: LiteralString = "SET default_transaction_read_only = on"


async def make(conn: Conn, team_id: UUID) -> datetime:
    """Make the tables, and let nothing else be written from now on; returns the time by the database."""
    async with conn.transaction():
        for name in _COPIED:
            table = sql.Identifier(name)
            copy = sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING GENERATED)")
            await conn.execute(copy.format(table, sql.Identifier("public", name)))
            await _let_be_null(conn, name)
        for index in _INDEXES:
            await conn.execute("CREATE " + index)
        for statement in _LOAD_TEAM:
            await conn.execute(statement, {"team_id": team_id})
    await conn.execute(_READ_ONLY)
    return await Query(datetime, "SELECT now()").one(conn)


async def _let_be_null(conn: Conn, name: LiteralString) -> None:
    """Columns that triggers and counters of the real table would fill."""
    cursor = await conn.execute(_NOT_NULLS, [name])
    if columns := [sql.SQL("ALTER {} DROP NOT NULL").format(sql.Identifier(row[0])) for row in await cursor.fetchall()]:
        await conn.execute(sql.SQL("ALTER TABLE {} {}").format(sql.Identifier("pg_temp", name), sql.SQL(", ").join(columns)))


async def empty(conn: Conn) -> None:
    """Let go what is there of sessions. Outside of a transaction."""
    tables = sql.SQL(", ").join(sql.Identifier("pg_temp", name) for name in _OF_GROUP)
    await conn.execute("BEGIN READ WRITE")
    await conn.execute(sql.SQL("TRUNCATE {}").format(tables))
    await conn.execute("COMMIT")


async def load(conn: Conn, team_id: UUID, session_ids: Sequence[UUID], until: datetime) -> None:
    """Take these sessions, as they were before anything was worded of them."""
    for statement in _LOAD_GROUP:
        await conn.execute(statement, {"team_id": team_id, "ids": list(session_ids), "until": until})


async def hold(conn: Conn, lanes: Sequence[UUID], job_ids: Sequence[UUID], claim: int) -> None:
    """Give the lanes and jobs to the claim, as a worker would have them."""
    await conn.execute(_HOLD_LANES, {"lanes": list(lanes), "claim": claim})
    await conn.execute(_HOLD_JOBS, {"job_ids": list(job_ids), "claim": claim})


async def load_open_ends(conn: Conn, team_id: UUID, batch: ReplayedBatch) -> None:
    """What other sessions had left open until the batch; its session is alone."""
    values = {"team_id": team_id, "project_id": batch.project_id, "lane": batch.lane, "ended": batch.ended_at}
    for statement in _OPEN_ELSEWHERE:
        await conn.execute(statement, values)


async def load_notes(conn: Conn, team_id: UUID, batch: ReplayedBatch) -> None:
    """What was written by hand in the session until the batch."""
    values = {"team_id": team_id, "project_id": batch.project_id, "lane": batch.lane, "ended": batch.ended_at}
    await conn.execute(_LOAD_NOTES, values)


async def left(conn: Conn, job_ids: Sequence[UUID]) -> list[UUID]:
    """Those of the jobs that have not ended."""
    return await Query(UUID, _LEFT).all(conn, job_ids=list(job_ids))


async def age(conn: Conn, batches: Sequence[ReplayedBatch], began: datetime) -> None:
    """Date and number what the batches have made, since `began`, as it would have been."""
    pairs = [(job_id, batch.ended_at) for batch in batches for job_id in batch.job_ids]
    values = {"job_ids": [job_id for job_id, _ in pairs], "ended": [ended_at for _, ended_at in pairs], "began": began}
    await conn.execute(_AGE_ROWS, values)


async def compare(conn: Conn, team_id: UUID, session_ids: Sequence[UUID], project_ids: Sequence[UUID]) -> Comparison:
    """What is stored of the sessions, and what the batches have made of the same."""
    ids = {"team_id": team_id, "session_ids": list(session_ids), "project_ids": list(project_ids)}
    return Comparison(
        stored=await Query(ReplayedRow, _STORED).all(conn, **ids),
        made=await Query(ReplayedRow, _MADE).all(conn, **ids),
        turns=await Query(ReplayedTurn, _TURNS).all(conn, team_id=team_id),
        without_rows=await Query(ErasedRows, _WITHOUT_ROWS).all(conn, team_id=team_id),
    )
