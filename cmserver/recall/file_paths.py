"""Paths in filters: an agent names a file from its working folder, from the repository's root, or whole; stored is one of these.

Which folders there are is known from the sessions of a project: the root that their clients named, and where they worked. A folder
outside the root is a container's, where the repository has another root.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.recall import repository
from cmserver.recall.model import FilePaths, KnownFolder
from cmserver.tooluse.model import WorkingFolder, find_working_folder, is_absolute

MAX_SESSIONS = 50
"""The newest sessions whose folders are looked at."""


async def resolve_paths(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, paths: Sequence[str]) -> FilePaths:
    """All spellings of the paths, or of beginnings of paths, in those projects; None for all projects of the team."""
    folders = await repository.known_folders(conn, team_id, project_ids, sessions=MAX_SESSIONS)
    spellings = dict.fromkeys(spelling for path in paths for spelling in spell_path(path, folders))
    return FilePaths(paths=[path for path, _ in spellings], project_ids=[project_id for _, project_id in spellings])


def spell_path(path: str, folders: Iterable[KnownFolder]) -> list[tuple[str, UUID | None]]:
    """What may be stored for the path, with the project that this holds for; None for any.

    The path of a repository's root is "": every file of the project is below it. A slash at the end is kept.
    """
    spellings: dict[tuple[str, UUID | None], None] = {(path, None): None}
    path = path.strip().replace("\\", "/")
    end = "/" if path.endswith("/") else ""
    is_relative = not is_absolute(path)
    is_from_folder = is_relative and path.split("/", 1)[0] in {".", ".."}
    for folder in folders:
        at_root, at_work = WorkingFolder(folder.root, folder.root), find_working_folder(folder.root, folder.cwd)
        for working in (at_work,) if is_from_folder else (at_root, at_work):
            if working.root:
                whole, relative = working.resolve(path), working.relative(path)
                spellings[("" if relative == "." else relative + end, folder.project_id)] = None
                spellings[(whole + end, folder.project_id if is_relative else None)] = None
    if not is_from_folder or len(spellings) == 1:
        plain = posixpath.normpath(path)
        spellings[(plain + end if plain != "." else "", None)] = None
    return list(spellings)
