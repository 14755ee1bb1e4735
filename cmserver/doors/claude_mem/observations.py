"""Observations and summaries by their numbers, and by the files that they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import Operation, get, post
from cmserver.base.http.wire import answer, db, query, read
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text, split_commas
from cmserver.doors.claude_mem import rows as worker_rows
from cmserver.doors.guest import admit_caller
from cmserver.observations import read as observations_read
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.write import delete
from cmserver.recall.file_context import find_file_matches
from cmserver.recall.file_paths import resolve_paths

_MAX_BATCH = 500
_MAX_CANDIDATES = 400
"""The most observations read for a file, the newest first; summaries among them are dropped."""
_MAX_PATHS = 4
_MAX_PROJECTS = 20
_INVALID_IDS = "Send numbers of observations, in a list or separated by commas: 12, #12 or S12."

Ids = Annotated[list[int | str], Meta(max_length=_MAX_BATCH)]


class BatchIn(msgspec.Struct, kw_only=True):
    """`ids` are numbers, up to 500, in a list or as a text with commas between. `orderBy` is how they are ordered: `relevance`
    keeps the order of the request.
    """

    ids: Ids | int | str
    order_by: Literal["date_desc", "date_asc", "relevance"] = field(default="date_desc", name="orderBy")
    limit: worker_rows.Many | None = None
    project: Key | None = None


class FileQuery(msgspec.Struct, kw_only=True):
    """`path` is a file, and may be there up to 4 times. `projects` are the names of up to 20, with commas between: without any, the
    20 newest are looked at.

    A `limit` above 100 is 100.
    """

    path: Text
    projects: Text | None = None
    limit: worker_rows.Many = 40


class AboutFileOut(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first: `count` is how many there are in the answer."""

    observations: list[worker_rows.ObservationRow]
    count: int


class DeletedRowOut(msgspec.Struct, frozen=True, kw_only=True):
    """The row is deleted: `success` is always true; `kind` is what the row was. `entity_rev` is of the original's cloud, and always
    null.
    """

    success: bool = True
    id: int
    kind: Literal["observation", "summary"]
    entity_rev: None = None


async def post_batch(request: Request) -> Response:
    """The observations and summaries of those numbers, whole. What does not exist is left out."""
    principal = await admit_caller(request)
    params = await read(request, BatchIn)
    numbers = _numbers(params.ids)
    where = await worker_rows.resolve_scope(request, principal, params.project)
    if where is None or not numbers:
        return answer([])
    async with db(request).tenant(principal.team_id) as conn:
        stored = await observations.by_numbers(
            conn, principal.team_id, set(numbers), project_id=where.project_id if params.project else None
        )
        sees_shared = await observations_read.sees_shared_observations(conn, principal)
        visible = [row for row in stored if observations_read.may_read(principal, row, sees_shared=sees_shared)]
        if params.order_by == "relevance":
            visible.sort(key=lambda row: numbers.index(row.number))
        else:
            visible.sort(key=lambda row: (row.created_at, row.id), reverse=params.order_by == "date_desc")
        visible = visible[: params.limit]
        await observations_read.audit_read(conn, principal, where.project_id, "batch", visible)
        rows = await worker_rows.observation_rows(conn, principal, visible)
    return answer(rows)


async def get_by_file(request: Request) -> Response:
    """The newest observations that name a file."""
    principal = await admit_caller(request)
    params = query(request, FileQuery)
    paths = request.query_params.getlist("path")[:_MAX_PATHS]
    scopes = await _scopes(request, principal, params.projects)
    async with db(request).tenant(principal.team_id) as conn:
        projects = [project_id for where in scopes for project_id in await worker_rows.projects_in(conn, principal, where)][
            :_MAX_PROJECTS
        ]
        mentions = [
            match.mention
            for project_id in projects
            for path in paths
            for spellings in [await resolve_paths(conn, principal.team_id, [project_id], [path])]
            for match in await find_file_matches(conn, project_id, None, path, spellings.paths)
        ]
        mentions.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        ids = dict.fromkeys(row.id for row in mentions[:_MAX_CANDIDATES])
        candidates = [row for row in await observations.by_ids(conn, principal.team_id, list(ids)) if row.kind != "summary"]
        candidates.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        shown = candidates[: min(params.limit, worker_rows.MAX_PAGE_ITEMS)]
        await observations_read.audit_read(
            conn, principal, projects[0] if len(projects) == 1 else principal.project_id, "file", shown
        )
        rows = await worker_rows.observation_rows(conn, principal, shown)
    return answer(AboutFileOut(observations=rows, count=len(rows)))


async def get_observation(request: Request) -> Response:
    """One observation, by its number."""
    principal = await admit_caller(request)
    async with db(request).tenant(principal.team_id) as conn:
        observation = await observations_read.find_observation(conn, principal, str(request.path_params["id"]))
        await observations_read.audit_read(conn, principal, observation.project_id, "get", [observation])
        (row,) = await worker_rows.observation_rows(conn, principal, [observation])
    return answer(row)


async def get_session(request: Request) -> Response:
    """One summary of a session, by its number: what claude-mem means by a session's id."""
    principal = await admit_caller(request)
    async with db(request).tenant(principal.team_id) as conn:
        observation = await observations_read.find_observation(conn, principal, str(request.path_params["id"]))
        _check_kind("summary", observation)
        await observations_read.audit_read(conn, principal, observation.project_id, "get", [observation])
        (row,) = await worker_rows.summary_rows(conn, principal, [observation])
    return answer(row)


async def delete_observation(request: Request) -> Response:
    """Delete an observation, by its number; its source events stay."""
    return await _delete(request, "observation")


async def delete_summary(request: Request) -> Response:
    """Delete a summary of a session, by its number; the session and its events stay."""
    return await _delete(request, "summary")


async def _delete(request: Request, kind: Literal["observation", "summary"]) -> Response:
    """Delete the observation or summary with the number in the path; a number of the other kind is not found."""
    principal = await admit_caller(request)
    name = str(request.path_params["id"])

    async def delete_in_tenant(conn: Conn) -> int:
        observation = await observations_read.find_observation(conn, principal, name)
        _check_kind(kind, observation)
        await delete(conn, principal, name)
        return observation.number

    return answer(DeletedRowOut(id=await db(request).in_tenant(principal.team_id, delete_in_tenant), kind=kind))


def _check_kind(kind: Literal["observation", "summary"], observation: Observation) -> None:
    if (observation.kind == "summary") != (kind == "summary"):
        raise NotFound(observations_read.NO_SUCH)


def _numbers(ids: Sequence[int | str] | int) -> list[int]:
    items = [ids] if isinstance(ids, int) else split_commas(ids) if isinstance(ids, str) else ids
    numbers = [observations_read.parse_number(str(item).strip()) for item in items]
    if len(numbers) > _MAX_BATCH or None in numbers:
        raise Invalid.at("$.ids", _INVALID_IDS)
    return list(dict.fromkeys(number for number in numbers if number is not None))


async def _scopes(request: Request, principal: Principal, projects: str | None) -> list[worker_rows.RowScope]:
    names = split_commas(projects)[:_MAX_PROJECTS]
    scopes = (
        [await worker_rows.resolve_scope(request, principal, name) for name in names]
        if names
        else [await worker_rows.resolve_scope(request, principal, None)]
    )
    return list({scope.project_id: scope for scope in scopes if scope}.values())


routes = [
    post("/api/observations/batch", post_batch, "observations:read", list[worker_rows.ObservationRow], body=BatchIn),
    get("/api/observations/by-file", get_by_file, "observations:read", AboutFileOut, query=FileQuery),
    get("/api/observation/{id}", get_observation, "observations:read", worker_rows.ObservationRow),
    Operation("DELETE", "/api/observation/{id}", delete_observation, "observations:write", DeletedRowOut),
    get("/api/session/{id}", get_session, "observations:read", worker_rows.SummaryRow),
    Operation("DELETE", "/api/summary/{id}", delete_summary, "observations:write", DeletedRowOut),
]
