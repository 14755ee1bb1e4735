"""Counts what was stored in the memory, what of it agents were shown, and what they opened."""

from __future__ import annotations

from cmserver.access import projects
from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.memories import repository as memories
from cmserver.memories.model import FunnelRange
from cmserver.observations.read import audit_read
from cmserver.ops.analytics import repository, wire
from cmserver.ops.analytics.model import ShownDay, StoredDay

USUAL_DAYS = 30
MAX_DAYS = 366
_TOP = 10
_GROUPS = 20


async def analyse(conn: Conn, principal: Principal, *, project: str | None, days: int = USUAL_DAYS) -> wire.AnalyticsOut:
    """The last `days`, of one project or of all that the principal sees."""
    team_id = principal.team_id
    found = None if project is None else await projects.require_project(conn, principal, project)
    project_id = principal.project_id if found is None else found.id
    stored = await repository.stored_days(conn, team_id, project_id, days)
    shown = await repository.shown_days(conn, team_id, project_id, days)
    totals = await repository.shown_totals(conn, team_id, project_id, days)
    top = await repository.top_shown(conn, team_id, project_id, days, _TOP)
    await audit_read(conn, principal, project_id, "list", top)
    return wire.AnalyticsOut(
        days=days,
        project=found and found.canonical_id,
        stored=sum(day.stored for day in stored),
        shown=totals.shown,
        opened=totals.opened,
        receipts=sum(day.receipts for day in shown),
        lines=sum(day.lines for day in shown),
        tokens=sum(day.tokens for day in shown),
        recall=reshape(await memories.funnel(conn, team_id, FunnelRange(days=days, project_id=project_id)), wire.RecallFunnelOut),
        by_day=_join_days(stored, shown),
        by_project=[
            reshape(row, wire.AnalyticsProjectOut) for row in await repository.projects(conn, team_id, project_id, days, _GROUPS)
        ],
        by_agent=[
            reshape(row, wire.AnalyticsAgentOut) for row in await repository.agents(conn, team_id, project_id, days, _GROUPS)
        ],
        top=[reshape(row, wire.ShownObservationOut) for row in top],
    )


def _join_days(stored: list[StoredDay], shown: list[ShownDay]) -> list[wire.AnalyticsDayOut]:
    made = {row.day: row.stored for row in stored}
    seen = {row.day: row for row in shown}
    return [
        wire.AnalyticsDayOut(
            day=day,
            stored=made.get(day, 0),
            receipts=seen[day].receipts if day in seen else 0,
            lines=seen[day].lines if day in seen else 0,
            tokens=seen[day].tokens if day in seen else 0,
        )
        for day in sorted(made.keys() | seen.keys())
    ]
