"""Statistics of Contextify, and its repair of project ids."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.doors.contextify.frame import admit, contextify, memories
from cmserver.memories.statistics import analyse_usage, count_memories, read_funnel
from cmserver.memories.wire import FunnelOut, FunnelQuery, MemoryAnalyticsOut, MemoryStatisticsOut
from cmserver.ops.joining.normalise import normalise_projects


class NormalisedProjectsOut(msgspec.Struct, frozen=True, kw_only=True):
    """`updated` is how many projects got their canonical id, or were joined to the one that has it."""

    updated: int
    message: str = "project_id normalization complete"


async def get_stats(request: Request) -> Response:
    """How many memories there are, by type, scope and author."""
    return answer(await count_memories(memories(request), await admit(request)))


async def get_analytics(request: Request) -> Response:
    """What memories take, and what is read of them."""
    return answer(await analyse_usage(memories(request), await admit(request)))


async def get_funnel(request: Request) -> Response:
    """How much of what is looked for is found, and of what is offered is kept."""
    caller = await admit(request)
    return answer(await read_funnel(memories(request), caller, query(request, FunnelQuery)))


async def post_normalize_projects(request: Request) -> Response:
    """Give projects their canonical id, and join those that are one by it; the old names stay, and a join can be undone."""
    principal = await caller(request, Principal)
    return answer(NormalisedProjectsOut(updated=await normalise_projects(db(request), principal)))


routes = [
    get("/api/v1/stats", contextify(get_stats), "observations:read", MemoryStatisticsOut),
    get("/api/v1/analytics", contextify(get_analytics), "observations:read", MemoryAnalyticsOut),
    get("/api/v1/analytics/funnel", contextify(get_funnel), "observations:read", FunnelOut, query=FunnelQuery),
    post("/api/v1/admin/normalize-projects", contextify(post_normalize_projects), "admin", NormalisedProjectsOut),
]
