"""The doors to observations: a list, one of them, what was drawn from an event; and those that people write themselves."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, batch, body, caller, convert, db, query, wants_text
from cmserver.base.paging import Limit
from cmserver.base.redaction.clean import decode_json
from cmserver.events import read as events
from cmserver.observations import read
from cmserver.observations.hand import Hand
from cmserver.observations.model import Correction, Kind, ObservationType, Scope
from cmserver.observations.plain import whole, wholes
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import (
    BATCH_MOST,
    BatchReadIn,
    DeletedOut,
    Items,
    ObservationIn,
    ObservationOut,
    Title,
    observation_out,
    source_out,
)
from cmserver.observations.write import correct, delete


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `session` is our id of a session."""

    project: str | None = None
    session: UUID | None = None
    kind: Kind | None = None
    type: ObservationType | None = None
    scope: Scope | None = None
    limit: Limit = 50
    cursor: str | None = None


class ListOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    observations: list[ObservationOut]
    next_cursor: str | None


class CorrectionIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is not sent stays as it is; `title: null` takes the title away, `metadata` is replaced whole."""

    type: ObservationType | UnsetType = UNSET
    title: Title | UnsetType | None = UNSET
    concepts: Items | UnsetType = UNSET
    scope: Scope | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET


class OneOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One observation, with its sources."""

    observation: ObservationOut


class BatchReadOut(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which they were asked for, each once; `missing` are the ids of which there is none."""

    observations: list[ObservationOut]
    missing: list[int | str]


class ManyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was written, in the order of the batch."""

    observations: list[ObservationOut]


class OfEventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was drawn from an event; an empty list as long as, or because, nothing was."""

    event_id: UUID
    observations: list[ObservationOut]


async def get_observations(request: Request) -> Response:
    """A page of observations, newest first."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    project_id = await cast("Projects", request.app.state.projects).within(who, asked.project)
    async with db(request).tenant(who.team_id) as conn:
        page = await read.page(
            conn,
            who,
            project_id=project_id,
            limit=asked.limit,
            session_id=asked.session,
            kind=asked.kind,
            type_=asked.type,
            scope=asked.scope,
            cursor=asked.cursor,
        )
    return answer(ListOut(observations=[observation_out(one) for one in page.observations], next_cursor=page.next_cursor))


async def get_observation(request: Request) -> Response:
    """One observation, by id or number, with its sources; who accepts only text/plain gets it as an agent reads it."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        one, sources = await read.one(conn, who, str(request.path_params["id"]))
    if wants_text(request):
        return PlainTextResponse(whole(one))
    return answer(OneOut(observation=observation_out(one, sources=[source_out(source) for source in sources])))


async def get_event_observations(request: Request) -> Response:
    """What was drawn from an event."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        event = await events.one(conn, who, str(request.path_params["id"]))
        found = await read.of_event(conn, who, event.project_id, event.id)
    return answer(OfEventOut(event_id=event.id, observations=[observation_out(one, link=link) for one, link in found]))


async def post_observation(request: Request) -> Response:
    """Write an observation by hand; nothing is generated from it."""
    who = await caller(request, Principal)
    raw = await body(request)
    asked = convert(decode_json(raw or b"{}"), ObservationIn)
    made = await _hand(request).write(who, asked, size_bytes=len(raw))
    return answer(OneOut(observation=observation_out(made)), 201)


async def post_observations_batch(request: Request) -> Response:
    """Read up to 100 observations at once, or write up to 500 by hand, all or none.

    An object with `ids` reads, and takes the scope observations:read; who accepts only text/plain gets them as an agent reads them.
    A list writes, and takes observations:write.
    """
    who = await caller(request, Principal)
    raw = await body(request)
    given = decode_json(raw or b"{}")
    reads = isinstance(given, dict) and "ids" in given
    return await (_read_batch if reads else _write_batch)(request, who, raw)


async def _read_batch(request: Request, who: Principal, raw: bytes) -> Response:
    who.require("observations:read")
    asked = convert(decode_json(raw), BatchReadIn)
    async with db(request).tenant(who.team_id) as conn:
        found = await read.several(conn, who, asked.ids)
    if wants_text(request):
        return PlainTextResponse(wholes(found.observations) if found.observations else f"{read.NO_SUCH}\n")
    return answer(BatchReadOut(observations=[observation_out(one) for one in found.observations], missing=found.missing))


async def _write_batch(request: Request, who: Principal, raw: bytes) -> Response:
    who.require("observations:write")
    asked = batch(raw, ObservationIn, most=BATCH_MOST, of="observations")
    made = await _hand(request).write_all(who, asked, size_bytes=len(raw))
    return answer(ManyOut(observations=[observation_out(one) for one in made]), 201)


async def patch_observation(request: Request) -> Response:
    """Correct an observation's type, title, concepts, scope or metadata."""
    who = await caller(request, Principal)
    raw = await body(request)
    asked = convert(decode_json(raw or b"{}"), CorrectionIn)
    given = Correction(type=asked.type, title=asked.title, concepts=asked.concepts, scope=asked.scope, metadata=asked.metadata)
    correction = await tidy_correction(given, field_max_chars=_field_max_chars(request), size_bytes=len(raw))
    named = str(request.path_params["id"])
    corrected = await db(request).in_tenant(who.team_id, lambda conn: correct(conn, who, named, correction))
    return answer(OneOut(observation=observation_out(corrected)))


async def delete_observation(request: Request) -> Response:
    """Delete an observation, by id or number; the events that it was drawn from stay."""
    who = await caller(request, Principal)
    named = str(request.path_params["id"])
    deleted = await db(request).in_tenant(who.team_id, lambda conn: delete(conn, who, named))
    return answer(DeletedOut(id=deleted))


def _hand(request: Request) -> Hand:
    return cast("Hand", request.app.state.hand)


def _field_max_chars(request: Request) -> int:
    return cast("int", request.app.state.field_max_chars)


_WHOLES = operation.Text("text/plain", "As an agent reads them, when only text/plain is accepted.")
_WHOLE = operation.Text("text/plain", "As an agent reads it, when only text/plain is accepted.")

routes = [
    Operation("GET", "/v1/observations", get_observations, scope="observations:read", query=ListQuery, answers={200: ListOut}),
    Operation("POST", "/v1/observations", post_observation, scope="observations:write", body=ObservationIn, answers={201: OneOut}),
    Operation(
        "POST",
        "/v1/observations/batch",
        post_observations_batch,
        scope="",
        body=BatchReadIn | Annotated[list[ObservationIn], Meta(min_length=1, max_length=BATCH_MOST)],
        answers={200: (BatchReadOut, _WHOLES), 201: ManyOut},
    ),
    Operation("GET", "/v1/observations/{id}", get_observation, scope="observations:read", answers={200: (OneOut, _WHOLE)}),
    Operation(
        "PATCH",
        "/v1/observations/{id}",
        patch_observation,
        scope="observations:write",
        body=CorrectionIn,
        answers={200: OneOut},
    ),
    Operation("DELETE", "/v1/observations/{id}", delete_observation, scope="observations:write", answers={200: DeletedOut}),
    Operation("GET", "/v1/events/{id}/observations", get_event_observations, scope="observations:read", answers={200: OfEventOut}),
]
