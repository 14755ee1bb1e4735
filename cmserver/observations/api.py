"""Observations over HTTP: read, corrected and deleted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation, get, patch, post
from cmserver.base.http.wire import answer, caller, db, dependency, query, read_sized, wants_text
from cmserver.base.structs import reshape
from cmserver.events.read import find_event
from cmserver.observations import wire
from cmserver.observations.model import Correction, ObservationFilter
from cmserver.observations.plain import render_observation
from cmserver.observations.read import (
    list_observations,
    read_event_observations,
    read_observation,
)
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.write import correct, delete, expire, promote


async def get_observations(request: Request) -> Response:
    """A page of observations, newest first."""
    principal = await caller(request, Principal)
    filters = query(request, wire.ObservationsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    async with db(request).tenant(principal.team_id) as conn:
        wanted = reshape(filters, ObservationFilter, project_id=project_id, session_id=filters.session)
        observations, next_cursor = await list_observations(conn, principal, wanted, limit=filters.limit, cursor=filters.cursor)
    return answer(wire.ObservationsOut(observations=[*map(wire.observation_out, observations)], next_cursor=next_cursor))


async def get_observation(request: Request) -> Response:
    """One observation, by id or number, with its sources; as an agent reads it when only text/plain is accepted."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        observation, sources = await read_observation(conn, principal, str(request.path_params["id"]))
    if wants_text(request):
        return PlainTextResponse(render_observation(observation))
    return answer(
        wire.OneObservationOut(
            observation=wire.observation_out(observation, sources=[reshape(row, wire.SourceOut) for row in sources])
        )
    )


async def get_event_observations(request: Request) -> Response:
    """The observations made of an event."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        event = await find_event(conn, principal, str(request.path_params["id"]))
        linked = await read_event_observations(conn, principal, event.project_id, event.id)
    observations = [wire.observation_out(observation, link=link) for observation, link in linked]
    return answer(wire.EventObservationsOut(event_id=event.id, observations=observations))


async def patch_observation(request: Request) -> Response:
    """Correct an observation; what it was before is kept as a version."""
    principal = await caller(request, Principal)
    sent, size_bytes = await read_sized(request, wire.CorrectionIn)
    correction = reshape(sent, Correction, ttl_seconds=wire.read_lifetime(sent, "$"))
    correction = await tidy_correction(correction, size_bytes=size_bytes)
    name = str(request.path_params["id"])
    corrected = await db(request).in_tenant(principal.team_id, lambda conn: correct(conn, principal, name, correction))
    return answer(wire.OneObservationOut(observation=wire.observation_out(corrected)))


async def post_promote(request: Request) -> Response:
    """Make an observation permanent, also one that has expired and is not purged yet."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    promoted = await db(request).in_tenant(principal.team_id, lambda conn: promote(conn, principal, name))
    return answer(wire.OneObservationOut(observation=wire.observation_out(promoted)))


async def post_expire(request: Request) -> Response:
    """End an observation's time now: it is shown no longer, and purged later; undoing brings it back."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    expired = await db(request).in_tenant(principal.team_id, lambda conn: expire(conn, principal, name))
    return answer(wire.OneObservationOut(observation=wire.observation_out(expired)))


async def delete_observation(request: Request) -> Response:
    """Delete an observation, by id or number; its events stay."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: delete(conn, principal, name))
    return answer(wire.DeletedObservationOut(id=deleted))


_PLAIN = operation.TextAnswer("text/plain", "As an agent reads it, when only text/plain is accepted.")

routes = [
    get("/v1/observations", get_observations, "observations:read", wire.ObservationsOut, query=wire.ObservationsQuery),
    get("/v1/observations/{id}", get_observation, "observations:read", (wire.OneObservationOut, _PLAIN)),
    patch("/v1/observations/{id}", patch_observation, "observations:write", wire.OneObservationOut, body=wire.CorrectionIn),
    Operation("DELETE", "/v1/observations/{id}", delete_observation, "observations:write", wire.DeletedObservationOut),
    post("/v1/observations/{id}/promote", post_promote, "observations:write", wire.OneObservationOut),
    post("/v1/observations/{id}/expire", post_expire, "observations:write", wire.OneObservationOut),
    get("/v1/events/{id}/observations", get_event_observations, "observations:read", wire.EventObservationsOut),
]
