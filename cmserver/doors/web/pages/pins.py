"""Pins: what the team's memory must answer; added, edited, removed and checked."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.http.wire import convert
from cmserver.base.sql import Conn
from cmserver.base.text import QueryText, Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects, names_of_projects
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.pins import repository as pins
from cmserver.pins.change import add_pin, edit_pin, find_pin, remove_pin
from cmserver.pins.check import check_pins, check_pins_of, find_result
from cmserver.pins.model import OnBreak, Pin, PinLines, PinResult
from cmserver.pins.wire import PinIn, new_pin
from cmserver.recall.search.model import Ranking

_PAGE = 50
_MAX_CHARS = 5_000
_ON_BREAK: list[tuple[OnBreak, str]] = [("report", "is reported"), ("refuse", "is refused")]
_Words = Annotated[Text, Meta(max_length=_MAX_CHARS)]


class PinFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The list in the address."""

    project: str | None = None
    broken: bool = False
    cursor: str | None = None


class PinForm(msgspec.Struct, frozen=True, kw_only=True):
    """A pin; its words a line each."""

    question: QueryText
    must: _Words = ""
    must_not: _Words = ""
    lines: PinLines = 5
    on_break: OnBreak = "report"
    project: str | None = None


class CheckForm(msgspec.Struct, frozen=True, kw_only=True):
    """The project whose pins are checked; all without one."""

    project: str | None = None


async def get_pins(visit: Visit) -> Response:
    """What the memory must answer, newest first, and whether it did at its last check."""
    filters = visit.query(PinFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    before, before_id = paging.place(filters.cursor)
    async with visit.tenant() as conn:
        rows = await pins.page(
            conn,
            principal.team_id,
            project_id,
            only_broken=filters.broken,
            before=before,
            before_id=before_id,
            limit=_PAGE + 1,
        )
        projects = await list_projects(conn, principal)
        names = await names_of_projects(conn, principal, {row.project_id for row in rows})
    page, next_cursor = paging.page(rows, _PAGE, lambda pin: (pin.created_at, pin.id))
    return visit.render(
        "pins.html",
        title="Pins",
        pins=page,
        names=names,
        projects=projects,
        filters=filters,
        on_break=_ON_BREAK,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def post_pin(visit: Visit) -> Response:
    """Write a pin down."""
    form = await visit.form(PinForm)
    new = new_pin(convert(_fields(form), PinIn))
    project = await visit.dependency(Projects).named_or_own(visit.principal, form.project, at="$.project")

    async def add(conn: Conn) -> PinResult:
        return await _check(conn, visit, await add_pin(conn, visit.principal, project, new))

    return _tell(visit, await visit.db.in_tenant(visit.team_id, add))


async def post_check(visit: Visit) -> Response:
    """Check whether the memory answers what is pinned."""
    form = await visit.form(CheckForm)
    project_id = await visit.dependency(Projects).within(visit.principal, form.project)
    ranking = visit.dependency(Ranking)
    results = await visit.db.in_tenant(visit.team_id, lambda conn: check_pins_of(conn, visit.principal, project_id, ranking))
    broken = sum(not result.holds for result in results)
    notice = f"{len(results) - broken} of {plural(len(results), 'pin')} hold."
    if broken:
        return visit.redirect("/ui/pins", notice, project=form.project, broken="true")
    return visit.redirect("/ui/pins", notice, project=form.project)


async def get_pin(visit: Visit) -> Response:
    """A pin, what the memory answers to it now, and a form that changes it."""
    async with visit.tenant() as conn:
        pin = await find_pin(conn, visit.principal, visit.parameter("number"))
        result = await find_result(conn, visit.principal, pin, visit.dependency(Ranking))
        projects = await list_projects(conn, visit.principal)
        names = await names_of_projects(conn, visit.principal, {pin.project_id})
    return visit.render(
        "pin.html",
        title=f"Pin {pin.number}",
        pin=pin,
        result=result,
        project=names.get(pin.project_id, ""),
        projects=projects,
        on_break=_ON_BREAK,
    )


async def post_edit(visit: Visit) -> Response:
    """Change a pin."""
    fields = _fields(await visit.form(PinForm))
    new = msgspec.structs.asdict(new_pin(convert(fields, PinIn)))
    number = visit.parameter("number")

    async def edit(conn: Conn) -> PinResult:
        return await _check(conn, visit, await edit_pin(conn, visit.principal, number, new))

    return _tell(visit, await visit.db.in_tenant(visit.team_id, edit))


async def post_removal(visit: Visit) -> Response:
    """Remove a pin."""
    number = visit.parameter("number")
    pin = await visit.db.in_tenant(visit.team_id, lambda conn: remove_pin(conn, visit.principal, number))
    return visit.redirect("/ui/pins", f"Pin {pin.number} is removed.")


def _fields(form: PinForm) -> dict[str, object]:
    """As the API takes them, which checks each word."""
    words = {
        name: [line.strip() for line in text.splitlines() if line.strip()]
        for name, text in (("must", form.must), ("mustNot", form.must_not))
    }
    return {"question": form.question, "lines": form.lines, "onBreak": form.on_break, **words}


async def _check(conn: Conn, visit: Visit, pin: Pin) -> PinResult:
    (result,) = await check_pins(conn, visit.principal, [pin], visit.dependency(Ranking))
    return result


def _tell(visit: Visit, result: PinResult) -> Response:
    number = result.pin.number
    return visit.redirect(f"/ui/pins/{number}", f"Pin {number} {'holds' if result.holds else 'does not hold'}.")


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/pins", get_pins, scope="observations:read"),
    Page("POST", "/ui/pins", post_pin, scope=_WRITE, form_of=get_pins),
    Page("POST", "/ui/pins/check", post_check, scope="observations:read", form_of=get_pins),
    Page("GET", "/ui/pins/{number}", get_pin, scope="observations:read"),
    Page("POST", "/ui/pins/{number}/edit", post_edit, scope=_WRITE, form_of=get_pin),
    Page("POST", "/ui/pins/{number}/remove", post_removal, scope=_WRITE, form_of=get_pin),
]
