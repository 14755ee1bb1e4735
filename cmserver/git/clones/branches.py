"""Where the commits of a clone are that are not merged, and what became of those that no branch has any more.

What git cannot say, or has not said yet, is unknown: such a commit has no place, and nothing said at it is marked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from uuid import UUID

import msgspec

from cmserver.base.text import storable
from cmserver.git.clones.model import HASH_CHARS, CommitPlace, CommitPlaces, SaidAt
from cmserver.observations.plain import one_line

_BRANCH_MOST = 200
_PLACES_MOST = 1_000
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NONE = re.compile(r"0+")
_ODD = re.compile(r"[^\w.+/@#=,-]")
_SHORT_HASH, _NAME_CHARS = 7, 60
_REF = re.compile(r"refs/(?:heads|remotes/[^/]+)/(.+)")


class TipPatches(msgspec.Struct, frozen=True, kw_only=True):
    """A branch by its patch ids: `whole` is that of all its commits as one; `own` has each commit's; `others` has by id a commit
    that holds as much, on the trunk, in the history of what is checked out, or on the branch as it is now.

    `name` is what the branch is called, or was where `is_there` is false.
    """

    name: str
    is_there: bool
    whole: list[str]
    own: dict[str, str]
    others: dict[str, str]


class BranchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a clone tells of its branches. `unmerged` has by commit the branch by which it was found, the newest first.

    `gone` has by commit the last one of the branch that had it; `compared` are the tips of which it is known how they were compared
    with the trunk; `patches` has by tip what was found now.
    """

    unmerged: Mapping[str, str]
    gone: Mapping[str, str]
    compared: Collection[str]
    patches: Mapping[str, TipPatches]


def read_report(unmerged: bytes, gone: bytes, compared: Collection[str], patches: bytes) -> BranchReport:
    """The report of what git printed: `git log --source --format='%H %S'` of branches, the same of tips, and blocks of tips."""
    return BranchReport(
        unmerged=dict(_pairs(unmerged)),
        gone={commit: tip[:HASH_CHARS] for commit, tip in _pairs(gone)},
        compared={tip[:HASH_CHARS] for tip in compared},
        patches=_read_patches(patches),
    )


def find_branch(ref: str) -> str:
    """`x` of `refs/heads/x` and of `refs/remotes/origin/x`; empty for what is no branch."""
    match = _REF.fullmatch(ref)
    return match[1][:_BRANCH_MOST] if match else ""


def place_commits(before: CommitPlaces, report: BranchReport, head_branch: str) -> tuple[dict[str, CommitPlace], dict[str, str]]:
    """Where each commit is; and by commit the tip of which it is not known yet, and shall be compared.

    `before` is what was known. What is on the branch that is checked out, where others went further, is not elsewhere.
    """
    tips: dict[str, str] = {}
    found = {commit: (name, tips.setdefault(name, commit)) for commit, name in report.unmerged.items()}
    found |= {commit: ("", tip) for commit, tip in report.gone.items()}
    places: dict[str, CommitPlace] = {}
    unknown: dict[str, str] = {}
    for commit, (name, tip) in found.items():
        if name and find_branch(name) == head_branch:
            continue
        known = before.get(commit)
        if (patches := report.patches.get(tip)) is not None:
            places[commit] = _place(commit, name, tip, patches, report.unmerged)
        elif tip not in report.compared:
            unknown[commit] = tip
        elif known is not None and known.tip == tip:
            places[commit] = known
    names = {head_branch, *map(find_branch, report.unmerged.values())}
    for commit, place in places.items():
        if place.state == "branch_gone" and place.branch in names:  # another one is called so now
            places[commit] = CommitPlace("gone", place.branch, place.tip)
    return dict(list(places.items())[:_PLACES_MOST]), unknown


def _place(commit: str, name: str, tip: str, patches: TipPatches, unmerged: Mapping[str, str]) -> CommitPlace:
    own = patches.own.get(commit)
    again = next((patches.others[patch] for patch in [*patches.whole, *([own] if own else [])] if patch in patches.others), None)
    if again is not None:
        branch = find_branch(unmerged.get(again, ""))
        return CommitPlace("open" if branch else "merged", branch, tip)
    if name:
        return CommitPlace("open", find_branch(name), tip)
    if own is None:  # a merge has no patch: where it is cannot be told
        return CommitPlace("merged", "", tip)
    return CommitPlace("gone" if patches.is_there else "branch_gone", patches.name, tip)


def _pairs(text: bytes) -> Iterator[tuple[str, str]]:
    """The hash and what stands behind it, of each line that begins with one."""
    for line in text.split(b"\n"):
        commit, _, name = storable(line.decode(errors="replace")).partition(" ")
        if _HASH.fullmatch(commit) and name:
            yield commit[:HASH_CHARS], name


def _read_patches(text: bytes) -> dict[str, TipPatches]:
    """By tip, only of blocks that are complete."""
    read: dict[str, TipPatches] = {}
    tip, current, are_others = "", None, False
    for line in storable(text.decode(errors="replace")).split("\n"):
        words = line.split(" ", 3)
        if words[0] == "tip" and len(words) == 4:
            tip, are_others = words[1][:HASH_CHARS], False
            current = TipPatches(name=find_branch(words[3]), is_there=words[2] == "there", whole=[], own={}, others={})
        elif words[0] == "done":
            if current is not None:
                read[tip] = current
            current = None
        elif words[0] == "others":
            are_others = True
        elif current is not None and len(words) == 2:
            patch, commit = words[0], words[1]
            if are_others:
                current.others[patch] = commit[:HASH_CHARS]
            elif _NONE.fullmatch(commit):
                current.whole.append(patch)
            else:
                current.own[commit[:HASH_CHARS]] = patch
    return read


class BranchMarks:
    """Marks what was said where the clone is not: on a branch that is not merged, or at a commit that no branch has any more."""

    def __init__(self, places: CommitPlaces, said: Mapping[UUID, SaidAt]) -> None:
        """`said` is by turn."""
        self._places = places
        self._said = said
        self._open = {place.branch for place in places.values() if place.state == "open"}

    def describe(self, turn_id: UUID) -> str:
        """The mark of a line of that turn, with a space before it; "" for none."""
        said = self._said.get(turn_id)
        place = self._places.get(said.commit[:HASH_CHARS]) if said is not None else None
        if said is None or place is None or place.state == "merged":
            return ""
        if place.state == "open":
            branch = said.branch if said.branch in self._open else place.branch or said.branch
            return f" (on branch {_shown(branch)})" if branch else ""
        if place.state == "branch_gone" and said.branch and said.branch == place.branch:
            return f" (its branch {_shown(said.branch)} is gone)"
        return f" (its commit {said.commit[:_SHORT_HASH]} is no longer in history)"


NO_BRANCH_MARKS = BranchMarks({}, {})
"""Where nothing is known of a clone."""


def _shown(branch: str) -> str:
    return one_line(_ODD.sub("_", branch), _NAME_CHARS)
