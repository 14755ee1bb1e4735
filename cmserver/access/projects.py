"""Finds projects by id, canonical id, URL, alias or name, and makes them."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import cast
from uuid import UUID

from cmserver.access import announce, audit, repository
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue, NotFound
from cmserver.base.ids import named_id, new_id
from cmserver.base.lookalikes import clean_name
from cmserver.base.notifications import NotificationListener, TeamCache
from cmserver.base.sql import Conn
from cmserver.base.text import KEY_MOST, UNSTORABLE
from cmserver.redaction.redact import redact

_CACHE_SECONDS = 30.0
_MAX_CHARS = 4096  # before secrets and credentials are removed
_HASH_CHARS = 16
_ROUNDS = 5
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""One letter is a drive."""
_PLACE = re.compile(r"(\[[^\]]*\]|[^:]*):?(.*)", re.DOTALL)
_HOST = re.compile(r"[\w.-]+")
_MAX_SUGGESTED = 3
_MIN_LIKENESS = 0.6
_MAX_COMPARED = 200
"""Projects, the newest ones, whose names are compared with one that was not found."""
_MAX_COMPARED_CHARS = 60
_WORKTREES = re.compile(r"(?>(?:/+\.claude/worktrees/+[^/]++)+)/*$")
_SLASHES = re.compile(r"/{2,}")
_CASELESS_HOSTS = ("github.com/", "gitlab.com/", "bitbucket.org/", "dev.azure.com/")
"""Hosts that ignore the case of paths."""
_SECOND_HOSTS = {
    "www.github.com": "github.com",
    "ssh.github.com": "github.com",
    "www.gitlab.com": "gitlab.com",
    "altssh.gitlab.com": "gitlab.com",
    "www.bitbucket.org": "bitbucket.org",
    "altssh.bitbucket.org": "bitbucket.org",
    "www.codeberg.org": "codeberg.org",
    "www.dev.azure.com": "dev.azure.com",
}
"""Official second addresses of large hosts, which serve the same repositories (for networks that close port 22, say)."""
_SECRET_QUERY = re.compile(r"\?(?:[^?#]*&)?\w*(?:token|secret|passw|key|auth|credential|signature)\w*=.*", re.IGNORECASE)
"""What some write behind the address of any form; elsewhere a question mark is part of a path."""
_AZURE_SSH = re.compile(r"(?:ssh\.dev\.azure\.com|vs-ssh\.visualstudio\.com)/v3/([^/]+)/([^/]+)/([^/]+)")
_AZURE_OLD = re.compile(r"([\w-]+)\.visualstudio\.com/(?:DefaultCollection/)?(?:([^/]+)/)?_git/([^/]+)", re.IGNORECASE)
_AZURE_SHORT = re.compile(r"dev\.azure\.com/([^/]+)/_git/([^/]+)")
_SITES = {host.rstrip("/") for host in _CASELESS_HOSTS} | set(_SECOND_HOSTS)
_WEB_SCHEMES = {"http://", "https://"}
"""Addresses with these may have a query and a fragment; in any other one, # and ? are part of the path."""
_WINDOWS_PATH = re.compile(r"/*([a-z]):(?=[\\/]|$)|\\\\(?=[^\\])", re.IGNORECASE)
"""The beginning of a path with a drive letter, or of one on another computer (`\\\\server\\share`)."""
_GIT_FOLDERS = {".git", ".bare"}
"""What the folder of a bare repository is called within that of its project."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
NO_SUCH = "Project not found."
_NO_NAME = f"A project's name has 1 to {KEY_MOST} characters: an address (github.com/user/repo), a name, or a path."
_NO_PROJECT_NAMED = "Name a project, by its id or its canonical id (github.com/user/repo, a name, a path)."


class ProjectNotFound(NotFound):
    """No project has that name, or none that the key may see."""


def canonical_id(text: str) -> str:
    """`host/path` for any URL form of a git remote, a path without worktree suffix, or the text itself; as people see it.

    The host is lower case, and so is the path on hosts that ignore its case; credentials, a port, `.git` and trailing slashes go,
    so do a web address's query and fragment, and secrets anywhere. A path of Windows has a drive letter in upper case, and slashes.
    A path that is too long for a key ends in a hash of the whole.
    """
    return _fold_case(_cased_id(text))


def _cased_id(text: str) -> str:
    """The canonical id in its original case, as older projects have it."""
    if len(text) > 2 * _MAX_CHARS or UNSTORABLE.search(text):
        raise Invalid(_NO_NAME)
    return _canonicalize(clean_name(text))


def _fold_case(canonical: str) -> str:
    return canonical.translate(_LOWER) if canonical.startswith(_CASELESS_HOSTS) else canonical


def _canonicalize(text: str) -> str:
    text = text.strip()
    if len(text) > _MAX_CHARS:
        raise Invalid(_NO_NAME)
    for _ in range(_ROUNDS):  # until it is its own: names that are stored are read anew
        address, text = text, _name_once(_strip_url(text)).strip()
        if text == address:
            break
    canonical = redact(text)[0].strip()
    if is_path(canonical) and len(canonical) > KEY_MOST:
        canonical = f"{canonical[: KEY_MOST - _HASH_CHARS - 1]}-{hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_CHARS]}"
    if not 0 < len(canonical) <= KEY_MOST:
        raise Invalid(_NO_NAME)
    return canonical


def is_path(canonical: str) -> bool:
    """Whether the project is called by its folder."""
    return canonical.startswith("/") or _WINDOWS_PATH.match(canonical) is not None


def _name_once(address: str) -> str:
    """The address of a large host as that host gives it first."""
    host, slash, path = address.partition("/")
    address = _SECOND_HOSTS.get(host, host) + slash + path
    if found := _AZURE_SSH.fullmatch(address):
        return "dev.azure.com/{}/{}/_git/{}".format(*found.groups())
    if found := _AZURE_OLD.fullmatch(address):
        organisation, project, repository = found.groups()
        return f"dev.azure.com/{organisation}/{project or repository}/_git/{repository}"
    if found := _AZURE_SHORT.fullmatch(address):
        organisation, repository = found.groups()
        return f"dev.azure.com/{organisation}/{repository}/_git/{repository}"
    return address


def _strip_url(text: str) -> str:
    text = _SECRET_QUERY.sub("", text)
    scheme = _SCHEME.match(text)
    if scheme is not None:
        text = text[scheme.end() :]
        if scheme[0].lower() != "file://":
            return _parse_url(_strip_query(text) if scheme[0].lower() in _WEB_SCHEMES else text)
    if (windows := _WINDOWS_PATH.match(text)) is not None:
        drive = f"{windows[1].upper()}:" if windows[1] else "//"
        text = drive + _SLASHES.sub("/", text[windows.end() :].replace("\\", "/"))
    elif not text.startswith("/"):
        return _parse_address(text) or text
    text = _WORKTREES.sub("", text).rstrip("/") or "/"
    return f"{text}/" if text.endswith(":") else text


def _parse_url(text: str) -> str:
    """Of `[user[:password]@]host[:port]/path`."""
    authority, slash, path = text.partition("/")
    host, after = _split_host(authority.rpartition("@")[2])
    if after and not after.isdigit():
        if "@" in path:  # a password with a slash in it
            return _parse_url(path.rpartition("@")[2])
        path = f"{after}{slash}{path}"
    return _join_host_and_path(host, path)


def _parse_address(text: str) -> str | None:
    """Of `user@host:path`, `host.example:path`, `[user@]host[:port]/path`; None when it is none of them."""
    if text.partition("/")[0].lower() in _SITES:  # without a scheme, as people copy it
        text = _strip_query(text)
    authority, slash, path = text.partition("/")
    user, at, place = authority.rpartition("@")
    host, after = _split_host(place)
    if not _HOST.fullmatch(host) or any(map(str.isspace, authority)):
        return None
    is_host = bool(user) or (not at and "." in host.strip("."))  # not the `@acme` of a package's name
    if not is_host or not (slash or after or ":" in user):
        return None
    return _join_host_and_path(host, path if after.isdigit() and slash else f"{after}{slash}{path}")


def _split_host(place: str) -> tuple[str, str]:
    host, after = cast("re.Match[str]", _PLACE.match(place)).groups()
    return host, after


def _join_host_and_path(host: str, path: str) -> str:
    path = path.strip("/").removesuffix(".git").strip("/")
    return f"{host.lower()}/{path}" if path else host.lower()


def _strip_query(text: str) -> str:
    return text.partition("?")[0].partition("#")[0]


def display_name(canonical: str) -> str:
    """The last part of a path or URL; of a bare repository that of its project's folder."""
    parts = canonical.rstrip("/").split("/")
    if len(parts) > 2 and parts[-1] in _GIT_FOLDERS:
        parts.pop()
    return parts[-1].removesuffix(".git") or parts[-1] or canonical


class Projects:
    """Finds and makes projects; caches names for half a minute."""

    def __init__(self, db: Db, notifications: NotificationListener) -> None:
        self._db = db
        self._cache = TeamCache[tuple[UUID, UUID | None, str], Project](
            notifications, announce.CHANNEL, lambda project: project.team_id, seconds=_CACHE_SECONDS
        )

    async def find(self, principal: Principal, reference: str) -> Project:
        """The project; NotFound also when it is archived, or not the one that the key is bound to."""
        return await self._resolve(principal, reference, make=False)

    async def find_or_make(self, principal: Principal, reference: str) -> Project:
        """The project; a new one when the reference is a canonical id that the team does not have yet. NotFound as in `find`."""
        return await self._resolve(principal, reference, make=True)

    async def named_or_own(self, principal: Principal, reference: str | None, *, at: str, make: bool = False) -> Project:
        """The referenced project, else the key's own; Invalid, at the path `at`, for neither or a malformed name."""
        if reference is None:
            if principal.project_id is None:
                raise Invalid(_NO_PROJECT_NAMED, [Issue(at, "required")])
            reference = str(principal.project_id)
        try:
            return await self._resolve(principal, reference, make=make)
        except Invalid as error:
            raise Invalid.at(at, str(error)) from error

    async def within(self, principal: Principal, reference: str | None) -> UUID | None:
        """The project that a list is limited to: the referenced one, else the key's; None for the whole team."""
        return principal.project_id if reference is None else (await self.named_or_own(principal, reference, at="$.project")).id

    async def _resolve(self, principal: Principal, reference: str, *, make: bool) -> Project:
        """The project, from the cache or the database; NotFound when it is in neither and is not to be made."""
        key = (principal.team_id, principal.project_id, reference)

        async def look_up() -> Project:
            async with self._db.tenant(principal.team_id) as conn:
                project = await find(conn, principal, reference)
                if project is None and make and named_id(reference) is None:
                    project, _ = await make_project(conn, principal, reference)
                if project is None:
                    raise await _not_found(conn, principal, reference)
            return project

        return self._cache.get(key) or await self._cache.load(key, look_up)


async def find(conn: Conn, principal: Principal, reference: str, *, archived: bool = False) -> Project | None:
    """The team's project of that id or name; a bound key has only its own. With `archived` also an archived one, by its id."""
    project_id = named_id(reference)
    if project_id is not None:
        project = await repository.project(conn, principal.team_id, project_id, archived=archived)
        return project if project is not None and principal.sees(project.id) else None
    for name in _list_spellings(reference):
        project = await repository.project_named(conn, principal.team_id, name, only=principal.project_id)
        if project is not None:
            return project
    canonical = canonical_id(reference)
    if not canonical.startswith(_CASELESS_HOSTS):
        return None
    # Older projects may have their name in another case.
    return await repository.project_in_any_case(conn, principal.team_id, canonical, only=principal.project_id)


def _list_spellings(reference: str) -> list[str]:
    """The spellings to look the name up by: of older projects whose names look alike or differ in case, some have their own."""
    cased, plain = _cased_id(reference), clean_name(reference)
    older = [] if plain == reference.strip() else [_canonicalize(reference), reference.strip()]
    return list(dict.fromkeys([*older, cased, _fold_case(cased), _strip_url(plain), plain]))


async def projects_found_together(conn: Conn, principal: Principal, project_ids: Sequence[UUID] | None) -> Sequence[UUID] | None:
    """The projects that one search looks through: those named, the key's own, or the team's (None) without isolated ones.

    Invalid when an isolated one is named beside others.
    """
    if principal.project_id is not None:
        return [principal.project_id]
    if project_ids is not None and len(project_ids) < 2:
        return project_ids
    isolated = await repository.isolated(conn, principal.team_id)
    if project_ids is not None and not isolated.isdisjoint(project_ids):
        raise Invalid.at("$.projects", "One of the projects is isolated: search it alone.")
    return await repository.not_isolated(conn, principal.team_id) if project_ids is None and isolated else project_ids


async def require_project(conn: Conn, principal: Principal, reference: str) -> Project:
    """The project, also an archived one by its id; or NotFound."""
    project = await find(conn, principal, reference, archived=True)
    if project is None:
        raise await _not_found(conn, principal, reference)
    return project


async def _not_found(conn: Conn, principal: Principal, reference: str) -> ProjectNotFound:
    """The error for a name that no project has, with the nearest names of those that the key may list."""
    if named_id(reference) is not None or not principal.may("observations:read"):
        return ProjectNotFound(NO_SUCH)
    projects = await repository.projects(
        conn,
        principal.team_id,
        only=principal.project_id,
        archived=False,
        isolated=False,
        before=None,
        before_id=None,
        limit=_MAX_COMPARED,
    )
    # Compared without hosts and folders, which most projects of a team share.
    canonical_ids: dict[str, list[str]] = {}
    for project in projects:
        for name in {_comparable(name) for name in (project.canonical_id, project.name, *project.aliases)}:
            canonical_ids.setdefault(name, []).append(project.canonical_id)
    compared = list(canonical_ids)[:_MAX_COMPARED]
    near = await asyncio.to_thread(difflib.get_close_matches, _comparable(reference), compared, cutoff=_MIN_LIKENESS)
    names = list(dict.fromkeys(canonical_id for name in near for canonical_id in canonical_ids[name]))[:_MAX_SUGGESTED]
    return ProjectNotFound(f"{NO_SUCH} Did you mean {' or '.join(names)}?" if names else NO_SUCH)


def _comparable(name: str) -> str:
    return display_name(clean_name(name)).removesuffix(".git").casefold()[:_MAX_COMPARED_CHARS]


async def make_project(
    conn: Conn,
    principal: Principal,
    reference: str,
    *,
    name: str | None = None,
    metadata: Mapping[str, object] | None = None,
    search_language: str = "english",
) -> tuple[Project, bool]:
    """The project of that canonical id, and whether it is new. NotFound for a key that is bound to another project."""
    canonical = canonical_id(reference)
    existing = await find(conn, principal, reference)
    if existing is not None:
        return existing, False
    if principal.project_id is not None:
        raise NotFound(NO_SUCH)
    if not (principal.may("events:write") or principal.may("sessions:write")):
        raise Forbidden("This key may not make projects. Ask an owner of the team for a key with the scope events:write.")
    await repository.lock_names(conn, principal.team_id)
    for owned in await repository.names_taken(conn, principal.team_id, [canonical, _cased_id(reference)]):
        if owned.archived:
            raise Conflict(
                f"The project {canonical} is archived. Restore it with an admin key: PATCH /v1/projects/{owned.project_id}."
            )
        return await _require_by_id(conn, principal, owned.project_id), False
    project_id = new_id()
    if not await repository.insert_project(
        conn, project_id, principal.team_id, canonical, name or display_name(_cased_id(reference)), metadata or {}, search_language
    ):
        raise Conflict(f"Another request is just making the project {canonical}. Try again.")
    await audit.record(conn, principal, "project.created", "project", project_id, project_id=project_id, canonical_id=canonical)
    await announce.drop_cached(conn, principal.team_id)  # a plain name may have become ambiguous
    return await _require_by_id(conn, principal, project_id), True


async def _require_by_id(conn: Conn, principal: Principal, project_id: UUID) -> Project:
    project = await repository.project(conn, principal.team_id, project_id)
    if project is None:
        raise NotFound(NO_SUCH)
    return project
