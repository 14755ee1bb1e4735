"""Context on a file: what is known about the one that an agent opens, in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.base.text import UNSTORABLE
from cmserver.observations.plain import one_line
from cmserver.recall import repository
from cmserver.recall.aside import tell
from cmserver.recall.model import AboutFile, Context, Occasion

MOST_LINES = 5
MOST_CHARS = 4_096
"""A path longer than that is none."""
_CANDIDATES = 200
_SHOWN_CHARS = 120


class About(msgspec.Struct, frozen=True, kw_only=True):
    """How an observation is about the file: whether it changed it, and of how many files it speaks."""

    found: AboutFile
    is_modified: bool
    files: int


async def file_context(conn: Conn, principal: Principal, project: Project, occasion: Occasion, path: str) -> Context | None:
    """None when nothing is known about it that the session was not shown. `path` as the agent has it, mostly absolute.

    Of the project only: the same path in another one is another file.
    """
    about = await about_file(conn, project.id, occasion.session_id, path)
    return await tell(
        conn,
        principal,
        project,
        occasion,
        f"Known of {one_line(_name(_slashes(path)), _SHOWN_CHARS)}:",
        [one.found.id for one in about],
        MOST_LINES,
        {one.found.id: {"modified": one.is_modified, "files": one.files} for one in about},
        {},
    )


async def about_file(conn: Conn, project_id: UUID, session_id: UUID | None, path: str) -> list[About]:
    """The newest observations of the project that are about this very file, the most telling first; none of the session itself."""
    path = _slashes(path)
    name = _name(path)
    if not name or len(path) > MOST_CHARS or UNSTORABLE.search(path):
        return []
    return meant(await repository.about_file(conn, project_id, session_id, name, _CANDIDATES), path)


def meant(found: Iterable[AboutFile], path: str) -> list[About]:
    """Those that are about this very file, the most telling first: what changed it, what speaks of few other files, what is newest.

    Which file a stored path means is known by its end. Of several that fit (`README.md`, `docs/README.md`) it is the longest.
    """
    found = list(found)
    stored = {_slashes(each) for one in found for each in [*one.files_modified, *one.files_read]}
    fitting = {each for each in stored if f"/{path}".endswith(f"/{each}")}
    longest = max((each.count("/") for each in fitting if not _is_absolute(each)), default=0)
    same = {each for each in fitting if _is_absolute(each) or each.count("/") == longest}
    about = [
        About(found=one, is_modified=_names(one.files_modified, same), files=len({*one.files_modified, *one.files_read}))
        for one in found
        if _names([*one.files_modified, *one.files_read], same)
    ]
    about.sort(key=lambda one: (one.found.created_at, one.found.id), reverse=True)
    return sorted(about, key=lambda one: (not one.is_modified, one.files))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _names(stored: Sequence[str], same: set[str]) -> bool:
    return not same.isdisjoint(map(_slashes, stored))


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] == ":/"


def _slashes(path: str) -> str:
    """Windows' paths with the slashes of all others, and none of them at the beginning of `./a`."""
    return path.replace("\\", "/").removeprefix("./")
