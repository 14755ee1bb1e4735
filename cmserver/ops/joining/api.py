"""Joining projects over HTTP."""

from __future__ import annotations

import msgspec

from cmserver.access import verb
from cmserver.access.verb import VerbCall, command, option
from cmserver.access.wire import OneProjectOut, project_out, render_project
from cmserver.base.db import Db
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.ops.joining.join import join_projects, separate_projects
from cmserver.ops.joining.move_session import move_session
from cmserver.sessions.wire import SESSION_LINES, OneSessionOut, SessionOut


class ProjectJoinIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`into` is the project that gets the memory of the one in the path, by any of its names."""

    project: str
    into: Key


class SessionMoveIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`into` is the project that gets the session, by any of its names."""

    id: str
    into: Key


@command(
    "projects join",
    render_project,
    text="""Join a project to another one that is the same: INTO gets all its memory, and its names.

    `cmserver projects separate` undoes it.
    """,
    confirm=lambda typed: f"Give all the memory of {typed['project']} to {typed['into']}?",
)
@option("PROJECT")
@option("INTO")
@verb.post("/v1/projects/{project:path}/join", "admin")
async def post_join(call: VerbCall, given: ProjectJoinIn) -> OneProjectOut:
    """Join a project to another one, which gets all its memory and its names; the answer is that one."""
    project = await join_projects(call.dependency(Db), call.principal, given.project, given.into)
    call.drop_cached()
    return OneProjectOut(project=project_out(project))


@command(
    "projects separate",
    render_project,
    text="""Separate a joined project, named by its id (`cmserver projects list --archived`): it gets its memory back.

    What came under its names since goes along. Such a project is not joined by itself any more.

    A project that has taken its folder's new name by itself is called by its folder again.
    """,
)
@verb.post("/v1/projects/{project:path}/separate", "admin")
async def post_separate(call: VerbCall, given: str) -> OneProjectOut:
    """Separate a joined project, named by its id: it gets its memory back, and what came under its names since.

    A project that has taken its folder's new name by itself is called by its folder again.
    """
    project = await separate_projects(call.dependency(Db), call.principal, given)
    call.drop_cached()
    return OneProjectOut(project=project_out(project))


@command(
    "sessions move",
    SESSION_LINES.lines("session"),
    text="Move a session with all that was drawn from it to another project.",
    confirm=lambda typed: f"Move the session {typed['session_id']} with all that was drawn from it to {typed['project']}?",
)
@option("SESSION_ID", field="id")
@option("PROJECT", field="into")
@verb.post("/v1/sessions/{id}/move", "admin")
async def post_move(call: VerbCall, given: SessionMoveIn) -> OneSessionOut:
    """Move a session with all that was drawn from it to another project.

    What is sent again under its old project is still known.
    """
    session = await move_session(call.dependency(Db), call.principal, given.id, given.into)
    return OneSessionOut(session=reshape(session, SessionOut))


routes = [post_move, post_join, post_separate]
