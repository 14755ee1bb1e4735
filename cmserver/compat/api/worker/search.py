"""Search as the tools and the viewer of claude-mem ask for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, cast
from uuid import UUID

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, query
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker.rows import (
    PAGE_MOST,
    PROMPT_MOST_CHARS,
    Many,
    ObservationRow,
    Offset,
    PromptRow,
    SummaryRow,
    Where,
    moment,
    named_of,
    observation_rows,
    platform_asked,
    projects_in,
    prompt_rows,
    reach,
    summary_rows,
    words,
)
from cmserver.compat.api.worker.tables import ContentOut, table, told
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.read import served
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Asked, Filters, Ranking, SearchedKind, Sought
from cmserver.recall.search.search import find
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import ListedPrompt
from cmserver.sessions.read import prompts_served

_CANDIDATES = 300
"""The best of them, or without a query the newest, are what the filters choose from."""
_LAST_ID = UUID(int=2**128 - 1)
_FOOT = "The whole text of any of them: get_observations with its number. What happened around one: timeline with it as the anchor."


Sort = Literal["observations", "sessions", "prompts"]
_OF: dict[str | None, Sort] = {"observations": "observations", "sessions": "sessions", "prompts": "prompts"}


class SearchQuery(msgspec.Struct, kw_only=True):
    """Without `query`, what fits the filters, newest first. `type` is observations, sessions, prompts, or a type.

    Filters with several words take them with commas between, and one is enough to fit. They choose from the 300 best. A `limit`
    above 100 is 100.
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
    limit: Many = 20
    offset: Offset = 0
    order_by: Literal["relevance", "date_desc", "date_asc"] | None = field(default=None, name="orderBy")
    format: Text | None = None


class FoundOut(msgspec.Struct, frozen=True, kw_only=True):
    """With `format=json`: what was found, sorted by what it is."""

    observations: list[ObservationRow]
    sessions: list[SummaryRow]
    prompts: list[PromptRow]
    total_results: int = field(name="totalResults")
    query: str


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The filters, read."""

    of: Sort | None
    types: frozenset[str]
    concepts: frozenset[str]
    files: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    platform: str | None

    def fits(self, one: Observation) -> bool:
        is_summary = one.kind == "summary"
        if self.of is not None and is_summary != (self.of == "sessions"):
            return False
        if self.types and (is_summary or one.type not in self.types):
            return False
        if self.concepts and self.concepts.isdisjoint(concept.lower() for concept in one.concepts or ()):
            return False
        paths = [*(one.files_read or ()), *(one.files_modified or ())]
        if self.files and not any(part in path for part in self.files for path in paths):
            return False
        return self.is_in_time(one.created_at)

    @property
    def filters(self) -> Filters:
        """The same for search; `until` is no longer allowed there."""
        kinds: dict[Sort | None, list[SearchedKind]] = {
            "sessions": ["summary"],
            "observations": ["observation", "manual"],
            "prompts": ["prompt"],
            None: ["observation", "summary", "manual", "prompt"],
        }
        return Filters(
            kinds=kinds[self.of],
            types=sorted(self.types) or None,
            concepts=sorted(self.concepts) or None,
            file_parts=list(self.files) or None,
            since=self.since,
            until=None if self.until is None else self.until + timedelta(microseconds=1),
        )

    def is_in_time(self, at: datetime) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)

    @property
    def takes_prompts(self) -> bool:
        """What prompts do not have cannot be asked of them."""
        return self.of in {None, "prompts"} and not (self.types or self.concepts or self.files)


async def get_search(request: Request) -> Response:
    """Search as claude-mem's worker does: a table for a model, or with `format=json` the rows."""
    return await _search(request, None)


async def get_search_observations(request: Request) -> Response:
    """Search observations only, as claude-mem's worker does."""
    return await _search(request, "observations")


async def _search(request: Request, of: Literal["observations"] | None) -> Response:
    who = await guest(request)
    asked = query(request, SearchQuery)
    wanted = _wanted(request, asked, of)
    where = await reach(request, who, asked.project)
    if where is None:
        return _nothing(asked)
    judged_by = cast("Ranking", request.app.state.ranking)
    sought = await cast("Meaning", request.app.state.meaning).of(asked.query) if asked.query else None
    async with db(request).tenant(who.team_id) as conn:
        found = await _found(conn, who, where, asked, wanted, judged_by, sought)
        shown = found[asked.offset : asked.offset + min(asked.limit, PAGE_MOST)]
        seen = [one for one in shown if isinstance(one, Observation)]
        prompts = [one for one in shown if isinstance(one, ListedPrompt)]
        await served(conn, who, where.project_id, "search.full" if asked.format == "json" else "search", seen)
        await prompts_served(conn, who, where.project_id, len(prompts))
        if asked.format == "json":
            rows = FoundOut(
                observations=await observation_rows(conn, who, [one for one in seen if one.kind != "summary"]),
                sessions=await summary_rows(conn, who, [one for one in seen if one.kind == "summary"]),
                prompts=await prompt_rows(conn, who, prompts),
                total_results=len(shown),
                query=asked.query or "",
            )
            return answer(rows)
        if not shown:
            return _nothing(asked)
        named = await named_of(conn, who, shown)
    return answer(told(f"Found in memory: {len(shown)}.", table(shown, named), _FOOT))


async def _found(
    conn: Conn, who: Principal, where: Where, asked: SearchQuery, wanted: _Wanted, judged_by: Ranking, sought: Sought | None
) -> list[Observation | ListedPrompt]:
    """All that fits, of the best or the newest, in the order that was asked for."""
    found: list[Observation | ListedPrompt] = (
        await _searched(conn, who, where, asked.query, wanted, judged_by, sought)
        if asked.query
        else await _newest(conn, who, where, wanted)
    )
    if wanted.platform:
        named = await named_of(conn, who, found)
        found = [one for one in found if named.platform(one.server_session_id) == wanted.platform]
    order = asked.order_by or ("relevance" if asked.query else "date_desc")
    if order != "relevance":
        found.sort(key=lambda one: one.created_at, reverse=order == "date_desc")
    return found


async def _searched(
    conn: Conn, who: Principal, where: Where, query_: str, wanted: _Wanted, judged_by: Ranking, sought: Sought | None
) -> list[Observation | ListedPrompt]:
    search = Asked(
        query=query_,
        project_ids=None if where.project_id is None else [where.project_id],
        filters=wanted.filters,
        limit=_CANDIDATES,
    )
    page = await find(conn, who, search, judged_by, sought)
    return [one for hit in page.hits if (one := hit.observation or hit.prompt)]


async def _newest(conn: Conn, who: Principal, where: Where, wanted: _Wanted) -> list[Observation | ListedPrompt]:
    if wanted.of == "prompts":
        if not wanted.takes_prompts:
            return []
        projects = list(await projects_in(conn, who, where))
        found = await sessions.prompts_listed(
            conn, who.team_id, projects, platform=None, max_chars=PROMPT_MOST_CHARS, limit=PAGE_MOST, offset=0
        )
        return [one for one in found if wanted.is_in_time(one.created_at)]
    newest = await observations.newest(
        conn,
        who.team_id,
        project_id=where.project_id,
        kind="summary" if wanted.of == "sessions" else None,
        type_=next(iter(wanted.types)) if len(wanted.types) == 1 else None,
        limit=_CANDIDATES,
        before=wanted.until,
        before_id=_LAST_ID,
    )
    return [one for one in newest if wanted.fits(one)]


def _wanted(request: Request, asked: SearchQuery, of: Literal["observations"] | None) -> _Wanted:
    kind = of or _OF.get(asked.type)
    types = {*words(asked.obs_type), *([] if asked.type in _OF else words(asked.type))}
    return _Wanted(
        of=kind,
        types=frozenset(types),
        concepts=frozenset(one.lower() for one in words(asked.concepts)),
        files=tuple(words(asked.files)),
        since=moment(asked.date_start, "$.dateStart"),
        until=moment(asked.date_end, "$.dateEnd"),
        platform=platform_asked(request, asked.platform_source, asked.platform),
    )


def _nothing(asked: SearchQuery) -> Response:
    if asked.format == "json":
        return answer(FoundOut(observations=[], sessions=[], prompts=[], total_results=0, query=asked.query or ""))
    return answer(told("Nothing was found in memory. Fewer or other words may find more."))


_ANSWERS = {200: (ContentOut, FoundOut)}

routes = [
    Operation("GET", "/api/search", get_search, scope="observations:read", query=SearchQuery, answers=_ANSWERS),
    Operation(
        "GET",
        "/api/search/observations",
        get_search_observations,
        scope="observations:read",
        query=SearchQuery,
        answers=_ANSWERS,
    ),
]
