"""Projects by whatever name people use for them: id, canonical id, URL form, alias or name."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import cast
from uuid import UUID

from cmserver.access import announce, audit, repository
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue, NotFound
from cmserver.base.ids import named_id, new_id
from cmserver.base.live import Hub
from cmserver.base.redaction.redact import redact
from cmserver.base.sql import Conn
from cmserver.base.text import KEY_MOST, UNSTORABLE

_REMEMBERED_SECONDS = 30.0
_REMEMBERED = 10_000
_LONGEST = 4096  # a path, or a remote with a token in it: what is left of it counts
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PLACE = re.compile(r"(\[[^\]]*\]|[^:]*):?(.*)", re.DOTALL)
_HOST = re.compile(r"[\w.-]+")
_WORKTREE = re.compile(r"/\.claude/worktrees/[^/]+/?$")
NO_SUCH = "There is no such project."
_NO_NAME = f"A project is named by 1 to {KEY_MOST} characters: its address (github.com/user/repo), a name, or a path."
_UNNAMED = "Say which project is meant, by its id or its canonical id (github.com/user/repo, a name, a path)."


def canonical_id(text: str) -> str:
    """`host/path` for any URL form of a git remote, a path without worktree suffix, or the text itself.

    The host is lower case; credentials, a port, query, fragment, `.git` and trailing slashes go, and so do secrets anywhere.
    """
    text = text.strip()
    if len(text) > _LONGEST or UNSTORABLE.search(text):
        raise Invalid(_NO_NAME)
    canonical = redact(_plain(text))[0].strip()
    if not 0 < len(canonical) <= KEY_MOST:
        raise Invalid(_NO_NAME)
    return canonical


def _plain(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme is not None:
        text = text[scheme.end() :]
        if scheme[0].lower() != "file://":
            return _with_scheme(text)
        text = _without_query(text)
    if text.startswith("/"):
        return _WORKTREE.sub("", text).rstrip("/") or "/"
    return _without_scheme(text) or text


def _with_scheme(text: str) -> str:
    """Of `[user[:password]@]host[:port]/path`."""
    authority, slash, path = text.partition("/")
    host, after = _host_and_rest(authority.rpartition("@")[2])
    if after and not after.isdigit():
        if "@" in path:  # a password with a slash in it
            return _with_scheme(path.rpartition("@")[2])
        path = f"{after}{slash}{path}"
    return _joined(host, path)


def _without_scheme(text: str) -> str | None:
    """Of `user@host:path`, `host.example:path`, `[user@]host[:port]/path`; None when it is none of them."""
    authority, slash, path = text.partition("/")
    user, at, place = authority.rpartition("@")
    host, after = _host_and_rest(_without_query(place))
    if not _HOST.fullmatch(host) or any(map(str.isspace, authority)):
        return None
    is_host = bool(user) or (not at and "." in host.strip("."))  # not the `@acme` of a package's name
    if not is_host or not (slash or after or ":" in user):
        return None
    if "?" in place or "#" in place:
        path = ""
    return _joined(host, path if after.isdigit() and slash else f"{after}{slash}{path}")


def _host_and_rest(place: str) -> tuple[str, str]:
    host, rest = cast("re.Match[str]", _PLACE.match(place)).groups()
    return host, rest


def _joined(host: str, path: str) -> str:
    host = _without_query(host)
    path = _without_query(path).strip("/").removesuffix(".git").strip("/")
    return f"{host.lower()}/{path}" if path else host.lower()


def _without_query(text: str) -> str:
    return text.partition("?")[0].partition("#")[0]


def display_name(canonical: str) -> str:
    """How people call it: the last part of a path or URL."""
    return canonical.rstrip("/").rpartition("/")[2] or canonical


class Projects:
    """Finds and makes projects. One per process.

    It remembers names, since every event names one: for half a minute, until anything of the team changes, and only while this
    process hears of changes.
    """

    def __init__(self, db: Db, hub: Hub) -> None:
        self._db = db
        self._hub = hub
        self._changes = 0
        self._remembered: dict[tuple[UUID, UUID | None, str], tuple[float, Project]] = {}
        hub.on(announce.CHANNEL, self._forget)

    async def find(self, principal: Principal, named: str) -> Project:
        """The project, or NotFound: also when it is another team's, archived, or not the one that the key is bound to."""
        return await self._resolve(principal, named, make=False)

    async def find_or_make(self, principal: Principal, named: str) -> Project:
        """Like `find`, but a canonical id that is new in the team becomes a project. Ids are never made."""
        return await self._resolve(principal, named, make=True)

    async def named_or_own(self, principal: Principal, named: str | None, *, at: str, make: bool = False) -> Project:
        """The project that is named, or else the one that the key is bound to.

        Invalid when there is neither, or the name cannot be one; `at` is the path of the field that names it.
        """
        if named is None:
            if principal.project_id is None:
                raise Invalid(_UNNAMED, [Issue(at, "required")])
            named = str(principal.project_id)
        try:
            return await self._resolve(principal, named, make=make)
        except Invalid as error:
            raise Invalid.at(at, str(error)) from error

    async def within(self, principal: Principal, named: str | None) -> UUID | None:
        """The project that a list is narrowed to: the one that is named, else the key's own; None for the whole team."""
        return principal.project_id if named is None else (await self.named_or_own(principal, named, at="$.project")).id

    async def _resolve(self, principal: Principal, named: str, *, make: bool) -> Project:
        what = (principal.team_id, principal.project_id, named)
        known = self._remembered.get(what)
        if known and known[0] > time.monotonic() and self._hub.listening.is_set():
            return known[1]
        changes = self._changes
        async with self._db.tenant(principal.team_id) as conn:
            project = await find(conn, principal, named)
            if project is None and make and named_id(named) is None:
                project, _ = await make_project(conn, principal, named)
        if project is None:
            raise NotFound(NO_SUCH)
        if self._hub.listening.is_set() and changes == self._changes:  # else it may be out of date already
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[what] = (time.monotonic() + _REMEMBERED_SECONDS, project)
        return project

    def _forget(self, team: str) -> None:
        """What is known of the team, or of all when it is the empty string."""
        self._changes += 1
        self._remembered = {what: known for what, known in self._remembered.items() if team and str(what[0]) != team}


async def find(conn: Conn, principal: Principal, named: str, *, archived: bool = False) -> Project | None:
    """The team's project of that name, whatever form the name has; for a key that is bound to a project, only that one.

    An archived one is found only by its id, and only when that is asked for.
    """
    project_id = named_id(named)
    if project_id is not None:
        if not principal.sees(project_id):
            return None
        return await repository.project(conn, principal.team_id, project_id, archived=archived)
    plain = named.strip()
    return await repository.project_named(conn, principal.team_id, canonical_id(named), only=principal.project_id) or (
        await repository.project_named(conn, principal.team_id, plain, only=principal.project_id)
    )


async def one(conn: Conn, principal: Principal, named: str) -> Project:
    """The project of that name, also an archived one by its id; or NotFound."""
    project = await find(conn, principal, named, archived=True)
    if project is None:
        raise NotFound(NO_SUCH)
    return project


async def make_project(
    conn: Conn,
    principal: Principal,
    named: str,
    *,
    name: str | None = None,
    metadata: Mapping[str, object] | None = None,
    search_language: str = "english",
) -> tuple[Project, bool]:
    """The project of that canonical id, and whether it is new. A key that is bound to one project makes no other."""
    canonical = canonical_id(named)
    found = await find(conn, principal, named)
    if found is not None:
        return found, False
    if principal.project_id is not None:
        raise NotFound(NO_SUCH)
    if not (principal.may("events:write") or principal.may("sessions:write")):
        raise Forbidden("This key may not make a project. Ask an owner of the team for the scope events:write.")
    await repository.lock_names(conn, principal.team_id)
    for taken in await repository.names_taken(conn, principal.team_id, [canonical]):
        if taken.archived:
            raise Conflict(
                f"The project {canonical} is archived. An admin key brings it back: PATCH /v1/projects/{taken.project_id}."
            )
        return await _there(conn, principal, taken.project_id), False
    project_id = new_id()
    if not await repository.insert_project(
        conn, project_id, principal.team_id, canonical, name or display_name(canonical), metadata or {}, search_language
    ):
        raise Conflict(f"The project {canonical} is just being made by somebody else. Try again.")
    await audit.record(conn, principal, "project.created", "project", project_id, project_id=project_id, canonical_id=canonical)
    await announce.changed(conn, principal.team_id)  # a plain name may mean two projects now
    return await _there(conn, principal, project_id), True


async def _there(conn: Conn, principal: Principal, project_id: UUID) -> Project:
    project = await repository.project(conn, principal.team_id, project_id)
    if project is None:
        raise NotFound(NO_SUCH)
    return project
