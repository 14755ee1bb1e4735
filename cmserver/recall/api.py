"""The doors to recall: search, and the context of a session."""

from __future__ import annotations

from typing import Literal, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query, wants_text
from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.text import Key, Text
from cmserver.observations.read import served
from cmserver.recall.context import context
from cmserver.recall.model import MOST_CHANGED_FILES, Entry, Index, Occasion, Shape, Start, Why
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.receipts.model import Receipt
from cmserver.sessions import read as sessions
from cmserver.sessions.model import Session


class ContextQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """GET /v1/context. `format=text`, or a request that accepts text/plain, gives only the text.

    `source` is how the session starts, which decides how much it is told; without one it is told as at its startup. With `session`
    (our id, which names the project, too) a receipt is written, and where the session goes on, what it has before it is left out.
    `changedFiles` are paths from the root of the repository, between commas. With `explain` the answer says how useful each line is
    by what, and no receipt is written; `limit` is the most observations, else the settings say it.
    """

    project: Key | None = None
    source: Start | None = None
    session: Text | None = None
    changed_files: Text | None = None
    explain: bool = False
    limit: Limit | None = None
    format: Literal["json", "text"] | None = None


class ReceiptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `explain` each receipt has its `details`: how useful each line was judged, by what, and what was left out, by why."""

    explain: bool = False
    limit: Limit = 50
    cursor: str | None = None


class LineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One line of the index. `type` is `summary` for a summary."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int


class JudgedOut(LineOut, rename="camel", frozen=True, kw_only=True):
    """How useful something was judged, the sum of its `parts`. `leftOut` says why it has no line: there was no room in the budget,
    as many as may be have one, the session was shown it, or another says the same.
    """

    usefulness: float
    parts: dict[str, float]
    left_out: Why | None


class ExplainedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What has a line, newest first; of what has none the most useful, at most a hundred; and how many those are in all, by why."""

    lines: list[JudgedOut]
    left_out: list[JudgedOut]
    left_out_counts: dict[str, int]
    budget_tokens: int


class IndexOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The index of a project as text, and its lines, newest first. `tokens` is an estimate for the text."""

    context: str
    observations: list[LineOut]
    tokens: int
    explained: ExplainedOut | UnsetType = UNSET


class ReceiptOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a session was told once. `numbers` are in order of time; of `leftOutCount` without a line `leftOut` are the best."""

    id: UUID
    reason: str
    platform_source: str | None
    numbers: list[int]
    summary_numbers: list[int]
    left_out: list[int]
    left_out_count: int
    tokens: int
    budget_tokens: int
    chars: int
    created_at_epoch: int
    details: dict[str, object] | UnsetType = UNSET


class ReceiptsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    receipts: list[ReceiptOut]
    next_cursor: str | None


async def get_context(request: Request) -> Response:
    """The index that a session of the project is told when it starts; `format=text` gives only the text."""
    who = await caller(request, Principal)
    asked = query(request, ContextQuery)
    session = await _session(request, who, asked.session) if asked.session else None
    named = str(session.project_id) if session and asked.project is None else asked.project
    project = await _projects(request).named_or_own(who, named, at="$.project")
    if session is not None and session.project_id != project.id:
        raise NotFound(sessions.NO_SUCH)
    usual = cast("Shape", request.app.state.context_shape)
    shape = usual if asked.limit is None else msgspec.structs.replace(usual, observations=asked.limit)
    async with db(request).tenant(who.team_id) as conn:
        occasion = Occasion(
            reason=asked.source or "asked",
            session_id=session.id if session else None,
            platform=session.platform_source if session else None,
            changed_files=[path for path in (asked.changed_files or "").split(",") if path][:MOST_CHANGED_FILES],
            is_look=asked.explain or session is None,
        )
        told = await context(conn, who, project, occasion, shape)
        if asked.explain and told.index:  # whoever has it explained sees the titles of what is left out, too
            await served(conn, who, project.id, "context", told.index.left_out)
    if asked.format == "text" or (asked.format is None and wants_text(request)):
        return PlainTextResponse(told.text)
    index = told.index or Index()
    explained = _explained(index) if asked.explain else UNSET
    return answer(
        IndexOut(context=told.text, observations=[_line(one) for one in index.entries], tokens=told.tokens, explained=explained)
    )


async def get_session_context(request: Request) -> Response:
    """What the session was told of the memory, newest first: receipts, without the texts."""
    who = await caller(request, Principal)
    asked = query(request, ReceiptsQuery)
    before, before_id = paging.place(asked.cursor)
    async with db(request).tenant(who.team_id) as conn:
        session = await sessions.one(conn, who, str(request.path_params["id"]))
        rows = await receipts.of_session(conn, who.team_id, session.id, before=before, before_id=before_id, limit=asked.limit + 1)
    shown, more = paging.page(rows, asked.limit, lambda one: (one.created_at, one.id))
    return answer(ReceiptsOut(receipts=[_receipt(one, explain=asked.explain) for one in shown], next_cursor=more))


async def _session(request: Request, who: Principal, named: str) -> Session:
    async with db(request).tenant(who.team_id) as conn:
        return await sessions.one(conn, who, named)


def _line(one: Entry) -> LineOut:
    return LineOut(
        number=one.number,
        type=one.type,
        title=one.title,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.read_tokens,
    )


def _judged(one: Entry) -> JudgedOut:
    return JudgedOut(
        number=one.number,
        type=one.type,
        title=one.title,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.read_tokens,
        usefulness=one.usefulness,
        parts=dict(one.parts),
        left_out=one.left_out,
    )


def _explained(index: Index) -> ExplainedOut:
    return ExplainedOut(
        lines=[_judged(one) for one in index.entries],
        left_out=[_judged(one) for one in index.left_out],
        left_out_counts=dict(index.left_out_counts),
        budget_tokens=index.budget_tokens,
    )


def _receipt(one: Receipt, *, explain: bool) -> ReceiptOut:
    return ReceiptOut(
        id=one.id,
        reason=one.reason,
        platform_source=one.platform_source,
        numbers=one.numbers,
        summary_numbers=one.summary_numbers,
        left_out=one.left_out,
        left_out_count=one.left_out_count,
        tokens=one.tokens,
        budget_tokens=one.budget_tokens,
        chars=one.chars,
        created_at_epoch=epoch_ms(one.created_at),
        details=dict(one.details) if explain else UNSET,
    )


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


_TEXT = operation.Text("text/plain", "The index as text, when `format=text` or only text/plain is accepted.")

routes = [
    Operation("GET", "/v1/context", get_context, scope="observations:read", query=ContextQuery, answers={200: (IndexOut, _TEXT)}),
    Operation(
        "GET",
        "/v1/sessions/{id}/context",
        get_session_context,
        scope="observations:read",
        query=ReceiptsQuery,
        answers={200: ReceiptsOut},
    ),
]
