"""Today: what agents did in the last hours, by project, what waits for somebody, and a note to remember."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.store import store_observations
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import (
    BADGES,
    ObservationItem,
    SessionItem,
    list_projects,
    list_sessions,
    names_of_projects,
    observation_line,
)
from cmserver.doors.web.pages.mine import remember_for_visitor
from cmserver.doors.web.pages.server import warn_of_backups
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import JobFilter
from cmserver.models.calls import repository as calls
from cmserver.models.calls.model import BudgetStatus
from cmserver.observations.approval import repository as approvals
from cmserver.observations.model import INSTRUCTION_IMPORTANCE, Observation, ObservationFilter, WrittenScope
from cmserver.observations.plain import one_line
from cmserver.observations.read import list_closed, list_observations, list_summaries
from cmserver.observations.wire import ObservationIn
from cmserver.ops.deployment import read_backups
from cmserver.ops.model_health import describe_wording, read_model_health
from cmserver.ops.provider_pauses import list_providers
from cmserver.pins import repository as pins
from cmserver.steward import repository as steward

_HOURS = 24
_KEPT_RULE = {
    "project": "Agents of the project are told this rule first.",
    "team": "In all projects agents may be told this rule, among what happened; first is only what their own project laid down.",
}
_KEPT_NOTE = "Agents are told this note where it fits."
_MAX_COUNTED = 100
_MAX_ACTS = 50
_MAX_CHANGES = 12
_LISTS = {
    "Decided": "/ui/observations?type=decision",
    "Opened": "/ui/observations?state=open",
    "Closed": "/ui/observations?state=done",
}
_SUMMARY_CHARS = 280
_PARTS = ("completed", "learned", "investigated", "request")
"""Of a summary, the one that says most first."""


class TodayFilters(msgspec.Struct, frozen=True):
    """The filter in the address."""

    project: str | None = None
    running: bool = False
    cursor: str | None = None


class NoteForm(msgspec.Struct, frozen=True):
    """Something to remember."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    project: str | None = None
    kind: Literal["rule", "note"] = "rule"
    scope: WrittenScope = "project"


class TodayItem(SessionItem, frozen=True, kw_only=True):
    """A session, and the newest summary of what was done in it."""

    summary: list[str]
    """Its points."""
    summary_number: int | None


class ProjectDay(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a project, newest first."""

    id: UUID
    name: str
    sessions: list[TodayItem]

    @property
    def running(self) -> int:
        """How many of them have not ended."""
        return sum(item.session.ended_at is None for item in self.sessions)


class DayChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, opened or closed, the last first, and where there is more of it."""

    name: str
    path: str
    lines: list[ObservationItem]


class WaitingWork(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at, and where."""

    text: str
    path: str


async def get_today(visit: Visit) -> Response:
    """What agents did in the last 24 hours, and what waits for you."""
    filters = visit.query(TodayFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    since = datetime.now(UTC) - timedelta(hours=_HOURS)
    async with visit.tenant() as conn:
        projects = await list_projects(conn, principal)
        page, next_cursor = await list_sessions(
            conn, principal, project_id=project_id, running=filters.running, cursor=filters.cursor
        )
        if page and page[-1].session.started_at < since:
            next_cursor = None
        page = [item for item in page if item.session.started_at >= since or item.session.ended_at is None]
        summaries = await list_summaries(conn, principal, [item.session for item in page])
        acts = await steward.automatic_acts(conn, principal.team_id, project_id, _MAX_ACTS)
        changes = await _read_changes(conn, principal, project_id, since) if filters.cursor is None else []
    answers, wording = None, ""
    if principal.may("jobs:read"):
        async with visit.tenant() as conn:
            answers = await read_model_health(conn, visit.dependency(Settings), principal, project_id)
        wording = describe_wording(visit.dependency(Settings), answers)
    waiting = await _find_waiting(visit, project_id)
    return visit.render(
        "today.html",
        title="Today",
        days=_by_project([_today_item(item, summaries.get(item.session.id)) for item in page]),
        waiting=waiting,
        answers=answers,
        wording=wording,
        acts=acts,
        changes=changes,
        badges=BADGES,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def _read_changes(conn: Conn, principal: Principal, project_id: UUID | None, since: datetime) -> list[DayChange]:
    """What was decided, opened and closed since then; nothing that did not happen."""
    decisions, _ = await list_observations(
        conn, principal, ObservationFilter(project_id=project_id, type="decision", without_history=True), limit=_MAX_CHANGES
    )
    opened, _ = await list_observations(conn, principal, ObservationFilter(project_id=project_id, state="open"), limit=_MAX_CHANGES)
    closed = await list_closed(conn, principal, project_id, since, limit=_MAX_CHANGES)
    rows = {
        "Decided": [row for row in decisions if row.created_at >= since and row.state is None],
        "Opened": [row for row in opened if row.created_at >= since],
        "Closed": closed,
    }
    names = await names_of_projects(conn, principal, {row.project_id for found in rows.values() for row in found})
    changes = [
        DayChange(name=name, path=_LISTS[name], lines=[observation_line(principal, row, names) for row in found])
        for name, found in rows.items()
    ]
    return [change for change in changes if change.lines]


def _summary_lines(text: str) -> list[str]:
    """The points of a summary, as many as there is room for; one line of a text without points."""
    lines = [line.strip().removeprefix("- ") for line in text.splitlines() if line.strip()]
    shown, left = list[str](), _SUMMARY_CHARS
    for line in lines:
        if shown and left < len(line):
            break
        shown.append(one_line(line, _SUMMARY_CHARS))
        left -= len(line)
    return shown


def _today_item(item: SessionItem, summary: Observation | None) -> TodayItem:
    """The session with the part of its summary that says most."""
    parts = (summary.summary or {}) if summary else {}
    text = next((text for name in _PARTS if (text := parts.get(name))), summary.content if summary else None)
    return TodayItem(
        session=item.session,
        label=item.label,
        project=item.project,
        who=item.who,
        summary=_summary_lines(text) if text else [],
        summary_number=summary.number if summary else None,
    )


def _by_project(items: Sequence[TodayItem]) -> list[ProjectDay]:
    """The project with the newest session first."""
    days: dict[UUID, list[TodayItem]] = {}
    for item in items:
        days.setdefault(item.session.project_id, []).append(item)
    return [ProjectDay(id=project_id, name=of_project[0].project, sessions=of_project) for project_id, of_project in days.items()]


async def _find_waiting(visit: Visit, project_id: UUID | None) -> list[WaitingWork]:
    """What somebody should look at, in the project or the whole team."""
    principal, found = visit.principal, list[WaitingWork]()
    sees_jobs = principal.may("jobs:read")
    async with visit.tenant() as conn:
        suggestions = await consolidation.suggestions(
            conn, principal.team_id, project_id=project_id, status="open", limit=_MAX_COUNTED + 1
        )
        failed = held = 0
        if sees_jobs:
            criteria = JobFilter(project_id=project_id, status="failed")
            failed = await queue.count(conn, principal.team_id, criteria, _MAX_COUNTED + 1)
            held = len(await queue.lanes(conn, principal.team_id, project_id=project_id, state="held", limit=_MAX_COUNTED + 1))
        budgets = await calls.budget_statuses(conn, principal.team_id, project_id=project_id)
        broken = await pins.count_broken(conn, principal.team_id, project_id)
        rules = await approvals.waiting(conn, principal.team_id, project_id or principal.project_id)
    if rules.waiting:
        waits = f"{plural(rules.waiting, 'rule')} wait{'s' if rules.waiting == 1 else ''} for a yes"
        text = f"{waits}, {'' if rules.waiting == 1 else 'the oldest '}for {plural(round(rules.oldest_days), 'day')}"
        found.append(WaitingWork(text=text, path="/ui/review/rules"))
    if rules.expired:
        text = f"{plural(rules.expired, 'rule')} got no answer in time, and can still be approved"
        found.append(WaitingWork(text=text, path="/ui/review/rules?state=expired"))
    for count, noun, what, path in (
        (len(suggestions), "pair", "to review", "/ui/review"),
        (broken, "pin", "broken", "/ui/pins?broken=true"),
        (failed, "job", "failed", "/ui/jobs?status=failed"),
        (held, "session", "held by a pause, a back-off or a budget", "/ui/jobs/lanes?state=held"),
    ):
        if count:
            more = "more than " if count > _MAX_COUNTED else ""
            found.append(WaitingWork(text=f"{more}{plural(min(count, _MAX_COUNTED), noun)} {what}", path=path))
    if sees_jobs:
        providers = await list_providers(visit.db, principal, visit.dependency(Settings))
        paused = [provider.name for provider in providers if provider.pause]
        found += [WaitingWork(text=f"The provider {name} is paused", path="/ui/jobs/providers") for name in paused]
    if visit.is_operator:
        warning = warn_of_backups(await asyncio.to_thread(read_backups, visit.dependency(Settings).backup_folder))
        found += [WaitingWork(text=warning.removesuffix("."), path="/ui/server#backups")] if warning else []
    found += [WaitingWork(text=_budget_sentence(budget), path="/ui/costs/budgets") for budget in budgets if budget.state != "open"]
    return found


def _budget_sentence(budget: BudgetStatus) -> str:
    """Whose budget it is, and how far it is spent."""
    whose = f"the project {budget.project}" if budget.project else "the team"
    return f"The {budget.period}'s budget of {whose} is {'spent' if budget.state == 'exhausted' else 'nearly spent'}"


async def post_note(visit: Visit) -> Response:
    """Store a rule, which stands with what users laid down, or a note; for its project, the whole team, or you alone."""
    form = await visit.form(NoteForm)
    if form.scope == "user":
        own, is_new = await remember_for_visitor(visit, form.text, form.kind)
        notice = f"Stored as {own.name}, for you alone." if is_new else f"{own.name} says that already."
        new = own.number if is_new else None
        return visit.redirect("/ui", notice, undo_new=new, is_own=True, project=form.project)
    if form.project is None:
        raise Invalid.at("$.project", "Choose the project.")
    note = ObservationIn(project_id=form.project, content=form.text, scope=form.scope, type="discovery")
    rule = msgspec.structs.replace(note, type="decision", importance=INSTRUCTION_IMPORTANCE)
    (result,) = await store_observations(
        visit.db,
        visit.dependency(Projects),
        visit.dependency(QueryEmbedder),
        visit.principal,
        [rule if form.kind == "rule" else note],
        size_bytes=len(form.text),
    )
    number = result.observation.number
    kept = _KEPT_RULE[form.scope] if form.kind == "rule" else _KEPT_NOTE
    if result.action == "held":
        return visit.redirect("/ui/review/rules", f"#{number} waits for a person's yes. Until then it is told to nobody.")
    is_new = result.action == "created"
    notice = f"Kept as #{number}. {kept}" if is_new else f"#{number} says that already."
    return visit.redirect(f"/ui/observations/{number}", notice, undo_new=number if is_new else None)


routes = [
    Page("GET", "/ui", get_today, scope="observations:read"),
    Page("POST", "/ui/notes", post_note, scope="observations:write", form_of=get_today),
]
