"""Checks budgets right before each call, in the transaction that records it.

The budgets stay locked until that transaction ends. Pending calls count with their estimates, or with the average of earlier calls
where that is more. So a cap is exceeded at most by the calls that were admitted when little was left.
"""

from __future__ import annotations

from datetime import UTC
from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.models.budgets import repository as budgets
from cmserver.models.calls import repository
from cmserver.models.calls.model import BudgetStatus

log = get_logger(__name__)

BUDGET = "budget"
"""generation_lanes.held_for of a lane that waits for a budget."""
_UNDER_WAY_SECONDS = 15.0
"""How long to wait for pending calls that may use up the rest: they may take less than estimated."""


class BudgetRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why no call may be made now."""

    reason: str
    """A sentence."""
    seconds_left: float
    """Until a new period begins; or a moment, while pending calls may leave something."""


async def admit(conn: Conn, *, team_id: UUID, project_id: UUID) -> BudgetRefusal | None:
    """The refusal when a budget is spent; None when a call may be made. Commit a refusal, too: it is recorded once per period."""
    if not await budgets.lock(conn, team_id, project_id):
        return None
    # A separate statement: it sees what those wrote whose locks were waited for.
    statuses = await repository.budget_statuses(conn, team_id, project_id=project_id)
    pending = await repository.pending_calls(conn, team_id)
    exhausted = [status for status in statuses if status.expecting(pending).state == "exhausted"]
    certain = [status for status in exhausted if status.without(pending).state == "exhausted"]
    for status in certain:
        if not status.exhaustion_reported:
            await budgets.mark_exhausted(conn, team_id, status.id)
            log.warning("budget.exhausted", **_log_fields(status))
            await _audit(conn, "budget.exhausted", status)
    for status in statuses:
        if status.state == "warned" and not status.warned:
            await budgets.mark_warned(conn, team_id, status.id)
            log.warning("budget.warned", **_log_fields(status))
            await _audit(conn, "budget.warned", status)
    if certain:
        last = max(certain, key=lambda status: status.seconds_left)
        return BudgetRefusal(reason=_exhausted_reason(last), seconds_left=last.seconds_left)
    if exhausted:
        why = "Pending calls may use up the rest of the budget."
        return BudgetRefusal(reason=why, seconds_left=_UNDER_WAY_SECONDS)
    return None


def _log_fields(status: BudgetStatus) -> dict[str, object]:
    return {"team_id": str(status.team_id), "project": status.project, "period": status.period, "share": round(status.share, 2)}


async def _audit(conn: Conn, action: str, status: BudgetStatus) -> None:
    """Record in the audit log what became of the budget."""
    await audit_log.append(
        conn,
        team_id=status.team_id,
        project_id=status.project_id,
        actor_id=None,
        api_key_id=None,
        action=action,
        resource_type="budget",
        resource_id=str(status.id),
        request_id=None,
        details={
            "period": status.period,
            "tokens": status.spent_tokens,
            "max_tokens": status.max_tokens,
            "usd": str(status.spent_usd),
            "max_usd": None if status.max_usd is None else str(status.max_usd),
        },
    )


def _exhausted_reason(status: BudgetStatus) -> str:
    """Without amounts: not everybody who sees a project may see the team's."""
    whose = "team" if status.project_id is None else "project"
    again = f"{status.resets_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"The {whose}'s budget of this {status.period} is spent; generation continues when it is raised, or at {again}."
