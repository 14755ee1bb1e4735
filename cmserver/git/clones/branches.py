"""Where the commits of a clone are that are on branches only.

What may have been merged has no place: a squash, a rebase or a pick has other commits, which change the same files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.text import storable
from cmserver.git.clones.model import HASH_CHARS, CommitPlaces, SaidAt
from cmserver.observations.plain import one_line

LISTED_MOST = 200
"""Commits of branches, and as many of what is checked out and the trunks."""
_MARGIN = 86_400
"""Seconds by which clocks may differ."""
_BRANCH_MOST, _BRANCHES_MOST = 200, 10
_COMMIT = re.compile(r"/([0-9a-f]{40}(?:[0-9a-f]{24})?) (\d{1,12}) ([0-9a-f ]*)//(.*)")
_REF = re.compile(r"refs/(?:heads|remotes)/(.+)")
_ODD = re.compile(r"[^\w.+/@#=,-]")
_NAME_CHARS = 60


class ListedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is its committer's time, in seconds since 1970. `branches` are those whose last commit it is."""

    commit: str
    at: int
    parents: list[str]
    branches: list[str]
    files: set[str]


def read_commits(log: bytes) -> list[ListedCommit]:
    """The commits of `git log --name-only --decorate=full '--format=/%H %ct %P//%D'`."""
    read: list[ListedCommit] = []
    for line in storable(log.decode(errors="replace")).split("\n"):
        if match := _COMMIT.fullmatch(line):
            commit, at, parents, refs = match.groups()
            names = [ref[1][:_BRANCH_MOST] for text in refs.split(", ") if (ref := _REF.fullmatch(text))]
            read.append(ListedCommit(commit=commit, at=int(at), parents=parents.split(), branches=names, files=set()))
        elif line and read:
            read[-1].files.add(line)
    return read


def place_commits(unmerged: Sequence[ListedCommit], others: Sequence[ListedCommit], head_branch: str) -> CommitPlaces:
    """Which branches have a commit of `unmerged`, that neither what is checked out nor a trunk has, nor what may be the same.

    `others` are the newest that these have, each list the newest first. A commit has a place if one of its files is touched by
    none of them but by what it was built on. On the branch that is checked out, where others went further, nothing is elsewhere.
    """
    known_since = min((entry.at for entry in others), default=0) if len(others) >= LISTED_MOST else 0
    below: dict[str, int] = {}
    """By commit, itself and what it was built on: a bit for each."""
    for place, entry in enumerate(reversed([*unmerged, *others])):
        below[entry.commit] = 1 << place
        for parent in entry.parents:
            below[entry.commit] |= below.get(parent, 0)
    touched: dict[str, int] = {}
    for place, entry in enumerate(reversed(others)):
        for file in entry.files:
            touched[file] = touched.get(file, 0) | 1 << place
    tips = [entry for entry in unmerged if entry.branches]
    places: dict[str, list[str]] = {}
    for place, entry in enumerate(reversed(unmerged), len(others)):
        names = [name for tip in tips if below[tip.commit] >> place & 1 for name in tip.branches]
        if any(f"/{name}".endswith(f"/{head_branch}") for name in names) and head_branch:
            continue
        is_new = any(not touched.get(file, 0) & ~below[entry.commit] for file in entry.files)
        if names and is_new and entry.at - _MARGIN >= known_since:
            places[entry.commit[:HASH_CHARS]] = sorted(names)[:_BRANCHES_MOST]
    return places


class BranchMarks:
    """Marks what was said on a branch that is not merged where the clone is."""

    def __init__(self, places: CommitPlaces, said: Mapping[UUID, SaidAt]) -> None:
        """`said` is by turn."""
        self._places = places
        self._said = said

    def describe(self, turn_id: UUID) -> str:
        """The mark of a line of that turn, with a space before it; "" for none."""
        said = self._said.get(turn_id)
        branches = self._places.get(said.commit[:HASH_CHARS]) if said is not None else None
        if said is None or not branches:
            return ""
        own = [name for name in branches if said.branch and f"/{name}".endswith(f"/{said.branch}")]
        branch = said.branch if said.branch in own else [*own, *branches][0]
        return f" (on branch {one_line(_ODD.sub('_', branch), _NAME_CHARS)})"


NO_BRANCH_MARKS = BranchMarks({}, {})
"""Where nothing is known of a clone."""
