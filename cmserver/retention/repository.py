"""All SQL of retention: finds what is kept no longer, and takes it in batches, each with its counts in the same statement.

Rows that somebody holds are left for the next run, so two sweeps share the work. A project's policy goes before its team's, and
that before the settings'.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.follow import keep_position, read_position
from cmserver.base.log_position import LogPosition
from cmserver.base.sql import Conn, Query, query
from cmserver.retention.model import KEPT_ACTIONS, Kind, LogPage, RetentionDefaults, ShortestDays, TakenRows

OWNS = {"retention_counts"}
BORROWS = {
    "observations",
    "observation_versions",
    "agent_events",
    "observation_generation_job_events",
    "context_injections",
    "memory_telemetry",
    "observation_generation_jobs",
    "steward_runs",
    "audit_log",
}

_DAYS: LiteralString = """\
nullif(coalesce((p.retention ->> 'FIELD')::integer, (t.retention ->> 'FIELD')::integer, %(SETTING)s::integer), 0)"""
_OBSERVATION_DAYS: LiteralString = _DAYS.replace("FIELD", "observationsDays").replace("SETTING", "observations_days")
_EVENT_DAYS: LiteralString = _DAYS.replace("FIELD", "eventsDays").replace("SETTING", "events_days")
_JOB_LOG_DAYS: LiteralString = _DAYS.replace("FIELD", "jobLogDays").replace("SETTING", "job_log_days")
_RECEIPT_DAYS: LiteralString = _DAYS.replace("FIELD", "receiptsDays").replace("SETTING", "receipts_days")
# greatest() leaves NULLs out: alone it would put the minimum in the place of what is kept for good.
_AUDIT_DAYS: LiteralString = """\
CASE WHEN DAYS IS NOT NULL THEN greatest(DAYS, %(audit_min_days)s::integer) END""".replace(
    "DAYS", _DAYS.replace("FIELD", "auditDays").replace("SETTING", "audit_days")
)

_PROJECTS: LiteralString = "projects p JOIN teams t ON t.id = p.team_id"

_COUNTED: LiteralString = """counted AS (
        INSERT INTO retention_counts AS c (team_id, kind, row_count)
        SELECT taken.team_id, 'KIND', count(*) FROM taken JOIN teams ON teams.id = taken.team_id GROUP BY 1 ORDER BY 1
        ON CONFLICT (team_id, kind) DO UPDATE SET row_count = c.row_count + excluded.row_count, last_at = now()
    )"""
_PURGED: LiteralString = """noted AS (
        INSERT INTO audit_log (team_id, project_id, actor_id, action, resource_type, resource_id, details)
        SELECT team_id, project_id, 'system', 'observations.purged', 'project', project_id::text,
               jsonb_build_object('reason', 'REASON', 'numbers', jsonb_agg(number ORDER BY number))
          FROM taken GROUP BY team_id, project_id
    )"""

_IS_OLD_TELEMETRY: LiteralString = "m.created_at < now() - make_interval(days => %(telemetry_days)s)"

# What each kind's rows must be to go. They are counted by the same words as they are taken.
_IS_AGED: LiteralString = """\
o.superseded_at IS NULL AND o.expires_at IS NULL AND o.created_at < now() - make_interval(days => policy.days)
                   AND o.updated_at < now() - make_interval(days => policy.days)
                   AND o.importance < policy.min_importance
                   AND NOT EXISTS (SELECT FROM observation_versions v
                                    WHERE v.observation_id = o.id AND v.action = 'promoted' AND v.undone_at IS NULL)"""
_IS_EXPIRED: LiteralString = """\
o.superseded_at IS NULL AND o.expires_at < now() - make_interval(days => %(undo_days)s)
                   AND NOT EXISTS (SELECT FROM rule_approvals a WHERE a.observation_id = o.id AND a.state = 'pending')
                   AND o.expires_at < (
                       SELECT date_bin(make_interval(secs => coalesce((p.retention ->> 'cleanupSeconds')::integer,
                                                                      (t.retention ->> 'cleanupSeconds')::integer, 1)),
                                       now(), 'epoch') - make_interval(days => %(undo_days)s)
                         FROM projects p JOIN teams t ON t.id = p.team_id WHERE p.id = o.project_id AND p.team_id = o.team_id)"""
# What words alone replaced is kept: nobody said that it does not hold. An import of an older export can have such rows.
_IS_SUPERSEDED: LiteralString = """\
o.superseded_by IS NOT NULL AND o.superseded_at < now() - make_interval(days => %(undo_days)s)
                   AND NOT EXISTS (SELECT FROM observation_versions v
                                    WHERE v.observation_id = o.superseded_by AND o.id = ANY(v.source_ids)
                                      AND v.measured_by = 'words' AND v.performed_by = 'system' AND v.undone_at IS NULL)"""
# A summary is made of the session's events, so an unfinished job of the lane keeps them all.
_HAS_NO_JOB: LiteralString = """\
NOT EXISTS (SELECT FROM observation_generation_jobs j
                                    WHERE j.agent_event_id = e.id AND j.phase = 'open')
                   AND NOT EXISTS (SELECT FROM observation_generation_jobs j
                                    WHERE j.lane = e.server_session_id AND j.phase = 'open')"""
_HAS_OLD_PAYLOAD: LiteralString = f"""\
e.payload_purged_at IS NULL AND e.received_at < now() - make_interval(days => policy.days)
                   AND {_HAS_NO_JOB}"""
_IS_WITHOUT_TRACE: LiteralString = f"""\
e.payload_purged_at < now() - make_interval(days => %(event_rows_days)s)
                   AND {_HAS_NO_JOB}
                   AND NOT EXISTS (SELECT FROM observation_sources s WHERE s.agent_event_id = e.id)
                   AND NOT EXISTS (SELECT FROM turns r WHERE r.agent_event_id = e.id)
                   AND NOT EXISTS (SELECT FROM observations o WHERE o.quote_event_id = e.id)
                   AND NOT EXISTS (SELECT FROM observation_generation_jobs j JOIN observations o ON o.created_by_job_id = j.id
                                    WHERE j.agent_event_id = e.id)"""
_IS_OLD_STEP: LiteralString = f"""\
j.status IN ('completed', 'failed', 'cancelled')
           AND greatest(j.completed_at, j.failed_at, j.cancelled_at) < now() - make_interval(days => {_JOB_LOG_DAYS})"""
_IS_OLD_RECEIPT: LiteralString = """\
r.created_at > '-infinity' AND r.created_at < now() - make_interval(days => policy.days)"""
_IS_OLD_ACT: LiteralString = f"""\
a.created_at < now() - make_interval(days => {_AUDIT_DAYS}) AND a.action <> ALL(%(kept_actions)s)
           AND a.id <= (SELECT read_to FROM read_positions WHERE name = 'accesses' AND team_id IS NULL)"""

_AGE_POLICY: LiteralString = f"""
           (SELECT p.id AS project_id, p.team_id, {_OBSERVATION_DAYS} AS days,
                   coalesce((p.retention ->> 'minImportance')::real, (t.retention ->> 'minImportance')::real,
                            %(min_importance)s::real) AS min_importance
              FROM {_PROJECTS}) policy"""
_EVENT_POLICY: LiteralString = f"(SELECT p.id AS project_id, p.team_id, {_EVENT_DAYS} AS days FROM {_PROJECTS}) policy"
_RECEIPT_POLICY: LiteralString = f"(SELECT p.id AS project_id, p.team_id, {_RECEIPT_DAYS} AS days FROM {_PROJECTS}) policy"

AGE_OBSERVATIONS = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT o.id, policy.days
          FROM {_AGE_POLICY}
         CROSS JOIN LATERAL (
               SELECT o.id FROM observations o
                WHERE o.project_id = policy.project_id AND o.team_id = policy.team_id
                   AND {_IS_AGED}
                ORDER BY o.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) o
         WHERE policy.days IS NOT NULL LIMIT %(limit)s
    ), taken AS (
        UPDATE observations o SET ttl_seconds = due.days::bigint * 86400, expires_at = now()
          FROM due WHERE o.id = due.id
        RETURNING o.team_id
    ), {_COUNTED.replace("KIND", "aged_observations")}
    SELECT count(*) FROM taken
    """,
)

COUNT_AGED = Query(
    int,
    f"""
    SELECT count(*) FROM {_AGE_POLICY} JOIN observations o ON o.project_id = policy.project_id AND o.team_id = policy.team_id
     WHERE {_IS_AGED}
    """,
)

PURGE_EXPIRED = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT o.id FROM observations o WHERE {_IS_EXPIRED} ORDER BY o.expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM observations o USING due WHERE o.id = due.id RETURNING o.team_id, o.project_id, o.number
    ), {_PURGED.replace("REASON", "expired")}, {_COUNTED.replace("KIND", "expired_observations")}
    SELECT count(*) FROM taken
    """,
)

COUNT_EXPIRED = Query(int, f"SELECT count(*) FROM observations o WHERE {_IS_EXPIRED}")

# The merge that took their texts in cannot be undone without them, and says so.
PURGE_SUPERSEDED = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT o.id FROM observations o WHERE {_IS_SUPERSEDED} LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), marked AS (
        UPDATE observation_versions v SET sources_purged_at = now()
         WHERE v.source_ids && ARRAY(SELECT id FROM due) AND v.source_ids <> '{{}}' AND v.sources_purged_at IS NULL
    ), taken AS (
        DELETE FROM observations o USING due WHERE o.id = due.id RETURNING o.team_id, o.project_id, o.number
    ), {_PURGED.replace("REASON", "superseded")}, {_COUNTED.replace("KIND", "superseded_observations")}
    SELECT count(*) FROM taken
    """,
)

COUNT_SUPERSEDED = Query(int, f"SELECT count(*) FROM observations o WHERE {_IS_SUPERSEDED}")

EMPTY_PAYLOADS = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT e.id
          FROM {_EVENT_POLICY}
         CROSS JOIN LATERAL (
               SELECT e.id FROM agent_events e
                WHERE e.project_id = policy.project_id AND e.team_id = policy.team_id
                   AND {_HAS_OLD_PAYLOAD}
                ORDER BY e.received_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) e
         WHERE policy.days IS NOT NULL LIMIT %(limit)s
    ), taken AS (
        UPDATE agent_events e SET payload = '{{}}', payload_purged_at = now() FROM due WHERE e.id = due.id RETURNING e.team_id
    ), {_COUNTED.replace("KIND", "event_payloads")}
    SELECT count(*) FROM taken
    """,
)

COUNT_PAYLOADS = Query(
    int,
    f"""
    SELECT count(*) FROM {_EVENT_POLICY} JOIN agent_events e ON e.project_id = policy.project_id AND e.team_id = policy.team_id
     WHERE {_HAS_OLD_PAYLOAD}
    """,
)

# Most events without a payload stay, for what came of them: a pass over all of them is spread over many runs. The place in it is
# the time in microseconds; rows of one batch have the same time, and are looked at together. The job and its log go along.
DELETE_EVENTS = Query(
    LogPage,
    f"""
    WITH page AS MATERIALIZED (
        SELECT e.id, e.payload_purged_at FROM agent_events e
         WHERE e.payload_purged_at > timestamptz 'epoch' + %(after)s * interval '1 microsecond'
           AND e.payload_purged_at < now() - make_interval(days => %(event_rows_days)s)
         ORDER BY e.payload_purged_at FETCH FIRST %(limit)s ROWS WITH TIES
    ), due AS MATERIALIZED (
        SELECT e.id FROM page JOIN agent_events e ON e.id = page.id
         WHERE {_IS_WITHOUT_TRACE}
         FOR UPDATE OF e SKIP LOCKED
    ), taken AS (
        DELETE FROM agent_events e USING due WHERE e.id = due.id RETURNING e.team_id
    ), {_COUNTED.replace("KIND", "event_rows")}
    SELECT (SELECT CASE WHEN count(*) >= %(limit)s THEN (extract(epoch FROM max(payload_purged_at)) * 1000000)::bigint END
              FROM page) AS last_id,
           (SELECT count(*) FROM taken) AS row_count
    """,
)

COUNT_EVENTS = Query(int, f"SELECT count(*) FROM agent_events e WHERE {_IS_WITHOUT_TRACE}")

# In the order of ids, which is that of time. What is kept longer than other rows stays behind the pass, and the next one comes by.
DELETE_JOB_LOG = Query(
    LogPage,
    f"""
    WITH page AS MATERIALIZED (
        SELECT l.id, l.created_at FROM observation_generation_job_events l WHERE l.id > %(after)s ORDER BY l.id LIMIT %(limit)s
    ), due AS MATERIALIZED (
        SELECT l.id
          FROM page
          JOIN observation_generation_job_events l ON l.id = page.id
          JOIN observation_generation_jobs j ON j.id = l.generation_job_id
          JOIN projects p ON p.id = l.project_id
          JOIN teams t ON t.id = l.team_id
         WHERE {_IS_OLD_STEP}
         FOR UPDATE OF l SKIP LOCKED
    ), taken AS (
        DELETE FROM observation_generation_job_events l USING due WHERE l.id = due.id RETURNING l.team_id
    ), {_COUNTED.replace("KIND", "job_log")}
    SELECT (SELECT CASE WHEN count(*) >= %(limit)s AND min(created_at) < now() - make_interval(days => %(shortest_days)s)
                        THEN max(id) END FROM page) AS last_id,
           (SELECT count(*) FROM taken) AS row_count
    """,
)

COUNT_JOB_LOG = Query(
    int,
    f"""
    SELECT count(*)
      FROM observation_generation_job_events l
      JOIN observation_generation_jobs j ON j.id = l.generation_job_id
      JOIN projects p ON p.id = l.project_id
      JOIN teams t ON t.id = l.team_id
     WHERE {_IS_OLD_STEP}
    """,
)

DELETE_RECEIPTS = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT r.id
          FROM {_RECEIPT_POLICY}
         CROSS JOIN LATERAL (
               SELECT r.id FROM context_injections r
                WHERE r.project_id = policy.project_id AND r.team_id = policy.team_id
                   AND {_IS_OLD_RECEIPT}
                ORDER BY r.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) r
         WHERE policy.days IS NOT NULL LIMIT %(limit)s
    ), taken AS (
        DELETE FROM context_injections r USING due WHERE r.id = due.id RETURNING r.team_id
    ), {_COUNTED.replace("KIND", "receipts")}
    SELECT count(*) FROM taken
    """,
)

COUNT_RECEIPTS = Query(
    int,
    f"""
    SELECT count(*) FROM {_RECEIPT_POLICY}
      JOIN context_injections r ON r.project_id = policy.project_id AND r.team_id = policy.team_id
     WHERE {_IS_OLD_RECEIPT}
    """,
)

# Team by team, in the order of its index.
DELETE_TELEMETRY = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT m.id
          FROM teams t
         CROSS JOIN LATERAL (
               SELECT m.id FROM memory_telemetry m
                WHERE m.team_id = t.id AND {_IS_OLD_TELEMETRY}
                ORDER BY m.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) m
         LIMIT %(limit)s
    ), taken AS (
        DELETE FROM memory_telemetry m USING due WHERE m.id = due.id RETURNING m.team_id
    ), {_COUNTED.replace("KIND", "telemetry")}
    SELECT count(*) FROM taken
    """,
)

COUNT_TELEMETRY = Query(int, f"SELECT count(*) FROM memory_telemetry m WHERE {_IS_OLD_TELEMETRY}")

# Their runs and events go with them, and runs of no job, which are not counted. What says where the next job goes on stays, and
# what says why a suggestion is open.
_IS_OLD_STEWARD_JOB: LiteralString = """j.ended_at < now() - make_interval(days => %(steward_days)s)
           AND NOT EXISTS (SELECT FROM consolidation_suggestions s
                            WHERE s.team_id = j.team_id AND s.id = j.source_id AND s.status = 'open')
           AND (j.job_type = 'auto_merge'
                OR EXISTS (SELECT FROM steward_jobs later
                            WHERE later.team_id = j.team_id AND later.job_type = j.job_type AND later.project_id = j.project_id
                              AND later.payload ->> 'mode' = j.payload ->> 'mode' AND later.created_at > j.created_at))"""

DELETE_STEWARD_JOBS = Query(
    int,
    f"""
    WITH due AS MATERIALIZED (
        SELECT j.id FROM steward_jobs j WHERE {_IS_OLD_STEWARD_JOB} ORDER BY j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), runs AS (
        DELETE FROM steward_runs r WHERE r.job_id IS NULL AND r.created_at < now() - make_interval(days => %(steward_days)s)
    ), taken AS (
        DELETE FROM observation_generation_jobs j USING due WHERE j.id = due.id RETURNING j.team_id
    ), {_COUNTED.replace("KIND", "steward_jobs")}
    SELECT count(*) FROM taken
    """,
)

COUNT_STEWARD_JOBS = Query(int, f"SELECT count(*) FROM steward_jobs j WHERE {_IS_OLD_STEWARD_JOB}")

# Behind the mark of whoever counts accesses in it. Its rows outlive teams and projects: then the settings alone say how long.
DELETE_AUDIT = Query(
    LogPage,
    f"""
    WITH page AS MATERIALIZED (
        SELECT a.id, a.created_at FROM audit_log a WHERE a.id > %(after)s ORDER BY a.id LIMIT %(limit)s
    ), due AS MATERIALIZED (
        SELECT a.id
          FROM page
          JOIN audit_log a ON a.id = page.id
          LEFT JOIN projects p ON p.id = a.project_id
          LEFT JOIN teams t ON t.id = a.team_id
         WHERE {_IS_OLD_ACT}
         FOR UPDATE OF a SKIP LOCKED
    ), taken AS (
        DELETE FROM audit_log a USING due WHERE a.id = due.id RETURNING a.team_id
    ), {_COUNTED.replace("KIND", "audit_log")}
    SELECT (SELECT CASE WHEN count(*) >= %(limit)s AND min(created_at) < now() - make_interval(days => %(shortest_days)s)
                        THEN max(id) END FROM page) AS last_id,
           (SELECT count(*) FROM taken) AS row_count
    """,
)

COUNT_AUDIT = Query(
    int,
    f"""
    SELECT count(*) FROM audit_log a LEFT JOIN projects p ON p.id = a.project_id LEFT JOIN teams t ON t.id = a.team_id
     WHERE {_IS_OLD_ACT}
    """,
)

SHORTEST_DAYS = Query(
    ShortestDays,
    f"""
    SELECT min({_OBSERVATION_DAYS}) AS observations, min({_EVENT_DAYS}) AS events, min({_JOB_LOG_DAYS}) AS job_log,
           min({_RECEIPT_DAYS}) AS receipts,
           least(min({_AUDIT_DAYS}),
                 CASE WHEN %(audit_days)s > 0 THEN greatest(%(audit_days)s::integer, %(audit_min_days)s::integer) END) AS audit
      FROM teams t LEFT JOIN projects p ON p.team_id = t.id
    """,
)

# What retention has taken of every team since it exists, and of all private places together.
COUNTS = Query(
    TakenRows,
    """
    SELECT CASE WHEN t.private_of IS NULL THEN t.name ELSE 'private' END AS team, c.kind, sum(c.row_count)::bigint AS row_count,
           max(c.last_at) AS last_at
      FROM retention_counts c JOIN teams t ON t.id = c.team_id GROUP BY 1, 2 ORDER BY 1, 2
    """,
)

# Let no sweep take anything until this transaction ends: what a long snapshot still sees can be cleaned up by nobody.
HOLD_OFF = Query(str, "SELECT pg_advisory_xact_lock_shared(7237415021)::text")

IS_HELD_OFF = Query(
    bool,
    """
    SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                      AND (l.classid::bigint << 32) | l.objid::bigint = 7237415021)
    """,
)


_TAKE: dict[Kind, Query[int]] = {
    "aged_observations": AGE_OBSERVATIONS,
    "expired_observations": PURGE_EXPIRED,
    "superseded_observations": PURGE_SUPERSEDED,
    "event_payloads": EMPTY_PAYLOADS,
    "receipts": DELETE_RECEIPTS,
    "telemetry": DELETE_TELEMETRY,
    "steward_jobs": DELETE_STEWARD_JOBS,
}
_TAKE_PAGE: dict[Kind, Query[LogPage]] = {"event_rows": DELETE_EVENTS, "job_log": DELETE_JOB_LOG, "audit_log": DELETE_AUDIT}
_COUNT: dict[Kind, Query[int]] = {
    "aged_observations": COUNT_AGED,
    "expired_observations": COUNT_EXPIRED,
    "superseded_observations": COUNT_SUPERSEDED,
    "event_payloads": COUNT_PAYLOADS,
    "event_rows": COUNT_EVENTS,
    "job_log": COUNT_JOB_LOG,
    "receipts": COUNT_RECEIPTS,
    "telemetry": COUNT_TELEMETRY,
    "steward_jobs": COUNT_STEWARD_JOBS,
    "audit_log": COUNT_AUDIT,
}
CLOCK = Query(datetime, "SELECT now()")

PASSES: dict[Kind, str] = {kind: f"retention.{kind}" for kind in _TAKE_PAGE}
"""The kinds that are gone through page by page, each with the name of its position; a pass begins anew at the end."""


async def take(conn: Conn, kind: Kind, defaults: RetentionDefaults, limit: int) -> int:
    """Take up to `limit` rows that are kept no longer; returns how many were taken."""
    return await _TAKE[kind].one(conn, **_parameters(defaults), limit=limit)


async def take_page(conn: Conn, kind: Kind, defaults: RetentionDefaults, *, shortest_days: int, limit: int) -> LogPage:
    """Look at the next `limit` rows of one of the PASSES in its current pass, and take those that are kept no longer."""
    before = await read_position(conn, PASSES[kind])
    page = await _TAKE_PAGE[kind].one(conn, **_parameters(defaults), after=before.read_to, shortest_days=shortest_days, limit=limit)
    after = LogPosition(read_to=page.last_id or 0)
    if after != before:
        await keep_position(conn, PASSES[kind], after)
    return page


async def count(conn: Conn, kind: Kind, defaults: RetentionDefaults) -> int:
    """How many rows of the kind are kept no longer."""
    return await _COUNT[kind].one(conn, **_parameters(defaults))


async def shortest_days(conn: Conn, defaults: RetentionDefaults) -> ShortestDays:
    return await SHORTEST_DAYS.one(conn, **_parameters(defaults))


@query("SELECT DISTINCT team_id FROM retention_counts WHERE kind = ANY(%(kinds)s) AND last_at >= %(since)s ORDER BY team_id")
async def teams_taken_from(conn: Conn, kinds: Sequence[Kind], since: datetime) -> list[UUID]:
    """The teams of which rows of these kinds were taken since then."""
    ...


def _parameters(defaults: RetentionDefaults) -> dict[str, object]:
    return {**msgspec.structs.asdict(defaults), "kept_actions": list(KEPT_ACTIONS)}
