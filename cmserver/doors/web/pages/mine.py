"""Mine: what is remembered for the visitor alone, in all projects of the team; added, edited, forgotten, and given to the team."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.text import QueryText, Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import TITLE_CHARS, list_projects
from cmserver.doors.web.visit import Visit
from cmserver.observations.plain import one_line
from cmserver.observations.wire import ObservationIn, Words
from cmserver.personal.keep import (
    clean_text,
    edit_personal,
    forget_personal,
    give_to_team,
    list_personal,
    read_personal,
    undo_personal,
    write_personal,
)
from cmserver.personal.model import PersonalObservation, PersonalState, PersonalType

_PAGE = 50
_STATES: list[tuple[PersonalState, str]] = [("holds", "What holds"), ("dropped", "Forgotten"), ("moved", "Given to the team")]
_TYPES: list[tuple[PersonalType, str]] = [
    ("rule", "a rule: your agents are told it first"),
    ("note", "a note: found when it is near"),
]


class PersonalPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The list in the address: the fields of GET /v1/personal-observations."""

    q: QueryText | None = None
    state: PersonalState = "holds"
    cursor: str | None = None


class PersonalForm(msgspec.Struct, frozen=True, kw_only=True):
    """Something to remember for the visitor alone."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    kind: PersonalType = "rule"


class PersonalEditForm(msgspec.Struct, frozen=True, kw_only=True):
    """One of the visitor's own as it shall be."""

    content: Annotated[Words, Meta(min_length=1)]
    type: PersonalType


class BackForm(msgspec.Struct, frozen=True, kw_only=True):
    """The page to come back to."""

    back: Annotated[Text, Meta(max_length=4_000)] | None = None


class GiveForm(msgspec.Struct, frozen=True, kw_only=True):
    """The project that gets one of the visitor's own."""

    project: Text | None = None


class ShownPersonal(msgspec.Struct, frozen=True, kw_only=True):
    """One of the visitor's own in a list."""

    row: PersonalObservation
    title: str


def shown_own(row: PersonalObservation) -> ShownPersonal:
    return ShownPersonal(row=row, title=one_line(row.content, TITLE_CHARS))


async def get_mine(visit: Visit) -> Response:
    """What is remembered for you alone in the team: searched, or listed, newest first, with what you forgot or gave away."""
    filters = visit.query(PersonalPageQuery)
    words = (filters.q or "").strip() or None
    rows, next_cursor = list[PersonalObservation](), None
    if visit.principal.user_id is not None:
        async with visit.tenant() as conn:
            rows, next_cursor = await list_personal(
                conn, visit.principal, state=filters.state, words=words, limit=_PAGE, cursor=filters.cursor
            )
    return visit.render(
        "mine.html",
        title="Mine",
        rows=[*map(shown_own, rows)],
        words=words,
        filters=filters,
        states=_STATES,
        types=_TYPES,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def post_mine(visit: Visit) -> Response:
    """Remember something for you alone."""
    form = await visit.form(PersonalForm)
    own, is_new = await remember_for_visitor(visit, form.text, form.kind)
    notice = f"Stored as {own.name}." if is_new else f"{own.name} says that already."
    return visit.redirect("/ui/mine", notice, undo_new=own.number if is_new else None, is_own=True)


async def remember_for_visitor(visit: Visit, text: str, kind: Literal["rule", "note"]) -> tuple[PersonalObservation, bool]:
    """Keep it for the visitor alone; returns it, and whether it is new."""
    given = ObservationIn(scope="user", content=text, type="decision" if kind == "rule" else "discovery")
    return await write_personal(visit.dependency(Db), visit.principal, given, size_bytes=len(text))


async def get_own(visit: Visit) -> Response:
    """One of your own whole, to be edited, forgotten, or given to a project of the team."""
    principal = visit.principal
    async with visit.tenant() as conn:
        row = await read_personal(conn, principal, visit.parameter("name"))
        projects = await list_projects(conn, principal)
    return visit.render(
        "mine_one.html",
        title=row.name,
        row=row,
        shown=shown_own(row),
        projects=_receivers(row, projects),
        types=_TYPES,
    )


def _receivers(row: PersonalObservation, projects: list[Project]) -> list[Project]:
    """The projects that may get it: of what was drawn from a turn that of the turn."""
    return [project for project in projects if row.project_id in (None, project.id)]


async def post_edit(visit: Visit) -> Response:
    """Edit one of your own."""
    form = await visit.form(PersonalEditForm)
    text = form.content.replace("\r\n", "\n")
    content = await clean_text(text, size_bytes=len(text))

    async def edit(conn: Conn, principal: Principal, name: str) -> PersonalObservation:
        return await edit_personal(conn, principal, name, content=content, type_=form.type)

    return await _change(visit, edit, "is changed.", at=None)


async def post_forget(visit: Visit) -> Response:
    """Forget one of your own; what is forgotten twice is deleted for ever."""
    back = visit.way_back((await visit.form(BackForm)).back, "/ui/mine")
    name, principal = visit.parameter("name"), visit.principal
    row, is_deleted = await visit.db.in_tenant(
        visit.team_id, lambda conn: forget_personal(conn, principal, name), person_id=principal.user_id
    )
    if is_deleted:
        back = "/ui/mine?state=dropped" if back.startswith(f"/ui/mine/{row.name}") else back
        return visit.redirect(back, f"{row.name} is deleted for ever.")
    brings_back = back.partition("?")[0] == f"/ui/mine/{row.name}"  # that page has the button
    return visit.redirect(back, f"{row.name} is forgotten.", undo_own=None if brings_back else row.number)


async def post_undo(visit: Visit) -> Response:
    """Undo the last change of one of your own: an edit, that you forgot it, or a move to the team or from it."""
    back = (await visit.form(BackForm)).back
    return await _change(visit, undo_personal, "is as it was before.", at=back, can_undo=False)


async def post_give(visit: Visit) -> Response:
    """Give one of your own to the team: it is an observation of a project from then on."""
    form = await visit.form(GiveForm)
    if form.project is None:
        raise Invalid.at("$.project", "Choose the project that gets it.")
    project = await visit.dependency(Projects).named_or_own(visit.principal, form.project, at="$.project")
    name, principal = visit.parameter("name"), visit.principal
    row, stored = await visit.db.in_tenant(
        visit.team_id, lambda conn: give_to_team(conn, principal, name, project), person_id=principal.user_id
    )
    return visit.redirect(f"/ui/mine/{row.name}", f"{row.name} is the team's now, as #{stored.number}.", undo_own=row.number)


async def _change(
    visit: Visit,
    change: Callable[[Conn, Principal, str], Awaitable[PersonalObservation]],
    notice: str,
    *,
    at: str | None,
    can_undo: bool = True,
) -> Response:
    """Do it, and come back to the page `at`, with a button that undoes it where it can be undone."""
    name, principal = visit.parameter("name"), visit.principal
    row = await visit.db.in_tenant(visit.team_id, lambda conn: change(conn, principal, name), person_id=principal.user_id)
    offer = row.number if can_undo and row.before is not None else None
    return visit.redirect(visit.way_back(at, f"/ui/mine/{row.name}"), f"{row.name} {notice}", undo_own=offer)


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/mine", get_mine, scope="observations:read"),
    Page("POST", "/ui/mine", post_mine, scope=_WRITE, form_of=get_mine),
    Page("GET", "/ui/mine/{name}", get_own, scope="observations:read"),
    Page("POST", "/ui/mine/{name}/edit", post_edit, scope=_WRITE, form_of=get_own),
    Page("POST", "/ui/mine/{name}/forget", post_forget, scope=_WRITE, form_of=get_own),
    Page("POST", "/ui/mine/{name}/undo", post_undo, scope=_WRITE, form_of=get_own),
    Page("POST", "/ui/mine/{name}/give", post_give, scope=_WRITE, form_of=get_own),
]
