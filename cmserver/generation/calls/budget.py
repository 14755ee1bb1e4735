"""Whether a team or project may still spend: asked right before each call, in the transaction that puts the call on record.

Whoever asks holds the budgets until that transaction ends, and the calls of others that are under way count with their estimates,
or with what calls have taken so far where that is more. So a cap is passed by those calls at most that were let in when there was
little left, one for each that a worker makes at a time.
"""

from __future__ import annotations

from datetime import UTC
from uuid import UUID

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access.audit import repository as audit
from cmserver.access.budgets import repository as budgets
from cmserver.base.sql import Conn
from cmserver.generation.spending import repository as spending
from cmserver.generation.spending.model import Standing

log: FilteringBoundLogger = structlog.get_logger(__name__)

BUDGET = "budget"
"""What a lane is held for that waits for money (generation_lanes.held_for)."""
_UNDER_WAY_SECONDS = 15.0
"""How long to wait for calls that are thought to take what is left: some of it may be there when they have ended."""


class Exhausted(msgspec.Struct, frozen=True, kw_only=True):
    """Why no call is made now."""

    reason: str
    """A sentence."""
    seconds_left: float
    """Until a new period begins; or a moment, when calls that are under way may turn out to leave something."""
    budget_id: UUID


async def admit(conn: Conn, *, team_id: UUID, project_id: UUID) -> Exhausted | None:
    """None when a call may be made. A refusal is to be committed, too: it is on record once a period."""
    if not await budgets.lock(conn, team_id, project_id):
        return None
    # A statement of its own: it sees what those have written that were waited for.
    standings = await spending.standings(conn, team_id, project_id=project_id)
    under_way = await spending.under_way(conn, team_id)
    exhausted = [one for one in standings if one.expecting(under_way).state == "exhausted"]
    for_sure = [one for one in exhausted if one.without(under_way).state == "exhausted"]
    for one in for_sure:
        if not one.told_exhausted:
            await budgets.mark_exhausted(conn, team_id, one.id)
            log.warning("budget.exhausted", **_named(one))
            await _note(conn, "budget.exhausted", one)
    for one in standings:
        if one.state == "warned" and not one.warned:
            await budgets.mark_warned(conn, team_id, one.id)
            log.warning("budget.warned", **_named(one))
            await _note(conn, "budget.warned", one)
    if for_sure:
        last = max(for_sure, key=lambda one: one.seconds_left)  # before that nothing can be let in
        return Exhausted(reason=_reason(last), seconds_left=last.seconds_left, budget_id=last.id)
    if exhausted:
        why = "What is left of the budget may be taken by the calls that are under way."
        return Exhausted(reason=why, seconds_left=_UNDER_WAY_SECONDS, budget_id=exhausted[0].id)
    return None


def _named(one: Standing) -> dict[str, object]:
    return {"team_id": str(one.team_id), "project": one.project, "period": one.period, "share": round(one.share, 2)}


async def _note(conn: Conn, action: str, one: Standing) -> None:
    await audit.append(
        conn,
        team_id=one.team_id,
        project_id=one.project_id,
        actor_id=None,
        api_key_id=None,
        action=action,
        resource_type="budget",
        resource_id=str(one.id),
        request_id=None,
        details={
            "period": one.period,
            "tokens": one.spent_tokens,
            "max_tokens": one.max_tokens,
            "usd": str(one.spent_usd),
            "max_usd": None if one.max_usd is None else str(one.max_usd),
        },
    )


def _reason(one: Standing) -> str:
    """Without amounts: those of a team are not for everybody who sees one of its projects."""
    whose = "team" if one.project_id is None else "project"
    again = f"{one.resets_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"The {whose}'s budget of this {one.period} is spent; generation goes on when it is raised, or at {again}."
