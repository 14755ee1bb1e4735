"""Context on a file: what is known about the one that an agent opens, in a few lines."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.base.text import UNSTORABLE
from cmserver.observations import repository as observations
from cmserver.observations.plain import one_line
from cmserver.recall import repository
from cmserver.recall.inline_context import observation_line, render_inline_context
from cmserver.recall.model import Context, ContextRequest, FileMention

MAX_LINES = 5
MAX_CHARS = 4_096
"""A longer path is none."""
_CANDIDATES = 200
_NAME_CHARS = 120


class FileMatch(msgspec.Struct, frozen=True, kw_only=True):
    """How an observation is about the file: whether it changed it, and how many files it names."""

    mention: FileMention
    is_modified: bool
    file_count: int


async def build_file_context(
    conn: Conn, principal: Principal, project: Project, request: ContextRequest, path: str
) -> Context | None:
    """The lines to show with an opened file; None when nothing is known about it that the session was not shown.

    `path` is the agent's, mostly absolute. Only the project is searched: the same path in another one is another file.
    """
    matches = await find_file_matches(conn, project.id, request.session_id, path)
    ids = [match.mention.id for match in matches]
    rows = {row.id: row for row in await observations.by_ids(conn, principal.team_id, ids) if row.state != "dropped"}
    return await render_inline_context(
        conn,
        principal,
        project,
        request,
        f"Known of {one_line(_name(_with_slashes(path)), _NAME_CHARS)}:",
        max_lines=MAX_LINES,
        lines=[
            observation_line(rows[match.mention.id], {"modified": match.is_modified, "files": match.file_count})
            for match in matches
            if match.mention.id in rows
        ],
        criteria={},
    )


async def find_file_matches(
    conn: Conn, project_id: UUID, session_id: UUID | None, path: str, spellings: Collection[str] = ()
) -> list[FileMatch]:
    """The newest observations of the project that are about this very file, the most telling first; none of the session itself.

    `spellings` are how a relative path may be stored, too.
    """
    path = _with_slashes(path)
    name = _name(path)
    if not name or len(path) > MAX_CHARS or UNSTORABLE.search(path):
        return []
    mentions = await repository.about_file(conn, project_id, session_id, name, _CANDIDATES)
    return rank_file_matches(mentions, path, spellings)


def rank_file_matches(mentions: Iterable[FileMention], path: str, spellings: Collection[str] = ()) -> list[FileMatch]:
    """The mentions that are about this very file: first those that changed it, then by how few files they name, then newest first.

    Which file a stored path means is known by its end, where none of the `spellings` is stored. Of several that fit (`README.md`,
    `docs/README.md`) it is the longest.
    """
    mentions = list(mentions)
    stored = {_with_slashes(file) for mention in mentions for file in [*mention.files_modified, *mention.files_read]}
    fitting = {file for file in stored if f"/{path}".endswith(f"/{file}")}
    longest = max((file.count("/") for file in fitting if not _is_absolute(file)), default=0)
    same = stored.intersection(spellings) or {file for file in fitting if _is_absolute(file) or file.count("/") == longest}
    matches = [
        FileMatch(
            mention=mention,
            is_modified=_names_any(mention.files_modified, same),
            file_count=len({*mention.files_modified, *mention.files_read}),
        )
        for mention in mentions
        if _names_any([*mention.files_modified, *mention.files_read], same)
    ]
    matches.sort(key=lambda match: (match.mention.created_at, match.mention.id), reverse=True)
    return sorted(matches, key=lambda match: (not match.is_modified, match.file_count))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _names_any(stored: Sequence[str], same: set[str]) -> bool:
    return not same.isdisjoint(map(_with_slashes, stored))


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] == ":/"


def _with_slashes(path: str) -> str:
    """The path with slashes, also one of Windows, and without `.` and `..` where they can be resolved."""
    return posixpath.normpath(path.replace("\\", "/")) if path else ""
