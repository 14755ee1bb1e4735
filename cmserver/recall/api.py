"""The doors to recall: search, and the context of a session."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query, read
from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.text import Key, Text
from cmserver.observations.model import Observation
from cmserver.observations.wire import ObservationOut, kind_shown, observation_out
from cmserver.recall.context import context, title_shown, tokens_shown
from cmserver.recall.model import Hit
from cmserver.recall.search import search

Query = Annotated[Text, msgspec.Meta(min_length=1)]


class SearchIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/search. A key that is bound to a project need not name it. Other keys of claude-mem's clients have no effect."""

    query: Query
    project_id: Key | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


class ContextIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/context."""

    query: Query
    project_id: Key | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10


class ContextQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """GET /v1/context. `format=text`, or a request that accepts text/plain, gives only the text."""

    project: Key | None = None
    limit: Limit = 50
    format: Literal["json", "text"] | None = None


class SearchOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The best first, each with its `score`: comparable within one answer only."""

    observations: list[ObservationOut]


class ContextOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was found, and its texts in one, ready to be given to a model."""

    observations: list[ObservationOut]
    context: str


class LineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One line of the index. `type` is `summary` or `manual` where the line says so."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int


class IndexOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The index of a project as text, and its lines, newest first. `tokens` is an estimate for the text."""

    context: str
    observations: list[LineOut]
    tokens: int


async def post_search(request: Request) -> Response:
    """Search a project's observations, the best first."""
    who = await caller(request, Principal)
    asked = await read(request, SearchIn)
    project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId")
    async with db(request).tenant(who.team_id) as conn:
        hits = await search(conn, who, project, asked.query, asked.limit)
    return answer(SearchOut(observations=_shown(hits)))


async def post_context(request: Request) -> Response:
    """Search, with the texts of what was found in one, ready for a model."""
    who = await caller(request, Principal)
    asked = await read(request, ContextIn)
    project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId")
    async with db(request).tenant(who.team_id) as conn:
        hits = await search(conn, who, project, asked.query, asked.limit, via="context")
    text = "\n\n".join(hit.observation.content for hit in hits)
    return answer(ContextOut(observations=_shown(hits), context=text))


async def get_context(request: Request) -> Response:
    """The index of a project's newest observations; `format=text` gives only the text."""
    who = await caller(request, Principal)
    asked = query(request, ContextQuery)
    project = await _projects(request).named_or_own(who, asked.project, at="$.project")
    async with db(request).tenant(who.team_id) as conn:
        told = await context(conn, who, project, asked.limit)
    if asked.format == "text" or (asked.format is None and _wants_text(request)):
        return PlainTextResponse(told.text)
    return answer(IndexOut(context=told.text, observations=[_line(one) for one in told.observations], tokens=told.tokens))


def _shown(hits: list[Hit]) -> list[ObservationOut]:
    return [observation_out(hit.observation, score=hit.score) for hit in hits]


def _line(one: Observation) -> LineOut:
    return LineOut(
        number=one.number,
        type=kind_shown(one.kind, one.type),
        title=title_shown(one),
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=tokens_shown(one),
    )


def _wants_text(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "text/plain" in accepted and "application/json" not in accepted


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


_TEXT = operation.Text("text/plain", "The index as text, when `format=text` or only text/plain is accepted.")

routes = [
    Operation("POST", "/v1/search", post_search, scope="observations:read", body=SearchIn, answers={200: SearchOut}),
    Operation("POST", "/v1/context", post_context, scope="observations:read", body=ContextIn, answers={200: ContextOut}),
    Operation("GET", "/v1/context", get_context, scope="observations:read", query=ContextQuery, answers={200: (IndexOut, _TEXT)}),
]
