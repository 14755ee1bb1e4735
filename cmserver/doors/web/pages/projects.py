"""Projects: a list, one with its activity and names, its preferences, and what the next session would be told."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Meta, structs
from starlette.responses import Response

from cmserver.access import announce, change_project, projects
from cmserver.access import model as access_model
from cmserver.access import repository as access
from cmserver.access.change_project import ProjectChange
from cmserver.access.clean import Name, clean_name, clean_policy
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text, split_lines
from cmserver.consolidation import review
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import BADGES, PastQuery, list_projects, named_apart
from cmserver.doors.web.pages.sessions import REASONS
from cmserver.doors.web.retention_form import RetentionForm, usual_values
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.graph.overviews.make import make_overview, read_overview
from cmserver.graph.overviews.model import Overview
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.ingest.door import resolve_policy
from cmserver.ops.activity.read import NEWEST, read_activity
from cmserver.ops.joining.join import join_projects, separate_projects
from cmserver.recall.context import render_requested_context
from cmserver.recall.model import ContextBudget, Index, SessionStart
from cmserver.recall.wire import ContextQuery, explained_out
from cmserver.retention.model import RetentionDefaults
from cmserver.sessions import repository as sessions

_PAGE = 50
_LEFT_OUT = 20
"""So many lines of what had no room, and of what is closed."""
_NEWEST_SESSIONS = 50
STARTS: tuple[SessionStart, ...] = ("startup", "resume", "clear", "compact", "fork")
OMISSIONS = {
    "budget": "there is no room in the budget",
    "limit": "the limit of lines is reached",
    "shown": "the session has it already",
    "duplicate": "another line has nearly the same title",
    "done": "it is done",
    "dropped": "it no longer holds",
}


def project_path(project: access_model.Project) -> str:
    """The page of the project: an archived one is found by its id only."""
    return f"/ui/projects/{quote(str(project.id) if project.archived_at else project.canonical_id, safe='')}"


class ProjectsPageQuery(msgspec.Struct, frozen=True):
    """Which ones, in the address."""

    archived: bool = False
    cursor: str | None = None


async def get_projects(visit: Visit) -> Response:
    """The projects of the team, newest first."""
    filters = visit.query(ProjectsPageQuery)
    before, before_id = paging.place(filters.cursor)
    async with visit.tenant() as conn:
        rows = await access.projects(
            conn,
            visit.team_id,
            only=visit.principal.project_id,
            archived=filters.archived,
            before=before,
            before_id=before_id,
            limit=_PAGE + 1,
        )
        page, next_cursor = paging.page(rows, _PAGE, lambda project: (project.created_at, project.id))
        page = await named_apart(conn, page)
    return visit.render(
        "projects.html",
        title="Projects that are not recorded" if filters.archived else "Projects",
        projects=[(project, project_path(project)) for project in page],
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
        may_make=visit.may("events:write") and visit.principal.project_id is None,
    )


class NewProjectForm(msgspec.Struct, frozen=True):
    """The canonical id of a project, and a short name for it."""

    canonical_id: Key
    name: Name | None = None


async def post_project(visit: Visit) -> Response:
    """Make a project."""
    form = await visit.form(NewProjectForm)
    name = clean_name(form.name, at="$.name") if form.name else None
    try:
        project, is_new = await visit.db.in_tenant(
            visit.team_id, lambda conn: projects.make_project(conn, visit.principal, form.canonical_id, name=name)
        )
    except Invalid as error:
        raise Invalid.at("$.canonical_id", str(error)) from error
    return visit.redirect(project_path(project), "The project is made." if is_new else "It was there already.")


async def get_project(visit: Visit) -> Response:
    """One project: what went on in the last 30 days, which kinds and files, its names, and the way to stop recording."""
    async with visit.tenant() as conn:
        project = await _require_named(conn, visit)
        retention = await access.retention_of(conn, visit.team_id, project.id)
        activity = await read_activity(conn, visit.principal, str(project.id))
        overview = await read_overview(conn, visit.principal, project.id)
        suggestions, _ = await review.list_suggestions(conn, visit.principal, project_id=project.id, status="open", limit=1)
        others = [other for other in await list_projects(conn, visit.principal) if other.id != project.id]
        joined = await _joined_projects(conn, visit, project)
        target = await projects.require_project(conn, visit.principal, str(project.joined_to)) if project.joined_to else None
        (target,) = await named_apart(conn, [target]) if target else (None,)
    return visit.render(
        "project.html",
        title=project.name,
        project=project,
        path=project_path(project),
        overview=_overview_sections(overview) if overview else [],
        overview_made_at=overview.made_at if overview else None,
        activity=activity,
        kept_days=retention.observations_days or RetentionDefaults().observations_days,
        usual=_find_usual(project, visit.dependency(Settings)),
        bars=[(day.day, day.observations, plural(day.observations, "observation")) for day in activity.days],
        newest=NEWEST,
        has_suggestions=bool(suggestions),
        others=others,
        joined=joined,
        target=target,
        target_path=project_path(target) if target else "",
        badges=BADGES,
        may_change=visit.may("admin"),
        may_write=visit.may("observations:write"),
        may_name=visit.may("admin") and visit.principal.project_id is None,
    )


def _overview_sections(overview: Overview) -> list[OverviewSection]:
    """The parts of the page below their headings. What a model has written in another form is one part."""
    sections: list[OverviewSection] = []
    for line in overview.body.splitlines():
        if line.startswith("## "):
            sections.append(OverviewSection(heading=line.removeprefix("## ")))
        elif line.strip() and not line.startswith("# "):
            if not sections:
                sections.append(OverviewSection(heading="Overview"))
            sections[-1].lines.append(line.removeprefix("- "))
    return [section for section in sections if section.lines]


async def post_overview(visit: Visit) -> Response:
    """Make the overview of a project anew."""
    async with visit.tenant() as conn:
        project = await _require(conn, visit)
    await make_overview(visit.db, visit.dependency(OverviewWriter), visit.principal, str(project.id))
    return visit.redirect(project_path(project), "The overview is made anew.")


async def _require(conn: Conn, visit: Visit) -> access_model.Project:
    return await projects.require_project(conn, visit.principal, visit.parameter("project"))


async def _require_named(conn: Conn, visit: Visit) -> access_model.Project:
    """The same, by the name that tells it from others."""
    (project,) = await named_apart(conn, [await _require(conn, visit)])
    return project


async def _joined_projects(conn: Conn, visit: Visit, project: access_model.Project) -> list[access_model.Project]:
    """The projects that were joined to it."""
    if visit.principal.project_id is not None:
        return []
    return [other for other in await list_projects(conn, visit.principal, archived=True) if other.joined_to == project.id]


class OverviewSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the overview."""

    heading: str
    lines: list[str] = []


class PreviewQuery(PastQuery, frozen=True, kw_only=True):
    """How the session starts, and files that its branch changes, with commas between them."""

    source: Literal["startup", "resume", "clear", "compact", "fork"] = "startup"
    files: Annotated[Text, Meta(max_length=5_000)] | None = None


async def get_preview(visit: Visit) -> Response:
    """What the next session of the project would be told, word by word, with the reason and the cost of each line."""
    filters = visit.query(PreviewQuery)
    async with visit.tenant() as conn:
        project = await _require_named(conn, visit)
        told_to = await _whose_agent(conn, visit.principal, project.id)
    query = ContextQuery(
        project=str(project.id),
        source=filters.source,
        changed_files=filters.files,
        explain=True,
        as_of=filters.true_at,
        known_at=filters.known_at,
    )
    context = await render_requested_context(
        visit.db, visit.dependency(Projects), visit.dependency(ContextBudget), visit.principal, query, told_to=told_to
    )
    index = explained_out(context.index or Index())
    lines = sum(line.line_tokens for line in index.lines)
    closed = [line for line in index.left_out if line.left_out in {"done", "dropped"}]
    without_room = [line for line in index.left_out if line.left_out not in {"done", "dropped"}]
    return visit.render(
        "project_preview.html",
        title=f"Next session of {project.name}",
        project=project,
        path=project_path(project),
        context=context,
        told_to=told_to,
        index=index,
        left_out=[*without_room[:_LEFT_OUT], *closed[:_LEFT_OUT]],
        line_tokens=lines,
        frame_tokens=max(0, context.tokens - lines),
        filters=filters,
        starts=[(start, REASONS[start]) for start in STARTS],
        omissions=OMISSIONS,
        titles={line.number: line.title for line in index.lines},
        badges=BADGES,
    )


async def _whose_agent(conn: Conn, principal: access_model.Principal, project_id: UUID) -> str | None:
    """Who began the newest session of the project; None where the visitor has one among the newest, or nobody has any."""
    newest = await sessions.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        active=None,
        platform_source=None,
        before=None,
        before_id=None,
        limit=_NEWEST_SESSIONS,
    )
    actors = [name for session in newest if (name := principal.name_of(session.actor_id))]
    return None if principal.actor_id in actors else next(iter(actors), None)


async def get_settings(visit: Visit) -> Response:
    """The preferences of a project: what is recorded and when, how long what is kept, what becomes of repeats."""
    async with visit.tenant() as conn:
        project = await _require(conn, visit)
        called = await _require_named(conn, visit)
        retention = await access.retention_of(conn, visit.team_id, project.id)
    return visit.render(
        "project_settings.html",
        title=f"Preferences of {called.name}",
        project=project,
        called=called.name,
        usual=_find_usual(project, visit.dependency(Settings)),
        usual_retention=usual_values(retention),
        path=project_path(project),
        languages=access_model.SEARCH_LANGUAGES,
    )


def _find_usual(project: access_model.Project, settings: Settings) -> dict[str, object]:
    """What holds where the project says nothing."""
    silent = structs.replace(project, policy=access_model.GenerationPolicy())
    policy = resolve_policy(silent, settings.generation_debounce_seconds)
    verbosity = project.team_policy.verbosity or settings.verbosity
    return {"mode": policy.mode, "debounce_seconds": policy.debounce_seconds, "verbosity": verbosity}


class SettingsForm(msgspec.Struct, frozen=True, kw_only=True):
    """Recording preferences. Lists stand one on a line; what is empty is as the team or the server says."""

    name: Name
    mode: Literal["per_event", "burst", "at_end"] | None = None
    debounce_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    verbosity: Literal["minimal", "normal", "verbose"] | None = None
    language: Annotated[Text, Meta(min_length=2, max_length=40)] | None = None
    skip_rules: Text = ""
    skip_tools: Text = ""
    skip_event_types: Text = ""
    consolidation: access_model.Consolidation = "suggest"
    merge_with_model: bool = False
    isolated: bool = False
    search_language: access_model.SearchLanguage = "english"


async def post_settings(visit: Visit) -> Response:
    """Set what is recorded of a project, and when."""
    form = await visit.form(SettingsForm)
    policy = {
        "mode": form.mode,
        "debounceSeconds": form.debounce_seconds,
        "verbosity": form.verbosity,
        "language": form.language,
        "skipRules": split_lines(form.skip_rules),
        "skipTools": split_lines(form.skip_tools),
        "skipEventTypes": split_lines(form.skip_event_types),
    }
    change = ProjectChange(
        name=clean_name(form.name, at="$.name"),
        policy=clean_policy(convert(policy, access_model.GenerationPolicy, at="$.generationPolicy")),
        consolidation=form.consolidation,
        merge_with_model=form.merge_with_model,
        isolated=form.isolated,
        search_language=form.search_language,
    )
    project = await _change(visit, change)
    return visit.redirect(f"{project_path(project)}/settings", "The preferences are saved.")


async def post_retention(visit: Visit) -> Response:
    """Set how long what of a project is kept."""
    form = await visit.form(RetentionForm)
    project = await _change(visit, ProjectChange(retention=form.policy))
    return visit.redirect(f"{project_path(project)}/settings", "Retention is saved.")


async def _change(visit: Visit, change: ProjectChange) -> access_model.Project:
    reference = visit.parameter("project")
    project = await visit.db.in_tenant(visit.team_id, lambda conn: change_project.change(conn, visit.principal, reference, change))
    _forget(visit)
    return project


def _forget(visit: Visit) -> None:
    """Drop this process's cached projects of the team before it answers; the others drop them when notified."""
    announce.drop_cached_here(visit.dependency(NotificationListener), visit.team_id)


class AliasForm(msgspec.Struct, frozen=True):
    """Another name of the project."""

    alias: Key


async def post_alias(visit: Visit) -> Response:
    """Add another name of a project."""
    form = await visit.form(AliasForm)
    project = await _change_aliases(visit, add=form.alias)
    return visit.redirect(project_path(project), "The name is added.")


async def post_alias_removal(visit: Visit) -> Response:
    """Remove another name of a project."""
    form = await visit.form(AliasForm)
    project = await _change_aliases(visit, remove=form.alias)
    return visit.redirect(project_path(project), f"{form.alias} is no name of it any more.")


async def _change_aliases(visit: Visit, *, add: str | None = None, remove: str | None = None) -> access_model.Project:
    async def act(conn: Conn) -> access_model.Project:
        project = await _require(conn, visit)
        aliases = [alias for alias in project.aliases if alias != remove] + ([add] if add else [])
        try:
            return await change_project.change(conn, visit.principal, str(project.id), ProjectChange(aliases=aliases))
        except Invalid as error:
            raise Invalid.at("$.alias", str(error)) from error

    project = await visit.db.in_tenant(visit.team_id, act)
    _forget(visit)
    return project


class JoinForm(msgspec.Struct, frozen=True):
    """The project that gets the memory."""

    into: Key


async def post_join(visit: Visit) -> Response:
    """Join a project to another one that is the same, which gets its memory and its names."""
    form = await visit.form(JoinForm)
    project = await join_projects(visit.db, visit.principal, visit.parameter("project"), form.into)
    _forget(visit)
    return visit.redirect(project_path(project), "Joined: this project has the memory and the names of both.")


async def post_separate(visit: Visit) -> Response:
    """Separate a joined project again."""
    project = await separate_projects(visit.db, visit.principal, visit.parameter("project"))
    _forget(visit)
    return visit.redirect(project_path(project), "Separated: it has its memory and its names back.")


async def post_stop(visit: Visit) -> Response:
    """Stop recording a project: it takes no events and is not recalled; nothing is deleted."""
    project = await _change(visit, ProjectChange(archived=True))
    return visit.redirect(project_path(project), "Nothing is recorded any more.")


async def post_resume(visit: Visit) -> Response:
    """Record a project again."""
    project = await _change(visit, ProjectChange(archived=False))
    return visit.redirect(project_path(project), "It is recorded again.")


_READ, _ADMIN = "observations:read", "admin"
_ONE = "/ui/projects/{project:path}"

routes = [
    Page("GET", "/ui/projects", get_projects, scope=_READ),
    Page("POST", "/ui/projects", post_project, scope="events:write", form_of=get_projects),
    Page("GET", f"{_ONE}/preview", get_preview, scope=_READ),
    Page("GET", f"{_ONE}/settings", get_settings, scope=_ADMIN),
    Page("POST", f"{_ONE}/settings", post_settings, scope=_ADMIN, form_of=get_settings),
    Page("POST", f"{_ONE}/retention", post_retention, scope=_ADMIN, form_of=get_settings),
    Page("POST", f"{_ONE}/aliases", post_alias, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/remove-alias", post_alias_removal, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/join", post_join, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/separate", post_separate, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/stop", post_stop, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/resume", post_resume, scope=_ADMIN, form_of=get_project),
    Page("POST", f"{_ONE}/overview", post_overview, scope="observations:write", form_of=get_project),
    Page("GET", _ONE, get_project, scope=_READ),
]
