"""All SQL on rules that wait for a person's yes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH_O
from cmserver.base.sql import Conn, Query, query, unprepared_query
from cmserver.observations.approval.model import WAIT_DAYS, ApprovalState, RuleApproval, UnansweredRule, WaitingRules
from cmserver.observations.model import MIN_INSTRUCTION_IMPORTANCE, OBSERVATION_COLUMNS, ManualObservation, Observation

OWNS = {"rule_approvals"}

_O_COLUMNS: LiteralString = "o." + OBSERVATION_COLUMNS.replace(", ", ", o.")

_APPROVALS: LiteralString = """
    SELECT o.id, o.number, o.project_id, o.origin, o.actor_id, o.turn_number, o.title, o.content, a.state, a.asked_at,
           a.asked_at + make_interval(days => %(wait_days)s) AS expires_at, a.answered_at,
           o.superseded_at IS NOT NULL AS is_merged
      FROM rule_approvals a
      JOIN observations o ON o.id = a.observation_id AND o.project_id = a.project_id AND o.team_id = a.team_id
     WHERE a.team_id = %(team_id)s"""

# Of what a model worded, what would stand below "Laid down by users"; of what an agent's tool reported, and of what was written by
# hand, each decision.
HOLD = Query(
    Observation,
    f"""
    WITH asked AS (
        SELECT o.id, o.project_id, o.team_id, o.ttl_seconds
          FROM observations o JOIN teams t ON t.id = o.team_id
         WHERE o.team_id = %(team_id)s AND o.id = ANY(%(ids)s::uuid[])
           AND t.approves_rules AND o.type = 'decision' AND o.state IS NULL AND o.superseded_at IS NULL
           AND (CASE o.origin WHEN 'model' THEN o.importance > %(min_importance)s WHEN 'mcp' THEN true
                              ELSE o.kind = 'manual' AND %(by_nobody)s END
                OR EXISTS (SELECT FROM observation_sources s
                             JOIN agent_events e
                               ON e.id = s.agent_event_id AND e.project_id = s.project_id AND e.team_id = s.team_id
                            WHERE s.observation_id = o.id AND s.project_id = o.project_id AND s.team_id = o.team_id
                              AND e.origin = 'mcp' AND e.id = coalesce(o.quote_event_id, e.id)))
           FOR NO KEY UPDATE OF o
    ), held AS (
        INSERT INTO rule_approvals (observation_id, project_id, team_id, ttl_seconds)
        SELECT id, project_id, team_id, ttl_seconds FROM asked ORDER BY id ON CONFLICT (observation_id) DO NOTHING
        RETURNING observation_id
    )
    UPDATE observations o SET expires_at = now(), ttl_seconds = coalesce(o.ttl_seconds, 1)
      FROM held WHERE o.id = held.observation_id AND o.team_id = %(team_id)s
    RETURNING {_O_COLUMNS}
    """,
)

NEWEST = Query(
    RuleApproval,
    f"""{_APPROVALS} AND a.state = %(state)s AND {IN_REACH_O}
       AND (%(before)s::timestamptz IS NULL OR (a.asked_at, a.observation_id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY a.asked_at DESC, a.observation_id DESC LIMIT %(limit)s
    """,
    prepare=False,
)
LOCK = Query(RuleApproval, f"{_APPROVALS} AND o.number = %(number)s FOR UPDATE OF o, a")

# A yes gives it the time that it would have had; all else ends it, so that it is kept for as long as what has expired.
ANSWER = Query(
    Observation,
    f"""
    WITH answered AS (
        UPDATE rule_approvals
           SET state = %(state)s, answered_at = CASE WHEN %(state)s <> 'pending' THEN now() END,
               asked_at = CASE WHEN %(state)s = 'pending' THEN now() ELSE asked_at END
         WHERE observation_id = %(id_)s AND team_id = %(team_id)s
        RETURNING observation_id, state, ttl_seconds
    )
    UPDATE observations o
       SET ttl_seconds = CASE WHEN a.state = 'approved' THEN a.ttl_seconds ELSE coalesce(o.ttl_seconds, 1) END,
           expires_at = CASE WHEN a.state <> 'approved' THEN now()
                             WHEN a.ttl_seconds IS NOT NULL THEN now() + make_interval(secs => a.ttl_seconds) END
      FROM answered a WHERE o.id = a.observation_id AND o.team_id = %(team_id)s
    RETURNING {_O_COLUMNS}
    """,
)


async def hold(conn: Conn, team_id: UUID, ids: Collection[UUID], *, by_nobody: bool = False) -> list[Observation]:
    """Let those of these observations wait that are rules for which the team asks; returns them, which are not shown any more.

    `by_nobody` is that no person wrote those that came by hand; what came by an agent's tool, or was drawn of what it reported,
    waits in any case. Their sources are stored.
    """
    return await HOLD.all(conn, team_id=team_id, ids=list(ids), by_nobody=by_nobody, min_importance=MIN_INSTRUCTION_IMPORTANCE)


async def newest(
    conn: Conn,
    team_id: UUID,
    project_id: UUID | None,
    state: ApprovalState,
    *,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
) -> list[RuleApproval]:
    """Those in that state, of the project or of the team without one, the last asked first."""
    return await NEWEST.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        state=state,
        before=before,
        before_id=before_id,
        limit=limit,
        wait_days=WAIT_DAYS,
    )


async def lock(conn: Conn, team_id: UUID, number: int) -> RuleApproval | None:
    """The rule with that number that was asked about, locked with its observation."""
    return await LOCK.first(conn, team_id=team_id, number=number, wait_days=WAIT_DAYS)


async def answer(conn: Conn, team_id: UUID, id_: UUID, state: ApprovalState) -> Observation:
    """Store the answer, or with `pending` that it waits again; only an approved one is shown. Its observation as it is now."""
    return await ANSWER.one(conn, team_id=team_id, id_=id_, state=state)


@query(f"""
    SELECT {_O_COLUMNS}
      FROM rule_approvals a
      JOIN observations o ON o.id = a.observation_id AND o.project_id = a.project_id AND o.team_id = a.team_id
     WHERE a.team_id = %(team_id)s AND a.project_id = %(project_id)s AND a.state <> 'approved' AND o.type = %(type_)s
       AND observation_hash(o.title, o.subtitle, o.narrative, o.facts, o.content) = %(text_hash)s
     ORDER BY a.asked_at DESC LIMIT 1
    """)
async def _waiting_as(conn: Conn, team_id: UUID, project_id: UUID, type_: str, text_hash: bytes) -> Observation | None: ...


async def waiting_as(conn: Conn, team_id: UUID, new: ManualObservation, text_hash: bytes) -> Observation | None:
    """The rule of that text that waits, or has got no yes: nobody is asked twice."""
    return await _waiting_as(conn, team_id, new.project_id, new.type, text_hash)


@query("""
    SELECT id FROM observations WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND type = 'decision'
    """)
async def decisions_of(conn: Conn, team_id: UUID, session_id: UUID) -> list[UUID]:
    """What was decided in the session."""
    ...


@query("""
    UPDATE observations o
       SET ttl_seconds = a.ttl_seconds, expires_at = now() + make_interval(secs => a.ttl_seconds)
      FROM rule_approvals a
     WHERE a.observation_id = o.id AND a.team_id = o.team_id AND a.state = 'pending'
       AND o.server_session_id = %(session_id)s AND o.team_id = %(team_id)s
    """)
async def release(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Let what waits of a session count: it becomes its person's alone, whose agent wrote it."""
    ...


@query("SELECT approves_rules FROM teams WHERE id = %(team_id)s")
async def is_asking(conn: Conn, team_id: UUID) -> bool:
    """Whether the team lets rules of models and tools count only after a yes."""
    ...


@query("""
    SELECT observation_id FROM rule_approvals
     WHERE observation_id = ANY(%(ids)s) AND team_id = %(team_id)s AND state <> 'approved'
    """)
async def unapproved(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> list[UUID]:
    """Those of these observations that do not count: nobody has said yes."""
    ...


@unprepared_query("""
    SELECT count(*) FILTER (WHERE a.state = 'pending') AS waiting,
           coalesce(extract(epoch FROM now() - min(a.asked_at) FILTER (WHERE a.state = 'pending')) / 86400, 0)::float8
               AS oldest_days,
           count(*) FILTER (WHERE a.state = 'expired') AS expired
      FROM rule_approvals a
     WHERE (%(team_id)s::uuid IS NULL OR a.team_id = %(team_id)s)
       AND (%(project_id)s::uuid IS NULL OR a.project_id = %(project_id)s) AND a.state IN ('pending', 'expired')
    """)
async def waiting(conn: Conn, team_id: UUID | None, project_id: UUID | None = None) -> WaitingRules:
    """What waits in the project, in the team without one, or on the whole server. What nobody answered is gone after seven days."""
    ...


# Of all teams.
@query("""
    WITH due AS (
        SELECT observation_id FROM rule_approvals
         WHERE state = 'pending' AND asked_at < now() - make_interval(days => %(days)s)
         ORDER BY asked_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), expired AS (
        UPDATE rule_approvals a SET state = 'expired', answered_at = now() FROM due WHERE a.observation_id = due.observation_id
        RETURNING a.observation_id, a.team_id
    )
    UPDATE observations o SET expires_at = now() FROM expired e WHERE o.id = e.observation_id AND o.team_id = e.team_id
    RETURNING o.id, o.number, o.project_id, o.team_id
    """)
async def expire(conn: Conn, *, days: int, limit: int) -> list[UnansweredRule]:
    """Let up to so many expire that nobody answered in those days, of all teams; returns them."""
    ...
