"""What was stored, shown and opened, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.ops.analytics.analyse import MAX_DAYS, USUAL_DAYS, analyse
from cmserver.ops.analytics.wire import AnalyticsOut


class AnalyticsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How many days, with today, and of which project."""

    project: str | None = None
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = USUAL_DAYS


async def get_analytics(request: Request) -> Response:
    """How much was stored in the memory, what of it agents were shown, and what they opened."""
    principal = await caller(request, Principal)
    parameters = query(request, AnalyticsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        return answer(await analyse(conn, principal, project=parameters.project, days=parameters.days))


routes = [
    get("/v1/analytics", get_analytics, "observations:read", AnalyticsOut, query=AnalyticsQuery),
]
