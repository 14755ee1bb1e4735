"""All SQL of the steward. Jobs are queued, claimed and sent back as the owner; everything else is a team's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query
from cmserver.observations.model import LIVE_O
from cmserver.steward.model import (
    BREAKER_FAILURES,
    BREAKER_SECONDS,
    JOB_COLUMNS,
    MAX_QUEUED,
    MAX_QUEUED_OF_PROJECT,
    PRIORITIES,
    Breaker,
    DerivationCounts,
    DueProject,
    Event,
    Figures,
    ModelCall,
    NewDerivation,
    NewJob,
    Permission,
    PolicyChange,
    ProjectExecutors,
    QueueHealth,
    RunFailure,
    StewardJob,
    StewardRun,
    SuggestionCounts,
    TeamMode,
    UnjudgedSuggestion,
)

OWNS = {
    "steward_modes",
    "steward_jobs",
    "steward_runs",
    "steward_events",
    "observation_derivations",
    "steward_policy_history",
}

_J_COLUMNS: LiteralString = "j." + JOB_COLUMNS.replace(", ", ", j.")

_LIVE_L: LiteralString = LIVE_O.replace("o.", "l.")
_LIVE_R: LiteralString = LIVE_O.replace("o.", "r.")

# -- what a team allows

MODE = Query(
    TeamMode,
    """
    SELECT coalesce(mode, 'off') AS mode, is_paused, executors, changed_by, changed_at FROM steward_modes
     WHERE team_id = %(team_id)s AND project_id IS NULL
    """,
)

PROJECT_EXECUTORS = Query(
    ProjectExecutors,
    """
    SELECT p.id AS project_id, p.canonical_id AS project, m.executors
      FROM steward_modes m JOIN projects p ON p.id = m.project_id AND p.team_id = m.team_id
     WHERE m.team_id = %(team_id)s ORDER BY p.canonical_id
    """,
)

SET_MODE = Query(
    int,
    """
    INSERT INTO steward_modes AS m (team_id, mode, is_paused, executors, changed_by)
    VALUES (%(team_id)s, %(mode)s, %(is_paused)s, %(executors)s, %(changed_by)s)
    ON CONFLICT (team_id, project_id) DO UPDATE
       SET mode = excluded.mode, is_paused = excluded.is_paused, executors = excluded.executors, changed_by = excluded.changed_by,
           changed_at = now()
    """,
)

SET_PROJECT_EXECUTORS = Query(
    int,
    """
    INSERT INTO steward_modes AS m (team_id, project_id, executors, changed_by)
    VALUES (%(team_id)s, %(project_id)s, %(executors)s, %(changed_by)s)
    ON CONFLICT (team_id, project_id) DO UPDATE
       SET executors = excluded.executors, changed_by = excluded.changed_by, changed_at = now()
    """,
)

# Shared until the transaction ends: whoever switches the mode waits for the writes that began under the old one.
PERMISSION = Query(
    Permission,
    """
    SELECT coalesce(t.mode, 'off') AS mode, t.is_paused, %(job_type)s::text = ANY(t.executors)
           AND NOT EXISTS (SELECT FROM steward_modes p
                            WHERE p.team_id = t.team_id AND p.project_id = %(project_id)s::uuid
                              AND NOT %(job_type)s::text = ANY(p.executors)) AS is_allowed
      FROM steward_modes t WHERE t.team_id = %(team_id)s AND t.project_id IS NULL FOR SHARE
    """,
)

ACTIVE_TEAMS = Query(
    UUID,
    "SELECT team_id FROM steward_modes WHERE project_id IS NULL AND mode <> 'off' AND NOT is_paused ORDER BY team_id",
)

# -- jobs, as the owner

# Only one process plans at a time, so that the bounds hold.
LOCK_PLANNING = Query(str, "SELECT pg_advisory_xact_lock(7237425, 0)::text")

ENQUEUE = Query(
    UUID,
    """
    WITH new AS (
        SELECT n.*, row_number() OVER (PARTITION BY n.project_id ORDER BY n.place) AS place_in_project
          FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, team_id uuid, project_id uuid, job_type text, trigger_reason text,
               payload jsonb, source_observation_ids uuid[], idempotency_key text, priority integer, place integer)
         WHERE NOT EXISTS (SELECT FROM steward_jobs j
                            WHERE j.team_id = n.team_id AND j.idempotency_key = n.idempotency_key)
    )
    INSERT INTO steward_jobs (id, team_id, project_id, job_type, trigger_reason, payload, source_observation_ids, idempotency_key,
                              priority)
    SELECT n.id, n.team_id, n.project_id, n.job_type, n.trigger_reason, n.payload, n.source_observation_ids, n.idempotency_key,
           n.priority
      FROM new n
     WHERE (SELECT count(*) FROM steward_jobs j WHERE j.status IN ('queued', 'running'))
           + (SELECT count(*) FROM new before WHERE before.place < n.place) < %(max_queued)s
       AND (n.project_id IS NULL
            OR (SELECT count(*) FROM steward_jobs j
                 WHERE j.team_id = n.team_id AND j.project_id = n.project_id AND j.status IN ('queued', 'running'))
               + n.place_in_project <= %(max_queued_of_project)s)
     ORDER BY n.place
    ON CONFLICT (team_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id
    """,
)

CLAIM = Query(
    StewardJob,
    f"""
    WITH due AS (
        SELECT j.id FROM steward_jobs j JOIN steward_modes m ON m.team_id = j.team_id AND m.project_id IS NULL
         WHERE j.id = %(job_id)s AND j.status = 'queued' AND j.run_after <= now() AND m.mode <> 'off' AND NOT m.is_paused
           FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE steward_jobs j
       SET status = 'running', attempt_count = attempt_count + 1, claim = nextval('steward_claims'), locked_by = %(locked_by)s,
           locked_at = now(), lease_expires_at = now() + make_interval(secs => %(lease_seconds)s), last_error = NULL
      FROM due WHERE j.id = due.id
    RETURNING {_J_COLUMNS}
    """,
)

# None: another worker has it by now, or it is to stop.
EXTEND_LEASE = Query(
    UUID,
    """
    UPDATE steward_jobs SET lease_expires_at = now() + make_interval(secs => %(lease_seconds)s)
     WHERE id = %(job_id)s AND claim = %(claim)s AND status = 'running' AND cancel_requested_at IS NULL
    RETURNING id
    """,
)

SEND_BACK = Query(
    int,
    """
    UPDATE steward_jobs
       SET status = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN NOT %(is_retryable)s THEN 'failed'
                         WHEN %(is_unknown)s OR attempt_count >= max_attempts THEN 'dead_letter' ELSE 'queued' END,
           last_error = %(error)s, run_after = now() + make_interval(secs => %(pause_seconds)s)
     WHERE id = %(job_id)s AND claim = %(claim)s AND status = 'running'
    """,
)

RETRY = Query(
    StewardJob,
    f"""
    UPDATE steward_jobs j SET status = 'queued'
     WHERE j.id = %(job_id)s AND j.team_id = %(team_id)s AND j.status IN ('failed', 'dead_letter', 'cancelled')
    RETURNING {_J_COLUMNS}
    """,
)

REQUEUE_LOST = Query(UUID, "SELECT * FROM requeue_steward_jobs()")
WAKE = Query(int, "SELECT wake_steward_jobs()")

# -- jobs, as their team

# The row of the mode is read in the same transaction, and the project is held first, as in every transaction that writes to it.
HOLD = Query(
    UUID,
    """
    SELECT id FROM steward_jobs
     WHERE id = %(job_id)s AND team_id = %(team_id)s AND claim = %(claim)s AND status = 'running'
       AND lease_expires_at > now() AND cancel_requested_at IS NULL
       FOR UPDATE
    """,
)

END_JOB = Query(
    int,
    """
    UPDATE steward_jobs SET status = 'succeeded', decision = %(decision)s
     WHERE id = %(job_id)s AND team_id = %(team_id)s AND claim = %(claim)s
    """,
)

CANCEL = Query(
    StewardJob,
    f"""
    UPDATE steward_jobs j
       SET status = CASE WHEN j.status = 'queued' THEN 'cancelled' ELSE j.status END,
           cancel_requested_at = CASE WHEN j.status = 'running' THEN coalesce(j.cancel_requested_at, now()) END
     WHERE j.id = %(job_id)s AND j.team_id = %(team_id)s AND j.status IN ('queued', 'running')
    RETURNING {_J_COLUMNS}
    """,
)

JOB = Query(StewardJob, f"SELECT {JOB_COLUMNS} FROM steward_jobs WHERE id = %(job_id)s AND team_id = %(team_id)s")

JOBS = Query(
    StewardJob,
    f"""
    SELECT {JOB_COLUMNS} FROM steward_jobs
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(status)s::text IS NULL OR status = %(status)s::text)
       AND (%(job_type)s::text IS NULL OR job_type = %(job_type)s::text)
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """,
    prepare=False,
)

# What the steward thinks of suggestions: the newest decision on each.
VERDICTS = Query(
    StewardJob,
    f"""
    SELECT DISTINCT ON (payload ->> 'suggestionId') {JOB_COLUMNS} FROM steward_jobs
     WHERE team_id = %(team_id)s AND job_type = 'auto_merge' AND decision IS NOT NULL
       AND payload ->> 'suggestionId' = ANY(%(suggestion_ids)s::text[])
     ORDER BY payload ->> 'suggestionId', created_at DESC
    """,
)

# -- runs and events

BEGIN_RUN = Query(
    int,
    """
    INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(job_id)s, %(job_type)s, %(attempt)s)
    """,
)

FINISH_RUN = Query(
    int,
    """
    UPDATE steward_runs
       SET status = %(status)s, provider = %(provider)s, model = %(model)s, prompt_tokens = %(prompt_tokens)s,
           completion_tokens = %(completion_tokens)s, input_snapshot = %(input_snapshot)s, output_snapshot = %(output_snapshot)s,
           input_hash = %(input_hash)s, error_class = %(error_class)s, error_message = %(error_message)s,
           completed_at = clock_timestamp(),
           latency_ms = greatest(0, extract(epoch FROM clock_timestamp() - created_at) * 1000)::integer
     WHERE id = %(id)s AND team_id = %(team_id)s AND status = 'running'
    """,
)

ADD_EVENT = Query(
    int,
    """
    INSERT INTO steward_events (team_id, job_id, run_id, event_type, data)
    VALUES (%(team_id)s, %(job_id)s, %(run_id)s, %(event_type)s, %(data)s)
    """,
)

_RUN: LiteralString = """
    SELECT r.id, r.team_id, r.project_id, p.canonical_id AS project, r.job_id, r.job_type, j.status AS job_status, r.attempt,
           r.provider, r.model, r.input_snapshot, r.output_snapshot, r.input_hash, r.prompt_tokens, r.completion_tokens,
           r.total_tokens, r.latency_ms, r.status, r.error_class, r.error_message, r.created_at, r.completed_at, r.undone_at,
           r.undone_by
      FROM steward_runs r
      JOIN steward_jobs j ON j.id = r.job_id AND j.team_id = r.team_id
      LEFT JOIN projects p ON p.id = r.project_id AND p.team_id = r.team_id
     WHERE r.team_id = %(team_id)s
"""

RUN = Query(StewardRun, f"{_RUN} AND r.id = %(run_id)s")

RUNS = Query(
    StewardRun,
    f"""
    {_RUN}
       AND (%(project_id)s::uuid IS NULL OR r.project_id = %(project_id)s::uuid)
       AND (%(status)s::text IS NULL OR r.status = %(status)s::text)
       AND (%(job_type)s::text IS NULL OR r.job_type = %(job_type)s::text)
       AND (%(model)s::text IS NULL OR r.model = %(model)s::text)
       AND (%(before)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY r.created_at DESC, r.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """,
    prepare=False,
)

LOCK_RUN = Query(UUID, "SELECT id FROM steward_runs WHERE id = %(run_id)s AND team_id = %(team_id)s FOR UPDATE")

MARK_UNDONE = Query(
    int,
    "UPDATE steward_runs SET undone_at = now(), undone_by = %(undone_by)s WHERE id = %(run_id)s AND team_id = %(team_id)s",
)

EVENTS = Query(
    Event,
    """
    SELECT id, job_id, run_id, event_type, data, schema_version, created_at FROM steward_events
     WHERE team_id = %(team_id)s AND job_id = %(job_id)s
     ORDER BY id LIMIT %(limit)s OFFSET %(offset)s
    """,
)

# -- figures

QUEUE_HEALTH = Query(
    QueueHealth,
    """
    SELECT count(*) FILTER (WHERE status = 'queued') AS queued, count(*) FILTER (WHERE status = 'running') AS running,
           count(*) FILTER (WHERE status = 'dead_letter' AND ended_at > now() - interval '24 hours') AS dead_letter,
           extract(epoch FROM now() - min(created_at) FILTER (WHERE status = 'queued'))::float8 AS oldest_queued_seconds
      FROM steward_jobs WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)

FIGURES = Query(
    Figures,
    """
    SELECT count(*) FILTER (WHERE created_at > now() - interval '1 hour') AS runs_last_hour, count(*) AS runs,
           count(*) FILTER (WHERE status IN ('succeeded', 'skipped')) AS succeeded,
           coalesce(avg(total_tokens), 0)::float8 AS average_tokens, coalesce(avg(latency_ms), 0)::float8 AS average_latency_ms,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95_latency_ms
      FROM steward_runs
     WHERE team_id = %(team_id)s AND created_at > now() - interval '24 hours' AND status <> 'running'
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)

FAILURES = Query(
    RunFailure,
    """
    SELECT coalesce(error_class, '') AS reason, count(*) AS count FROM steward_runs
     WHERE team_id = %(team_id)s AND created_at > now() - interval '24 hours' AND error_class IS NOT NULL
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
     GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5
    """,
    prepare=False,
)

# The calls since the last that answered. When the time is over one call is tried: if it fails, it is the last one again.
BREAKER = Query(
    Breaker,
    """
    WITH newest AS (
        SELECT error_class, completed_at FROM steward_runs
         WHERE team_id = %(team_id)s AND provider IS NOT NULL AND completed_at > now() - interval '1 day'
         ORDER BY completed_at DESC LIMIT 20
    ), failed AS (
        SELECT count(*) AS failures, max(n.completed_at) AS last_at,
               (array_agg(n.error_class ORDER BY n.completed_at DESC))[1] AS last_failure
          FROM newest n
         WHERE n.error_class IS NOT NULL
           AND NOT EXISTS (SELECT FROM newest later WHERE later.error_class IS NULL AND later.completed_at >= n.completed_at)
    )
    SELECT failures AS consecutive_failures, last_failure,
           CASE WHEN failures >= %(most_failures)s THEN last_at END AS opened_at,
           CASE WHEN failures >= %(most_failures)s THEN last_at + make_interval(secs => %(seconds)s) END AS open_until,
           coalesce(failures >= %(most_failures)s AND last_at + make_interval(secs => %(seconds)s) > now(), false) AS is_open
      FROM failed
    """,
    prepare=False,
)

# -- policies

POLICY_VALUES = Query(
    PolicyChange,
    """
    SELECT DISTINCT ON (policy_key) id, policy_key, prior_value, new_value, reason, sample_size, evidence, changed_by,
           rollback_of_id, run_id, created_at
      FROM steward_policy_history WHERE team_id = %(team_id)s ORDER BY policy_key, created_at DESC, id DESC
    """,
)

POLICY_HISTORY = Query(
    PolicyChange,
    """
    SELECT id, policy_key, prior_value, new_value, reason, sample_size, evidence, changed_by, rollback_of_id, run_id, created_at
      FROM steward_policy_history
     WHERE team_id = %(team_id)s AND (%(policy_key)s::text IS NULL OR policy_key = %(policy_key)s::text)
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
    """,
    prepare=False,
)

# The newest that was neither taken back nor takes back another.
LAST_POLICY_CHANGE = Query(
    PolicyChange,
    """
    SELECT h.id, h.policy_key, h.prior_value, h.new_value, h.reason, h.sample_size, h.evidence, h.changed_by, h.rollback_of_id,
           h.run_id, h.created_at
      FROM steward_policy_history h
     WHERE h.team_id = %(team_id)s AND h.policy_key = %(policy_key)s AND h.rollback_of_id IS NULL
       AND NOT EXISTS (SELECT FROM steward_policy_history b WHERE b.rollback_of_id = h.id AND b.team_id = h.team_id)
     ORDER BY h.created_at DESC, h.id DESC LIMIT 1
    """,
)

ADD_POLICY_CHANGE = Query(
    int,
    """
    INSERT INTO steward_policy_history (id, team_id, run_id, policy_key, prior_value, new_value, reason, sample_size, evidence,
                                        changed_by, rollback_of_id, created_at)
    VALUES (%(id)s, %(team_id)s, %(run_id)s, %(policy_key)s, %(prior_value)s, %(new_value)s, %(reason)s, %(sample_size)s,
            %(evidence)s, %(changed_by)s, %(rollback_of_id)s, clock_timestamp())
    """,
)

LOCK_POLICIES = Query(str, "SELECT pg_advisory_xact_lock(7237426, hashtext(%(team_id)s::text))::text")

# -- what was derived

DERIVED_FINGERPRINTS = Query(
    str,
    """
    SELECT fingerprint FROM observation_derivations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND (%(with_candidates)s OR status <> 'candidate')
    """,
    prepare=False,
)

# A candidate may be stored later; what was stored, taken back or refused stays so.
KEEP_DERIVATION = Query(
    UUID,
    """
    INSERT INTO observation_derivations AS d (id, team_id, project_id, run_id, fingerprint, source_observation_ids, derivation_type,
                                              confidence, novelty, status, model, payload)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(run_id)s, %(fingerprint)s, %(source_ids)s, %(derivation_type)s, %(confidence)s,
            %(novelty)s, %(status)s, %(model)s, %(payload)s)
    ON CONFLICT (project_id, fingerprint) DO UPDATE
       SET run_id = excluded.run_id, source_observation_ids = excluded.source_observation_ids, confidence = excluded.confidence,
           novelty = excluded.novelty, status = excluded.status, model = excluded.model, payload = excluded.payload,
           updated_at = now()
     WHERE d.status = 'candidate'
    RETURNING id
    """,
)

SET_DERIVED = Query(
    int,
    """
    UPDATE observation_derivations SET derived_observation_id = %(observation_id)s
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND fingerprint = %(fingerprint)s
    """,
)

UNDO_DERIVATION = Query(
    int,
    """
    UPDATE observation_derivations SET status = 'undone', updated_at = now()
     WHERE team_id = %(team_id)s AND derived_observation_id = %(observation_id)s
    """,
)

# -- what people did, by which thresholds move

DERIVATION_COUNTS = Query(
    DerivationCounts,
    """
    SELECT count(*) FILTER (WHERE d.status = 'accepted' AND o.superseded_at IS NULL) AS kept,
           count(*) FILTER (WHERE d.status = 'undone' OR (d.status = 'accepted' AND o.id IS NULL)) AS rejected
      FROM observation_derivations d
      LEFT JOIN observations o ON o.id = d.derived_observation_id AND o.team_id = d.team_id
     WHERE d.team_id = %(team_id)s AND d.created_at > now() - make_interval(days => %(days)s)
    """,
)

SUGGESTION_COUNTS = Query(
    SuggestionCounts,
    """
    SELECT count(*) FILTER (WHERE status = 'accepted') AS accepted, count(*) FILTER (WHERE status = 'dismissed') AS dismissed
      FROM consolidation_suggestions
     WHERE team_id = %(team_id)s AND resolved_at > now() - make_interval(days => %(days)s) AND reason = 'same'
       AND similarity >= %(at_least)s AND resolved_by NOT IN ('system', 'steward')
    """,
)

# Of the team's open suggestions those that no job has looked at as they are now, the most similar first.
UNJUDGED_SUGGESTIONS = Query(
    UnjudgedSuggestion,
    f"""
    SELECT s.id, s.project_id, l.version AS left_version, r.version AS right_version, s.left_id, s.right_id
      FROM consolidation_suggestions s
      JOIN observations l ON l.id = s.left_id AND l.team_id = s.team_id AND {_LIVE_L}
      JOIN observations r ON r.id = s.right_id AND r.team_id = s.team_id AND {_LIVE_R}
     WHERE s.team_id = %(team_id)s AND s.status = 'open' AND s.reason = 'same'
       AND NOT EXISTS (
               SELECT FROM steward_jobs j
                WHERE j.team_id = s.team_id AND j.job_type = 'auto_merge' AND j.payload ->> 'suggestionId' = s.id::text
                  AND j.payload ->> 'mode' = %(mode)s AND j.payload ->> 'asked' = %(asked)s
                  AND j.payload -> 'versions' = jsonb_build_array(l.version, r.version)
                  AND ((j.decision -> 'triesAgain') IS DISTINCT FROM 'true' OR j.ended_at > now() - interval '1 day'))
       AND NOT EXISTS (
               SELECT FROM steward_modes m
                WHERE m.team_id = s.team_id AND m.project_id = s.project_id AND NOT 'auto_merge' = ANY(m.executors))
     ORDER BY s.similarity DESC, s.id LIMIT %(limit)s
    """,
    prepare=False,
)

# Projects with something that came in since the last job of that type and mode, which is some time ago.
PROJECTS_WITH_CALLS = Query(
    DueProject,
    """
    SELECT p.id AS project_id, last.read_to AS since, now() - interval '1 minute' AS until
      FROM projects p
      LEFT JOIN LATERAL (
           SELECT j.created_at, j.status,
                  coalesce((j.decision ->> 'readTo')::timestamptz, (j.payload ->> 'until')::timestamptz) AS read_to
             FROM steward_jobs j
            WHERE j.team_id = p.team_id AND j.job_type = 'recheck' AND j.project_id = p.id AND j.payload ->> 'mode' = %(mode)s
            ORDER BY j.created_at DESC, j.id DESC LIMIT 1) last ON true
     WHERE p.team_id = %(team_id)s AND p.archived_at IS NULL
       AND (last.created_at IS NULL OR (last.status NOT IN ('queued', 'running')
                                        AND last.created_at < now() - make_interval(secs => %(every_seconds)s)))
       AND EXISTS (SELECT FROM agent_events e
                    WHERE e.project_id = p.id AND e.team_id = p.team_id AND e.payload_purged_at IS NULL
                      AND (last.read_to IS NULL OR e.received_at > last.read_to)
                      AND e.received_at <= now() - interval '1 minute')
     ORDER BY last.created_at NULLS FIRST, p.id LIMIT %(limit)s
    """,
    prepare=False,
)

PROJECTS_WITH_NEWS = Query(
    UUID,
    f"""
    SELECT p.id FROM projects p
      LEFT JOIN LATERAL (
           SELECT j.created_at, j.status FROM steward_jobs j
            WHERE j.team_id = p.team_id AND j.job_type = 'derive' AND j.project_id = p.id AND j.payload ->> 'mode' = %(mode)s
            ORDER BY j.created_at DESC, j.id DESC LIMIT 1) last ON true
     WHERE p.team_id = %(team_id)s AND p.archived_at IS NULL
       AND (last.created_at IS NULL OR (last.status NOT IN ('queued', 'running')
                                        AND last.created_at < now() - make_interval(secs => %(every_seconds)s)))
       AND EXISTS (SELECT FROM observations o
                    WHERE o.project_id = p.id AND o.team_id = p.team_id AND o.kind <> 'summary' AND {LIVE_O}
                      AND (last.created_at IS NULL OR o.created_at > last.created_at))
     ORDER BY last.created_at NULLS FIRST, p.id LIMIT %(limit)s
    """,
    prepare=False,
)

ERASE = Query(
    int,
    """
    WITH gone AS (
        DELETE FROM observation_derivations
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    )
    DELETE FROM steward_jobs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)


async def mode(conn: Conn, team_id: UUID) -> TeamMode:
    """What the team allows; nothing without a row."""
    return await MODE.first(conn, team_id=team_id) or TeamMode()


async def project_executors(conn: Conn, team_id: UUID) -> list[ProjectExecutors]:
    return await PROJECT_EXECUTORS.all(conn, team_id=team_id)


async def set_mode(conn: Conn, team_id: UUID, to: TeamMode, *, changed_by: str) -> None:
    await SET_MODE.run(conn, team_id=team_id, mode=to.mode, is_paused=to.is_paused, executors=to.executors, changed_by=changed_by)


async def set_project_executors(conn: Conn, team_id: UUID, project_id: UUID, executors: Sequence[str], *, changed_by: str) -> None:
    await SET_PROJECT_EXECUTORS.run(conn, team_id=team_id, project_id=project_id, executors=list(executors), changed_by=changed_by)


async def permission(conn: Conn, team_id: UUID, project_id: UUID | None, job_type: str) -> Permission:
    """What holds until this transaction ends: a change of the mode waits for it."""
    found = await PERMISSION.first(conn, team_id=team_id, project_id=project_id, job_type=job_type)
    return found or Permission(mode="off", is_paused=False, is_allowed=False)


async def active_teams(conn: Conn) -> list[UUID]:
    """The teams whose steward is neither off nor paused."""
    return await ACTIVE_TEAMS.all(conn)


async def enqueue(conn: Conn, jobs: Sequence[NewJob]) -> list[UUID]:
    """Queue the jobs, as the owner, as far as the bounds allow; returns the ids of those that are new."""
    if not jobs:
        return []
    await LOCK_PLANNING.run(conn)
    rows: list[dict[str, object]] = [
        {**msgspec.structs.asdict(job), "id": new_id(), "priority": PRIORITIES.get(job.job_type, 0), "place": place}
        for place, job in enumerate(jobs)
    ]
    return await ENQUEUE.all(conn, rows=Jsonb(rows), max_queued=MAX_QUEUED, max_queued_of_project=MAX_QUEUED_OF_PROJECT)


async def claim(conn: Conn, job_id: UUID, *, locked_by: str, lease_seconds: float) -> StewardJob | None:
    """Take the job, as the owner; None when it is not due, taken, over, or its team's steward is off or paused."""
    return await CLAIM.first(conn, job_id=job_id, locked_by=locked_by, lease_seconds=lease_seconds)


async def extend_lease(conn: Conn, job: StewardJob, lease_seconds: float) -> bool:
    """False when the worker has lost the job, or is to stop."""
    return await EXTEND_LEASE.first(conn, job_id=job.id, claim=job.claim, lease_seconds=lease_seconds) is not None


async def send_back(
    conn: Conn, job: StewardJob, error: str, *, pause_seconds: float = 0, is_retryable: bool = True, is_unknown: bool = False
) -> bool:
    """Queue the job again after a failure, or end it; False when the worker has lost it."""
    return (
        await SEND_BACK.run(
            conn,
            job_id=job.id,
            claim=job.claim,
            error=error[:2000],
            pause_seconds=pause_seconds,
            is_retryable=is_retryable,
            is_unknown=is_unknown,
        )
        > 0
    )


async def retry(conn: Conn, team_id: UUID, job_id: UUID) -> StewardJob | None:
    """Queue an ended job again, as the owner; None when it has not ended badly."""
    return await RETRY.first(conn, job_id=job_id, team_id=team_id)


async def requeue_lost(conn: Conn) -> list[UUID]:
    """Give back the jobs whose lease is over, of all teams."""
    return await REQUEUE_LOST.all(conn)


async def wake(conn: Conn) -> int:
    """Make tasks for the queued jobs that have none; returns whether there were any."""
    return await WAKE.one(conn)


async def hold(conn: Conn, job: StewardJob) -> bool:
    """Lock the claimed job until the transaction ends; False when it is lost, or to be cancelled."""
    return await HOLD.first(conn, job_id=job.id, team_id=job.team_id, claim=job.claim) is not None


async def end_job(conn: Conn, job: StewardJob, decision: dict[str, object]) -> None:
    await END_JOB.run(conn, job_id=job.id, team_id=job.team_id, claim=job.claim, decision=Jsonb(decision))


async def cancel(conn: Conn, team_id: UUID, job_id: UUID) -> StewardJob | None:
    """End a queued job, and mark a running one; None for one that has ended."""
    return await CANCEL.first(conn, job_id=job_id, team_id=team_id)


async def job(conn: Conn, team_id: UUID, job_id: UUID) -> StewardJob | None:
    return await JOB.first(conn, job_id=job_id, team_id=team_id)


async def jobs(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    status: str | None = None,
    job_type: str | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
) -> list[StewardJob]:
    """Newest first; None for no filter."""
    return await JOBS.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        status=status,
        job_type=job_type,
        before=before,
        before_id=before_id,
        limit=limit,
    )


async def verdicts(conn: Conn, team_id: UUID, suggestion_ids: Collection[UUID]) -> list[StewardJob]:
    """The newest job with a decision on each of these suggestions."""
    return await VERDICTS.all(conn, team_id=team_id, suggestion_ids=[str(id_) for id_ in suggestion_ids])


async def begin_run(conn: Conn, run_id: UUID, job: StewardJob) -> None:
    await BEGIN_RUN.run(
        conn,
        id=run_id,
        team_id=job.team_id,
        project_id=job.project_id,
        job_id=job.id,
        job_type=job.job_type,
        attempt=job.attempt_count,
    )


async def finish_run(
    conn: Conn,
    job: StewardJob,
    run_id: UUID,
    status: str,
    *,
    call: ModelCall | None = None,
    input_snapshot: object = None,
    output_snapshot: object = None,
    input_hash: str | None = None,
    error_class: str | None = None,
    error_message: str | None = None,
) -> None:
    await FINISH_RUN.run(
        conn,
        id=run_id,
        team_id=job.team_id,
        status=status,
        provider=call and call.provider,
        model=call and call.model,
        prompt_tokens=call.prompt_tokens if call else 0,
        completion_tokens=call.completion_tokens if call else 0,
        input_snapshot=Jsonb(input_snapshot or {}),
        output_snapshot=None if output_snapshot is None else Jsonb(output_snapshot),
        input_hash=input_hash,
        error_class=error_class,
        error_message=error_message and error_message[:2000],
    )


async def add_event(conn: Conn, job: StewardJob, run_id: UUID | None, event_type: str, data: object) -> None:
    await ADD_EVENT.run(conn, team_id=job.team_id, job_id=job.id, run_id=run_id, event_type=event_type, data=Jsonb(data))


async def run(conn: Conn, team_id: UUID, run_id: UUID) -> StewardRun | None:
    return await RUN.first(conn, team_id=team_id, run_id=run_id)


async def runs(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    status: str | None = None,
    job_type: str | None = None,
    model: str | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
    offset: int = 0,
) -> list[StewardRun]:
    """Newest first; None for no filter."""
    return await RUNS.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        status=status,
        job_type=job_type,
        model=model,
        before=before,
        before_id=before_id,
        limit=limit,
        offset=offset,
    )


async def lock_run(conn: Conn, team_id: UUID, run_id: UUID) -> bool:
    return await LOCK_RUN.first(conn, team_id=team_id, run_id=run_id) is not None


async def mark_undone(conn: Conn, team_id: UUID, run_id: UUID, undone_by: str) -> None:
    await MARK_UNDONE.run(conn, team_id=team_id, run_id=run_id, undone_by=undone_by)


async def events(conn: Conn, team_id: UUID, job_id: UUID, *, limit: int, offset: int = 0) -> list[Event]:
    """The timeline of a job, oldest first."""
    return await EVENTS.all(conn, team_id=team_id, job_id=job_id, limit=limit, offset=offset)


async def queue_health(conn: Conn, team_id: UUID, project_id: UUID | None) -> QueueHealth:
    return await QUEUE_HEALTH.one(conn, team_id=team_id, project_id=project_id)


async def figures(conn: Conn, team_id: UUID, project_id: UUID | None) -> Figures:
    return await FIGURES.one(conn, team_id=team_id, project_id=project_id)


async def failures(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[RunFailure]:
    return await FAILURES.all(conn, team_id=team_id, project_id=project_id)


async def breaker(conn: Conn, team_id: UUID) -> Breaker:
    return await BREAKER.one(conn, team_id=team_id, most_failures=BREAKER_FAILURES, seconds=BREAKER_SECONDS)


async def policy_values(conn: Conn, team_id: UUID) -> list[PolicyChange]:
    """The newest change of each policy that was ever changed."""
    return await POLICY_VALUES.all(conn, team_id=team_id)


async def policy_history(
    conn: Conn, team_id: UUID, *, policy_key: str | None = None, limit: int, offset: int = 0
) -> list[PolicyChange]:
    return await POLICY_HISTORY.all(conn, team_id=team_id, policy_key=policy_key, limit=limit, offset=offset)


async def last_policy_change(conn: Conn, team_id: UUID, policy_key: str) -> PolicyChange | None:
    """The change that a rollback would take back."""
    return await LAST_POLICY_CHANGE.first(conn, team_id=team_id, policy_key=policy_key)


async def lock_policies(conn: Conn, team_id: UUID) -> None:
    """Alone with the team's policies, until the transaction ends."""
    await LOCK_POLICIES.run(conn, team_id=team_id)


async def add_policy_change(conn: Conn, team_id: UUID, change: PolicyChange) -> None:
    await ADD_POLICY_CHANGE.run(
        conn,
        id=change.id,
        team_id=team_id,
        run_id=change.run_id,
        policy_key=change.policy_key,
        prior_value=change.prior_value,
        new_value=change.new_value,
        reason=change.reason,
        sample_size=change.sample_size,
        evidence=Jsonb(change.evidence),
        changed_by=change.changed_by,
        rollback_of_id=change.rollback_of_id,
    )


async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Delete all jobs, runs and events of the project, or of the team without one, and what was to be derived."""
    return await ERASE.run(conn, team_id=team_id, project_id=project_id)


async def derived_fingerprints(conn: Conn, team_id: UUID, project_id: UUID, *, with_candidates: bool) -> set[str]:
    """What is not to be derived (again)."""
    return set(await DERIVED_FINGERPRINTS.all(conn, team_id=team_id, project_id=project_id, with_candidates=with_candidates))


async def keep_derivation(conn: Conn, new: NewDerivation) -> bool:
    """Keep what was derived, in place of a candidate; False when it was stored, taken back or refused before."""
    values = {**msgspec.structs.asdict(new), "id": new_id(), "payload": Jsonb(new.payload)}
    return await KEEP_DERIVATION.first(conn, **values) is not None


async def set_derived(conn: Conn, team_id: UUID, project_id: UUID, fingerprint: str, observation_id: UUID) -> None:
    await SET_DERIVED.run(conn, team_id=team_id, project_id=project_id, fingerprint=fingerprint, observation_id=observation_id)


async def undo_derivation(conn: Conn, team_id: UUID, observation_id: UUID) -> None:
    """Remember, before the observation goes, that it is not wanted."""
    await UNDO_DERIVATION.run(conn, team_id=team_id, observation_id=observation_id)


async def derivation_counts(conn: Conn, team_id: UUID, days: int) -> DerivationCounts:
    return await DERIVATION_COUNTS.one(conn, team_id=team_id, days=days)


async def suggestion_counts(conn: Conn, team_id: UUID, days: int, at_least: float) -> SuggestionCounts:
    """What people did with suggestions of at least that similarity; not the steward, and not the system."""
    return await SUGGESTION_COUNTS.one(conn, team_id=team_id, days=days, at_least=at_least)


async def unjudged_suggestions(conn: Conn, team_id: UUID, mode_of_team: str, asked: str, limit: int) -> list[UnjudgedSuggestion]:
    """Open suggestions that no job of that mode has looked at since either text changed. `asked` is who judges: see plan.py."""
    return await UNJUDGED_SUGGESTIONS.all(conn, team_id=team_id, mode=mode_of_team, asked=asked, limit=limit)


async def projects_with_calls(
    conn: Conn, team_id: UUID, mode_of_team: str, *, every_seconds: float, limit: int
) -> list[DueProject]:
    """Projects with events that no `recheck` of that mode has read, and the times between which they came in."""
    return await PROJECTS_WITH_CALLS.all(conn, team_id=team_id, mode=mode_of_team, every_seconds=every_seconds, limit=limit)


async def projects_with_news(conn: Conn, team_id: UUID, mode_of_team: str, *, every_seconds: float, limit: int) -> list[UUID]:
    """Projects with observations that came since the last `derive` of that mode, which is so long ago."""
    return await PROJECTS_WITH_NEWS.all(conn, team_id=team_id, mode=mode_of_team, every_seconds=every_seconds, limit=limit)
