"""What claude-mem's viewer shows: lists, sums, the settings, and the live stream.

Of the settings nothing secret, and nothing that can be changed. The stream is that of /v1/stream in other words: the same feed, the
same limits, and it ends with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Unavailable
from cmserver.base.http.event_stream import HEADERS, MEDIA_TYPE, EventStream
from cmserver.base.http.operation import TextAnswer, get, post
from cmserver.base.http.wire import answer, db, dependency, query
from cmserver.base.ids import epoch_ms, epoch_ms_or_none
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.doors.claude_mem.health import uptime_seconds
from cmserver.doors.claude_mem.rows import (
    MAX_PAGE_ITEMS,
    Many,
    ObservationRow,
    Offset,
    PromptRow,
    RowScope,
    SummaryRow,
    observation_rows,
    platform,
    projects_in,
    prompt_rows,
    requested_platform,
    resolve_scope,
    summary_rows,
)
from cmserver.doors.guest import admit_caller
from cmserver.generation.operate import repository as queue
from cmserver.models.providers.registry import chain_models
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation, ObservationFilter
from cmserver.observations.read import audit_read
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import Name
from cmserver.ops.stream.reader import Reader
from cmserver.recall.model import ContextBudget
from cmserver.sessions import repository as sessions
from cmserver.sessions.read import audit_prompt_read
from cmserver.sessions.turns import repository as turns

R = TypeVar("R")
_RenderRows = Callable[[Conn, Principal, Sequence[Observation]], Awaitable[list[R]]]

_SETTING_NAMES = {
    "runtime": "CLAUDE_MEM_RUNTIME",
    "provider": "CLAUDE_MEM_PROVIDER",
    "model": "CLAUDE_MEM_MODEL",
    "mode": "CLAUDE_MEM_MODE",
    "context_observations": "CLAUDE_MEM_CONTEXT_OBSERVATIONS",
    "context_sessions": "CLAUDE_MEM_CONTEXT_SESSION_COUNT",
    "semantic_inject": "CLAUDE_MEM_SEMANTIC_INJECT",
    "worker_port": "CLAUDE_MEM_WORKER_PORT",
}
_EVENT_NAMES: frozenset[Name] = frozenset({"observation.created", "job.updated"})
_MAX_BATCH = 100
_ENCODER = msgspec.json.Encoder()


class PageQuery(msgspec.Struct, kw_only=True):
    """Newest first. A `limit` above 100 is 100."""

    project: Key | None = None
    platform_source: Text | None = field(default=None, name="platformSource")
    platform: Text | None = field(default=None, name="platform_source")
    limit: Many = 20
    offset: Offset = 0

    @property
    def max_items(self) -> int:
        return min(self.limit, MAX_PAGE_ITEMS)


class WorkerPageOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Where a page begins, its size, and whether there is more."""

    has_more: bool
    offset: int
    limit: int


class ObservationsPageOut(WorkerPageOut, rename="camel", frozen=True, kw_only=True):
    """A page of observations, also those by hand."""

    items: list[ObservationRow]


class SummariesPageOut(WorkerPageOut, rename="camel", frozen=True, kw_only=True):
    """A page of summaries."""

    items: list[SummaryRow]


class PromptsPageOut(WorkerPageOut, rename="camel", frozen=True, kw_only=True):
    """A page of prompts."""

    items: list[PromptRow]


class WorkerProjectsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Projects and agents. `projects` are the canonical ids of projects, newest first; `sources` are the kinds of agents that have
    worked on them; `projectsBySource` are the projects of each kind of agent.
    """

    projects: list[str]
    sources: list[str]
    projects_by_source: dict[str, list[str]]


class WorkerOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process: `uptime` is how long it has run, in seconds; `sseClients` is how many live streams the team, or the key's
    project, has open.
    """

    uptime: int
    active_sessions: int
    sse_clients: int
    port: int


class DatabaseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Counts of what the key may see. `observations` is how many there are, without summaries; `sessions` is how many sessions
    there are, ended ones too; `path` is always null, since it is the operator's.
    """

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


class ProcessingStateOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many jobs wait or run."""

    is_processing: bool
    queue_depth: int


class SettingsOut(msgspec.Struct, rename=_SETTING_NAMES, frozen=True, kw_only=True):
    """Texts, as in the original. Keys, addresses and paths are not among them."""

    runtime: Literal["server"] = "server"
    provider: str
    model: str
    mode: Literal["code"] = "code"
    context_observations: str
    context_sessions: str
    semantic_inject: str
    worker_port: str


class ConnectedMessage(msgspec.Struct, tag_field="type", tag="connected", frozen=True):
    timestamp: int


class InitialLoadMessage(msgspec.Struct, tag_field="type", tag="initial_load", frozen=True):
    projects: list[str]
    sources: list[str]
    projects_by_source: dict[str, list[str]] = field(name="projectsBySource")


class ProcessingMessage(msgspec.Struct, tag_field="type", tag="processing_status", frozen=True):
    is_processing: bool = field(name="isProcessing")
    queue_depth: int = field(name="queueDepth")


class ObservationMessage(msgspec.Struct, tag_field="type", tag="new_observation", frozen=True):
    observation: ObservationRow


class SummaryMessage(msgspec.Struct, tag_field="type", tag="new_summary", frozen=True):
    summary: SummaryRow


Message = ConnectedMessage | InitialLoadMessage | ProcessingMessage | ObservationMessage | SummaryMessage


class _CreatedObservation(msgspec.Struct):
    """The part of an `observation.created` event that is read here."""

    id: UUID


async def get_observations(request: Request) -> Response:
    """A page of observations for claude-mem's viewer."""
    principal = await admit_caller(request)
    params = query(request, PageQuery)
    rows = await _list_rows(request, principal, params, observation_rows, summaries=False)
    return _page(ObservationsPageOut, params, rows)


async def get_summaries(request: Request) -> Response:
    """A page of summaries for claude-mem's viewer."""
    principal = await admit_caller(request)
    params = query(request, PageQuery)
    rows = await _list_rows(request, principal, params, summary_rows, summaries=True)
    return _page(SummariesPageOut, params, rows)


def _page(page_type: Callable[..., WorkerPageOut], params: PageQuery, rows: Sequence[object]) -> Response:
    """A page of `rows`, which may have one more than the page."""
    items = rows[: params.max_items]
    return answer(page_type(items=items, has_more=len(rows) > len(items), offset=params.offset, limit=params.max_items))


async def _list_rows(
    request: Request, principal: Principal, params: PageQuery, render_rows: _RenderRows[R], *, summaries: bool
) -> list[R]:
    """The rows of a page, and one more where there is one."""
    where = await resolve_scope(request, principal, params.project)
    if where is None:
        return []
    async with db(request).tenant(principal.team_id) as conn:
        wanted = ObservationFilter(
            project_id=where.project_id,
            kind="summary" if summaries else None,
            without_summaries=not summaries,
            platform=requested_platform(request, params.platform_source, params.platform),
        )
        page = await observations.newest(conn, principal.team_id, wanted, limit=params.max_items + 1, offset=params.offset)
        await audit_read(conn, principal, where.project_id, "list", page[: params.max_items])
        return await render_rows(conn, principal, page)


async def get_prompts(request: Request) -> Response:
    """A page of users' prompts for claude-mem's viewer."""
    principal = await admit_caller(request)
    params = query(request, PageQuery)
    where = await resolve_scope(request, principal, params.project)
    rows: list[PromptRow] = []
    if where is not None:
        async with db(request).tenant(principal.team_id) as conn:
            isolated = set[UUID]() if where.project_id else await access.isolated(conn, principal.team_id)
            page = await turns.listed(
                conn,
                principal.team_id,
                [project_id for project_id in await projects_in(conn, principal, where) if project_id not in isolated],
                platform=requested_platform(request, params.platform_source, params.platform),
                limit=params.max_items + 1,
                offset=params.offset,
            )
            await audit_prompt_read(conn, principal, where.project_id, len(page[: params.max_items]))
            rows = await prompt_rows(conn, principal, page)
    return _page(PromptsPageOut, params, rows)


async def get_projects(request: Request) -> Response:
    """The projects and the kinds of agents, for claude-mem's viewer."""
    principal = await admit_caller(request)
    async with db(request).tenant(principal.team_id) as conn:
        return answer(await projects(conn, principal, RowScope(principal.project_id)))


async def projects(conn: Conn, principal: Principal, where: RowScope) -> WorkerProjectsOut:
    """The projects in scope, all and by the kind of agent that has had sessions in them."""
    names = await projects_in(conn, principal, where)
    by_source: dict[str, list[str]] = {}
    platforms = await sessions.platforms(conn, principal.team_id, list(names))
    pairs = {(platform(row.platform_source), row.project_id) for row in platforms}
    for source in sorted({source for source, _ in pairs}):
        by_source[source] = [name for project_id, name in names.items() if (source, project_id) in pairs]
    return WorkerProjectsOut(projects=list(names.values()), sources=list(by_source), projects_by_source=by_source)


async def get_stats(request: Request) -> Response:
    """Sums for claude-mem's viewer."""
    principal = await admit_caller(request)
    settings = dependency(request, Settings)
    async with db(request).tenant(principal.team_id) as conn:
        observation_counts = await observations.counts(conn, principal.team_id, principal.project_id)
        session_counts = await sessions.counts(conn, principal.team_id, principal.project_id)
    worker = WorkerOut(
        uptime=int(uptime_seconds()),
        active_sessions=session_counts.active,
        sse_clients=dependency(request, Feed).count_streams(principal),
        port=settings.port,
    )
    database = DatabaseOut(
        observations=observation_counts.observations,
        sessions=session_counts.sessions,
        summaries=observation_counts.summaries,
        first_observation_at=epoch_ms_or_none(observation_counts.first_at),
    )
    return answer(StatsOut(worker=worker, database=database))


async def get_processing_status(request: Request) -> Response:
    """Whether observations are being made, for claude-mem's viewer."""
    principal = await admit_caller(request)
    async with db(request).tenant(principal.team_id) as conn:
        return answer(await processing(conn, principal, RowScope(principal.project_id)))


async def processing(conn: Conn, principal: Principal, where: RowScope) -> ProcessingStateOut:
    """How many jobs of the project, or without one of the team, wait or run. The steward's make nothing of an event."""
    counts = await queue.queue_counts(conn, principal.team_id, where.project_id)
    depth = counts.waiting + counts.active + counts.delayed + counts.held - counts.of_steward
    return ProcessingStateOut(is_processing=depth > 0, queue_depth=depth)


async def get_settings(request: Request) -> Response:
    """How the server behaves, without secrets, for claude-mem's viewer."""
    await admit_caller(request)
    settings, budget = dependency(request, Settings), dependency(request, ContextBudget)
    first = chain_models(settings)[0]
    settings_out = SettingsOut(
        provider=first.name,
        model=first.model or "",
        context_observations=str(budget.observations),
        context_sessions=str(budget.summaries),
        semantic_inject="true" if settings.context_on in {"prompt", "both"} else "false",
        worker_port=str(settings.port),
    )
    return answer(settings_out)


async def post_settings(request: Request) -> Response:
    """Refused: settings are the operator's, and read when the server starts."""
    await admit_caller(request)
    raise Forbidden(
        "Settings are not changed over HTTP. The operator sets them in the environment or in the configuration file, "
        "and starts the server again; `cmserver config` shows them."
    )


async def get_viewer_stream(request: Request) -> Response:
    """What happens in the team, as it happens, in the form of claude-mem's viewer: server-sent events without names.

    Their types are connected, initial_load, processing_status, new_observation and new_summary. Nothing is replayed after a
    reconnect: GET /v1/stream does that.
    """
    principal = await admit_caller(request)
    if request.method == "HEAD":
        return Response(headers=HEADERS, media_type=MEDIA_TYPE)
    feed = dependency(request, Feed)
    reader, _ = await feed.join(principal, project_id=principal.project_id, names=_EVENT_NAMES, last_event_id=None)
    return EventStream(_stream_text(feed, reader, db(request), principal), lambda: feed.leave(reader))


async def _stream_text(feed: Feed, reader: Reader, database: Db, principal: Principal) -> AsyncGenerator[bytes]:
    """The text of the stream, until the reader is ended."""
    try:
        yield _event(ConnectedMessage(epoch_ms(datetime.now(UTC))))
        yield await _first_messages(database, principal)
        async for text in feed.read(reader, lost=False):
            created, is_work = _parse(text)
            pieces = [piece async for piece in _new_messages(database, principal, created, is_work=is_work)]
            yield b"".join(pieces) or b": still here\n\n"
    except Unavailable:
        return  # the client comes again


async def _first_messages(database: Db, principal: Principal) -> bytes:
    async with database.tenant(principal.team_id) as conn:
        viewer_projects = await projects(conn, principal, RowScope(principal.project_id))
        work = await processing(conn, principal, RowScope(principal.project_id))
    first = InitialLoadMessage(viewer_projects.projects, viewer_projects.sources, viewer_projects.projects_by_source)
    return _event(first) + _event(ProcessingMessage(work.is_processing, work.queue_depth))


async def _new_messages(database: Db, principal: Principal, created: list[UUID], *, is_work: bool) -> AsyncGenerator[bytes]:
    """The messages on created observations, and on the queue when a job has changed."""
    for start in range(0, len(created), _MAX_BATCH):
        async with database.tenant(principal.team_id) as conn:
            ids = created[start : start + _MAX_BATCH]
            by_id = {row.id: row for row in await observations.by_ids(conn, principal.team_id, ids)}
            seen = [row for observation_id in ids if (row := by_id.get(observation_id)) and principal.sees(row.project_id)]
            await audit_read(conn, principal, principal.project_id, "stream", seen)
            rows = await observation_rows(conn, principal, [row for row in seen if row.kind != "summary"])
            summaries = await summary_rows(conn, principal, [row for row in seen if row.kind == "summary"])
        messages = [*map(ObservationMessage, rows), *map(SummaryMessage, summaries)]
        yield b"".join(map(_event, messages))
    if is_work:
        async with database.tenant(principal.team_id) as conn:
            work = await processing(conn, principal, RowScope(principal.project_id))
        yield _event(ProcessingMessage(work.is_processing, work.queue_depth))


def _parse(text: bytes) -> tuple[list[UUID], bool]:
    """The ids of created observations in the feed's text, and whether a job has changed."""
    created: list[UUID] = []
    is_work = False
    for name, data in _events(text):
        if name == b"observation.created":
            created.append(msgspec.json.decode(data, type=_CreatedObservation).id)
        is_work = is_work or name == b"job.updated"
    return created, is_work


def _events(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each event in the text; the feed never gives half of one."""
    for block in text.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        if b"event" in fields:
            yield fields[b"event"], fields.get(b"data", b"{}")


def _event(message: Message) -> bytes:
    return b"data: %b\n\n" % _ENCODER.encode(message)


routes = [
    get("/api/observations", get_observations, "observations:read", ObservationsPageOut, query=PageQuery),
    get("/api/summaries", get_summaries, "observations:read", SummariesPageOut, query=PageQuery),
    get("/api/prompts", get_prompts, "observations:read", PromptsPageOut, query=PageQuery),
    get("/api/projects", get_projects, "observations:read", WorkerProjectsOut),
    get("/api/stats", get_stats, "observations:read", StatsOut),
    get("/api/processing-status", get_processing_status, "observations:read", ProcessingStateOut),
    get("/api/settings", get_settings, "observations:read", SettingsOut),
    post("/api/settings", post_settings, "observations:read", {}),
    get(
        "/stream",
        get_viewer_stream,
        "observations:read",
        TextAnswer(MEDIA_TYPE, "Server-sent events until one side closes; the data of each is one JSON object."),
    ),
]
