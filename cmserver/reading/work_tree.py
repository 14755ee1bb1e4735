"""Follows which edits are still there after what git took back, put away and brought back, as far as no commit has kept them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

import msgspec

from cmserver.reading.model import Act, CommandRun, FileEdit
from cmserver.tooluse.model import SimpleCommand
from cmserver.tooluse.places import is_below, join
from cmserver.tooluse.taking_back import ALL, GitDeed, read_takings

_HASH = re.compile(r"^(?:Output: )?\[[^\]\n]{1,200} ([0-9a-f]{6,40})\]", re.MULTILINE)
_BACK = re.compile(r"(?:HEAD|@)(?:~(\d{1,3})|(\^{1,9})|(~{1,9}))?")
_MIN_HASH = 6
_NOTHING_STASHED = "No local changes to save"


class Edit(msgspec.Struct, frozen=True):
    """What one event did to one file."""

    event: Hashable
    path: str
    is_new: bool = False


class TreeChange(msgspec.Struct, frozen=True):
    """What a command did to edits of before: those that are gone with it, and those that are there again."""

    gone: list[Edit] = []
    back: list[Edit] = []
    commits: int = 0
    """How many of the last commits are gone as if they had never been."""


def find_commit(output: str) -> str:
    """The hash of the commit that `git commit` has printed; "" without one."""
    match = _HASH.search(output)
    return match[1] if match else ""


class WorkTree:
    """The edits since the last commit that are still there. `stashed` tells that others wait, and nothing was edited since."""

    def __init__(self) -> None:
        self._edits: list[Edit] = []
        self._commits: list[tuple[str, list[Edit]]] = []
        """Each commit's hash, where its output says it, and its edits."""
        self._stashes: list[list[Edit]] = []
        self._added: set[str] = set()
        self.stashed = False

    def take(self, event: Hashable, act: Act | None) -> TreeChange:
        """Take the next event of the session: edits, or a command and what it did to them."""
        if isinstance(act, FileEdit):
            self._edit(event, act)
            return TreeChange()
        if not isinstance(act, CommandRun) or act.outcome.failed:
            return TreeChange()
        effects = [self._follow(act, command, taking) for command, taking in read_takings(act.command)]
        return TreeChange(
            [edit for effect in effects for edit in effect.gone],
            [edit for effect in effects for edit in effect.back],
            sum(effect.commits for effect in effects),
        )

    def _edit(self, event: Hashable, act: FileEdit) -> None:
        self.stashed = False
        known = {edit.path for edit in self._edits}
        for change in act.changes:
            is_new = change.path not in known and change.verb in {"added", "wrote"}
            self._edits.append(Edit(event, change.path, is_new))

    def _follow(self, act: CommandRun, command: SimpleCommand, taking: GitDeed) -> TreeChange:
        paths = [act.folder.relative(join(command.place.folder, path)) if path != ALL else ALL for path in taking.paths]
        if taking.verb == "adds":
            self._added.update(paths)
        elif taking.verb == "commits":
            self._commit(act.outcome.output)
        elif taking.verb == "pops":
            return TreeChange(back=self._pop())
        elif taking.verb == "reverts":
            return TreeChange([edit for place in self._reverted(taking.commit) for edit in self._commits[place][1]])
        elif not (taking.verb == "stashes" and _NOTHING_STASHED in act.outcome.output):
            gone, place = self._remove(taking, paths), len(self._commits)
            if taking.verb == "stashes":
                self._stashes.append(gone)
                self.stashed = True
            elif taking.commit:
                place = self._place_of(taking.commit) + 1
            commits, self._commits = self._commits[place:], self._commits[:place]
            return TreeChange([*gone, *(edit for _, edits in commits for edit in edits)], commits=len(commits))
        return TreeChange()

    def _remove(self, taking: GitDeed, paths: list[str]) -> list[Edit]:
        new = {edit.path for edit in self._edits if edit.is_new and not _is_in_one(edit.path, self._added)}
        taken = [
            edit
            for edit in self._edits
            if _is_in_one(edit.path, paths) and (taking.untracked if edit.path in new else taking.tracked)
        ]
        self._edits = [edit for edit in self._edits if edit not in taken]
        return taken

    def _commit(self, output: str) -> None:
        self._commits.append((find_commit(output), self._edits))
        self._edits, self._added = [], set()

    def _place_of(self, name: str) -> int:
        """Where the commit of that name stands; that of the last one where nothing is known of it."""
        last = len(self._commits) - 1
        if match := _BACK.fullmatch(name):
            steps = int(match[1]) if match[1] else len(match[2] or match[3] or "")
            return max(last - steps, -1)
        return next((place for place in range(last, -1, -1) if _is_hash(name, self._commits[place][0])), last)

    def _reverted(self, name: str) -> list[int]:
        """The places of the commits that `git revert` takes back."""
        first, dots, end = name.partition("..")
        if dots:
            return list(range(self._place_of(first) + 1, (self._place_of(end) if end else len(self._commits) - 1) + 1))
        is_known = _BACK.fullmatch(name) or any(_is_hash(name, known) for known, _ in self._commits)
        place = self._place_of(name)
        return [place] if is_known and place >= 0 else []

    def _pop(self) -> list[Edit]:
        self.stashed = False
        back = self._stashes.pop() if self._stashes else []
        self._edits += back
        return back


def _is_hash(name: str, known: str) -> bool:
    return len(name) >= _MIN_HASH and bool(known) and (known.startswith(name) or name.startswith(known))


def _is_in_one(path: str, folders: Iterable[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)
