"""Search as the tools and the viewer of claude-mem ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import audit
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
from cmserver.recall.search import find
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import ListedPrompt

_CANDIDATES = 300
"""The best of them, or without a query the newest, are what the filters choose from."""
_PROMPTS_LOOKED_AT = 2_000
"""Of each project, the newest; fewer where there are so many projects that it would be more than ten times as many in all."""
_LEAST_PROMPTS = 20
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
    async with db(request).tenant(who.team_id) as conn:
        found = await _found(conn, who, where, asked, wanted)
        shown = found[asked.offset : asked.offset + min(asked.limit, PAGE_MOST)]
        seen = [one for one in shown if isinstance(one, Observation)]
        prompts = [one for one in shown if isinstance(one, ListedPrompt)]
        await served(conn, who, where.project_id, "search", seen)
        await prompts_served(conn, who, where.project_id, prompts)
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


async def prompts_served(conn: Conn, who: Principal, project_id: UUID | None, prompts: Sequence[ListedPrompt]) -> None:
    """Note that somebody was given the texts of prompts: how many, of the project or of any of the team."""
    if prompts:
        kind, name = ("project", project_id) if project_id else ("team", who.team_id)
        await audit.record(conn, who, "prompts.served", kind, name, project_id=project_id, count=len(prompts))


async def _found(conn: Conn, who: Principal, where: Where, asked: SearchQuery, wanted: _Wanted) -> list[Observation | ListedPrompt]:
    """All that fits, of the best or the newest, in the order that was asked for."""
    fitting = [one for one in await _candidates(conn, who, where, asked, wanted) if wanted.fits(one)]
    if wanted.platform:
        named = await named_of(conn, who, fitting)
        fitting = [one for one in fitting if named.platform(one.server_session_id) == wanted.platform]
    prompts = await _prompts(conn, who, where, asked, wanted) if wanted.takes_prompts else []
    found: list[Observation | ListedPrompt] = [*fitting, *prompts]
    order = asked.order_by or ("relevance" if asked.query else "date_desc")
    if order != "relevance":
        found.sort(key=lambda one: one.created_at, reverse=order == "date_desc")
    return found


async def _candidates(conn: Conn, who: Principal, where: Where, asked: SearchQuery, wanted: _Wanted) -> list[Observation]:
    if wanted.of == "prompts":
        return []
    if asked.query:
        hits = await find(conn, who, where.project_id, asked.query, _CANDIDATES)
        return [hit.observation for hit in hits]
    return await observations.newest(
        conn,
        who.team_id,
        project_id=where.project_id,
        kind="summary" if wanted.of == "sessions" else None,
        type_=next(iter(wanted.types)) if len(wanted.types) == 1 else None,
        limit=_CANDIDATES,
        before=wanted.until,
        before_id=_LAST_ID,
    )


async def _prompts(conn: Conn, who: Principal, where: Where, asked: SearchQuery, wanted: _Wanted) -> list[ListedPrompt]:
    projects = list(await projects_in(conn, who, where))
    if asked.query:
        found = await sessions.prompts_found(
            conn,
            who.team_id,
            projects,
            asked.query,
            newest=max(_LEAST_PROMPTS, min(_PROMPTS_LOOKED_AT, 10 * _PROMPTS_LOOKED_AT // max(len(projects), 1))),
            max_chars=PROMPT_MOST_CHARS,
            limit=PAGE_MOST,
        )
    elif wanted.of == "prompts":
        found = await sessions.prompts_listed(
            conn, who.team_id, projects, platform=None, max_chars=PROMPT_MOST_CHARS, limit=PAGE_MOST, offset=0
        )
    else:
        return []
    fitting = [one for one in found if wanted.is_in_time(one.created_at)]
    if wanted.platform:
        named = await named_of(conn, who, fitting)
        fitting = [one for one in fitting if named.platform(one.server_session_id) == wanted.platform]
    return fitting


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
