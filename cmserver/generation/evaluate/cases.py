"""The labelled sessions, and the hook payloads that their short forms stand for. `sessions/README.md` explains both."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files

import msgspec

from cmserver.generation.evaluate.model import Case, Event


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in the order of their names."""
    found = [one for one in files("cmserver.generation.evaluate").joinpath("sessions").iterdir() if one.name.endswith(".toml")]
    return tuple(
        msgspec.structs.replace(msgspec.toml.decode(file.read_bytes(), type=Case), name=file.name.removesuffix(".toml"))
        for file in sorted(found, key=lambda file: file.name)
    )


def payload(case: Case, event: Event) -> dict[str, object]:
    """What the agent's hook would send."""
    told: dict[str, object] = {"session_id": case.name, "cwd": case.cwd, **_tool_use(case, event)}
    if case.agent == "gemini":
        return {"hook_event_name": "AfterTool", **told}
    if event.failed:
        del told["tool_response"]
        return {"hook_event_name": "PostToolUseFailure", **told, "error": event.failed.strip("\n"), "is_interrupt": False}
    return {"hook_event_name": "PostToolUse", **told}


def _tool_use(case: Case, event: Event) -> dict[str, object]:
    name, given, answer = _form(case, event)
    return {"tool_name": name, "tool_input": given, "tool_response": answer}


def _form(case: Case, event: Event) -> tuple[str, object, object]:
    """The name of the tool, its input and its answer."""
    if event.ran:
        answer = {"stdout": event.output.strip("\n"), "stderr": "", "interrupted": False, "isImage": False}
        return "Bash", {"command": event.ran}, answer
    if event.edited:
        return _edit(f"{case.cwd}/{event.edited}", event.old, event.new)
    if event.wrote:
        return _write(f"{case.cwd}/{event.wrote}", event)
    if event.read:
        return _read(f"{case.cwd}/{event.read}", event)
    return _search(case, event) if event.searched or event.found else (event.tool, event.input, event.response)


def _search(case: Case, event: Event) -> tuple[str, object, object]:
    if event.searched:
        given = {"pattern": event.searched, "path": f"{case.cwd}/{event.path}", "output_mode": "content"}
        found = event.output.strip("\n")
        return "Grep", given, {"mode": "content", "content": found, "numLines": len(found.splitlines())}
    names = [f"{case.cwd}/{name}" for name in event.files_found]
    return "Glob", {"pattern": event.found}, {"filenames": names, "numFiles": len(names), "truncated": False}


def _read(path: str, event: Event) -> tuple[str, object, object]:
    content = event.content.lstrip("\n")
    lines = content.count("\n")
    file = {
        "filePath": path,
        "content": content,
        "numLines": lines,
        "startLine": event.start,
        "totalLines": lines + event.start - 1,
    }
    return "Read", {"file_path": path}, {"type": "text", "file": file}


def _edit(path: str, old: str, new: str) -> tuple[str, object, object]:
    lines = [line.rstrip("\n") for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=3)][3:]
    before, after = len(old.splitlines()), len(new.splitlines())
    patch = {"oldStart": 20, "oldLines": before, "newStart": 20, "newLines": after, "lines": lines}
    given = {"file_path": path, "old_string": old, "new_string": new, "replace_all": False}
    answer = {"filePath": path, "oldString": old, "newString": new, "structuredPatch": [patch], "userModified": False}
    return "Edit", given, answer


def _write(path: str, event: Event) -> tuple[str, object, object]:
    content = event.content.lstrip("\n")
    kind = "update" if event.existing else "create"
    answer: dict[str, object] = {"type": kind, "filePath": path, "content": content, "structuredPatch": [], "originalFile": None}
    return "Write", {"file_path": path, "content": content}, answer
