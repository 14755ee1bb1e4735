"""The lists and sums that claude-mem's viewer shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, query
from cmserver.base.ids import epoch_ms_or_none
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker.health import uptime_seconds
from cmserver.compat.api.worker.rows import (
    PAGE_MOST,
    PROMPT_MOST_CHARS,
    Many,
    ObservationRow,
    Offset,
    PromptRow,
    SummaryRow,
    Where,
    observation_rows,
    platform_asked,
    projects_in,
    prompt_rows,
    reach,
    summary_rows,
)
from cmserver.compat.platform import platform
from cmserver.generation.operate import repository as queue
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.read import served
from cmserver.ops.stream.feed import Feed
from cmserver.sessions import repository as sessions
from cmserver.sessions.read import prompts_served

R = TypeVar("R")
_Shown = Callable[[Conn, Principal, Sequence[Observation]], Awaitable[list[R]]]


class PageQuery(msgspec.Struct, kw_only=True):
    """Newest first. A `limit` above 100 is 100."""

    project: Key | None = None
    platform_source: Text | None = field(default=None, name="platformSource")
    platform: Text | None = field(default=None, name="platform_source")
    limit: Many = 20
    offset: Offset = 0

    @property
    def most(self) -> int:
        return min(self.limit, PAGE_MOST)


class ObservationsPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of observations, also those by hand."""

    items: list[ObservationRow]
    has_more: bool
    offset: int
    limit: int


class SummariesPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of summaries."""

    items: list[SummaryRow]
    has_more: bool
    offset: int
    limit: int


class PromptsPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of prompts."""

    items: list[PromptRow]
    has_more: bool
    offset: int
    limit: int


class ProjectsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Projects by their canonical ids, newest first, and which kinds of agents have worked on them."""

    projects: list[str]
    sources: list[str]
    projects_by_source: dict[str, list[str]]


class WorkerOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process; streams and sessions are those of the team, or of the key's project."""

    uptime: int
    active_sessions: int
    sse_clients: int
    port: int


class DatabaseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the key may see of it. Where it lies and how large it is stays the operator's."""

    path: None = None
    size: None = None
    observations: int
    sessions: int
    summaries: int
    first_observation_at: int | None


class StatsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Without the `version` of the original, by which its clients decide whether to stop a server."""

    worker: WorkerOut
    database: DatabaseOut


class ProcessingOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many jobs wait or run."""

    is_processing: bool
    queue_depth: int


async def get_observations(request: Request) -> Response:
    """A page of observations for claude-mem's viewer."""
    who = await guest(request)
    asked = query(request, PageQuery)
    rows = await _listed(request, who, asked, observation_rows, summaries=False)
    return answer(
        ObservationsPage(items=rows[: asked.most], has_more=len(rows) > asked.most, offset=asked.offset, limit=asked.most)
    )


async def get_summaries(request: Request) -> Response:
    """A page of summaries for claude-mem's viewer."""
    who = await guest(request)
    asked = query(request, PageQuery)
    rows = await _listed(request, who, asked, summary_rows, summaries=True)
    return answer(SummariesPage(items=rows[: asked.most], has_more=len(rows) > asked.most, offset=asked.offset, limit=asked.most))


async def _listed(request: Request, who: Principal, asked: PageQuery, shown: _Shown[R], *, summaries: bool) -> list[R]:
    """The rows of a page, and one more where there is one."""
    where = await reach(request, who, asked.project)
    if where is None:
        return []
    async with db(request).tenant(who.team_id) as conn:
        found = await observations.listed(
            conn,
            who.team_id,
            project_id=where.project_id,
            summaries=summaries,
            platform=platform_asked(request, asked.platform_source, asked.platform),
            limit=asked.most + 1,
            offset=asked.offset,
        )
        await served(conn, who, where.project_id, "list", found[: asked.most])
        return await shown(conn, who, found)


async def get_prompts(request: Request) -> Response:
    """A page of what users have asked for, for claude-mem's viewer."""
    who = await guest(request)
    asked = query(request, PageQuery)
    where = await reach(request, who, asked.project)
    rows: list[PromptRow] = []
    if where is not None:
        async with db(request).tenant(who.team_id) as conn:
            found = await sessions.prompts_listed(
                conn,
                who.team_id,
                list(await projects_in(conn, who, where)),
                platform=platform_asked(request, asked.platform_source, asked.platform),
                max_chars=PROMPT_MOST_CHARS,
                limit=asked.most + 1,
                offset=asked.offset,
            )
            await prompts_served(conn, who, where.project_id, len(found[: asked.most]))
            rows = await prompt_rows(conn, who, found)
    return answer(PromptsPage(items=rows[: asked.most], has_more=len(rows) > asked.most, offset=asked.offset, limit=asked.most))


async def get_projects(request: Request) -> Response:
    """The projects and the kinds of agents, for claude-mem's viewer."""
    who = await guest(request)
    async with db(request).tenant(who.team_id) as conn:
        found = await projects(conn, who, Where(who.project_id))
    return answer(found)


async def projects(conn: Conn, who: Principal, where: Where) -> ProjectsOut:
    """Those that are meant. A project in which no agent has had a session yet is in no list of a source."""
    named = await projects_in(conn, who, where)
    by_source: dict[str, list[str]] = {}
    worked = await sessions.platforms(conn, who.team_id, list(named))
    pairs = {(platform(one.platform_source), one.project_id) for one in worked}
    for source in sorted({source for source, _ in pairs}):
        by_source[source] = [name for project_id, name in named.items() if (source, project_id) in pairs]
    return ProjectsOut(projects=list(named.values()), sources=list(by_source), projects_by_source=by_source)


async def get_stats(request: Request) -> Response:
    """Sums for claude-mem's viewer."""
    who = await guest(request)
    settings = cast("Settings", request.app.state.settings)
    async with db(request).tenant(who.team_id) as conn:
        kept = await observations.counts(conn, who.team_id, who.project_id)
        agents = await sessions.counts(conn, who.team_id, who.project_id)
    worker = WorkerOut(
        uptime=int(uptime_seconds()),
        active_sessions=agents.active,
        sse_clients=cast("Feed", request.app.state.feed).listeners(who),
        port=settings.port,
    )
    database = DatabaseOut(
        observations=kept.observations,
        sessions=agents.sessions,
        summaries=kept.summaries,
        first_observation_at=epoch_ms_or_none(kept.first_at),
    )
    return answer(StatsOut(worker=worker, database=database))


async def get_processing_status(request: Request) -> Response:
    """Whether observations are being made, for claude-mem's viewer."""
    who = await guest(request)
    async with db(request).tenant(who.team_id) as conn:
        found = await processing(conn, who, Where(who.project_id))
    return answer(found)


async def processing(conn: Conn, who: Principal, where: Where) -> ProcessingOut:
    """Of the team, or of the project."""
    counts = await queue.queue_counts(conn, who.team_id, where.project_id)
    depth = counts.waiting + counts.active + counts.delayed + counts.held
    return ProcessingOut(is_processing=depth > 0, queue_depth=depth)


routes = [
    Operation(
        "GET", "/api/observations", get_observations, scope="observations:read", query=PageQuery, answers={200: ObservationsPage}
    ),
    Operation("GET", "/api/summaries", get_summaries, scope="observations:read", query=PageQuery, answers={200: SummariesPage}),
    Operation("GET", "/api/prompts", get_prompts, scope="observations:read", query=PageQuery, answers={200: PromptsPage}),
    Operation("GET", "/api/projects", get_projects, scope="observations:read", answers={200: ProjectsOut}),
    Operation("GET", "/api/stats", get_stats, scope="observations:read", answers={200: StatsOut}),
    Operation("GET", "/api/processing-status", get_processing_status, scope="observations:read", answers={200: ProcessingOut}),
]
