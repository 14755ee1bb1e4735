"""Sets and removes budgets."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from cmserver.access import audit, projects
from cmserver.access.model import Principal
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.models.budgets import repository
from cmserver.models.budgets.model import Budget, Period


async def put(
    conn: Conn, principal: Principal, project: str | None, period: Period, *, max_tokens: int | None, max_usd: Decimal | None
) -> tuple[Budget, bool]:
    """Set the budget of a project, or of the team for None; returns it, and whether it is new."""
    if max_tokens is None and max_usd is None:
        raise Invalid("A budget needs maxTokens, maxUsd, or both. To remove a budget, delete it.")
    project_id = await _find_project_id(conn, principal, project)
    new_budget_id = new_id()
    budget = await repository.put(
        conn, new_budget_id, principal.team_id, project_id, period, max_tokens=max_tokens, max_usd=max_usd
    )
    await audit.record(
        conn,
        principal,
        "budget.set",
        "budget",
        budget.id,
        project_id=project_id,
        period=budget.period,
        max_tokens=budget.max_tokens,
        max_usd=None if budget.max_usd is None else str(budget.max_usd),
    )
    return budget, budget.id == new_budget_id


async def remove(conn: Conn, principal: Principal, project: str | None, period: Period) -> None:
    """Remove the budget of a project, or of the team for None."""
    project_id = await _find_project_id(conn, principal, project)
    removed = await repository.remove(conn, principal.team_id, project_id, period)
    if removed is None:
        raise NotFound("Budget not found.")
    await audit.record(conn, principal, "budget.removed", "budget", removed, project_id=project_id, period=period)


async def _find_project_id(conn: Conn, principal: Principal, project: str | None) -> UUID | None:
    """The project's id, None for the team. An archived project is found by its id."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project. Use a key of the whole team to set or remove budgets.")
    return None if project is None else (await projects.require_project(conn, principal, project)).id
