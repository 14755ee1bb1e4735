"""Observations over HTTP: read, and written by hand."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http import operation, wire
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, body, caller, convert, db, dependency, query, read_sized, wants_text
from cmserver.base.json_text import decode_json
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.events.read import find_event
from cmserver.observations.model import Correction
from cmserver.observations.plain import render_observation, render_observations
from cmserver.observations.read import (
    NO_SUCH,
    list_observations,
    read_batch,
    read_event_observations,
    read_observation,
)
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import (
    BATCH_MOST,
    BatchReadIn,
    BatchReadOut,
    CorrectionIn,
    DeletedObservationOut,
    EventObservationsOut,
    NewObservationsOut,
    ObservationIn,
    ObservationsOut,
    ObservationsQuery,
    OneObservationOut,
    observation_out,
    source_out,
)
from cmserver.observations.write import correct, delete, write_observation, write_observations


async def get_observations(request: Request) -> Response:
    """A page of observations, newest first."""
    principal = await caller(request, Principal)
    filters = query(request, ObservationsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    async with db(request).tenant(principal.team_id) as conn:
        observations, next_cursor = await list_observations(
            conn,
            principal,
            project_id=project_id,
            limit=filters.limit,
            session_id=filters.session,
            kind=filters.kind,
            type_=filters.type,
            scope=filters.scope,
            cursor=filters.cursor,
        )
    return answer(ObservationsOut(observations=[*map(observation_out, observations)], next_cursor=next_cursor))


async def get_observation(request: Request) -> Response:
    """One observation, by id or number, with its sources; as an agent reads it when only text/plain is accepted."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        observation, sources = await read_observation(conn, principal, str(request.path_params["id"]))
    if wants_text(request):
        return PlainTextResponse(render_observation(observation))
    return answer(OneObservationOut(observation=observation_out(observation, sources=[*map(source_out, sources)])))


async def get_event_observations(request: Request) -> Response:
    """The observations made of an event."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        event = await find_event(conn, principal, str(request.path_params["id"]))
        linked = await read_event_observations(conn, principal, event.project_id, event.id)
    observations = [observation_out(observation, link=link) for observation, link in linked]
    return answer(EventObservationsOut(event_id=event.id, observations=observations))


async def post_observation(request: Request) -> Response:
    """Write an observation by hand; nothing is generated from it."""
    principal = await caller(request, Principal)
    new, size_bytes = await read_sized(request, ObservationIn)
    observation = await write_observation(
        db(request),
        dependency(request, Projects),
        principal,
        new,
        field_max_chars=dependency(request, Settings).field_max_chars,
        size_bytes=size_bytes,
    )
    return answer(OneObservationOut(observation=observation_out(observation)), 201)


async def post_observations_batch(request: Request) -> Response:
    """Read up to 100 observations at once, or write up to 500 by hand, all or none.

    An object with `ids` reads, with the scope observations:read; as an agent reads them when only text/plain is accepted. A list
    writes, with the scope observations:write.
    """
    principal = await caller(request, Principal)
    raw = await body(request)
    value = decode_json(raw or b"{}")
    reads = isinstance(value, dict) and "ids" in value
    return await (_read_batch if reads else _write_batch)(request, principal, raw)


async def _read_batch(request: Request, principal: Principal, raw: bytes) -> Response:
    principal.require("observations:read")
    names = convert(decode_json(raw), BatchReadIn).ids
    async with db(request).tenant(principal.team_id) as conn:
        batch = await read_batch(conn, principal, names)
    if wants_text(request):
        return PlainTextResponse(render_observations(batch.observations) if batch.observations else f"{NO_SUCH}\n")
    return answer(BatchReadOut(observations=[*map(observation_out, batch.observations)], missing=batch.missing))


async def _write_batch(request: Request, principal: Principal, raw: bytes) -> Response:
    """Store the observations of an array; all or none."""
    principal.require("observations:write")
    new = wire.batch(raw, ObservationIn, max_items=BATCH_MOST, noun="observations")
    observations = await write_observations(
        db(request),
        dependency(request, Projects),
        principal,
        new,
        field_max_chars=dependency(request, Settings).field_max_chars,
        size_bytes=len(raw),
    )
    return answer(NewObservationsOut(observations=[*map(observation_out, observations)]), 201)


async def patch_observation(request: Request) -> Response:
    """Correct an observation's type, title, concepts, scope or metadata."""
    principal = await caller(request, Principal)
    sent, size_bytes = await read_sized(request, CorrectionIn)
    field_max_chars = dependency(request, Settings).field_max_chars
    correction = await tidy_correction(reshape(sent, Correction), field_max_chars=field_max_chars, size_bytes=size_bytes)
    name = str(request.path_params["id"])
    corrected = await db(request).in_tenant(principal.team_id, lambda conn: correct(conn, principal, name, correction))
    return answer(OneObservationOut(observation=observation_out(corrected)))


async def delete_observation(request: Request) -> Response:
    """Delete an observation, by id or number; its events stay."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: delete(conn, principal, name))
    return answer(DeletedObservationOut(id=deleted))


_PLAIN_BATCH = operation.TextAnswer("text/plain", "As an agent reads them, when only text/plain is accepted.")
_PLAIN = operation.TextAnswer("text/plain", "As an agent reads it, when only text/plain is accepted.")

routes = [
    Operation(
        "GET",
        "/v1/observations",
        get_observations,
        scope="observations:read",
        query=ObservationsQuery,
        answers={200: ObservationsOut},
    ),
    Operation(
        "POST",
        "/v1/observations",
        post_observation,
        scope="observations:write",
        body=ObservationIn,
        answers={201: OneObservationOut},
    ),
    Operation(
        "POST",
        "/v1/observations/batch",
        post_observations_batch,
        scope="",
        body=BatchReadIn | Annotated[list[ObservationIn], Meta(min_length=1, max_length=BATCH_MOST)],
        answers={200: (BatchReadOut, _PLAIN_BATCH), 201: NewObservationsOut},
    ),
    Operation(
        "GET", "/v1/observations/{id}", get_observation, scope="observations:read", answers={200: (OneObservationOut, _PLAIN)}
    ),
    Operation(
        "PATCH",
        "/v1/observations/{id}",
        patch_observation,
        scope="observations:write",
        body=CorrectionIn,
        answers={200: OneObservationOut},
    ),
    Operation(
        "DELETE", "/v1/observations/{id}", delete_observation, scope="observations:write", answers={200: DeletedObservationOut}
    ),
    Operation(
        "GET",
        "/v1/events/{id}/observations",
        get_event_observations,
        scope="observations:read",
        answers={200: EventObservationsOut},
    ),
]
