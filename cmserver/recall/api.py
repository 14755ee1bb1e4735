"""The doors to the context of a session."""

from __future__ import annotations

from typing import cast

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query, wants_text
from cmserver.recall.contexts import Contexts
from cmserver.recall.model import Index
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.wire import ContextQuery, IndexOut, ReceiptsOut, ReceiptsQuery, explained_out, line_out, receipt_out
from cmserver.sessions import read as sessions


async def get_context(request: Request) -> Response:
    """The index that a session of the project is told when it starts; `format=text` gives only the text."""
    who = await caller(request, Principal)
    asked = query(request, ContextQuery)
    told = await cast("Contexts", request.app.state.contexts).told(who, asked)
    if asked.format == "text" or (asked.format is None and wants_text(request)):
        return PlainTextResponse(told.text)
    index = told.index or Index()
    explained = explained_out(index) if asked.explain else UNSET
    return answer(
        IndexOut(context=told.text, observations=[line_out(one) for one in index.entries], tokens=told.tokens, explained=explained)
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
    return answer(ReceiptsOut(receipts=[receipt_out(one, explain=asked.explain) for one in shown], next_cursor=more))


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
