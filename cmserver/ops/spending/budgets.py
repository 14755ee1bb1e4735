"""Sets and removes budgets, and lets the jobs that waited for one go on."""

from __future__ import annotations

from decimal import Decimal

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.budgets import manage as manage_budgets
from cmserver.models.budgets.model import Period
from cmserver.models.calls import repository as calls
from cmserver.models.calls.model import BudgetStatus


async def set_budget(
    db: Db,
    notifier: JobNotifier,
    principal: Principal,
    project: str | None,
    period: Period,
    *,
    max_tokens: int | None,
    max_usd: Decimal | None,
) -> tuple[BudgetStatus, bool]:
    """Set the budget of a project, or of the team for None; returns its status, and whether it is new."""

    async def put(conn: Conn) -> tuple[BudgetStatus, bool]:
        budget, is_new = await manage_budgets.put(conn, principal, project, period, max_tokens=max_tokens, max_usd=max_usd)
        statuses = await calls.budget_statuses(conn, principal.team_id, project_id=budget.project_id)
        return next(status for status in statuses if status.id == budget.id), is_new

    result = await db.in_tenant(principal.team_id, put)
    await _resume_jobs(db, notifier, principal)
    return result


async def remove_budget(db: Db, notifier: JobNotifier, principal: Principal, project: str | None, period: Period) -> None:
    """Remove the budget of a project, or of the team for None."""
    await db.in_tenant(principal.team_id, lambda conn: manage_budgets.remove(conn, principal, project, period))
    await _resume_jobs(db, notifier, principal)


async def _resume_jobs(db: Db, notifier: JobNotifier, principal: Principal) -> None:
    """Release the jobs in a separate transaction: an erasure of the project holds its lanes and waits for its budgets."""
    await db.in_tenant(principal.team_id, lambda conn: intake.make_affordable_lanes_due(conn, principal.team_id))
    notifier.notify_due()
