"""Tool uses in the short form of the labelled sessions, and the hook payloads that they stand for."""

from __future__ import annotations

import difflib
from typing import Literal

import msgspec

Agent = Literal["claude-code", "codex", "gemini"]


class ShortEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool use. One of the first seven fields says which; the others belong to it."""

    ran: str = ""
    edited: str = ""
    wrote: str = ""
    read: str = ""
    searched: str = ""
    found: str = ""
    task: str = ""
    tool: str = ""

    old: str = ""
    new: str = ""
    existing: bool = False
    start: int = 1
    content: str = ""
    path: str = ""
    files_found: list[str] = []
    ask: str = ""
    answer: str = ""
    input: object = None
    response: object = None
    output: str = ""
    failed: str = ""

    @property
    def shown(self) -> str:
        """The event in a few words."""
        return self.ran or self.edited or self.wrote or self.read or self.searched or self.found or self.task or self.tool


def build_tool_payload(agent: Agent, session_id: str, cwd: str, event: ShortEvent) -> dict[str, object]:
    """The payload that the agent's hook would send for the event. ValueError for a short form that the agent has no tool for."""
    name, tool_input, response = _expand(agent, cwd, event)
    fields: dict[str, object] = {
        "session_id": session_id,
        "cwd": cwd,
        "tool_name": name,
        "tool_input": tool_input,
        "tool_response": response,
    }
    if agent == "gemini":
        return {"hook_event_name": "AfterTool", **fields}
    if event.failed and not (agent == "codex" and event.ran):
        del fields["tool_response"]
        return {"hook_event_name": "PostToolUseFailure", **fields, "error": event.failed.strip("\n"), "is_interrupt": False}
    return {"hook_event_name": "PostToolUse", **fields}


def _expand(agent: Agent, cwd: str, event: ShortEvent) -> tuple[str, object, object]:
    """The tool's name, input and response."""
    if event.tool:
        return event.tool, event.input, event.response
    if event.ran:
        return _run(agent, event)
    if agent != "claude-code":
        raise ValueError(f"{agent}: only ran has a short form, write {event.shown!r} as tool, input and response")
    if event.edited:
        return _edit(f"{cwd}/{event.edited}", event.old, event.new)
    if event.wrote:
        return _write(f"{cwd}/{event.wrote}", event)
    if event.read:
        return _read(f"{cwd}/{event.read}", event)
    return _send_agent(event) if event.task else _search(cwd, event)


def _run(agent: Agent, event: ShortEvent) -> tuple[str, object, object]:
    printed = (event.failed or event.output).strip("\n")
    if agent == "codex":  # of a command that fails it sends what was printed
        return "Bash", {"command": event.ran}, f"{printed}\n"
    if agent == "gemini":
        code = "\nExit Code: 1" if event.failed else ""
        answer = {"llmContent": f"Output: {printed}{code}\nProcess Group PGID: 4711", "returnDisplay": printed}
        return "run_shell_command", {"command": event.ran}, answer
    return "Bash", {"command": event.ran}, {"stdout": printed, "stderr": "", "interrupted": False, "isImage": False}


def _send_agent(event: ShortEvent) -> tuple[str, object, object]:
    tool_input = {"description": event.task, "prompt": event.ask, "subagent_type": event.task}
    content = [{"type": "text", "text": event.answer.strip("\n")}]
    return "Agent", tool_input, {"status": "completed", "content": content, "totalToolUseCount": 5}


def _search(cwd: str, event: ShortEvent) -> tuple[str, object, object]:
    if event.searched:
        tool_input = {"pattern": event.searched, "path": f"{cwd}/{event.path}", "output_mode": "content"}
        content = event.output.strip("\n")
        return "Grep", tool_input, {"mode": "content", "content": content, "numLines": len(content.splitlines())}
    names = [f"{cwd}/{name}" for name in event.files_found]
    return "Glob", {"pattern": event.found}, {"filenames": names, "numFiles": len(names), "truncated": False}


def _read(path: str, event: ShortEvent) -> tuple[str, object, object]:
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
    tool_input = {"file_path": path, "old_string": old, "new_string": new, "replace_all": False}
    answer = {"filePath": path, "oldString": old, "newString": new, "structuredPatch": [patch], "userModified": False}
    return "Edit", tool_input, answer


def _write(path: str, event: ShortEvent) -> tuple[str, object, object]:
    content = event.content.lstrip("\n")
    kind = "update" if event.existing else "create"
    answer: dict[str, object] = {"type": kind, "filePath": path, "content": content, "structuredPatch": [], "originalFile": None}
    return "Write", {"file_path": path, "content": content}, answer
