"""Joins the start of a command in the background with the look at it that says how it ended."""

from __future__ import annotations

import re

import msgspec

from cmserver.base.tolerant_json import field, number, record
from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.text import printed_text, prose, reported_exit_code

_ID_FIELDS = (
    "bash_id",
    "shell_id",
    "shellId",
    "backgroundTaskId",
    "task_id",
    "taskId",
    "session_id",
    "sessionId",
    "process_id",
    "id",
    "pid",
)
_STARTED = re.compile(r"\b(?:with )?(?:session )?ID:? (\w[\w-]{0,60})", re.IGNORECASE)
_ELEMENTS = ("status", "exit_code", "stdout", "stderr", "output")
_MAX_SHELLS = 100


class BackgroundEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command in the background ended."""

    command: str
    output: dict[str, object]
    """As a shell in the foreground would have answered it: `stdout`, `stderr` and `exit_code`."""


class BackgroundShells:
    """Commands that were started in the background, by what their agent calls them."""

    def __init__(self) -> None:
        self._commands: dict[str, str] = {}

    def add(self, use: ToolUse) -> None:
        """Take the start of a command."""
        name = _find_id(use.answer) or "".join(_STARTED.findall(prose(use.output)[:2_000])[:1])
        if name and len(self._commands) < _MAX_SHELLS:
            self._commands[name] = use.command

    def find_end(self, use: ToolUse) -> BackgroundEnd | None:
        """How the command ended that the call looks at; None while it runs, when it was stopped, or where it is not known."""
        answer = record(use.answer.get("task")) or use.answer
        parts = _read_elements(prose(use.output)) if not answer else {}
        status = (field(answer, "status", "state") or parts.get("status", "")).strip().lower()
        command = field(answer, "command") or self._commands.get(_find_id(use.fields) or _find_id(answer), "")
        exit_code = reported_exit_code({**answer, "stdout": None} if answer else use.output)
        if exit_code is None and (code := parts.get("exit_code", "").strip().lstrip("-")).isdecimal():
            exit_code = number(int(code))
        if exit_code is None:
            exit_code = {"completed": 0, "failed": 1}.get(status)
        is_over = exit_code is not None and status not in {"running", "killed", "stopped", "pending"}
        if use.kind is not ToolKind.PROCESS or not command or not is_over:
            return None
        output = (
            printed_text(answer)
            if answer
            else "\n".join(filter(None, map(parts.get, ("stdout", "output", "stderr")))) or prose(use.output)
        )
        return BackgroundEnd(command=command, output={"stdout": output, "stderr": "", "exit_code": exit_code})


def _read_elements(text: str) -> dict[str, str]:
    """The elements of an answer that is text, whatever stands in them."""
    parts: dict[str, str] = {}
    for name in _ELEMENTS:
        start, end = text.find(f"<{name}>"), text.rfind(f"</{name}>")
        if 0 <= start < end:
            parts[name] = text[start + len(name) + 2 : end].strip("\n")
    return parts


def _find_id(source: dict[str, object]) -> str:
    """The name by which an agent calls a shell."""
    for name in _ID_FIELDS:
        value = source.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)[:100]
    return ""
