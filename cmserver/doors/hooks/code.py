"""Takes what a hook client tells of its clone: what commits did to the files."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import cast

import msgspec

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid
from cmserver.doors.hooks.model import HookHeaders
from cmserver.doors.hooks.take import HookTaker
from cmserver.doors.hooks.wire import BranchesIn, CodeChangesIn, CodeChangesOut
from cmserver.git.clones.branches import place_commits, read_commits
from cmserver.git.clones.follow import follow_clone
from cmserver.git.clones.model import CommitChanges, CommitPlaces
from cmserver.git.clones.read_log import read_diff, read_log
from cmserver.redaction.clean import clean_aside


async def take_code_changes(
    taker: HookTaker, principal: Principal, headers: HookHeaders, changes: CodeChangesIn, *, size_bytes: int
) -> CodeChangesOut:
    """Note the changes for the project that the headers name.

    NotFound for a project that is not there: only what is stored in it makes one.
    """
    names = [name for name in (headers.project, headers.git_remote, headers.root) if name]
    if not names and principal.project_id is None:
        raise Invalid("The headers name no project: send X-Cmserver-Git-Remote or X-Cmserver-Root.")
    commits: list[CommitChanges] | None = None
    diff: dict[str, str] = {}
    if changes.log is not None and changes.diff is not None:
        commits = read_log(_decode(changes.log, "$.log"))
        diff = read_diff(_decode(changes.diff, "$.diff"))
        # As the lines that name them are.
        cleaned = await clean_aside([msgspec.json.decode(msgspec.json.encode(commits)), diff], size_bytes=size_bytes)
        told, diff = cast("tuple[object, dict[str, str]]", cleaned.value)
        commits = msgspec.convert(told, list[CommitChanges] | None)
    project = await taker.name_project(principal, names, make=False)
    way = (changes.before, changes.head)
    places = await _place_commits(changes.branches, headers.git_branch, size_bytes)
    team_id = principal.team_id
    is_known, head = await taker.db.in_tenant(
        team_id,
        lambda conn: follow_clone(conn, team_id, project.id, changes.clone_id, way, commits, diff, places),
    )
    return CodeChangesOut(known=is_known, head=head)


async def _place_commits(branches: BranchesIn | None, head_branch: str, size_bytes: int) -> CommitPlaces:
    if branches is None:
        return {}
    unmerged = read_commits(_decode(branches.unmerged, "$.branches.unmerged"))
    others = read_commits(_decode(branches.others, "$.branches.others"))
    places = place_commits(unmerged, others, head_branch)
    names = sorted({name for found in places.values() for name in found})
    cleaned = await clean_aside(names, size_bytes=size_bytes)
    clean = dict(zip(names, cast("list[str]", cleaned.value), strict=True))
    return {commit: [clean[name] for name in found] for commit, found in places.items()}


def _decode(text: str, at: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise Invalid.at(at, "It is no base64.") from None
