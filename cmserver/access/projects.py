"""Projects by whatever name people use for them: id, canonical id, URL form, alias or name."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from uuid import UUID

from cmserver.access import audit, repository
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id, parse_id
from cmserver.base.sql import Conn

_REMEMBERED_SECONDS = 30.0
_REMEMBERED = 10_000
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCP = re.compile(r"^(?:[\w.-]+@)?([\w.-]+\.[\w-]+):(?!/*\d+/)(.+)$")
_WORKTREE = re.compile(r"/\.claude/worktrees/[^/]+/?$")
_NO_SUCH = "There is no such project."


def canonical_id(text: str) -> str:
    """`host/path` for any URL form of a git remote, a path without worktree suffix, or the text itself.

    The host is lower case; credentials, a port, `.git` and trailing slashes go.
    """
    text = text.strip()
    if not text or len(text) > 1000 or "\x00" in text:
        raise Invalid("A project is named by 1 to 1,000 characters.")
    if _SCHEME.match(text) and not text.lower().startswith("file://"):
        rest = _SCHEME.sub("", text)
        host, _, path = rest.partition("/")
        host = host.rpartition("@")[2].partition(":")[0]
        return _joined(host, path)
    if text.lower().startswith("file://"):
        text = text[len("file://") :]
    elif scp := _SCP.match(text):
        return _joined(scp[1], scp[2])
    if text.startswith("/"):
        return _WORKTREE.sub("", text).rstrip("/") or "/"
    host, slash, path = text.partition("/")
    if slash and "." in host.strip("."):
        return _joined(host, path)
    return text


def _joined(host: str, path: str) -> str:
    path = path.strip("/").removesuffix(".git").strip("/")
    return f"{host.lower()}/{path}" if path else host.lower()


def display_name(canonical: str) -> str:
    """How people call it: the last part of a path or URL."""
    return canonical.rstrip("/").rpartition("/")[2] or canonical


class Projects:
    """Finds and makes projects; remembers names for half a minute, since every event names one."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._remembered: dict[tuple[UUID, str], tuple[float, Project]] = {}

    def forget(self) -> None:
        self._remembered.clear()

    async def find(self, principal: Principal, named: str) -> Project:
        """The project, or NotFound: also when it is another team's, or not the one that the key is bound to."""
        return await self._resolve(principal, named, make=False)

    async def find_or_make(self, principal: Principal, named: str) -> Project:
        """Like `find`, but a canonical id that is new in the team becomes a project. Ids are never made."""
        return await self._resolve(principal, named, make=True)

    async def _resolve(self, principal: Principal, named: str, *, make: bool) -> Project:
        known = self._remembered.get((principal.team_id, named))
        if known and known[0] > time.monotonic():
            return _allowed(principal, known[1])
        async with self._db.tenant(principal.team_id) as conn:
            project = await find(conn, principal, named)
            if project is None and make and parse_id(named) is None:
                project, _ = await make_project(conn, principal, named)
        if project is None:
            raise NotFound(_NO_SUCH)
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[principal.team_id, named] = (time.monotonic() + _REMEMBERED_SECONDS, project)
        return _allowed(principal, project)


async def find(conn: Conn, principal: Principal, named: str) -> Project | None:
    """The team's project of that name, whatever form the name has."""
    project_id = parse_id(named)
    if project_id is not None:
        return await repository.project(conn, principal.team_id, project_id)
    plain = named.strip()
    return await repository.project_named(conn, principal.team_id, canonical_id(named)) or (
        await repository.project_named(conn, principal.team_id, plain)
    )


async def make_project(
    conn: Conn,
    principal: Principal,
    named: str,
    *,
    name: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> tuple[Project, bool]:
    """The project of that canonical id, and whether it is new. A key that is bound to one project makes no other."""
    canonical = canonical_id(named)
    found = await find(conn, principal, named)
    if found is not None:
        return _allowed(principal, found), False
    if principal.project_id is not None:
        raise NotFound(_NO_SUCH)
    if not (principal.may("events:write") or principal.may("sessions:write")):
        raise Forbidden("This key may not make a project. Ask an owner of the team for the scope events:write.")
    made = await repository.insert_project(
        conn, new_id(), principal.team_id, canonical, name or display_name(canonical), metadata or {}
    )
    if made is None:
        found = await repository.project_named(conn, principal.team_id, canonical)
        if found is None:
            raise NotFound(_NO_SUCH)
        return found, False
    await audit.record(conn, principal, "project.created", "project", made.id, project_id=made.id, canonical_id=canonical)
    return made, True


def _allowed(principal: Principal, project: Project) -> Project:
    if principal.project_id is not None and principal.project_id != project.id:
        raise NotFound(_NO_SUCH)
    return project
