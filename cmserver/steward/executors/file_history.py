"""Reads from tool calls what became of files: deleted, moved, restored, and which definitions in them were changed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.tolerant_json import array, field, record
from cmserver.events.model import RecordedToolUse
from cmserver.reading.outcomes import read_outcome
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import ToolKind, ToolUse, find_working_folder
from cmserver.tooluse.read import BEGIN_PATCH, read_tool_use

_PATCHED_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_MOVED_TO = re.compile(r"^\*\*\* Move to: (.+)$", re.MULTILINE)
_MAX_CHARS = 200_000
"""The part of a text before and after an edit that is looked at."""


class PathChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something that one call did to a file. `name` is its new path where it was moved.

    `before` and `after` are the changed part of an edit; of a file that was written whole, `before` is None.
    """

    act: Literal["deleted", "moved", "restored", "edited", "written"]
    path: str
    event_id: UUID
    at: datetime
    name: str = ""
    before: str | None = None
    after: str = ""
    is_folder: bool = False


def read_path_changes(calls: Iterable[RecordedToolUse]) -> list[PathChange]:
    """What the calls did to files, in the order in which they happened. Paths are from the repository's root."""
    return [change for call in sorted(calls, key=lambda call: (call.occurred_at, call.id)) for change in _read_call(call)]


def _read_call(call: RecordedToolUse) -> Iterator[PathChange]:
    payload = record(call.payload)
    name, error = payload.get("tool_name"), payload.get("error")
    if not isinstance(name, str) or error:
        return
    output = payload.get("tool_response", payload.get("tool_output"))
    use = read_tool_use(name, payload.get("tool_input"), output, None)
    reader = _FateReader(call, field(payload, "cwd"))
    if use.kind is ToolKind.SHELL and not use.patch:
        yield from reader.read_shell(use)
    elif BEGIN_PATCH in use.patch:
        yield from reader.read_patch(use.patch)
    elif use.edits_files and use.path:
        yield from reader.read_edit(use)


class _FateReader:
    def __init__(self, call: RecordedToolUse, folder: str | None) -> None:
        self._call = call
        self._where = find_working_folder(call.root, folder)

    def _change(
        self, act: Literal["deleted", "moved", "restored", "edited", "written"], path: str, name: str = "", **others: object
    ) -> PathChange:
        known = {"path": self._where.relative(path), "name": self._where.relative(name)}
        return msgspec.convert({"act": act, "event_id": self._call.id, "at": self._call.occurred_at, **known, **others}, PathChange)

    def read_shell(self, use: ToolUse) -> Iterator[PathChange]:
        line = read_command_line(use.command)
        if read_outcome(line, use.output, None, self._where, is_failed=False).failed:
            return
        folder = ""
        for command in line.commands:
            words = [word for word in command.words if word not in {"sudo", "command"}]
            is_git = words[:1] == ["git"]
            program, rest = (words[1:2], words[2:]) if is_git else (words[:1], words[1:])
            arguments = [word for word in rest if not word.startswith("-")]
            if program == ["cd"] and arguments:
                folder = self._where.resolve(arguments[0], folder)
            elif program in (["rm"], ["unlink"]):
                for path in arguments:
                    yield self._change("deleted", self._where.resolve(path, folder), is_folder=_is_folder(path))
            elif program == ["mv"] and len(arguments) > 1:
                yield from self._read_move([self._where.resolve(path, folder) for path in arguments])
            elif is_git and program in (["checkout"], ["restore"]) and "-b" not in rest:
                for path in arguments:
                    yield self._change("restored", self._where.resolve(path, folder))
            if command.output_path and not command.appends:
                yield self._change("restored", self._where.resolve(command.output_path, folder))

    def _read_move(self, paths: list[str]) -> Iterator[PathChange]:
        *sources, target = paths
        is_into = len(sources) > 1 or _is_folder(target)
        for path in sources:
            new = f"{target}/{posixpath.basename(path)}" if is_into and not _is_folder(path) else target
            yield self._change("moved", path, name=new, is_folder=_is_folder(path))
            yield self._change("restored", new)

    def read_patch(self, patch: str) -> Iterator[PathChange]:
        pieces = _PATCHED_FILE.split(patch)
        for action, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            path = name.strip()
            lines = body.splitlines()
            before = "\n".join(line[1:] for line in lines if line[:1] in {"-", " "})[:_MAX_CHARS]
            after = "\n".join(line[1:] for line in lines if line[:1] in {"+", " "})[:_MAX_CHARS]
            if action == "Delete":
                yield self._change("deleted", path)
            elif action == "Add":
                yield self._change("written", path, after=after)
            elif moved := _MOVED_TO.search(body):
                yield self._change("moved", path, name=moved[1].strip())
                yield self._change("restored", moved[1].strip())
            else:
                yield self._change("edited", path, before=before, after=after)

    def read_edit(self, use: ToolUse) -> Iterator[PathChange]:
        if use.tool == "Delete":
            yield self._change("deleted", use.path)
            return
        fields = use.fields
        content = field(fields, "content", "file_text", "contents", "text")
        edits = [record(edit) for edit in array(fields.get("edits"))] or [fields]
        pairs = [
            (field(edit, "old_string", "old_str", "oldText"), field(edit, "new_string", "new_str", "newText")) for edit in edits
        ]
        if content:
            yield self._change("written", use.path, after=content[:_MAX_CHARS])
        for before, after in pairs:
            if before and before != after:
                yield self._change("edited", use.path, before=before[:_MAX_CHARS], after=after[:_MAX_CHARS])


def _is_folder(path: str) -> bool:
    """Whether a path is taken for a folder: its last part has no ending."""
    return not posixpath.splitext(path)[1]


def is_about(change: PathChange, path: str) -> bool:
    """Whether the call was about the file of that path, or about a folder that it is in."""
    path = path.replace("\\", "/").removeprefix("./")
    if change.path == path or (change.path.startswith("/") and "/" in path and change.path.endswith(f"/{path}")):
        return True
    return change.is_folder and change.act in {"deleted", "moved"} and path.startswith(f"{change.path}/")


def defined_values(text: str, name: str) -> list[str]:
    """What stands in the lines that define the name: an empty list where none does."""
    pattern = _definition(name)
    return [match[1].strip() for line in text.splitlines() if (match := pattern.search(line))]


def _definition(name: str) -> re.Pattern[str]:
    """A line that gives the name a value or a body; `name` is a whole word."""
    word = rf"(?<![\w.]){re.escape(name)}(?!\w)"
    return re.compile(
        rf"(?:^\s*[\"'`]?{word}[\"'`]?\s*(?::=|=(?!=)|:)"
        rf"|\b(?:const|let|var|val|def|fn|func|function|class|struct|interface|enum|type|static|final|export|pub)\b[^=#/]*?{word})(.*)$"
    )


def mentions(text: str, name: str) -> bool:
    """Whether the name stands in the text as a whole word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
