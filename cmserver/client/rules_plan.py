"""Compares a repository's file of rules with what the server has: what the file changes, and where both have changed.

The mark of an entry stands for what the server said when the file was written. So each side is compared with that, not by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from cmserver.client.git_history import FileCommit, LineChange
from cmserver.client.rules_file import RuleEntry, Section, find_mark, parse_line


class TakenChange(msgspec.Struct, frozen=True, kw_only=True):
    """In the metadata of what came from a file, as `rulesFile`: by which commit, by whom, and the mark of what it said there."""

    commit: str
    author: str
    mark: str


class ServerRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule or an open decision as the server has it."""

    number: int
    section: Section
    text: str
    author: str
    changed_at: int
    """In seconds since 1970."""
    details: int = 0
    """How many characters it has beside the text."""
    taken: TakenChange | None = None

    @property
    def mark(self) -> str:
        return find_mark(self.section, self.text)


class RuleChange(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the file changes. A new entry has no `number` and nothing before; of a removal there is nothing after."""

    kind: Literal["new", "edited", "removed"]
    number: int | None
    before: str | None
    after: str | None
    section_before: Section | None
    section_after: Section | None
    commit: FileCommit
    details: int = 0


class RuleConflict(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry that file and server have changed both; None is for one that is not there."""

    number: int
    in_file: str | None = None
    on_server: str | None = None
    section_in_file: Section | None = None
    section_on_server: Section | None = None


class RulesPlan(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the file changes, what is in conflict, and how many entries of the file the server has changed since."""

    changes: list[RuleChange]
    conflicts: list[RuleConflict]
    behind: int


class FileHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The commits that touched the file, newest first, at least one; and the lines that they took in and out."""

    commits: Sequence[FileCommit]
    lines: Sequence[LineChange]


class _Origins:
    """Which commit took an entry in, and which took it out."""

    def __init__(self, history: FileHistory) -> None:
        self._newest = history.commits[0]
        self._added: dict[str, FileCommit] = {}
        self.removed: dict[int, tuple[FileCommit, RuleEntry]] = {}
        """By number: where a line of it was taken out last, and what that said."""
        for change in history.lines:
            if change.is_added:
                self._added.setdefault(_squeeze(change.text), change.commit)
            elif (entry := parse_line(change.text.strip())) is not None and entry.number is not None:
                self.removed.setdefault(entry.number, (change.commit, entry))

    def find(self, line: str) -> FileCommit:
        """The commit that the line came with; of a paragraph of several lines, and of a line that a merge made, the newest."""
        return self._added.get(_squeeze(line), self._newest)


def plan_rules(
    entries: Sequence[RuleEntry],
    lines: Sequence[str],
    rules: Mapping[int, ServerRule],
    history: FileHistory,
    taken: Mapping[tuple[str, str], int],
) -> RulesPlan:
    """What the file's entries, which stand in these lines, change of the rules.

    `taken` are the numbers of all that came from such a file, whatever became of it, by commit and mark.
    """
    origins = _Origins(history)
    changes: list[RuleChange] = []
    conflicts: list[RuleConflict] = []
    behind = 0
    by_text = {rule.text: rule for rule in rules.values()}
    for entry in entries:
        commit = origins.find(lines[entry.line - 1])
        rule = rules.get(entry.number) if entry.number is not None else None
        if entry.number is None:
            same = by_text.get(entry.text)
            if same is not None and same.section != entry.section:
                conflicts.append(_conflict(same.number, entry, same))
            elif same is not None or (commit.hash, entry.own_mark) in taken:
                behind += 1
            else:
                changes.append(_change("new", None, entry, commit))
        elif rule is not None and (rule.section, rule.text) == (entry.section, entry.text):
            continue
        elif entry.own_mark == entry.mark or (rule is not None and rule.taken and rule.taken.mark == entry.own_mark):
            behind += 1
        elif rule is not None and rule.mark == entry.mark:
            changes.append(_change("edited", rule, entry, commit))
        else:
            conflicts.append(_conflict(entry.number, entry, rule))
    for rule, commit, is_unchanged in _find_removed(entries, rules, origins):
        if is_unchanged:
            changes.append(_change("removed", rule, None, commit))
        else:
            conflicts.append(_conflict(rule.number, None, rule))
    return RulesPlan(changes=changes, conflicts=conflicts, behind=behind)


def _find_removed(
    entries: Sequence[RuleEntry], rules: Mapping[int, ServerRule], origins: _Origins
) -> Iterator[tuple[ServerRule, FileCommit, bool]]:
    """What a commit took out of the file, and whether the server has left it as it was there.

    What never was in the file is newer than it, or was never written.
    """
    present = {entry.number for entry in entries}
    for number in sorted(rules.keys() - present):
        if (found := origins.removed.get(number)) is not None:
            commit, entry = found
            rule = rules[number]
            is_same_text = rule.text == entry.text or rule.mark == entry.mark
            yield rule, commit, is_same_text and rule.changed_at <= commit.committed_at


def _change(
    kind: Literal["new", "edited", "removed"], rule: ServerRule | None, entry: RuleEntry | None, commit: FileCommit
) -> RuleChange:
    return RuleChange(
        kind=kind,
        number=rule.number if rule else None,
        before=rule.text if rule else None,
        after=entry.text if entry else None,
        section_before=rule.section if rule else None,
        section_after=entry.section if entry else None,
        commit=commit,
        details=rule.details if rule else 0,
    )


def _conflict(number: int, entry: RuleEntry | None, rule: ServerRule | None) -> RuleConflict:
    return RuleConflict(
        number=number,
        in_file=entry.text if entry else None,
        on_server=rule.text if rule else None,
        section_in_file=entry.section if entry else None,
        section_on_server=rule.section if rule else None,
    )


def _squeeze(line: str) -> str:
    return " ".join(line.split())
