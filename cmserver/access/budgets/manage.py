"""Budgets are set, changed and removed by those who answer for the whole team."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit, projects
from cmserver.access.budgets import repository
from cmserver.access.budgets.model import Budget, Change, Period
from cmserver.access.model import Principal
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn


async def put(conn: Conn, principal: Principal, project: str | None, change: Change) -> tuple[Budget, bool]:
    """The budget of the project, or of the whole team without one, and whether it is new."""
    if change.max_tokens is None and change.max_usd is None:
        raise Invalid("A budget has maxTokens, maxUsd, or both. To have none any more, delete it.")
    project_id = await _whose(conn, principal, project)
    fresh = new_id()
    budget = await repository.put(
        conn, fresh, principal.team_id, project_id, change.period, max_tokens=change.max_tokens, max_usd=change.max_usd
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
    return budget, budget.id == fresh


async def remove(conn: Conn, principal: Principal, project: str | None, period: Period) -> None:
    """From now on nothing is capped there."""
    project_id = await _whose(conn, principal, project)
    removed = await repository.remove(conn, principal.team_id, project_id, period)
    if removed is None:
        raise NotFound("There is no such budget.")
    await audit.record(conn, principal, "budget.removed", "budget", removed, project_id=project_id, period=period)


async def _whose(conn: Conn, principal: Principal, project: str | None) -> UUID | None:
    """Also an archived project, by its id: what waits in it is not forgotten."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project; budgets are set with keys of the whole team.")
    return None if project is None else (await projects.one(conn, principal, project)).id
