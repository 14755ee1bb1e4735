"""The steward's thresholds: what holds, and how a change is taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.steward import repository
from cmserver.steward.model import POLICIES, PolicyChange


async def read_values(conn: Conn, team_id: UUID) -> dict[str, float]:
    """What holds for the team, by the policy's key. A value beyond the bounds, which only a hand can write, counts as the bound."""
    changed = {change.policy_key: change.new_value for change in await repository.policy_values(conn, team_id)}
    return {key: min(bounds.most, max(bounds.least, changed.get(key, bounds.usual))) for key, bounds in POLICIES.items()}


async def roll_back(conn: Conn, principal: Principal, policy_key: str) -> PolicyChange:
    """Take back the last change of the policy that was not taken back yet; returns the change that does so."""
    if policy_key not in POLICIES:
        raise NotFound(f"There is no such policy. They are {', '.join(POLICIES)}.")
    await repository.lock_policies(conn, principal.team_id)
    last = await repository.last_policy_change(conn, principal.team_id, policy_key)
    if last is None:
        raise Conflict(f"No change of {policy_key} is left to take back.")
    return await take_back(conn, principal, last)


async def take_back(conn: Conn, principal: Principal, last: PolicyChange, *, run_id: UUID | None = None) -> PolicyChange:
    """Write the change that takes `last` back."""
    change = new_change(
        new_id(),
        last.policy_key,
        last.new_value,
        last.prior_value,
        "rolled_back",
        changed_by=principal.actor_id,
        run_id=run_id,
        rollback_of_id=last.id,
    )
    await repository.add_policy_change(conn, principal.team_id, change)
    await audit.record(conn, principal, "steward.policy_rolled_back", "steward_policy", last.policy_key, value=last.prior_value)
    return change


def new_change(
    change_id: UUID,
    policy_key: str,
    prior_value: float,
    new_value: float,
    reason: str,
    *,
    changed_by: str,
    run_id: UUID | None = None,
    sample_size: int = 0,
    evidence: dict[str, object] | None = None,
    rollback_of_id: UUID | None = None,
) -> PolicyChange:
    return PolicyChange(
        id=change_id,
        policy_key=policy_key,
        prior_value=prior_value,
        new_value=new_value,
        reason=reason,
        sample_size=sample_size,
        evidence=evidence or {},
        changed_by=changed_by,
        rollback_of_id=rollback_of_id,
        run_id=run_id,
        created_at=datetime.now(UTC),
    )
