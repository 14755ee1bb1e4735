"""Marks lines whose files are gone, moved or changed since, by what is known of the clone in which a session works.

Precision before recall: a mark says what a commit of this clone's own history did, and nothing of what that means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from cmserver.git.clones.follow import is_gone
from cmserver.git.clones.model import CommittedChange, CommittedChanges
from cmserver.observations.plain import one_line

_PATH = re.compile(r"(?<![^\s\"'`(\[])[\w.@+-]+(?:/[\w.@+-]+)*/[\w.@+-]*[\w@+-](?=[.,;:!?]*[\s\"'`)\]]|[.,;:!?]*$|:\d)")
"""A path as a word of its own: not what follows a `/`, a `~`, a variable or a host."""
_ODD_IN_PATH, _ODD_IN_NAME = re.compile(r"[^\w.+/@=,\[\]-]"), re.compile(r"[^\w .,'-]")
"""What could end the mark, and begin what is no name."""
_SHORT_HASH, _NAME_CHARS, _PATH_CHARS = 7, 40, 100
_MAX_MOVES = 20
_CLOCK_SECONDS = 5
"""How far a developer's clock, by which commits are dated, may be ahead of the server's, by which turns end."""


class CodeMark(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file of a line. `text` has a space before it."""

    kind: Literal["removed", "moved", "changed"]
    text: str


class CodeMarks:
    """What commits did to the files of a clone."""

    def __init__(self, changes: CommittedChanges) -> None:
        self._changes = changes

    def describe(self, files: Sequence[str], text: str, at: datetime | None) -> str:
        """The text of the mark, with a space before it; "" for none."""
        mark = self.find(files, text, at)
        return mark.text if mark else ""

    def find(self, files: Sequence[str], text: str, at: datetime | None) -> CodeMark | None:
        """The mark of a line of that time; None for none, and for a line without a time.

        `files` are those that the line is about, by their paths in the project; besides them it is about those whose path its text
        has. `at` is when its turn ended: what a commit did before is no news to the line. A file that is gone comes before
        one that was changed.
        """
        if not self._changes or at is None:
            return None
        moment = at.timestamp() + _CLOCK_SECONDS
        gone: list[CodeMark] = []
        changed: list[str] = []
        for path in dict.fromkeys([*files, *_PATH.findall(text)]):
            done = self._changes.get(path, ())
            since = [change for change in done if change.at > moment]
            if not since or since[-1] != done[-1]:
                continue
            if is_gone(done):
                if not is_gone(done[: -len(since)]):  # else it was gone at that time
                    gone.append(self._find_gone(path, done[-1]))
            # The first commit after it may hold just what the line tells, as a squash of those of its turn does. A file that went
            # and came back may be what it was.
            elif len(since) > 1 and not any(change.kind in {"D", "R"} for change in since):
                changed.append(f"{_shown(path)} was changed since, last in {_commit(done[-1])}")
        if gone:
            more = f"; {len(gone) - 1} more of its files are gone" if len(gone) > 1 else ""
            return CodeMark(kind=gone[0].kind, text=f" ({gone[0].text}{more})")
        return CodeMark(kind="changed", text=f" ({changed[0]})") if changed else None

    def _find_gone(self, path: str, change: CommittedChange) -> CodeMark:
        """What became of the file, through all its moves, without the signs around it."""
        if change.kind == "D":
            return CodeMark(kind="removed", text=f"{_shown(path)} was removed in {_commit(change)}")
        target, last = change.to, change
        for _ in range(_MAX_MOVES):
            done = self._changes.get(target)
            if done is None:
                break
            if not is_gone(done):
                return CodeMark(kind="moved", text=f"{_shown(path)} was moved to {_shown(target)} in {_commit(last)}")
            if done[-1].kind == "D":
                moved = f"{_shown(path)} was moved to {_shown(change.to)}"
                return CodeMark(kind="removed", text=f"{moved}, which was removed in {_commit(done[-1])}")
            target, last = done[-1].to, done[-1]
        return CodeMark(kind="moved", text=f"{_shown(path)} was moved in {_commit(change)}")


NO_MARKS = CodeMarks({})
"""Where nothing is known of a clone."""


def find_only_file(files: Iterable[str]) -> list[str]:
    """The file that these are; none of several, of which a line is about those that its words name."""
    names = list(dict.fromkeys(files))
    return names if len(names) == 1 else []


def _commit(change: CommittedChange) -> str:
    by = f", by {one_line(_ODD_IN_NAME.sub('_', change.author), _NAME_CHARS)}" if change.author else ""
    return f"{change.commit[:_SHORT_HASH]}{by}"


def _shown(path: str) -> str:
    return one_line(_ODD_IN_PATH.sub("_", path), _PATH_CHARS)
