"""Reads the lines that a tool call took out of each file and put into it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import msgspec

from cmserver.base.tolerant_json import field
from cmserver.reading.edit_tokens import read_place
from cmserver.reading.file_changes import PATCH_FILE, PATCH_MOVE, read_hunks
from cmserver.reading.model import EditedPlace, EventReading, FileEdit
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import CommandLine, SimpleCommand, ToolUse
from cmserver.tooluse.read import BEGIN_PATCH

_MAX_FILES, _MAX_PLACES = 50, 40
_MAX_WHOLE = 200_000
"""Characters of a file that is looked through for what an edit has left in it."""
_MAX_RUNS = 200
_CONTENTS = ("content", "file_text", "contents", "text", "new_source")
_SED = re.compile(r"s([/|#,])((?:(?!\1).){2,200})\1((?:(?!\1).){0,200})\1")


class AddedLines(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that one call put into a file, without the blanks around them. `may_be_older` is true of a file that was written
    as a whole, where it is not known what stood in it before.
    """

    path: str
    lines: list[str]
    may_be_older: bool = False


class FileLines(msgspec.Struct, frozen=True, kw_only=True):
    """What one call did to one file, place by place."""

    path: str
    places: list[EditedPlace] = []
    old_path: str = ""
    """What the file was called before."""
    is_removed: bool = False


def read_edit_lines(reading: EventReading) -> list[FileLines]:
    """What the call did to each file; empty for one that changed none, or of which no line is known."""
    use = reading.tool_use
    if use is None or not isinstance(reading.act, FileEdit):
        return []
    if BEGIN_PATCH in use.patch:
        return [
            msgspec.structs.replace(
                it, path=reading.folder.relative(it.path), old_path=it.old_path and reading.folder.relative(it.old_path)
            )
            for it in _read_patch(use.patch)
        ][:_MAX_FILES]
    if use.command:
        return [it for it in _read_commands(reading, use) if it.path][:_MAX_FILES]
    path = reading.folder.relative(use.path)
    return [FileLines(path=path, places=_read_edit(use))] if path else []


def read_added_lines(reading: EventReading) -> list[AddedLines]:
    """The lines that the call put into each file; none that it only moved or indented."""
    use = reading.tool_use
    if use is None or not isinstance(reading.act, FileEdit):
        return []
    if BEGIN_PATCH in use.patch:
        pieces = PATCH_FILE.split(use.patch)
        added = [
            AddedLines(path=moved[1] if (moved := PATCH_MOVE.search(body)) else name, lines=_find_new(body.splitlines()))
            for name, body in zip(pieces[2::3], pieces[3::3], strict=True)
        ]
    elif use.command:
        line = read_command_line(use.command)
        added = [
            AddedLines(path=command.output_path, lines=_read_content(line, command), may_be_older=not command.appends)
            for command in line.commands
            if command.output_path
        ]
    else:
        added = [_read_new_lines(use)]
    return [
        msgspec.structs.replace(
            it, path=reading.folder.relative(it.path.strip()), lines=[line.strip() for line in it.lines if line.strip()]
        )
        for it in added
        if it.path.strip()
    ]


def _read_content(line: CommandLine, command: SimpleCommand) -> list[str]:
    """What the command writes into its file; nothing where it is not known which file a text is for."""
    if not line.heredocs:
        return " ".join(command.words[1:]).splitlines()
    is_one = len(line.heredocs) == 1 and sum(it.output_path is not None for it in line.commands) == 1
    return line.heredocs[0].splitlines() if is_one else []


def _read_new_lines(use: ToolUse) -> AddedLines:
    if hunks := read_hunks(use.fields, use.answer):
        return AddedLines(path=use.path, lines=_find_new([line for hunk in hunks for line in hunk.lines]))
    before = [f"-{line}" for line in field(use.answer, "originalFile").splitlines()]
    lines = _find_new([*before, *(f"+{line}" for line in field(use.fields, *_CONTENTS).splitlines())])
    is_known = isinstance(use.answer.get("originalFile"), str) or use.answer.get("type") == "create"
    return AddedLines(path=use.path, lines=lines, may_be_older=not is_known)


def _find_new(diff: list[str]) -> list[str]:
    removed = {line[1:].strip() for line in diff if line[:1] == "-"}
    return [line[1:] for line in diff if line[:1] == "+" and line[1:].strip() not in removed]


def _read_edit(use: ToolUse) -> list[EditedPlace]:
    before = field(use.answer, "originalFile")[:_MAX_WHOLE]
    if hunks := read_hunks(use.fields, use.answer):
        old, new = field(use.fields, "old_string", "old_str", "oldText"), field(use.fields, "new_string", "new_str", "newText")
        after = before.replace(old, new, -1 if use.fields.get("replace_all") is True else 1) if old and old in before else ""
        rest = before.replace(old, "", -1 if after else 0) if old and old in before else ""
        return [place for hunk in hunks[:_MAX_PLACES] for place in _read_lines(hunk.lines, before=rest, after=after)]
    content = field(use.fields, *_CONTENTS)
    return [read_place(before.splitlines(), content.splitlines())] if content else []


def _read_lines(lines: list[str], *, before: str = "", after: str = "") -> Iterator[EditedPlace]:
    """Each run of changed lines of a diff."""
    removed, added = list[str](), list[str]()
    for line in chain(lines[: 5 * _MAX_RUNS], " "):
        if line[:1] == "-":
            removed.append(line[1:])
        elif line[:1] == "+":
            added.append(line[1:])
        elif removed or added:
            yield read_place(removed, added, before=before, after=after)
            removed, added = [], []


def _read_patch(patch: str) -> Iterator[FileLines]:
    pieces = PATCH_FILE.split(patch)
    for action, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        lines = [" " if line[:2] == "@@" else line for line in body.splitlines()]
        places = list(_read_lines(lines))[:_MAX_PLACES]
        moved = PATCH_MOVE.search(body)
        path = moved[1].strip() if moved else name.strip()
        yield FileLines(path=path, places=places, old_path=name.strip() if moved else "", is_removed=action == "Delete")


def _read_commands(reading: EventReading, use: ToolUse) -> Iterator[FileLines]:
    """Files that a shell's command line writes, moves, removes, or edits in place."""
    line = read_command_line(use.command)
    for command in line.commands:
        program = command.label.removeprefix("git ")
        paths = [reading.folder.relative(word) for word in _arguments(command)]
        if command.output_path:
            place = read_place([], _read_content(line, command))
            yield FileLines(path=reading.folder.relative(command.output_path), places=[place])
        elif program == "mv" and len(paths) == 2:
            yield FileLines(path=paths[1], old_path=paths[0])
        elif program == "rm":
            yield from (FileLines(path=path, is_removed=True) for path in paths)
        elif program == "sed" and (script := next(filter(None, map(_SED.search, command.words)), None)):
            place = read_place([script[2]], [script[3]])
            yield from (FileLines(path=path, places=[place]) for path in paths[1:])


def _arguments(command: SimpleCommand) -> list[str]:
    return [word for word in command.words[len(command.label.split()) :] if not word.startswith("-")]
