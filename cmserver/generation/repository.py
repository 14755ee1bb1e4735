"""All SQL of the outbox. Every write of a batch is fenced by its claim number.

Lock order, everywhere: sessions, events by idempotency key, jobs by id, budgets by id, calls and their sums, then lanes by lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import LiteralString
from uuid import UUID

from cmserver.base.metrics import metrics
from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.generation.model import (
    Claim,
    ClaimedJob,
    End,
    LaneHold,
    PastEvent,
)

OWNS = {
    "observation_generation_jobs",
    "observation_generation_job_events",
    "generation_lanes",
}

_NO_HOLD = LaneHold()

# Of a job `j` with its event `e`, where rules understand whole turns (the job says so): whether it begins a turn, whether it ends
# one, and when its part of the turn is over at the latest, by the client's clock.
_TURN_COLUMNS: LiteralString = """
       coalesce(j.payload ? 'gather_seconds' AND e.event_type IN ('user_prompt', 'UserPromptSubmit'), false) AS begins,
       coalesce(j.payload ? 'gather_seconds' AND e.event_type = 'assistant_message', false) AS ends,
       e.occurred_at, e.occurred_at + make_interval(secs => (j.payload ->> 'gather_seconds')::float8) AS until"""

# When what is queued in lane `l` is due: at once, but for a turn that is under way, whose events wait for its end.
_DUE_AT: LiteralString = f"""
    (SELECT CASE WHEN bool_and(q.until IS NOT NULL) AND NOT bool_or(q.ends OR (q.begins AND q.place > 1))
                      AND max(q.occurred_at) <= min(q.until)
                 THEN greatest(now(), min(q.at_latest)) ELSE now() END
       FROM (SELECT row_number() OVER (ORDER BY j.seq) AS place,
                    j.created_at + make_interval(secs => (j.payload ->> 'gather_seconds')::float8) AS at_latest, {_TURN_COLUMNS}
               FROM (SELECT n.seq, n.payload, n.created_at, n.agent_event_id FROM observation_generation_jobs n
                      WHERE n.lane = l.lane AND n.phase = 'open' AND n.status = 'queued' AND NOT n.waits_for_end
                      ORDER BY n.seq LIMIT CASE WHEN (
                            SELECT f.payload ? 'gather_seconds' FROM observation_generation_jobs f
                             WHERE f.lane = l.lane AND f.phase = 'open' AND f.status = 'queued' AND NOT f.waits_for_end
                             ORDER BY f.seq LIMIT 1) THEN 500 ELSE 1 END) j
               LEFT JOIN agent_events e ON e.id = j.agent_event_id) q
     HAVING count(*) > 0)"""

# The phase stands beside the status where a lane's jobs are looked for: it is what the index has, which a claim does not change.
# Claims due lanes, and the queued jobs of each lane's next batch. A batch is for a slot of its own, or (by rules) in a set with
# others of its team, which have the same number; no more is taken than the free slots can begin. A set ends where its jobs or
# characters reach what a batch may have, so it has less than twice as many. Jobs with a stored answer form exactly that answer's
# batch; otherwise a batch ends before the first summary; a summary is alone. Where rules understand whole turns a batch is one
# turn, or what happened of it within its time, whatever has arrived meanwhile. A lane's `at_most` (a policy) limits batches
# further; events that wait for the end of their session are included. No live heartbeat, no lanes. 500 is more than any batch
# takes; the constant keeps the planner on the index beside a lane of 100,000 jobs. Jobs left in the lane are found at its
# release, never here: this snapshot may be old. The steward's lanes, which are those of whole projects, have their turn as if
# they had become due a minute later, in a slot that events leave free until then, and a worker has one of them at a time: so what
# people wait for is not behind them. The constant LIMIT of `of_events` tells the planner how few its lanes are; those that are
# not taken are locked until this statement ends.
CLAIM = Query(
    Claim,
    f"""
    WITH alive AS MATERIALIZED (
        SELECT w.id FROM procrastinate_workers w
         WHERE w.id = %(worker_id)s AND w.last_heartbeat > now() - make_interval(secs => %(lease_seconds)s)
    ), of_steward AS MATERIALIZED (
        SELECT l.lane FROM generation_lanes l, alive
         WHERE l.worker_id IS NULL AND l.due_at <= now() AND l.lane = l.project_id
           AND NOT EXISTS (SELECT FROM generation_lanes h WHERE h.worker_id = %(worker_id)s AND h.lane = h.project_id)
           AND l.due_at + interval '1 minute' <= coalesce((
                   SELECT e.due_at FROM generation_lanes e
                    WHERE e.worker_id IS NULL AND e.due_at <= now() AND e.lane <> e.project_id
                    ORDER BY e.due_at LIMIT 1 OFFSET %(slots)s::bigint - 1), 'infinity')
         ORDER BY l.due_at LIMIT 1 FOR UPDATE OF l SKIP LOCKED
    ), of_events AS MATERIALIZED (
        SELECT due.* FROM (
            SELECT l.lane, l.team_id, l.due_at, least(%(max_events)s::integer, l.at_most) AS max_events
              FROM generation_lanes l, alive
             WHERE l.worker_id IS NULL AND l.due_at <= now() AND l.lane <> l.project_id
             ORDER BY l.due_at LIMIT %(lanes)s FOR UPDATE OF l SKIP LOCKED) due
         LIMIT 100
    ), measured AS (
        SELECT o.due_at, o.lane, CASE WHEN %(in_sets)s::boolean AND n.is_plain THEN o.team_id ELSE o.lane END AS owner,
               least(n.jobs, o.max_events) AS jobs, least(n.chars, %(max_chars)s::bigint) AS chars
          FROM of_events o CROSS JOIN LATERAL (
               SELECT count(*) AS jobs, coalesce(sum(q.size_chars), 0)::bigint AS chars,
                      bool_and(q.source_type = 'agent_event' AND q.generation_run_id IS NULL) FILTER (WHERE q.place = 1) AS is_plain
                 FROM (SELECT j.size_chars, j.source_type, j.generation_run_id, row_number() OVER (ORDER BY j.seq) AS place
                         FROM observation_generation_jobs j
                        WHERE j.lane = o.lane AND j.phase = 'open' AND j.status = 'queued' ORDER BY j.seq LIMIT 500) q) n
    ), cut AS (
        SELECT m.lane, m.due_at, m.owner, (sum(m.jobs) OVER in_turn - m.jobs)::bigint / %(max_events)s::integer AS jobs_part,
               (sum(m.chars) OVER in_turn - m.chars)::bigint / %(max_chars)s::bigint AS chars_part
          FROM measured m WINDOW in_turn AS (PARTITION BY m.owner ORDER BY m.due_at, m.lane ROWS UNBOUNDED PRECEDING)
    ), numbered AS (
        SELECT c.lane, dense_rank() OVER (ORDER BY c.first_due_at, c.owner, c.jobs_part, c.chars_part) AS set_number
          FROM (SELECT cut.*, min(cut.due_at) OVER (PARTITION BY cut.owner, cut.jobs_part, cut.chars_part) AS first_due_at
                  FROM cut) c
    ), ready AS MATERIALIZED (
        SELECT lane, set_number FROM numbered WHERE set_number <= %(slots)s - (SELECT count(*) FROM of_steward)
        UNION ALL SELECT lane, %(slots)s FROM of_steward
    ), taken AS MATERIALIZED (
        UPDATE generation_lanes l
           SET worker_id = %(worker_id)s, claim = nextval('generation_claims'), locked_at = now(),
               due_at = NULL, held_until = NULL, held_reason = NULL, held_for = NULL
          FROM ready WHERE l.lane = ready.lane
        RETURNING l.lane, l.team_id, l.project_id, l.claim, ready.set_number,
                  least(%(max_events)s::integer, l.at_most) AS max_events
    ), waiting AS MATERIALIZED (
        SELECT t.lane, t.claim, t.max_events, j.id, j.seq, j.size_chars, j.source_type, j.generation_run_id, {_TURN_COLUMNS}
          FROM taken t CROSS JOIN LATERAL (
               SELECT n.id, n.seq, n.size_chars, n.source_type, n.generation_run_id, n.payload, n.agent_event_id
                 FROM (SELECT j.id, j.seq, j.size_chars, j.source_type, j.generation_run_id, j.payload, j.agent_event_id
                         FROM observation_generation_jobs j
                        WHERE j.lane = t.lane AND j.phase = 'open' AND j.status = 'queued'
                        ORDER BY j.seq LIMIT 500 FOR UPDATE OF j SKIP LOCKED) n
                LIMIT greatest(t.max_events, (
                      SELECT cardinality(r.job_ids) FROM generation_runs r
                       WHERE r.id = (SELECT f.generation_run_id FROM observation_generation_jobs f
                                      WHERE f.lane = t.lane AND f.phase = 'open' AND f.status = 'queued'
                                      ORDER BY f.seq LIMIT 1)))) j
          LEFT JOIN agent_events e ON j.payload ? 'gather_seconds' AND e.id = j.agent_event_id
    ), placed AS (
        SELECT w.id, w.claim, w.seq, w.max_events, w.generation_run_id, row_number() OVER in_lane AS place,
               sum(w.size_chars) OVER in_lane AS chars,
               first_value(w.generation_run_id) OVER in_lane AS stored_answer,
               count(*) FILTER (WHERE w.source_type <> 'agent_event') OVER in_lane AS summaries,
               coalesce(count(*) FILTER (WHERE w.begins) OVER in_lane > first_value(w.begins::integer) OVER in_lane
                        OR bool_or(w.ends) OVER before OR w.occurred_at > min(w.until) OVER before, false) AS is_later
          FROM waiting w
        WINDOW in_lane AS (PARTITION BY w.lane ORDER BY w.seq ROWS UNBOUNDED PRECEDING),
               before AS (PARTITION BY w.lane ORDER BY w.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ), counted AS (
        SELECT p.*, count(*) FILTER (WHERE p.is_later) OVER (PARTITION BY p.claim ORDER BY p.seq ROWS UNBOUNDED PRECEDING) AS laters
          FROM placed p
    ), batch AS (
        SELECT id, claim FROM counted
         WHERE place = 1
            OR (stored_answer IS NULL AND generation_run_id IS NULL AND summaries = 0
                AND place <= max_events AND chars <= %(max_chars)s AND laters = 0)
            OR generation_run_id = stored_answer
    ), held AS (
        UPDATE observation_generation_jobs j
           SET status = 'processing', attempts = j.attempts + 1, next_attempt_at = NULL, waits_for_end = false, locked_at = now(),
               locked_by = %(label)s, worker_id = %(worker_id)s, claim = batch.claim
          FROM batch WHERE j.id = batch.id
        RETURNING j.id, j.seq, j.claim, j.source_type, j.generation_run_id
    )
    SELECT t.lane, t.team_id, t.project_id, t.claim, t.set_number,
           coalesce(array_agg(h.id ORDER BY h.seq) FILTER (WHERE h.id IS NOT NULL), '{{}}') AS job_ids,
           coalesce(bool_and(h.source_type = 'agent_event' AND h.generation_run_id IS NULL), false) AS is_plain
      FROM taken t LEFT JOIN held h ON h.claim = t.claim
     GROUP BY t.lane, t.team_id, t.project_id, t.claim, t.set_number
     ORDER BY t.set_number, t.claim
    """,
    prepare=True,
)

# The LAST statement of a transaction. `least` on the row's own due_at keeps an event that committed while we waited for its lock.
# Events that wait for the end of their session make the lane due only when another job, such as a summary, is queued.
RELEASE = Query(
    UUID,
    f"""
    WITH held AS MATERIALIZED (
        SELECT l.lane, l.claim, n.until, n.reason, n.held_for
          FROM (SELECT r.lane, r.claim, r.reason, r.held_for,
                       CASE WHEN r.seconds > 0 THEN now() + make_interval(secs => r.seconds) END AS until
                  FROM unnest(%(lanes)s::uuid[], %(claims)s::bigint[], %(hold_seconds)s::float8[], %(hold_reasons)s::text[],
                              %(held_for)s::text[]) AS r(lane, claim, seconds, reason, held_for)) n
          JOIN generation_lanes l ON l.lane = n.lane AND l.claim = n.claim
         ORDER BY l.lane FOR NO KEY UPDATE OF l
    )
    UPDATE generation_lanes l
       SET worker_id = NULL, claim = NULL, held_until = h.until,
           held_reason = CASE WHEN h.until IS NOT NULL THEN h.reason END,
           held_for = CASE WHEN h.until IS NOT NULL THEN h.held_for END,
           due_at = greatest(
               h.until,
               least(l.due_at,
                     {_DUE_AT},
                     (SELECT j.created_at + interval '30 days' FROM observation_generation_jobs j
                       WHERE j.lane = l.lane AND j.phase = 'open' AND j.status = 'queued' ORDER BY j.seq LIMIT 1)))
      FROM held h WHERE l.lane = h.lane AND l.claim = h.claim
    RETURNING l.lane
    """,
    prepare=True,
)

REMOVE_LANES = Query(
    UUID,
    """
    WITH held AS MATERIALIZED (
        SELECT l.lane, l.claim FROM unnest(%(lanes)s::uuid[], %(claims)s::bigint[]) AS n(lane, claim)
          JOIN generation_lanes l ON l.lane = n.lane AND l.claim = n.claim
         ORDER BY l.lane FOR UPDATE OF l
    )
    DELETE FROM generation_lanes l USING held h WHERE l.lane = h.lane AND l.claim = h.claim
    RETURNING l.lane
    """,
)

REMOVE_IDLE_LANES = Query(
    int,
    """
    WITH idle AS (
        SELECT lane FROM generation_lanes
         WHERE worker_id IS NULL AND due_at IS NULL AND (locked_at IS NULL OR locked_at < now() - interval '1 day')
         ORDER BY lane FOR UPDATE SKIP LOCKED
    )
    DELETE FROM generation_lanes l USING idle WHERE l.lane = idle.lane
    """,
)


# In the order of receipt, as jobs are worked on. Without what jobs that have not ended, or were skipped by a rule, are of.
PAST_EVENTS = Query(
    PastEvent,
    """
    SELECT n.id, n.event_type, n.payload, n.occurred_at, n.received_at, n.created_at, n.metadata ->> 'git_branch' AS branch, n.root
      FROM (SELECT e.*, s.metadata ->> 'root' AS root, sum(e.size_chars) OVER received - e.size_chars AS chars_before
              FROM turns t
              JOIN agent_events e
                ON e.server_session_id = t.server_session_id AND e.project_id = t.project_id AND e.team_id = t.team_id
              JOIN server_sessions s ON s.id = t.server_session_id AND s.team_id = t.team_id
             WHERE t.id = %(turn_id)s AND t.team_id = %(team_id)s
               AND (e.generate OR e.origin = 'import') AND e.payload_purged_at IS NULL
               AND (e.id = t.agent_event_id OR time_of_event(e.occurred_at, e.received_at) >= t.created_at)
               AND NOT EXISTS (SELECT FROM turns l
                                WHERE l.server_session_id = t.server_session_id AND l.team_id = t.team_id
                                  AND l.prompt_number > t.prompt_number
                                  AND (l.agent_event_id = e.id OR l.created_at <= time_of_event(e.occurred_at, e.received_at)))
               AND NOT EXISTS (SELECT FROM observation_generation_jobs j
                                WHERE j.agent_event_id = e.id AND j.team_id = e.team_id AND j.source_type = 'agent_event'
                                  AND (j.status <> 'completed' OR j.outcome_reason LIKE 'skip rule: %%'))
               AND (%(after)s::timestamptz IS NULL
                    OR (e.received_at, e.id) > (%(after)s::timestamptz, %(after_id)s::uuid))
            WINDOW received AS (ORDER BY e.received_at, e.id)
             ORDER BY e.received_at, e.id LIMIT %(limit)s) n
     WHERE n.chars_before < %(max_chars)s
     ORDER BY n.received_at, n.id
    """,
    prepare=False,
)

STILL_HELD = Query(
    UUID,
    """
    SELECT id FROM observation_generation_jobs
     WHERE id = ANY(%(job_ids)s) AND claim = ANY(%(claims)s::bigint[]) AND status = 'processing' AND cancel_requested_at IS NULL
     ORDER BY id FOR UPDATE
    """,
)

# The ends are an object by the ids of the jobs: joined as rows they would be read through once for each job. The ids stand beside
# them, for the planner would rather read all of a table that it does not know yet.
END_JOBS = Query(
    UUID,
    """
    UPDATE observation_generation_jobs j
       SET (status, outcome, outcome_reason, last_error, attempts, generation_run_id, next_attempt_at) = (
           SELECT CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE e.status END,
                  CASE WHEN j.cancel_requested_at IS NULL THEN e.outcome END,
                  CASE WHEN j.cancel_requested_at IS NULL THEN e.reason ELSE 'cancelled while running' END,
                  CASE WHEN j.cancel_requested_at IS NULL AND e.status <> 'completed' THEN coalesce(e.error, j.last_error) END,
                  j.attempts - CASE WHEN e.give_back THEN 1 ELSE 0 END,
                  CASE WHEN e.run_id IS NOT NULL THEN e.run_id
                       WHEN e.status <> 'queued' OR EXISTS (SELECT FROM generation_runs r
                                   WHERE r.id = j.generation_run_id AND r.status = 'answered')
                       THEN j.generation_run_id END,
                  CASE WHEN e.status = 'queued' AND j.cancel_requested_at IS NULL
                       THEN now() + make_interval(secs => coalesce(e.hold_seconds, 0)) END
             FROM jsonb_to_record(%(ends)s::jsonb -> j.id::text)
                  AS e(status text, outcome text, reason text, error jsonb, give_back boolean, run_id uuid, hold_seconds float8))
     WHERE j.id = ANY(%(job_ids)s) AND j.claim = ANY(%(claims)s::bigint[]) AND j.status = 'processing'
    RETURNING j.id
    """,
)

SAVE_PROGRESS = Query(
    int,
    """
    UPDATE observation_generation_jobs SET payload = payload || %(progress)s
     WHERE id = %(job_id)s AND claim = %(claim)s AND status = 'processing'
    """,
)

ADD_EVENT = Query(
    int,
    """
    INSERT INTO observation_generation_job_events
           (team_id, project_id, generation_job_id, event_type, status_after, attempt, details)
    SELECT team_id, project_id, id, %(event_type)s, status, attempts, %(details)s || jsonb_build_object('run', %(run_id)s::uuid)
      FROM observation_generation_jobs WHERE id = %(job_id)s
    """,
)


# What waits for the end of its turn need wait no longer. A lane that a worker holds is due again when it is released.
MAKE_WAITING_LANE_DUE = Query(
    UUID,
    """
    UPDATE generation_lanes SET due_at = greatest(held_until, least(due_at, now()))
     WHERE lane = %(lane)s AND (due_at IS NOT NULL OR worker_id IS NOT NULL)
    RETURNING lane
    """,
)

# The turn of a new prompt is under way; what came before it need wait no longer.
MAKE_EARLIER_TURN_DUE = Query(
    UUID,
    f"""
    UPDATE generation_lanes l SET due_at = greatest(l.held_until, least(l.due_at, {_DUE_AT}))
     WHERE l.lane = %(lane)s AND l.due_at IS NOT NULL
    RETURNING l.lane
    """,
)


async def claim(
    conn: Conn,
    *,
    worker_id: int,
    label: str,
    lease_seconds: float,
    slots: int,
    max_events: int,
    max_chars: int,
    set_lanes: int | None = None,
) -> list[Claim]:
    """Claim the next batches for as many free slots, in the order in which they are to be run.

    With `set_lanes` those of one team are sets; so many lanes are claimed at most. Without it each batch has a slot of its own.
    """
    with metrics().claim_seconds.time():
        return await CLAIM.all(
            conn,
            worker_id=worker_id,
            label=label,
            lease_seconds=lease_seconds,
            slots=slots,
            lanes=set_lanes or slots,
            in_sets=set_lanes is not None,
            max_events=max_events,
            max_chars=max_chars,
        )


async def release(conn: Conn, claims: Sequence[Claim], holds: Mapping[UUID, LaneHold] = MappingProxyType({})) -> set[UUID]:
    """Release the lanes, each with its hold if it has one; returns those that the claims had not lost."""
    held = [holds.get(claim.lane, _NO_HOLD) for claim in claims]
    released = await RELEASE.all(
        conn,
        lanes=[claim.lane for claim in claims],
        claims=[claim.claim for claim in claims],
        hold_seconds=[hold.seconds for hold in held],
        hold_reasons=[hold.reason for hold in held],
        held_for=[hold.held_for for hold in held],
    )
    return set(released)


async def remove_lanes(conn: Conn, claims: Sequence[Claim]) -> set[UUID]:
    """Delete the lanes of single jobs that have ended; returns those that the claims had not lost."""
    lanes, numbers = [claim.lane for claim in claims], [claim.claim for claim in claims]
    return set(await REMOVE_LANES.all(conn, lanes=lanes, claims=numbers))


@query("""
    SELECT j.id, j.seq, j.team_id, j.project_id, j.lane, j.source_type, j.source_id, j.source_run, j.agent_event_id,
           j.server_session_id, j.attempts, j.max_attempts, j.api_key_id, j.actor_id, j.request_id, j.generation_run_id,
           j.payload AS job_payload, j.created_at,
           e.event_type, e.payload, e.occurred_at, e.origin, e.metadata ->> 'git_branch' AS branch,
           nullif(time_of_event(s.occurred_at, s.received_at), s.received_at) AS late_at,
           (SELECT w.metadata ->> 'root' FROM server_sessions w
             WHERE w.id = j.server_session_id AND w.team_id = j.team_id) AS root,
           (SELECT max(n.prompt_number) FROM turns n LEFT JOIN agent_events b ON b.id = n.agent_event_id AND b.team_id = n.team_id
             WHERE n.server_session_id = j.server_session_id
               AND CASE WHEN e.id IS NULL THEN coalesce(b.received_at, n.created_at) <= j.created_at
                        ELSE n.agent_event_id = e.id OR n.created_at <= time_of_event(e.occurred_at, e.received_at)
                   END) AS prompt_number,
           coalesce(p.name, '') AS project_name, coalesce(p.generation_policy, '{}') AS policy,
           coalesce(t.generation_policy, '{}') AS team_policy,
           CASE WHEN j.last_error ->> 'times' ~ '^[0-9]{1,6}$'
                THEN (j.last_error ->> 'times')::integer ELSE 0 END AS unreached_times,
           coalesce(p.archived_at IS NULL AND t.archived_at IS NULL AND p.team_id = j.team_id, false) AS project_open,
           coalesce(p.joined_to IS NOT NULL AND t.archived_at IS NULL, false) AS project_joined,
           coalesce(k.revoked_at IS NOT NULL, false) AS key_revoked,
           coalesce(k.expires_at <= now() AND k.replaced_by IS NULL, false) AS key_expired,
           k.scopes AS key_scopes, coalesce(b.joined_to, k.project_id) AS key_project_id
      FROM observation_generation_jobs j
      LEFT JOIN agent_events e ON e.id = j.agent_event_id AND e.project_id = j.project_id AND e.team_id = j.team_id
      LEFT JOIN LATERAL (
           SELECT e.occurred_at, e.received_at WHERE j.source_type = 'agent_event'
           UNION ALL
           (SELECT l.occurred_at, l.received_at FROM agent_events l
             WHERE j.source_type = 'session_summary' AND l.project_id = j.project_id AND l.team_id = j.team_id
               AND l.server_session_id = j.server_session_id AND l.received_at <= j.created_at
             ORDER BY l.occurred_at DESC LIMIT 1)) s ON true
      LEFT JOIN projects p ON p.id = j.project_id
      LEFT JOIN teams t ON t.id = j.team_id
      LEFT JOIN api_keys k ON k.id = j.api_key_id
      LEFT JOIN projects b ON b.id = k.project_id AND b.team_id = k.team_id
     WHERE j.id = ANY(%(job_ids)s) AND j.claim = ANY(%(claims)s::bigint[]) AND j.status = 'processing'
     ORDER BY j.seq
    """)
async def claimed_jobs(conn: Conn, claims: Sequence[int], job_ids: Sequence[UUID]) -> list[ClaimedJob]: ...


async def past_events(
    conn: Conn, team_id: UUID, turn_id: UUID, *, after: PastEvent | None, limit: int, max_chars: int
) -> list[PastEvent]:
    """The next events of a turn that is over, in their order, of which all that shall come of them has come.

    No more than `limit`, and all but the last have no more than `max_chars` together.
    """
    return await PAST_EVENTS.all(
        conn,
        team_id=team_id,
        turn_id=turn_id,
        after=after.received_at if after else None,
        after_id=after.id if after else None,
        limit=limit,
        max_chars=max_chars,
    )


async def still_held(conn: Conn, claims: Sequence[int], job_ids: Sequence[UUID]) -> set[UUID]:
    """The jobs that the claims still hold and that are not cancelled, locked until the transaction ends."""
    return set(await STILL_HELD.all(conn, claims=list(claims), job_ids=list(job_ids)))


async def end_jobs(conn: Conn, claims: Sequence[int], ends: Sequence[End]) -> set[UUID]:
    """Write the ends of the jobs that the claims still hold; return their ids."""
    by_id = {str(end.job_id): end for end in ends}
    return set(await END_JOBS.all(conn, claims=list(claims), job_ids=[end.job_id for end in ends], ends=Jsonb(by_id)))


async def save_progress(conn: Conn, claim: int, job_id: UUID, progress: object) -> None:
    """Store the progress in the job's payload, where the next claim resumes it."""
    await SAVE_PROGRESS.run(conn, claim=claim, job_id=job_id, progress=Jsonb(progress))


async def add_event(conn: Conn, job_id: UUID, run_id: UUID, event_type: str, details: object) -> None:
    """Note a step of a job of the steward; its `run` tells it from the job's own life."""
    await ADD_EVENT.run(conn, job_id=job_id, run_id=run_id, event_type=event_type, details=Jsonb(details))


@query("SELECT EXISTS (SELECT FROM generation_lanes WHERE lane = %(lane)s AND claim = %(claim)s)")
async def holds(conn: Conn, lane: UUID, claim: int) -> bool:
    """Whether the claim still holds the lane."""
    ...


# In order of id, so that an erasure of the project either waits for the call's record or has deleted the jobs before.
@query("""
    SELECT id FROM observation_generation_jobs
     WHERE id = ANY(%(job_ids)s) AND claim = %(claim)s AND status = 'processing' ORDER BY id FOR NO KEY UPDATE
    """)
async def lock_held(conn: Conn, claim: int, job_ids: Sequence[UUID]) -> list[UUID]:
    """The jobs that the claim still holds, cancelled ones included, locked until the transaction ends."""
    ...


@query("""
    UPDATE observation_generation_jobs SET generation_run_id = %(run_id)s
     WHERE id = ANY(%(job_ids)s) AND claim = %(claim)s AND status = 'processing'
    """)
async def attach_run(conn: Conn, claim: int, run_id: UUID, job_ids: Sequence[UUID]) -> None:
    """Attach the stored answer to its jobs."""
    ...


async def make_waiting_lane_due(conn: Conn, lane: UUID) -> None:
    """Make the lane due now, if anything waits in it. The last statement of its transaction."""
    await MAKE_WAITING_LANE_DUE.all(conn, lane=lane)


async def make_earlier_turn_due(conn: Conn, lane: UUID) -> None:
    """Make the lane due now if an earlier turn than that of its last prompt waits. The last statement of its transaction."""
    await MAKE_EARLIER_TURN_DUE.all(conn, lane=lane)


@query("SELECT pg_notify(%(channel)s, %(payload)s)::text")
async def notify(conn: Conn, channel: str, payload: str) -> None:
    """NOTIFY the channel. Not in a transaction that writes: see job_notifier.py."""
    ...
