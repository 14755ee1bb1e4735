"""Observations over HTTP: read, corrected and deleted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access import verb
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.base.http import operation
from cmserver.base.http.operation import get, patch
from cmserver.base.http.wire import answer, caller, db, read_sized, wants_text
from cmserver.base.structs import reshape
from cmserver.events.read import find_event
from cmserver.observations import wire
from cmserver.observations.model import Correction, ObservationFilter
from cmserver.observations.past.model import read_moment
from cmserver.observations.plain import render_observation
from cmserver.observations.read import (
    list_observations,
    read_event_observations,
    read_observation,
)
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.write import correct, delete, expire, promote


@verb.get("/v1/observations", "observations:read")
async def get_observations(call: VerbCall, given: wire.ObservationsQuery) -> wire.ObservationsOut:
    """A page of observations, newest first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    moment = read_moment(given.as_of, given.known_at)
    wanted = reshape(given, ObservationFilter, project_id=project_id, session_id=given.session)
    async with call.read() as conn:
        page, next_cursor = await list_observations(
            conn, call.principal, wanted, limit=given.limit, cursor=given.cursor, moment=moment
        )
    return wire.ObservationsOut(observations=[*map(wire.observation_out, page)], next_cursor=next_cursor)


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


@verb.get("/v1/events/{id}/observations", "observations:read")
async def get_event_observations(call: VerbCall, given: str) -> wire.EventObservationsOut:
    """The observations made of an event."""
    async with call.read() as conn:
        event = await find_event(conn, call.principal, given)
        linked = await read_event_observations(conn, call.principal, event.project_id, event.id)
    observations = [wire.observation_out(observation, link=link) for observation, link in linked]
    return wire.EventObservationsOut(event_id=event.id, observations=observations)


async def patch_observation(request: Request) -> Response:
    """Correct an observation; what it was before is kept as a version."""
    principal = await caller(request, Principal)
    sent, size_bytes = await read_sized(request, wire.CorrectionIn)
    correction = reshape(sent, Correction, ttl_seconds=wire.read_lifetime(sent, "$"))
    correction = await tidy_correction(correction, size_bytes=size_bytes)
    name = str(request.path_params["id"])
    corrected = await db(request).in_tenant(principal.team_id, lambda conn: correct(conn, principal, name, correction))
    return answer(wire.OneObservationOut(observation=wire.observation_out(corrected)))


@verb.post("/v1/observations/{id}/promote", "observations:write")
async def post_promote(call: VerbCall, given: str) -> wire.OneObservationOut:
    """Make an observation permanent, also one that has expired and is not purged yet."""
    promoted = await call.write(lambda conn: promote(conn, call.principal, given))
    return wire.OneObservationOut(observation=wire.observation_out(promoted))


@verb.post("/v1/observations/{id}/expire", "observations:write")
async def post_expire(call: VerbCall, given: str) -> wire.OneObservationOut:
    """End an observation's time now: it is shown no longer, and purged later; undoing brings it back."""
    expired = await call.write(lambda conn: expire(conn, call.principal, given))
    return wire.OneObservationOut(observation=wire.observation_out(expired))


@verb.delete("/v1/observations/{id}", "observations:write")
async def delete_observation(call: VerbCall, given: str) -> wire.DeletedObservationOut:
    """Delete an observation, by id or number; its events stay."""
    return wire.DeletedObservationOut(id=await call.write(lambda conn: delete(conn, call.principal, given)))


_PLAIN = operation.TextAnswer("text/plain", "As an agent reads it, when only text/plain is accepted.")

routes = [
    get_observations,
    get("/v1/observations/{id}", get_observation, "observations:read", (wire.OneObservationOut, _PLAIN)),
    patch("/v1/observations/{id}", patch_observation, "observations:write", wire.OneObservationOut, body=wire.CorrectionIn),
    delete_observation,
    post_promote,
    post_expire,
    get_event_observations,
]
