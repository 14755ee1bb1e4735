"""Reads what an edit changed: from the inputs and patches of editing tools to one `FileChange` for each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby

import msgspec

from cmserver.base.text import shorten
from cmserver.base.tolerant_json import array, field, number, record
from cmserver.reading import symbols
from cmserver.reading.model import FileChange, Verb
from cmserver.reading.text import count_lines
from cmserver.tooluse.model import ToolUse, WorkingFolder
from cmserver.tooluse.read import BEGIN_PATCH

PATCH_MOVE = re.compile(r"^\*\*\* Move to: (.+)", re.MULTILINE)
_CUT = " left out, but for these ...]"
"""Of the files in the middle of a long patch the names are left."""
PATCH_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MAX_DIFFED = 200_000
"""Lines before and after of one event's edits that are compared; those of further edits are counted."""
_LOOK_BACK, _MAX_HUNKS = 600, 100
"""How many lines above a hunk are searched for what it stands in, and for how many hunks."""
_MAX_LINES = 5_000
"""Lines of one file in one event that are read for names and a sample; the rest is counted."""


def merge_by_path(changes: Iterable[FileChange]) -> dict[str, FileChange]:
    """One change for each file, by path, in the order the files were first touched."""
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    return {path: _merge(same_file) if len(same_file) > 1 else same_file[0] for path, same_file in by_path.items()}


def _merge(changes: list[FileChange]) -> FileChange:
    whole = next((change for change in changes if change.verb != "changed"), changes[0])
    return FileChange(
        path=changes[0].path,
        verb=whole.verb,
        old_path=changes[0].old_path,
        plus=sum(change.plus for change in changes),
        minus=sum(change.minus for change in changes),
        names=list(dict.fromkeys(name for change in changes for name in change.names)),
        sample=next((change.sample for change in sorted(changes, key=lambda change: not change.names) if change.sample), ""),
    )


def read_file_changes(use: ToolUse, folder: WorkingFolder) -> list[FileChange]:
    """Every file that an editing tool, or a patch, changed; empty when the edit had no effect or names no file."""
    if BEGIN_PATCH in use.patch:
        return _read_patch(use.patch, folder)
    path = folder.relative(use.path)
    if not path:
        return []
    if "new_source" in use.fields:
        return [_describe(path, [Hunk(["+" + line for line in field(use.fields, "new_source").splitlines()])])]
    if hunks := read_hunks(use.fields, use.answer):
        change = _describe(path, hunks)
        return [change] if change.plus or change.minus else []
    return _read_write(path, use.fields, use.answer)


def write_file(path: str, content: str, *, verb: Verb = "added") -> FileChange:
    """A file written as a whole; `verb` is `rewrote` for one that was there before."""
    change = _describe(path, [Hunk(["+" + line for line in content.splitlines()])], verb)
    return msgspec.structs.replace(change, plus=count_lines(content))


def append_to_file(path: str, content: str) -> FileChange:
    return _describe(path, [Hunk(["+" + line for line in content.splitlines()])])


class Hunk(msgspec.Struct):
    """A run of lines as in a unified diff (' ', '+', '-')."""

    lines: list[str]
    above: list[str] = []
    """What stands above it in the file."""
    plus: int = 0
    """Lines that are counted only."""
    minus: int = 0


def _read_write(path: str, fields: dict[str, object], answer: dict[str, object]) -> list[FileChange]:
    """The change that a written content makes; none when the file stays the same."""
    content, before = field(fields, "content", "file_text", "contents", "text"), field(answer, "originalFile")
    if not content or content == before:
        return []
    if before:
        lines = _diff(before.splitlines(), content.splitlines())
        if len(lines) < len(content.splitlines()):
            return [_describe(path, [Hunk(lines)])]
    existed = bool(before) or field(answer, "type") == "update"
    return [write_file(path, content, verb="rewrote" if existed else "added")]


def read_hunks(fields: dict[str, object], answer: dict[str, object]) -> list[Hunk]:
    """The hunks of an edit: those the agent reports, else diffs of the replaced texts."""
    original = field(answer, "originalFile").splitlines()
    hunks: list[Hunk] = []
    for entry in map(record, array(answer.get("structuredPatch"))):
        lines = [line for line in array(entry.get("lines")) if isinstance(line, str) and line[:1] in {" ", "+", "-"}]
        start = max(0, number(entry.get("oldStart")) - 1)
        above = original[max(0, start - _LOOK_BACK) : start] if len(hunks) < _MAX_HUNKS else []
        hunks += [Hunk(lines, above)] if lines else []
    if hunks:
        return hunks
    diffed = 0
    for edit in [record(edit) for edit in array(fields.get("edits"))] or [fields]:
        old, new = field(edit, "old_string", "old_str", "oldText"), field(edit, "new_string", "new_str", "newText")
        if old == new:
            continue
        before, after = old.splitlines(), new.splitlines()
        diffed += len(before) + len(after)
        counted_only = Hunk([], plus=count_lines(new), minus=count_lines(old))
        is_cut = counted_only.plus > len(after) or counted_only.minus > len(before)
        hunks.append(counted_only if diffed > _MAX_DIFFED or is_cut else Hunk(_diff(before, after)))
    return hunks


def _diff(old: list[str], new: list[str]) -> list[str]:
    """A one-hunk diff: what both begin with is context, what both end with is left out."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    return [*(" " + line for line in old[:head]), *("-" + line for line in removed), *("+" + line for line in added)]


def _read_patch(patch: str, folder: WorkingFolder) -> list[FileChange]:
    """The changes of a patch in the form of `apply_patch`, file by file."""
    changes: list[FileChange] = []
    pieces = PATCH_FILE.split(patch)
    for action, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        path = folder.relative(name.strip())
        lines = ["  " + line[2:].strip() if line[:2] == "@@" else line for line in body.splitlines()]
        lines = [line for line in lines if line[:1] in {" ", "+", "-"}]
        if moved := PATCH_MOVE.search(body):
            change = _describe(folder.relative(moved[1].strip()), [Hunk(lines)], "moved")
            changes.append(msgspec.structs.replace(change, old_path=path))
        else:
            verb: Verb = "added" if action == "Add" else "removed" if action == "Delete" else "changed"
            changes.append(_describe(path, [Hunk(lines)], verb))
    is_cut = _CUT in patch
    return [it for it in changes if it.path and (is_cut or it.verb != "changed" or it.plus or it.minus)]


def _describe(path: str, hunks: list[Hunk], verb: Verb = "changed") -> FileChange:
    """The change of a file: counted lines, the names that its lines define or stand in, and the first line that tells something."""
    changed = [line for hunk in hunks for line in hunk.lines if line[0] != " "]
    names, left = dict[str, None](), _MAX_LINES
    runs: list[list[str]] = []
    for hunk in hunks:
        lines, left = hunk.lines[:left], left - len(hunk.lines[:left])
        names |= dict.fromkeys(_names(path, [*(f" {line}" for line in hunk.above), *lines]))
        runs += [list(run) for is_changed, run in groupby(lines, key=lambda line: line[0] != " ") if is_changed]
    telling = ([line for line in run if not (symbols.is_import(line[1:]) or symbols.defined(path, line[1:]))] for run in runs)
    return FileChange(
        path=path,
        verb=verb,
        plus=sum(hunk.plus for hunk in hunks) + sum(line[0] == "+" for line in changed),
        minus=sum(hunk.minus for hunk in hunks) + sum(line[0] == "-" for line in changed),
        names=list(names),
        sample=next((text for run in chain(telling, runs) if (text := _sample(run))), ""),
    )


def _names(path: str, lines: list[str]) -> Iterator[str]:
    """What the changed lines define; of one that defines nothing what it stands in, by its indentation."""
    above: list[tuple[int, str]] = []
    for line in lines:
        if not (text := line[1:].strip()):
            continue
        depth, name = len(line) - 1 - len(line[1:].lstrip()), symbols.defined(path, line[1:])
        if name and name.startswith('"'):
            above = [(-1, name)]  # a heading ends at the next one
        elif name or text[0] not in ")]}":
            while above and above[-1][0] >= depth:
                above.pop()
            above += [(depth, name)] if name else []
        if line[0] != " " and above:
            yield above[-1][1]


def _sample(run: list[str]) -> str:
    """The first changed line of a run, before and after."""
    old = next((line[1:].strip() for line in run if line[0] == "-" and line[1:].strip()), "")
    new = next((line[1:].strip() for line in run if line[0] == "+" and line[1:].strip()), "")
    if old and new:
        return f"`{shorten(old, 70)}` → `{shorten(new, 70)}`"
    return f"{'added' if new else 'removed'} `{shorten(new or old, 70)}`" if new or old else ""
