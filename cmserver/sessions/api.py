"""Sessions over HTTP: a list, and one. They start and end through ingest."""

from __future__ import annotations

from cmserver.access import repository as access
from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base import paging
from cmserver.base.columns import Columns
from cmserver.base.structs import reshape
from cmserver.sessions import repository
from cmserver.sessions.read import find_session
from cmserver.sessions.wire import (
    SESSION_LINES,
    ListedSessionOut,
    OneSessionOut,
    OthersWorkOut,
    OthersWorkQuery,
    OthersWorksOut,
    RenameIn,
    SessionOut,
    SessionsOut,
    SessionsQuery,
)
from cmserver.sessions.write import rename_session

_COLUMNS = Columns(
    ListedSessionOut,
    "project, platform=platform_source, title, started, ended, id, agent's id=external_session_id",
    project=lambda session: session.project or session.project_id,
    title=lambda session: session.title or session.first_prompt,
)


@command(
    "sessions list",
    _COLUMNS.page("sessions", "There are no such sessions.", shrink=("project", "title", "agent's id")),
    text="List the team's sessions, newest first. One without a title is shown by its first prompt.",
)
@option("--project", "Only sessions of this project.")
@option("--active", "Only sessions that have not ended.")
@option("--platform", "Only sessions of this kind of agent (claude, codex, ...).", metavar="NAME")
@verb.get("/v1/sessions", "observations:read")
async def get_sessions(call: VerbCall, given: SessionsQuery) -> SessionsOut:
    """A page of sessions, newest first."""
    team_id = call.principal.team_id
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        rows = await repository.newest(
            conn,
            team_id,
            project_id=project_id,
            active=given.active,
            platform_source=given.platform,
            before=before,
            before_id=before_id,
            limit=given.limit + 1,
        )
        page, next_cursor = paging.page(rows, given.limit, lambda session: (session.started_at, session.id))
        names = await access.names_of(conn, team_id, {session.project_id for session in page})
        labels = await repository.labels(conn, team_id, [session.id for session in page])
    first_prompts = {session_id: label.first_prompt for session_id, label in labels.items()}
    sessions = [
        reshape(session, ListedSessionOut, project=names.get(session.project_id), first_prompt=first_prompts.get(session.id))
        for session in call.principal.named(page)
    ]
    return SessionsOut(sessions=sessions, next_cursor=next_cursor)


@command("sessions show", SESSION_LINES.lines("session"), text="Show one session.")
@option("SESSION_ID", field="id")
@verb.get("/v1/sessions/{id}", "observations:read")
async def get_session(call: VerbCall, given: str) -> OneSessionOut:
    """One session."""
    async with call.read() as conn:
        return OneSessionOut(session=reshape(await find_session(conn, call.principal, given), SessionOut))


@verb.patch("/v1/sessions/{id}", "sessions:write")
async def patch_session(call: VerbCall, given: RenameIn) -> OneSessionOut:
    """Give a session a title."""
    session = await call.write(lambda conn: rename_session(conn, call.principal, given.id, given.title))
    return OneSessionOut(session=reshape(session, SessionOut))


_WORK_COLUMNS = Columns(
    OthersWorkOut,
    "by=actor_id, project=project_id, started, files, checks, commits",
    commits=lambda work: ", ".join(work.commits),
)


@command(
    "sessions others",
    _WORK_COLUMNS.page("work", "There is no work of others whose words you may not read.", shrink=("project",)),
    text="List what others did whose words you may not read: how many files they changed, how checks ended, and commits.",
)
@option("--project", "Only of this project.")
@verb.get("/v1/others-work", "observations:read")
async def get_others_work(call: VerbCall, given: OthersWorkQuery) -> OthersWorksOut:
    """A page of what others did whose words the caller may not read, a line for each session, newest first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        rows = await repository.others_work(
            conn, call.principal.team_id, project_id, limit=given.limit + 1, before=before, before_id=before_id
        )
    page, next_cursor = paging.page(call.principal.named(rows), given.limit, lambda work: (work.started_at, work.id))
    return OthersWorksOut(work=[reshape(work, OthersWorkOut) for work in page], next_cursor=next_cursor)


routes = [get_sessions, get_session, patch_session, get_others_work]
