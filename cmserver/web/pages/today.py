"""Today: what agents did in the last hours, by project, what waits for somebody, and a note to remember."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.calls import repository as calls
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.store import store_observations
from cmserver.generation.operate import repository as jobs
from cmserver.observations.model import ObservationType
from cmserver.observations.wire import ObservationIn
from cmserver.recall.search.query_embedder import QueryEmbedder
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session, SessionLabel
from cmserver.sessions.read import audit_prompt_read
from cmserver.web.page import Page
from cmserver.web.templates import plural
from cmserver.web.visit import Visit

_HOURS = 24
_PAGE = 50
_MAX_PROJECTS = 200
_MAX_SUGGESTIONS = 100


class TodayFilters(msgspec.Struct, frozen=True):
    """The filter in the address."""

    project: str | None = None
    running: bool = False
    cursor: str | None = None


class NoteForm(msgspec.Struct, frozen=True):
    """Something to remember."""

    project: str
    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    type: ObservationType = "discovery"


class ShownSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the page shows it."""

    session: Session
    label: str
    project: str


class WaitingWork(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at, and where."""

    text: str
    path: str


async def get_today(visit: Visit) -> Response:
    """What agents did in the last 24 hours, and what waits for you."""
    filters = visit.query(TodayFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    before, before_id = paging.place(filters.cursor)
    since = datetime.now(UTC) - timedelta(hours=_HOURS)
    async with visit.tenant() as conn:
        projects = await access.projects(
            conn, principal.team_id, only=principal.project_id, archived=False, before=None, before_id=None, limit=_MAX_PROJECTS
        )
        rows = await sessions.newest(
            conn,
            principal.team_id,
            project_id=project_id,
            active=True if filters.running else None,
            platform_source=None,
            before=before,
            before_id=before_id,
            limit=_PAGE + 1,
        )
        page, next_cursor = paging.page(rows, _PAGE, lambda session: (session.started_at, session.id))
        if page and page[-1].started_at < since:
            next_cursor = None
        page = [session for session in page if session.started_at >= since or session.ended_at is None]
        labels = await sessions.labels(conn, principal.team_id, [session.id for session in page])
        await audit_prompt_read(conn, principal, project_id, sum(1 for label in labels.values() if label.first_prompt))
        waiting = await _find_waiting(visit, conn, project_id)
    names = {project.id: project.name for project in projects}
    shown = [_shown(session, labels.get(session.id), names) for session in page]
    return visit.render(
        "today.html",
        title="Today",
        sessions=shown,
        waiting=waiting,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def _find_waiting(visit: Visit, conn: Conn, project_id: UUID | None) -> list[WaitingWork]:
    """What somebody should look at, in the project or the whole team."""
    principal = visit.principal
    found: list[WaitingWork] = []
    suggestions = await consolidation.suggestions(
        conn, principal.team_id, project_id=project_id, status="open", limit=_MAX_SUGGESTIONS + 1
    )
    if suggestions:
        more = "more than " if len(suggestions) > _MAX_SUGGESTIONS else ""
        count = min(len(suggestions), _MAX_SUGGESTIONS)
        found.append(WaitingWork(text=f"{more}{plural(count, 'suggestion')} to merge", path="/ui/review"))
    if principal.may("jobs:read"):
        counts = await jobs.queue_counts(conn, principal.team_id, project_id)
        if counts.failed:
            found.append(WaitingWork(text=f"{plural(counts.failed, 'job')} failed", path="/ui/jobs?status=failed"))
        if counts.held:
            found.append(
                WaitingWork(text=f"{plural(counts.held, 'job')} held by a back-off or a pause of the provider", path="/ui/jobs")
            )
    budgets = await calls.budget_statuses(conn, principal.team_id, project_id=project_id)
    found += [
        WaitingWork(text=f"The budget of the {budget.period} is {budget.state}", path="/ui/costs")
        for budget in budgets
        if budget.state != "open"
    ]
    return found


def _shown(session: Session, label: SessionLabel | None, names: dict[UUID, str]) -> ShownSession:
    text = (label.title or label.first_prompt) if label else None
    return ShownSession(session=session, label=text or "Session without a prompt", project=names.get(session.project_id, ""))


async def post_note(visit: Visit) -> Response:
    """Store something to remember, as an observation by hand."""
    form = await visit.form(NoteForm)
    (result,) = await store_observations(
        visit.db,
        visit.dependency(Projects),
        visit.dependency(QueryEmbedder),
        visit.principal,
        [ObservationIn(project_id=form.project, content=form.text, type=form.type)],
        field_max_chars=visit.dependency(Settings).field_max_chars,
        size_bytes=len(form.text),
    )
    number = result.observation.number
    notice = f"Stored as {number}." if result.action == "created" else f"{number} says that already."
    return visit.redirect("/ui", notice, project=form.project)


routes = [
    Page("GET", "/ui", get_today, scope="observations:read"),
    Page("POST", "/ui/notes", post_note, scope="observations:write", form_of=get_today),
]
