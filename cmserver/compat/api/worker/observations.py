"""Observations and summaries by their numbers, and by the files that they are about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, query, read
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker.rows import (
    PAGE_MOST,
    Many,
    ObservationRow,
    SummaryRow,
    Where,
    observation_rows,
    projects_in,
    reach,
    summary_rows,
    words,
)
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.read import NO_SUCH, find, served
from cmserver.observations.write import delete
from cmserver.recall.on_file import about_file

_BATCH_MOST = 500
_LOOKED_AT = 400
"""As many of those that name a file are read, the newest: some are summaries, and are left out."""
_PATHS_MOST = 4
_PROJECTS_MOST = 20
_NUMBER = re.compile(r"#?[Ss]?([0-9]{1,18})")
_NO_NUMBER = "Ids are the numbers of observations, in a list or with commas between them. Each is one of these forms: 12, #12, S12."

Ids = Annotated[list[int | str], Meta(max_length=_BATCH_MOST)]


class BatchIn(msgspec.Struct, kw_only=True):
    """`ids` are numbers, up to 500, in a list or as a text with commas between. `orderBy` relevance keeps their order."""

    ids: Ids | int | str
    order_by: Literal["date_desc", "date_asc", "relevance"] = field(default="date_desc", name="orderBy")
    limit: Many | None = None
    project: Key | None = None


class FileQuery(msgspec.Struct, kw_only=True):
    """`path` may be there up to 4 times, and up to 20 `projects` with commas between; without any, the 20 newest are looked at.

    A `limit` above 100 is 100.
    """

    path: Text
    projects: Text | None = None
    limit: Many = 40


class AboutFileOut(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    observations: list[ObservationRow]
    count: int


class GoneOut(msgspec.Struct, frozen=True, kw_only=True):
    """It is deleted. `entity_rev` is a matter of the original's cloud, and null."""

    success: bool = True
    id: int
    kind: Literal["observation", "summary"]
    entity_rev: None = None


async def post_batch(request: Request) -> Response:
    """The observations and summaries of those numbers, whole. What does not exist is left out."""
    who = await guest(request)
    asked = await read(request, BatchIn)
    numbers = _numbers(asked.ids)
    where = await reach(request, who, asked.project)
    if where is None or not numbers:
        return answer([])
    async with db(request).tenant(who.team_id) as conn:
        found = await observations.by_numbers(
            conn, who.team_id, set(numbers), project_id=where.project_id if asked.project else None
        )
        seen = [one for one in found if who.sees(one.project_id) or one.scope == "team"]
        if asked.order_by == "relevance":
            seen.sort(key=lambda one: numbers.index(one.number))
        else:
            seen.sort(key=lambda one: (one.created_at, one.id), reverse=asked.order_by == "date_desc")
        seen = seen[: asked.limit]
        await served(conn, who, where.project_id, "batch", seen)
        rows = await observation_rows(conn, who, seen)
    return answer(rows)


async def get_by_file(request: Request) -> Response:
    """What is known of a file: the newest observations that name it."""
    who = await guest(request)
    asked = query(request, FileQuery)
    paths = request.query_params.getlist("path")[:_PATHS_MOST]
    reached = await _reached(request, who, asked.projects)
    async with db(request).tenant(who.team_id) as conn:
        projects = [project_id for where in reached for project_id in await projects_in(conn, who, where)][:_PROJECTS_MOST]
        about = [one.found for project_id in projects for path in paths for one in await about_file(conn, project_id, None, path)]
        about.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        ids = dict.fromkeys(one.id for one in about[:_LOOKED_AT])
        known = [one for one in await observations.by_ids(conn, who.team_id, list(ids)) if one.kind != "summary"]
        known.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        found = known[: min(asked.limit, PAGE_MOST)]
        await served(conn, who, projects[0] if len(projects) == 1 else who.project_id, "file", found)
        rows = await observation_rows(conn, who, found)
    return answer(AboutFileOut(observations=rows, count=len(rows)))


async def get_observation(request: Request) -> Response:
    """One observation, by its number."""
    who = await guest(request)
    async with db(request).tenant(who.team_id) as conn:
        found = await find(conn, who, str(request.path_params["id"]))
        await served(conn, who, found.project_id, "get", [found])
        (row,) = await observation_rows(conn, who, [found])
    return answer(row)


async def get_session(request: Request) -> Response:
    """One summary of a session, by its number: what claude-mem means by a session's id."""
    who = await guest(request)
    async with db(request).tenant(who.team_id) as conn:
        found = await find(conn, who, _plain(str(request.path_params["id"])))
        _must_be("summary", found)
        await served(conn, who, found.project_id, "get", [found])
        (row,) = await summary_rows(conn, who, [found])
    return answer(row)


async def delete_observation(request: Request) -> Response:
    """Delete an observation, by its number; the events that it was drawn from stay."""
    return await _delete(request, "observation")


async def delete_summary(request: Request) -> Response:
    """Delete a summary of a session, by its number; the session and its events stay."""
    return await _delete(request, "summary")


async def _delete(request: Request, kind: Literal["observation", "summary"]) -> Response:
    who = await guest(request)
    named = _plain(str(request.path_params["id"]))

    async def gone(conn: Conn) -> int:
        found = await find(conn, who, named)
        _must_be(kind, found)
        await delete(conn, who, named)
        return found.number

    return answer(GoneOut(id=await db(request).in_tenant(who.team_id, gone), kind=kind))


def _must_be(kind: Literal["observation", "summary"], found: Observation) -> None:
    if (found.kind == "summary") != (kind == "summary"):
        raise NotFound(NO_SUCH)


def _plain(named: str) -> str:
    """Clients show the number of a summary as S12."""
    number = _NUMBER.fullmatch(named)
    return number[1] if number else named


def _numbers(ids: Sequence[int | str] | int) -> list[int]:
    given = [ids] if isinstance(ids, int) else words(ids) if isinstance(ids, str) else ids
    found = [_NUMBER.fullmatch(str(one).strip()) for one in given]
    if len(found) > _BATCH_MOST or not all(found):
        raise Invalid.at("$.ids", _NO_NUMBER)
    return list(dict.fromkeys(int(one[1]) for one in found if one))


async def _reached(request: Request, who: Principal, projects: str | None) -> list[Where]:
    named = words(projects)[:_PROJECTS_MOST]
    found = [await reach(request, who, one) for one in named] if named else [await reach(request, who, None)]
    return list({one.project_id: one for one in found if one}.values())


routes = [
    Operation(
        "POST",
        "/api/observations/batch",
        post_batch,
        scope="observations:read",
        body=BatchIn,
        answers={200: list[ObservationRow]},
    ),
    Operation(
        "GET", "/api/observations/by-file", get_by_file, scope="observations:read", query=FileQuery, answers={200: AboutFileOut}
    ),
    Operation("GET", "/api/observation/{id}", get_observation, scope="observations:read", answers={200: ObservationRow}),
    Operation("DELETE", "/api/observation/{id}", delete_observation, scope="observations:write", answers={200: GoneOut}),
    Operation("GET", "/api/session/{id}", get_session, scope="observations:read", answers={200: SummaryRow}),
    Operation("DELETE", "/api/summary/{id}", delete_summary, scope="observations:write", answers={200: GoneOut}),
]
