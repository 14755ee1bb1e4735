"""The steward's thresholds: what holds, and how a change is taken back."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.steward.model import POLICIES, PolicyChange
from cmserver.steward.policies import repository as policies


async def read_values(conn: Conn, team_id: UUID) -> dict[str, float]:
    """What holds for the team, by the policy's key. A value beyond the bounds, which only a hand can write, counts as the bound."""
    changed = {change.policy_key: change.new_value for change in await policies.newest(conn, team_id)}
    return {key: min(bounds.most, max(bounds.least, changed.get(key, bounds.usual))) for key, bounds in POLICIES.items()}


async def roll_back(conn: Conn, principal: Principal, policy_key: str) -> PolicyChange:
    """Take back the last change of the policy that was not taken back yet; returns the change that does so."""
    if policy_key not in POLICIES:
        raise NotFound(f"There is no such policy. They are {', '.join(POLICIES)}.")
    await policies.lock(conn, principal.team_id)
    last = await policies.last(conn, principal.team_id, policy_key)
    if last is None:
        raise Conflict(f"No change of {policy_key} is left to take back.")
    return await take_back(conn, principal, last)


async def take_back(conn: Conn, principal: Principal, last: PolicyChange, *, run_id: UUID | None = None) -> PolicyChange:
    """Write the change that takes `last` back."""
    change = PolicyChange(
        id=new_id(),
        policy_key=last.policy_key,
        prior_value=last.new_value,
        new_value=last.prior_value,
        reason="rolled_back",
        changed_by=principal.actor_id,
        run_id=run_id,
        rollback_of_id=last.id,
    )
    await policies.add(conn, principal.team_id, change)
    await audit.record(conn, principal, "steward.policy_rolled_back", "steward_policy", last.policy_key, value=last.prior_value)
    return change
