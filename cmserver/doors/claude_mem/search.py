"""Search and timelines for the tools and the viewer of claude-mem: a table for a model, or rows.

In a table no title can forge a line, a cell, or the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, db, dependency, query
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text, cut_query, split_commas
from cmserver.doors.claude_mem import rows as worker_rows
from cmserver.doors.guest import admit_caller
from cmserver.embeddings.model import QueryVector
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation, ObservationFilter
from cmserver.observations.plain import fence, one_line
from cmserver.observations.read import audit_read
from cmserver.observations.wire import type_shown
from cmserver.recall.file_paths import resolve_paths
from cmserver.recall.model import FilePaths
from cmserver.recall.search.model import Filters, Ranking, SearchedKind, SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.recall.search.wire import render_remarks
from cmserver.recall.timeline.model import MAX_ENTRIES, TimedTurn
from cmserver.recall.timeline.timeline import Timelines
from cmserver.recall.timeline.wire import TimelineIn
from cmserver.sessions.read import audit_prompt_read
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn

_CANDIDATES = 300
"""The filters choose from this many: the best, or without a query the newest."""
_LAST_ID = UUID(int=2**128 - 1)
_TITLE_CHARS = 160
_READ_WHOLE = "The whole text of any of them: get_observations with its number."
_SEARCH_FOOT = f"{_READ_WHOLE} What happened around one: timeline with it as the anchor."

Depth = Annotated[int, Meta(ge=0, le=1_000_000)]
Sort = Literal["observations", "sessions", "prompts"]
_OF: dict[str | None, Sort] = {"observations": "observations", "sessions": "sessions", "prompts": "prompts"}


class SearchQuery(msgspec.Struct, kw_only=True):
    """Without `query`, what fits the filters, newest first. `type` is observations, sessions (their summaries), prompts, or a type.

    `obs_type` is a type of observations. `dateStart` is the first moment, in ISO 8601 or milliseconds; `dateEnd` is the last
    moment, in the same way. `orderBy` is the order: the best first with a `query`, else the newest. `format` is `json` for rows,
    else a table for a model.

    Filters take several words separated by commas; one must match. They choose from the 300 best. A `limit` above 100 is 100.
    """

    query: Text | None = None
    project: Key | None = None
    platform_source: Text | None = field(default=None, name="platformSource")
    platform: Text | None = field(default=None, name="platform_source")
    type: Text | None = None
    obs_type: Text | None = None
    concepts: Text | None = None
    files: Text | None = None
    date_start: Text | None = field(default=None, name="dateStart")
    date_end: Text | None = field(default=None, name="dateEnd")
    limit: worker_rows.Many = 20
    offset: worker_rows.Offset = 0
    order_by: Literal["relevance", "date_desc", "date_asc"] | None = field(default=None, name="orderBy")
    format: Text | None = None


class TimelineQuery(msgspec.Struct, kw_only=True):
    """`anchor` is a number (12, S13 for a summary) or a time; without one, it is the best that `query` finds.

    `depth_before` is how many to show before it, at most 50; `depth_after` is how many to show after it, at most 50.
    """

    anchor: Text | None = None
    query: Text | None = None
    depth_before: Depth = 10
    depth_after: Depth = 10
    project: Key | None = None


class Part(msgspec.Struct, frozen=True):
    """A piece of what a tool answers: `text` is the answer; `type` is always `text`."""

    text: str
    type: str = "text"


class ContentOut(msgspec.Struct, frozen=True):
    """The answer of a tool, as clients of the Model Context Protocol take it."""

    content: list[Part]


class SearchResultOut(msgspec.Struct, frozen=True, kw_only=True):
    """With `format=json`: the matches by their kind."""

    observations: list[worker_rows.ObservationRow]
    sessions: list[worker_rows.SummaryRow]
    prompts: list[worker_rows.PromptRow]
    total_results: int = field(name="totalResults")
    query: str


class _Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed filters."""

    of: Sort | None
    types: frozenset[str]
    concepts: frozenset[str]
    files: FilePaths | None
    """Parts of paths."""
    since: datetime | None
    until: datetime | None
    platform: str | None

    def fits(self, row: Observation) -> bool:
        """Whether the row passes all filters but that of the platform."""
        is_summary = row.kind == "summary"
        if self.of is not None and is_summary != (self.of == "sessions"):
            return False
        if self.types and (is_summary or row.type not in self.types):
            return False
        if self.concepts and self.concepts.isdisjoint(concept.lower() for concept in row.concepts or ()):
            return False
        paths = [*(row.files_read or ()), *(row.files_modified or ())]
        if self.files and not any(
            part in path and project_id in {None, row.project_id}
            for part, project_id in zip(self.files.paths, self.files.project_ids, strict=True)
            for path in paths
        ):
            return False
        return self.is_in_time(row.created_at)

    @property
    def filters(self) -> Filters:
        """The filters for search, where `until` is exclusive."""
        kinds: dict[Sort | None, list[SearchedKind]] = {
            "sessions": ["summary"],
            "observations": ["observation", "manual"],
            "prompts": ["turn"],
            None: ["observation", "summary", "manual", "turn"],
        }
        return Filters(
            kinds=kinds[self.of],
            of_users=True,
            types=sorted(self.types) or None,
            concepts=sorted(self.concepts) or None,
            file_parts=self.files,
            since=self.since,
            until=None if self.until is None else self.until + timedelta(microseconds=1),
        )

    def is_in_time(self, at: datetime) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)

    @property
    def takes_turns(self) -> bool:
        """Whether prompts can match: they have no types, concepts or files."""
        return self.of in {None, "prompts"} and not (self.types or self.concepts or self.files)


async def get_search(request: Request) -> Response:
    """Search as claude-mem's worker does: a table for a model, or with `format=json` the rows."""
    return await _search(request, None)


async def get_search_observations(request: Request) -> Response:
    """Search observations only, as claude-mem's worker does."""
    return await _search(request, "observations")


async def _search(request: Request, of: Literal["observations"] | None) -> Response:
    """Answer a search with a table for a model, or with `format=json` the rows; what is shown is audited."""
    principal = await admit_caller(request)
    params = query(request, SearchQuery)
    params.query = params.query and cut_query(params.query)
    criteria = _criteria(request, params, of)
    where = await worker_rows.resolve_scope(request, principal, params.project)
    if where is None:
        return _nothing(params)
    ranking = dependency(request, Ranking)
    vector = await dependency(request, QueryEmbedder).embed(params.query, team_id=principal.team_id) if params.query else None
    async with db(request).tenant(principal.team_id) as conn:
        matches, remarks = await _find_rows(conn, principal, where, params, criteria, ranking, vector)
        shown = matches[params.offset : params.offset + min(params.limit, worker_rows.MAX_PAGE_ITEMS)]
        seen = [row for row in shown if isinstance(row, Observation)]
        prompts = [row for row in shown if isinstance(row, SessionTurn)]
        await audit_read(conn, principal, where.project_id, "search.full" if params.format == "json" else "search", seen)
        await audit_prompt_read(conn, principal, where.project_id, len(prompts))
        if params.format == "json":
            rows = SearchResultOut(
                observations=await worker_rows.observation_rows(conn, principal, [row for row in seen if row.kind != "summary"]),
                sessions=await worker_rows.summary_rows(conn, principal, [row for row in seen if row.kind == "summary"]),
                prompts=await worker_rows.prompt_rows(conn, principal, prompts),
                total_results=len(shown),
                query=params.query or "",
            )
            return answer(rows)
        if not shown:
            return _nothing(params)
        names = await worker_rows.read_names(conn, principal, shown)
    head = f"Found in memory: {len(shown)}. {remarks}".rstrip()
    return answer(tool_answer(head, table(shown, names), _SEARCH_FOOT))


async def _find_rows(
    conn: Conn,
    principal: Principal,
    where: worker_rows.RowScope,
    params: SearchQuery,
    criteria: _Criteria,
    ranking: Ranking,
    vector: QueryVector | None,
) -> tuple[list[Observation | SessionTurn], str]:
    """The matches, of the best or the newest, in the requested order; and what is said of all of them."""
    matches: list[Observation | SessionTurn]
    remarks = ""
    project_ids = None if where.project_id is None else [where.project_id]
    if parts := list(split_commas(params.files)):
        spelled = await resolve_paths(conn, principal.team_id, project_ids, parts)
        files = FilePaths(paths=[*parts, *spelled.paths], project_ids=[*([None] * len(parts)), *spelled.project_ids])
        criteria = msgspec.structs.replace(criteria, files=files)
    if params.query:
        search = SearchRequest(query=params.query, project_ids=project_ids, filters=criteria.filters, limit=_CANDIDATES)
        page = await find_page(conn, principal, search, ranking, vector)
        matches, remarks = [hit.source for hit in page.hits], render_remarks(page)
    else:
        matches = await _list_newest(conn, principal, where, criteria)
    if criteria.platform:
        names = await worker_rows.read_names(conn, principal, matches)
        matches = [row for row in matches if names.platform(row.server_session_id) == criteria.platform]
    order = params.order_by or ("relevance" if params.query else "date_desc")
    if order != "relevance":
        matches.sort(key=lambda row: row.created_at, reverse=order == "date_desc")
    return matches, remarks


async def _list_newest(
    conn: Conn, principal: Principal, where: worker_rows.RowScope, criteria: _Criteria
) -> list[Observation | SessionTurn]:
    """The newest rows that fit the criteria, where no words are searched."""
    if criteria.of == "prompts":
        if not criteria.takes_turns:
            return []
        projects = list(await worker_rows.projects_in(conn, principal, where))
        prompts = await turns.listed(conn, principal.team_id, projects, platform=None, limit=worker_rows.MAX_PAGE_ITEMS, offset=0)
        return [row for row in prompts if criteria.is_in_time(row.created_at)]
    wanted = ObservationFilter(
        project_id=where.project_id,
        kind="summary" if criteria.of == "sessions" else None,
        type=next(iter(criteria.types)) if len(criteria.types) == 1 else None,
    )
    newest = await observations.newest(
        conn, principal.team_id, wanted, limit=_CANDIDATES, before=criteria.until, before_id=_LAST_ID
    )
    return [row for row in newest if criteria.fits(row)]


def _criteria(request: Request, params: SearchQuery, of: Literal["observations"] | None) -> _Criteria:
    """The filters in the parameters; `of` is the kind that the route is for."""
    kind = of or _OF.get(params.type)
    types = {*split_commas(params.obs_type), *([] if params.type in _OF else split_commas(params.type))}
    return _Criteria(
        of=kind,
        types=frozenset(types),
        concepts=frozenset(concept.lower() for concept in split_commas(params.concepts)),
        files=None,
        since=worker_rows.moment(params.date_start, "$.dateStart"),
        until=worker_rows.moment(params.date_end, "$.dateEnd"),
        platform=worker_rows.requested_platform(request, params.platform_source, params.platform),
    )


def _nothing(params: SearchQuery) -> Response:
    if params.format == "json":
        return answer(SearchResultOut(observations=[], sessions=[], prompts=[], total_results=0, query=params.query or ""))
    return answer(tool_answer("Nothing was found in memory. Try fewer or other words."))


async def get_timeline(request: Request) -> Response:
    """What happened before and after an observation, a summary or a moment, prompts among it, as a table for a model."""
    principal = await admit_caller(request)
    params = query(request, TimelineQuery)
    if not (params.anchor or params.query):
        raise Invalid.at("$.anchor", "Send `anchor` with a number or a time, or `query` with words to search for.")
    where = await worker_rows.resolve_scope(request, principal, params.project)
    if where is None:
        return _no_timeline()
    timeline_request = TimelineIn(
        anchor=params.anchor or None,
        query=None if params.anchor else params.query and cut_query(params.query),
        project_id=None if where.project_id is None else str(where.project_id),
        before=min(params.depth_before, MAX_ENTRIES),
        after=min(params.depth_after, MAX_ENTRIES),
    )
    try:
        timeline = await dependency(request, Timelines).read(principal, timeline_request)
    except NotFound:
        return _no_timeline()
    if timeline is None or not timeline.entries:
        return _no_timeline()
    async with db(request).tenant(principal.team_id) as conn:
        names = await worker_rows.read_names(conn, principal, timeline.entries)
    centre = (
        f"around #{timeline.anchor.number}"
        if isinstance(timeline.anchor, Observation)
        else f"around {timeline.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    head = f"What was recorded {centre}, oldest first: {len(timeline.entries)}."
    return answer(tool_answer(head, table(timeline.entries, names, mark=timeline.anchor), _READ_WHOLE))


def _no_timeline() -> Response:
    return answer(tool_answer("Nothing found: no such observation, or nothing recorded around it."))


def tool_answer(head: str, lines: Iterable[str] = (), foot: str = "") -> ContentOut:
    """A tool's answer: the text between our marks, by which it is recognized if an agent sends it back as an event."""
    return ContentOut([Part(fence(f"{line}\n" for line in (head, *lines, *([foot] if foot else ()))))])


def table(
    rows: Sequence[Observation | SessionTurn | TimedTurn],
    names: worker_rows.RowNames,
    *,
    mark: Observation | TimedTurn | None = None,
) -> list[str]:
    """A line for each row: #12 is an observation, #S13 a summary. Rows of several projects name theirs."""
    has_projects = len({row.project_id for row in rows}) > 1
    heads = ["id", "time (UTC)", "type", "title", "~tokens", *(["project"] if has_projects else [])]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    for row in rows:
        cells = _observation_cells(row) if isinstance(row, Observation) else _turn_cells(row)
        if mark is not None and row is mark:
            cells[0] = f"→ {cells[0]}"
        lines.append(_line([*cells, *([cell(names.project(row.project_id))] if has_projects else [])]))
    return lines


def cell(text: str) -> str:
    """The text as a table cell: one line, without what would end the cell."""
    return one_line(text, _TITLE_CHARS).replace("\\", "\\\\").replace("|", "\\|")


def _observation_cells(row: Observation) -> list[str]:
    sign = f"#S{row.number}" if row.kind == "summary" else f"#{row.number}"
    title = row.title or row.narrative or row.content
    return [sign, _time(row.created_at), type_shown(row.kind, row.type), cell(title), f"{row.cost:,}"]


def _turn_cells(row: SessionTurn | TimedTurn) -> list[str]:
    return [
        f"prompt {row.prompt_number}" if row.prompt_number else "sub-agent",
        _time(row.created_at),
        "prompt",
        cell(row.line),
        f"{row.cost:,}",
    ]


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_ANSWERS = {200: (ContentOut, SearchResultOut)}

routes = [
    get("/api/search", get_search, "observations:read", _ANSWERS, query=SearchQuery),
    get("/api/search/observations", get_search_observations, "observations:read", _ANSWERS, query=SearchQuery),
    *(
        get(path, get_timeline, "observations:read", ContentOut, query=TimelineQuery)
        for path in ("/api/timeline", "/api/timeline/by-query")
    ),
]
