"""Replays: what today's rules would remember of stored events; begun, stopped, taken over and removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects, names_of_projects
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.replays import change_replay, take_over
from cmserver.replays import repository as replays
from cmserver.replays.model import RULES, Difference, Replay
from cmserver.replays.wire import line_out, read_place

_PAGE = 50
_LINES = 50
_DIFFERENCES: list[tuple[str, str]] = [("", "All differences"), ("lost", "Lost"), ("new", "New"), ("reworded", "Reworded")]


class ReplayFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The list in the address."""

    cursor: str | None = None


class LineFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The lines in the address."""

    difference: Difference | None = None
    cursor: str | None = None


class ReplayForm(msgspec.Struct, frozen=True, kw_only=True):
    """What shall be run again, by rules."""

    project: str | None = None
    since: str = ""


async def get_replays(visit: Visit) -> Response:
    """What was run again, newest first, and what would be another by it."""
    filters = visit.query(ReplayFilters)
    principal = visit.principal
    before, before_id = paging.place(filters.cursor)
    async with visit.tenant() as conn:
        rows = await replays.page(
            conn, principal.team_id, principal.project_id, before=before, before_id=before_id, limit=_PAGE + 1
        )
        projects = await list_projects(conn, principal)
        names = await names_of_projects(conn, principal, {row.project_id for row in rows if row.project_id})
    page, next_cursor = paging.page(rows, _PAGE, lambda replay: (replay.created_at, replay.id))
    return visit.render(
        "replays.html",
        title="Replays",
        replays=page,
        names=names,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def post_replay(visit: Visit) -> Response:
    """Begin a replay by the rules, which cost nothing."""
    form = await visit.form(ReplayForm)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, form.project)
    settings = visit.dependency(Settings)

    async def begin(conn: Conn) -> Replay:
        measured = await change_replay.estimate(conn, settings, principal, project_id, form.since.strip() or None, RULES)
        return await change_replay.begin_replay(conn, principal, project_id, measured)

    replay = await visit.db.in_tenant(visit.team_id, begin)
    return visit.redirect(f"/ui/pins/replays/{replay.number}", f"Replay {replay.number} has begun.")


async def get_replay(visit: Visit) -> Response:
    """A replay: the counts, then what would be another, old above new."""
    filters = visit.query(LineFilters)
    after = read_place(filters.cursor)
    async with visit.tenant() as conn:
        replay = await change_replay.find_replay(conn, visit.principal, visit.parameter("number"))
        rows = await replays.lines(conn, visit.team_id, replay.id, difference=filters.difference, after=after, limit=_LINES + 1)
        names = await names_of_projects(conn, visit.principal, {replay.project_id} if replay.project_id else set())
    page = rows[:_LINES]
    return visit.render(
        "replay.html",
        title=f"Replay {replay.number}",
        replay=replay,
        project=names.get(replay.project_id, "") if replay.project_id else "",
        lines=[*map(line_out, page)],
        filters=filters,
        differences=_DIFFERENCES,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=str(page[-1].place) if len(rows) > _LINES else None,
    )


async def post_stop(visit: Visit) -> Response:
    """Stop a replay."""
    return await _act(visit, change_replay.stop_replay, "is stopped")


async def post_resume(visit: Visit) -> Response:
    """Go on with a replay."""
    return await _act(visit, change_replay.resume_replay, "goes on")


async def post_take_over(visit: Visit) -> Response:
    """Write what it would remember into the memory."""
    number = visit.parameter("number")
    taken = await visit.db.in_tenant(visit.team_id, lambda conn: take_over.take_over(conn, visit.principal, number))
    return visit.redirect(
        f"/ui/pins/replays/{taken.replay.number}", f"{plural(taken.written, 'row')} written, {taken.left} left alone."
    )


async def post_undo(visit: Visit) -> Response:
    """Take back what was written of it."""
    number = visit.parameter("number")
    taken = await visit.db.in_tenant(visit.team_id, lambda conn: take_over.undo_take_over(conn, visit.principal, number))
    notice = f"{plural(taken.written, 'row')} as before, {taken.left} left alone."
    return visit.redirect(f"/ui/pins/replays/{taken.replay.number}", notice)


async def post_removal(visit: Visit) -> Response:
    """Throw a replay away."""
    number = visit.parameter("number")
    replay = await visit.db.in_tenant(visit.team_id, lambda conn: change_replay.remove_replay(conn, visit.principal, number))
    return visit.redirect("/ui/pins/replays", f"Replay {replay.number} is removed.")


async def _act(visit: Visit, act: Callable[[Conn, Principal, str], Awaitable[Replay]], said: str) -> Response:
    number = visit.parameter("number")
    replay = await visit.db.in_tenant(visit.team_id, lambda conn: act(conn, visit.principal, number))
    return visit.redirect(f"/ui/pins/replays/{replay.number}", f"Replay {replay.number} {said}.")


_RUN = "jobs:write"

routes = [
    Page("GET", "/ui/pins/replays", get_replays, scope="observations:read"),
    Page("POST", "/ui/pins/replays", post_replay, scope=_RUN, form_of=get_replays),
    Page("GET", "/ui/pins/replays/{number}", get_replay, scope="observations:read"),
    Page("POST", "/ui/pins/replays/{number}/stop", post_stop, scope=_RUN, form_of=get_replay),
    Page("POST", "/ui/pins/replays/{number}/resume", post_resume, scope=_RUN, form_of=get_replay),
    Page("POST", "/ui/pins/replays/{number}/take-over", post_take_over, scope="admin", form_of=get_replay),
    Page("POST", "/ui/pins/replays/{number}/undo", post_undo, scope="admin", form_of=get_replay),
    Page("POST", "/ui/pins/replays/{number}/remove", post_removal, scope=_RUN, form_of=get_replay),
]
