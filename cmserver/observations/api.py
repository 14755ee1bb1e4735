"""The doors to observations: a list, one of them, and what was drawn from an event."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.events import read as events
from cmserver.observations import read
from cmserver.observations.model import Kind, ObservationType
from cmserver.observations.wire import ObservationOut, observation_out, source_out


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `session` is our id of a session."""

    project: str | None = None
    session: UUID | None = None
    kind: Kind | None = None
    type: ObservationType | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    cursor: str | None = None


class ListOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    observations: list[ObservationOut]
    next_cursor: str | None


class OneOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One observation, with its sources."""

    observation: ObservationOut


class OfEventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was drawn from an event; an empty list as long as, or because, nothing was."""

    event_id: UUID
    observations: list[ObservationOut]


async def get_observations(request: Request) -> Response:
    """A page of observations, newest first."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    project_id = who.project_id
    if asked.project is not None:
        project_id = (await cast("Projects", request.app.state.projects).find(who, asked.project)).id
    async with db(request).tenant(who.team_id) as conn:
        page = await read.page(
            conn,
            who,
            project_id=project_id,
            limit=asked.limit,
            session_id=asked.session,
            kind=asked.kind,
            type_=asked.type,
            cursor=asked.cursor,
        )
    return answer(ListOut(observations=[observation_out(one) for one in page.observations], next_cursor=page.next_cursor))


async def get_observation(request: Request) -> Response:
    """One observation, by id or number, with its sources."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        one, sources = await read.one(conn, who, str(request.path_params["id"]))
    return answer(OneOut(observation=observation_out(one, sources=[source_out(source) for source in sources])))


async def get_event_observations(request: Request) -> Response:
    """What was drawn from an event."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        event = await events.one(conn, who, str(request.path_params["id"]))
        found = await read.of_event(conn, who, event.project_id, event.id)
    return answer(OfEventOut(event_id=event.id, observations=[observation_out(one, link=link) for one, link in found]))


routes = [
    Operation("GET", "/v1/observations", get_observations, scope="observations:read", query=ListQuery, answers={200: ListOut}),
    Operation("GET", "/v1/observations/{id}", get_observation, scope="observations:read", answers={200: OneOut}),
    Operation("GET", "/v1/events/{id}/observations", get_event_observations, scope="observations:read", answers={200: OfEventOut}),
]
