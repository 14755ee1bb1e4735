"""What a team allows, what happened by itself, and the steward's jobs, as the view steward_jobs shows those of the outbox."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, Query, query, unprepared_query
from cmserver.observations.model import LIVE_O
from cmserver.steward import model

OWNS = {"steward_modes"}

_LIVE_L: LiteralString = LIVE_O.replace("o.", "l.")
_LIVE_R: LiteralString = LIVE_O.replace("o.", "r.")

# Of a job `j`: what it looked at need not be looked at again. `goesOn`: it may not have written what it decided, or not all of it.
_COUNTS: LiteralString = "(j.decision -> 'goesOn') IS DISTINCT FROM 'true'"

# -- what happened by itself

# Each merge, repeat and promotion that nobody asked for, what was closed by an event, and the steward's runs that wrote something.
AUTOMATIC_ACTS = Query(
    model.AutomaticAct,
    f"""
    SELECT act.* FROM (
        SELECT v.created_at AS at, v.project_id,
               CASE v.action WHEN 'corrected' THEN 'repeated' ELSE v.action END AS kind, o.number,
               left(coalesce(o.title, o.content), 200) AS title,
               ARRAY(SELECT s.number FROM observations s
                      WHERE s.id = ANY(v.source_ids) AND s.team_id = v.team_id ORDER BY s.number) AS by_numbers,
               v.measured_by, v.similarity, NULL::uuid AS run_id,
               NOT EXISTS (
                   SELECT FROM observation_versions later
                    WHERE later.observation_id = v.observation_id AND later.team_id = v.team_id AND later.version > v.version
                      AND later.undone_at IS NULL) AS can_undo
          FROM observation_versions v JOIN observations o ON o.id = v.observation_id AND o.team_id = v.team_id
         WHERE v.team_id = %(team_id)s AND v.created_at > now() - make_interval(days => %(days)s) AND v.undone_at IS NULL
           AND v.performed_by <> 'steward' AND (v.measured_by IS NOT NULL OR v.performed_by = 'system')
           AND {LIVE_O}
        UNION ALL
        SELECT o.closed_at, o.project_id, o.state, o.number, left(coalesce(o.title, o.content), 200), ARRAY[o.closed_by],
               NULL, NULL, NULL, true
          FROM observations o
         WHERE o.team_id = %(team_id)s AND o.closed_by IS NOT NULL AND o.closed_at > now() - make_interval(days => %(days)s)
           AND {LIVE_O}
        UNION ALL
        SELECT r.created_at, r.project_id, 'steward', NULL, r.job_type,
               ARRAY(SELECT (e ->> 'number')::bigint FROM jsonb_array_elements(r.output_snapshot -> 'effects') e
                      WHERE e -> 'number' IS NOT NULL),
               NULL, NULL, r.id, true
          FROM steward_runs r
         WHERE r.team_id = %(team_id)s AND r.created_at > now() - make_interval(days => %(days)s)
           AND r.status = 'succeeded' AND r.undone_at IS NULL
           AND jsonb_array_length(coalesce(r.output_snapshot -> 'effects', '[]')) > 0) act
     WHERE {IN_REACH} OR (act.project_id IS NULL AND %(project_id)s::uuid IS NULL)
     ORDER BY act.at DESC, act.number DESC LIMIT %(limit)s
    """,
    prepare=False,
)

# -- what a team allows

MODE = Query(
    model.TeamMode,
    """
    SELECT coalesce(mode, 'off') AS mode, is_paused, executors, changed_by, changed_at FROM steward_modes
     WHERE team_id = %(team_id)s AND project_id IS NULL
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


# Shared until the transaction ends: whoever switches the mode waits for the writes that began under the old one.
PERMISSION = Query(
    model.Permission,
    """
    SELECT coalesce(t.mode, 'off') AS mode, t.is_paused, %(job_type)s::text = ANY(t.executors)
           AND NOT EXISTS (SELECT FROM steward_modes p
                            WHERE p.team_id = t.team_id AND p.project_id = %(project_id)s::uuid
                              AND NOT %(job_type)s::text = ANY(p.executors)) AS is_allowed,
           EXISTS (SELECT FROM projects p
                    WHERE p.id = %(project_id)s::uuid AND p.team_id = t.team_id AND p.archived_at IS NOT NULL) AS is_archived
      FROM steward_modes t WHERE t.team_id = %(team_id)s AND t.project_id IS NULL FOR SHARE
    """,
)

# The teams whose steward is neither off nor paused.
ACTIVE_TEAMS = Query(
    UUID,
    """
    SELECT m.team_id FROM steward_modes m JOIN teams t ON t.id = m.team_id AND t.archived_at IS NULL
     WHERE m.project_id IS NULL AND m.mode <> 'off' AND NOT m.is_paused ORDER BY m.team_id
    """,
)

# -- jobs, as the owner

# Only one process plans at a time, so that the bounds hold.
LOCK_PLANNING = Query(str, "SELECT pg_advisory_xact_lock(7237425, 0)::text")

# What the steward thinks of suggestions: the newest decision on each.
VERDICTS = Query(
    model.SuggestionVerdict,
    """
    SELECT DISTINCT ON (source_id) source_id AS suggestion_id, coalesce(decision, '{}') AS decision
      FROM steward_jobs
     WHERE team_id = %(team_id)s AND job_type = 'auto_merge' AND decision IS NOT NULL AND source_id = ANY(%(suggestion_ids)s)
     ORDER BY source_id, created_at DESC
    """,
)


# What other projects have of observations that were moved there from this one, or from there to this one.
FORGET = Query(
    str,
    """
    SELECT forget_sources(ARRAY(
               SELECT o.id FROM observation_derivations d, unnest(d.source_observation_ids) source_id
                 JOIN observations o ON o.id = source_id AND o.team_id = %(team_id)s AND o.project_id = %(project_id)s
                WHERE d.team_id = %(team_id)s AND d.project_id <> %(project_id)s), %(team_id)s)::text
    """,
)

ERASE = Query(
    int,
    """
    DELETE FROM observation_derivations
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)


async def automatic_acts(conn: Conn, team_id: UUID, project_id: UUID | None, limit: int) -> list[model.AutomaticAct]:
    """What happened by itself in the last days and was not taken back, newest first; None for all projects."""
    return await AUTOMATIC_ACTS.all(conn, team_id=team_id, project_id=project_id, days=model.ACT_DAYS, limit=limit)


async def mode(conn: Conn, team_id: UUID) -> model.TeamMode:
    """What the team allows; nothing without a row."""
    return await MODE.first(conn, team_id=team_id) or model.TeamMode()


@query("""
    SELECT p.id AS project_id, p.canonical_id AS project, m.executors
      FROM steward_modes m JOIN projects p ON p.id = m.project_id AND p.team_id = m.team_id
     WHERE m.team_id = %(team_id)s ORDER BY p.canonical_id
    """)
async def project_executors(conn: Conn, team_id: UUID) -> list[model.ProjectExecutors]: ...


async def set_mode(conn: Conn, team_id: UUID, to: model.TeamMode, *, changed_by: str) -> None:
    await SET_MODE.run(conn, team_id=team_id, mode=to.mode, is_paused=to.is_paused, executors=to.executors, changed_by=changed_by)


@query("""
    INSERT INTO steward_modes AS m (team_id, project_id, executors, changed_by)
    VALUES (%(team_id)s, %(project_id)s, %(executors)s, %(changed_by)s)
    ON CONFLICT (team_id, project_id) DO UPDATE
       SET executors = excluded.executors, changed_by = excluded.changed_by, changed_at = now()
    """)
async def set_project_executors(
    conn: Conn, team_id: UUID, project_id: UUID, executors: Sequence[str], *, changed_by: str
) -> None: ...


async def permission(conn: Conn, team_id: UUID, project_id: UUID | None, job_type: str) -> model.Permission:
    """What holds until this transaction ends: a change of the mode waits for it."""
    found = await PERMISSION.first(conn, team_id=team_id, project_id=project_id, job_type=job_type)
    return found or model.Permission(mode="off", is_paused=False, is_allowed=False, is_archived=False)


@query(f"SELECT {model.JOB_COLUMNS} FROM steward_jobs WHERE id = %(job_id)s AND team_id = %(team_id)s")
async def job(conn: Conn, team_id: UUID, job_id: UUID) -> model.StewardJob | None: ...


async def verdicts(conn: Conn, team_id: UUID, suggestion_ids: Collection[UUID]) -> dict[UUID, dict[str, object]]:
    """The newest decision on each of these suggestions."""
    rows = await VERDICTS.all(conn, team_id=team_id, suggestion_ids=list(suggestion_ids))
    return {row.suggestion_id: row.decision for row in rows}


@unprepared_query("""
    SELECT open.queued, open.running, open.oldest_queued_seconds, dead.dead_letter
      FROM (SELECT count(*) FILTER (WHERE status = 'queued') AS queued, count(*) FILTER (WHERE status = 'running') AS running,
                   extract(epoch FROM now() - min(created_at) FILTER (WHERE status = 'queued'))::float8 AS oldest_queued_seconds
              FROM steward_jobs
             WHERE team_id = %(team_id)s AND phase = 'open'
               AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)) open,
           (SELECT count(*) AS dead_letter FROM steward_jobs
             WHERE team_id = %(team_id)s AND phase = 'failed' AND status = 'dead_letter' AND ended_at > now() - interval '24 hours'
               AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)) dead
    """)
async def queue_health(conn: Conn, team_id: UUID, project_id: UUID | None) -> model.QueueHealth: ...


async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Delete what was derived in the project, or in the whole team, before its observations go. Runs go with their jobs."""
    if project_id is not None:
        await FORGET.run(conn, team_id=team_id, project_id=project_id)
    return await ERASE.run(conn, team_id=team_id, project_id=project_id)


# Of the team's open suggestions those that no job has looked at as they are now, the most similar first.
@unprepared_query(f"""
    SELECT s.id, s.project_id, l.version AS left_version, r.version AS right_version, s.left_id, s.right_id
      FROM consolidation_suggestions s
      JOIN observations l ON l.id = s.left_id AND l.team_id = s.team_id AND {_LIVE_L}
      JOIN observations r ON r.id = s.right_id AND r.team_id = s.team_id AND {_LIVE_R}
      JOIN projects p ON p.id = s.project_id AND p.team_id = s.team_id AND p.archived_at IS NULL
     WHERE s.team_id = %(team_id)s AND s.status = 'open' AND s.reason = 'same'
       AND (%(project_id)s::uuid IS NULL OR s.project_id = %(project_id)s::uuid)
       AND NOT EXISTS (
               SELECT FROM steward_jobs j
                WHERE j.team_id = s.team_id AND j.job_type = 'auto_merge' AND j.source_id = s.id
                  AND j.payload ->> 'mode' = %(mode_of_team)s AND j.payload ->> 'asked' = %(asked)s
                  AND j.payload -> 'versions' = jsonb_build_array(l.version, r.version)
                  AND {_COUNTS}
                  AND ((j.decision -> 'triesAgain') IS DISTINCT FROM 'true' OR j.ended_at > now() - interval '1 day'))
       AND NOT EXISTS (
               SELECT FROM steward_modes m
                WHERE m.team_id = s.team_id AND m.project_id = s.project_id AND NOT 'auto_merge' = ANY(m.executors))
     ORDER BY s.similarity DESC, s.id LIMIT %(limit)s
    """)
async def unjudged_suggestions(
    conn: Conn, team_id: UUID, project_id: UUID | None, mode_of_team: str, asked: str, limit: int
) -> list[model.UnjudgedSuggestion]:
    """Open suggestions that no job of that mode has looked at since either text changed. `asked` is who judges: see plan.py."""
    ...


# Projects with something that came in since the last job of that type and mode, which is some time ago.
@unprepared_query(f"""
    SELECT p.id AS project_id, last.read_to AS since, now() - interval '1 minute' AS until
      FROM projects p
      LEFT JOIN LATERAL (
           SELECT j.created_at, j.phase,
                  coalesce((j.decision ->> 'readTo')::timestamptz, (j.payload ->> 'until')::timestamptz) AS read_to
             FROM steward_jobs j
            WHERE j.team_id = p.team_id AND j.job_type = 'recheck' AND j.project_id = p.id
              AND j.payload ->> 'mode' = %(mode_of_team)s AND {_COUNTS}
            ORDER BY j.created_at DESC, j.id DESC LIMIT 1) last ON true
     WHERE p.team_id = %(team_id)s AND p.archived_at IS NULL
       AND (%(project_id)s::uuid IS NULL OR p.id = %(project_id)s::uuid)
       AND (last.created_at IS NULL OR (last.phase <> 'open'
                                        AND last.created_at < now() - make_interval(secs => %(every_seconds)s)))
       AND EXISTS (SELECT FROM agent_events e
                    WHERE e.project_id = p.id AND e.team_id = p.team_id AND e.payload_purged_at IS NULL
                      AND (last.read_to IS NULL OR e.received_at > last.read_to)
                      AND e.received_at <= now() - interval '1 minute')
     ORDER BY last.created_at NULLS FIRST, p.id LIMIT %(limit)s
    """)
async def projects_with_calls(
    conn: Conn, team_id: UUID, project_id: UUID | None, mode_of_team: str, *, every_seconds: float, limit: int
) -> list[model.DueProject]:
    """Projects with events that no `recheck` of that mode has read, and the times between which they came in."""
    ...


@unprepared_query(f"""
    SELECT p.id FROM projects p
      LEFT JOIN LATERAL (
           SELECT j.created_at, j.phase FROM steward_jobs j
            WHERE j.team_id = p.team_id AND j.job_type = 'derive' AND j.project_id = p.id
              AND j.payload ->> 'mode' = %(mode_of_team)s AND {_COUNTS}
            ORDER BY j.created_at DESC, j.id DESC LIMIT 1) last ON true
     WHERE p.team_id = %(team_id)s AND p.archived_at IS NULL
       AND (%(project_id)s::uuid IS NULL OR p.id = %(project_id)s::uuid)
       AND (last.created_at IS NULL OR (last.phase <> 'open'
                                        AND last.created_at < now() - make_interval(secs => %(every_seconds)s)))
       AND EXISTS (SELECT FROM observations o
                    WHERE o.project_id = p.id AND o.team_id = p.team_id AND o.kind <> 'summary' AND {LIVE_O}
                      AND (last.created_at IS NULL OR o.created_at > last.created_at))
     ORDER BY last.created_at NULLS FIRST, p.id LIMIT %(limit)s
    """)
async def projects_with_news(
    conn: Conn, team_id: UUID, project_id: UUID | None, mode_of_team: str, *, every_seconds: float, limit: int
) -> list[UUID]:
    """Projects with observations that came since the last `derive` of that mode, which is so long ago."""
    ...
