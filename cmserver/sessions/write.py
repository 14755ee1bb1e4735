"""Makes sessions, and gives them titles."""

from __future__ import annotations

from uuid import UUID

from msgspec import structs
from psycopg import errors

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.access.private import look_inside
from cmserver.base.errors import Conflict, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.redaction.clean import clean
from cmserver.sessions import repository
from cmserver.sessions.model import MAX_TITLE_CHARS, NewSession, Session
from cmserver.sessions.read import find_session


async def find_or_make(
    conn: Conn, team_id: UUID, project_id: UUID, new: NewSession, *, key_id: UUID | None = None, only: UUID | None = None
) -> tuple[Session, bool]:
    """The session with the id that its agent gave it, and whether it is new. An ended one stays so: events may arrive later.

    A hook's session is the one that its agent has begun anywhere in the team, so that it stays in the project of its first call;
    any other is looked for in the project. `key_id` is the project's by whose name it is found, if that one was joined to the
    project (Project.key_id). `only` is the project that the caller's key is bound to.
    """
    key_id = key_id or project_id
    session = await _find(conn, team_id, key_id, new, only)
    if session is not None:
        return session, False
    try:
        made = await repository.insert(conn, new_id(), team_id, project_id, key_id, _of_team(new, only))
    except errors.ForeignKeyViolation as error:  # deleted since it was named
        raise NotFound("Project not found.") from error
    if made is not None:
        return made, True
    session = await _find(conn, team_id, key_id, new, only)
    if session is None:
        raise Conflict("The session is another person's, or was deleted meanwhile. Send the request again.")
    return session, False


async def refuse_private(conn: Conn, principal: Principal, new: NewSession) -> None:
    """Conflict where the caller has a private session with the agent's id: it is not to begin anew before the team's eyes."""
    names = list(filter(None, {new.external_session_id, new.content_session_id}))
    async with look_inside(conn, principal) as inside:
        is_private = inside is not None and bool(names and await repository.named(conn, inside.team_id, names))
    if is_private:
        raise Conflict("This session is private to you. Send the header `X-Cmserver-Private: 1` to go on with it.")


async def _find(conn: Conn, team_id: UUID, key_id: UUID, new: NewSession, only: UUID | None) -> Session | None:
    """The session, if there is one; Conflict when it was moved out of the project that the key is bound to."""
    external_id = new.external_session_id or new.content_session_id
    if external_id is None:
        return None
    session = await repository.by_hook(conn, team_id, external_id, new.platform_source, only=only) if new.from_hooks else None
    session = session or await repository.by_external_id(conn, team_id, key_id, external_id, new.platform_source)
    if session is None:
        return None
    if only not in {None, session.project_id}:
        raise Conflict("The session was moved to another project, which this key may not write to.")
    if _of_team(new, only).from_hooks and not session.from_hooks:
        await repository.adopt(conn, team_id, session.id)
    return session


def _of_team(new: NewSession, only: UUID | None) -> NewSession:
    """Hooks whose key is bound to a project know no session of others, and claim none for the team."""
    return structs.replace(new, from_hooks=new.from_hooks and only is None)


async def rename_session(conn: Conn, principal: Principal, name: str, title: str | None) -> Session:
    """Set the session's title, on one line and redacted; None removes it."""
    session = await find_session(conn, principal, name)
    cleaned = None if title is None else clean_title(title)
    if cleaned == session.title:
        return session
    await audit.record(conn, principal, "session.renamed", "session", session.id, project_id=session.project_id)
    return await repository.rename(conn, principal.team_id, session.id, cleaned)


def clean_title(title: str, *, at: str = "$.title") -> str:
    """The title on one line, redacted; Invalid at `at` when nothing is left."""
    cleaned = " ".join(str(clean(title, field_max_chars=MAX_TITLE_CHARS).value).split())[:MAX_TITLE_CHARS]
    if not cleaned:
        raise Invalid.at(at, "The title is empty. Send a title, or null to remove it.")
    return cleaned
