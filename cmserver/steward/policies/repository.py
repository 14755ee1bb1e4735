"""All SQL of the changes of thresholds, and what people decided, by which they move."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, query, unprepared_query
from cmserver.steward.model import (
    PolicyChange,
    SuggestionCounts,
)

OWNS = {"steward_policy_history"}


ADD = Query(
    int,
    """
    INSERT INTO steward_policy_history (id, team_id, run_id, policy_key, prior_value, new_value, reason, sample_size, evidence,
                                        changed_by, rollback_of_id, created_at)
    VALUES (%(id)s, %(team_id)s, %(run_id)s, %(policy_key)s, %(prior_value)s, %(new_value)s, %(reason)s, %(sample_size)s,
            %(evidence)s, %(changed_by)s, %(rollback_of_id)s, clock_timestamp())
    """,
)


# -- what was derived


@query("""
    SELECT DISTINCT ON (policy_key) id, policy_key, prior_value, new_value, reason, sample_size, evidence, changed_by,
           rollback_of_id, run_id, created_at
      FROM steward_policy_history WHERE team_id = %(team_id)s ORDER BY policy_key, created_at DESC, id DESC
    """)
async def newest(conn: Conn, team_id: UUID) -> list[PolicyChange]:
    """The newest change of each policy that was ever changed."""
    ...


@unprepared_query("""
    SELECT id, policy_key, prior_value, new_value, reason, sample_size, evidence, changed_by, rollback_of_id, run_id, created_at
      FROM steward_policy_history
     WHERE team_id = %(team_id)s AND (%(policy_key)s::text IS NULL OR policy_key = %(policy_key)s::text)
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def history(
    conn: Conn, team_id: UUID, *, policy_key: str | None = None, limit: int, offset: int = 0
) -> list[PolicyChange]: ...


# The newest that was neither taken back nor takes back another.
@query("""
    SELECT h.id, h.policy_key, h.prior_value, h.new_value, h.reason, h.sample_size, h.evidence, h.changed_by, h.rollback_of_id,
           h.run_id, h.created_at
      FROM steward_policy_history h
     WHERE h.team_id = %(team_id)s AND h.policy_key = %(policy_key)s AND h.rollback_of_id IS NULL
       AND NOT EXISTS (SELECT FROM steward_policy_history b WHERE b.rollback_of_id = h.id AND b.team_id = h.team_id)
     ORDER BY h.created_at DESC, h.id DESC LIMIT 1
    """)
async def last(conn: Conn, team_id: UUID, policy_key: str) -> PolicyChange | None:
    """The change that a rollback would take back."""
    ...


@query("SELECT pg_advisory_xact_lock(7237426, hashtext(%(team_id)s::text))::text")
async def lock(conn: Conn, team_id: UUID) -> None:
    """Alone with the team's policies, until the transaction ends."""
    ...


async def add(conn: Conn, team_id: UUID, change: PolicyChange) -> None:
    await ADD.run(
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


@query("""
    SELECT greatest(now() - make_interval(days => %(days)s), max(created_at)) AS since
      FROM steward_policy_history WHERE team_id = %(team_id)s
    """)
async def evidence_since(conn: Conn, team_id: UUID, days: int) -> datetime:
    """When the evidence begins: at the last change of any policy, so that none is moved twice for the same decisions."""
    ...


@query("""
    SELECT count(*) FILTER (WHERE status = 'accepted') AS accepted, count(*) FILTER (WHERE status = 'dismissed') AS dismissed
      FROM consolidation_suggestions
     WHERE team_id = %(team_id)s AND resolved_at > %(since)s AND reason = 'same'
       AND similarity >= %(at_least)s AND resolved_by NOT IN ('system', 'steward')
    """)
async def suggestion_counts(conn: Conn, team_id: UUID, since: datetime, at_least: float) -> SuggestionCounts:
    """What people did with suggestions of at least that similarity; not the steward, and not the system."""
    ...
