"""Compares a repository's file of rules with what the server has: what the file changes, and where both have changed.

The mark of an entry stands for what the server said when the file was written. So each side is compared with that, not by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from cmserver.client.git_history import FileRevision, LineChange
from cmserver.client.rules_file import RuleEntry, Section, find_mark, parse_line


class RuleSource(msgspec.Struct, frozen=True, kw_only=True):
    """In the metadata of what came from a file, as `rulesFile`: by which commit, by whom, and the mark of what it said there.

    `mark_before` is the mark that stood at the end of the paragraph.
    """

    commit: str
    author: str
    mark: str
    mark_before: str = ""


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
    source: RuleSource | None = None

    @property
    def mark(self) -> str:
        return find_mark(self.section, self.text)

    def is_of(self, entry: RuleEntry, commits: AbstractSet[str]) -> bool:
        """Whether it is as the file had it when the entry was written, or as one of these commits made it since."""
        if self.mark == entry.mark:
            return True
        source = self.source
        return source is not None and (source.mark, source.mark_before) == (self.mark, entry.mark) and source.commit in commits


class RuleChange(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the file changes. A new entry has no `number` and nothing before; of a removal there is nothing after.

    `mark` is the one at the end of the paragraph; `details` are the characters beside the text that go with it.
    """

    kind: Literal["new", "edited", "removed"]
    number: int | None
    before: str | None
    after: str | None
    section_before: Section | None
    section_after: Section | None
    commit: FileRevision
    mark: str | None = None
    details: int = 0


class RuleConflict(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry that file and server have changed both; None is for one that is not there.

    `is_back` is whether a commit took it out of the file, and the server was touched since and says what it said there.
    """

    number: int
    in_file: str | None = None
    on_server: str | None = None
    section_in_file: Section | None = None
    section_on_server: Section | None = None
    is_back: bool = False


class RulesPlan(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the file changes, what is in conflict, and how many entries of the file the server has changed since."""

    changes: list[RuleChange]
    conflicts: list[RuleConflict]
    outdated: int


class FileHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The commits that touched the file, newest first, at least one; and the lines that they took in and out."""

    commits: Sequence[FileRevision]
    lines: Sequence[LineChange]


class _Origins:
    """Which commit took an entry in, and which took it out."""

    def __init__(self, history: FileHistory) -> None:
        self._commits = history.commits
        self.places = {commit.hash: place for place, commit in enumerate(history.commits)}
        """By hash, the newest first."""
        self._added: dict[str, FileRevision] = {}
        self.removed: dict[int, tuple[FileRevision, RuleEntry]] = {}
        """By number: where a line of it was taken out last, and what that said."""
        for change in history.lines:
            if change.is_added:
                self._added.setdefault(_squeeze(change.text), change.commit)
            elif (entry := parse_line(change.text.strip())) is not None and entry.number is not None:
                self.removed.setdefault(entry.number, (change.commit, entry))

    def find(self, lines: Sequence[str]) -> FileRevision:
        """The newest commit that one of the lines came with; of a line that a merge made, the newest of all."""
        found = (self._added.get(_squeeze(line), self._commits[0]) for line in lines)
        return min(found, key=lambda commit: self.places[commit.hash])


def plan_rules(
    entries: Sequence[RuleEntry],
    lines: Sequence[str],
    rules: Mapping[int, ServerRule],
    history: FileHistory,
    sources: AbstractSet[tuple[str, str]],
) -> RulesPlan:
    """What the file's entries, which stand in these lines, change of the rules.

    `sources` are commit and mark of what came from such a file and is still a decision of the project, open or closed.
    """
    origins = _Origins(history)
    changes: list[RuleChange] = []
    conflicts: list[RuleConflict] = []
    outdated = 0
    by_text = {rule.text: rule for rule in rules.values()}
    for entry in entries:
        commit = origins.find(lines[entry.line - 1 : entry.line - 1 + entry.line_count])
        rule = rules.get(entry.number) if entry.number is not None else None
        if entry.number is None:
            same = by_text.get(entry.text)
            if same is not None and same.section != entry.section:
                conflicts.append(_conflict(same.number, entry, same))
            elif same is not None or (commit.hash, entry.own_mark) in sources:
                outdated += 1
            else:
                changes.append(_change("new", None, entry, commit))
        elif rule is not None and (rule.section, rule.text) == (entry.section, entry.text):
            continue
        elif rule is not None and rule.is_of(entry, origins.places.keys()):
            changes.append(_change("edited", rule, entry, commit))
        elif entry.own_mark == entry.mark or (rule is not None and rule.source and rule.source.mark == entry.own_mark):
            outdated += 1
        else:
            conflicts.append(_conflict(entry.number, entry, rule))
    present = {entry.number for entry in entries}
    removed = [_plan_removed(rules[number], origins) for number in sorted(rules.keys() - present) if number in origins.removed]
    changes += [found for found in removed if isinstance(found, RuleChange)]
    conflicts += [found for found in removed if isinstance(found, RuleConflict)]
    return RulesPlan(changes=changes, conflicts=conflicts, outdated=outdated)


def _plan_removed(rule: ServerRule, origins: _Origins) -> RuleChange | RuleConflict:
    """A commit took the rule out of the file. What never was in it is newer than the file, or was never written."""
    commit, entry = origins.removed[rule.number]
    is_same = rule.text == entry.text or rule.is_of(entry, origins.places.keys())
    if is_same and rule.changed_at <= commit.committed_at:
        return _change("removed", rule, None, commit)
    return _conflict(rule.number, None, rule, is_back=is_same)


def _change(
    kind: Literal["new", "edited", "removed"], rule: ServerRule | None, entry: RuleEntry | None, commit: FileRevision
) -> RuleChange:
    return RuleChange(
        kind=kind,
        number=rule.number if rule else None,
        before=rule.text if rule else None,
        after=entry.text if entry else None,
        section_before=rule.section if rule else None,
        section_after=entry.section if entry else None,
        commit=commit,
        mark=entry.mark if entry else None,
        details=rule.details if rule and entry and rule.text != entry.text else 0,
    )


def _conflict(number: int, entry: RuleEntry | None, rule: ServerRule | None, *, is_back: bool = False) -> RuleConflict:
    return RuleConflict(
        number=number,
        in_file=entry.text if entry else None,
        on_server=rule.text if rule else None,
        section_in_file=entry.section if entry else None,
        section_on_server=rule.section if rule else None,
        is_back=is_back,
    )


def _squeeze(line: str) -> str:
    return " ".join(line.split())
