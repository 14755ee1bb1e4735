"""Reads how tool uses ended that were told of without their end, and makes events of that.

Claude Code tells the end of what runs in the background as a prompt of the program's, a `<task-notification>`. Codex tells a
command's exit code in its rollout only, from which our hook client takes it at the end of a turn.
"""

from __future__ import annotations

import re

from cmserver.base.tolerant_json import array, field, texts
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import HookEvent, ToolEnd
from cmserver.ingest.door import read_object
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose, ToolKind
from cmserver.tooluse.read import read_tool_use
from cmserver.tooluse.text import printed_text

_MAX_ENDS = 200
_NOTIFICATION = re.compile(r"\s*<task-notification>\n(.*?)\n</task-notification>", re.DOTALL)
_MEMBER = re.compile(r"^<(tool-use-id|status|summary)>(.*)</\1>$", re.MULTILINE)
_EXIT_CODE = re.compile(r"\bexit code (\d{1,9})\)?$")
_TOLD = {Purpose.OTHER, Purpose.CHECK, Purpose.TEST}
"""What a command is for whose exit code 0 says more than that it ran."""


def read_notifications(prompt: object) -> list[ToolEnd]:
    """The ends of background tasks that the program tells at the beginning of a prompt. What was stopped has none.

    A notification that stands behind other words was put there by the user.
    """
    ends: list[ToolEnd] = []
    place = 0
    while isinstance(prompt, str) and (notification := _NOTIFICATION.match(prompt, place)) and len(ends) < _MAX_ENDS:
        place = notification.end()
        head, report = _split_result(notification[1])
        members = dict(_MEMBER.findall(head))
        tool_use_id, status = members.get("tool-use-id", ""), members.get("status")
        code = _EXIT_CODE.search(members.get("summary", "").rstrip())
        exit_code = int(code[1]) if code else {"completed": 0, "failed": 1}.get(status or "")
        if tool_use_id and status in {"completed", "failed"}:
            ends.append(ToolEnd(tool_use_id=tool_use_id, exit_code=exit_code, report=report))
    return ends


def _split_result(text: str) -> tuple[str, str]:
    """What stands before the result of a notification, which is its last element, and the result; looked for from one side only."""
    head, opening, rest = f"\n{text}".partition("\n<result>")
    rest = rest.rstrip()
    return (head, rest.removesuffix("</result>")) if opening and rest.endswith("</result>") else (text, "")


def read_command_ends(value: object) -> list[ToolEnd]:
    """The ends of commands as our hook client gives them: objects with `tool_use_id`, `exit_code` and `command`."""
    entries = [read_object(entry) for entry in array(value)[:_MAX_ENDS]]
    return [
        ToolEnd(tool_use_id=tool_use_id, exit_code=exit_code, command=texts(entry.get("command")))
        for entry in entries
        if (tool_use_id := field(entry, "tool_use_id")) and type(exit_code := entry.get("exit_code")) is int
    ]


def build_tool_end(end: ToolEnd, started: hook_payload.Fields, fields: hook_payload.Fields) -> list[HookEvent]:
    """The event of the tool use whose start is stored as `started`, with its end; none where the end says no more.

    `fields` are of the hook that tells it. Without `started` there is an event only for a command that the end itself names.
    """
    name = field(started, "tool_name") or ("Bash" if end.command else "")
    use = read_tool_use(name, started.get("tool_input") or {"command": end.command})
    tool_input = {key: value for key, value in use.fields.items() if key != "run_in_background"}
    event_type = "tool_use"
    if use.kind is ToolKind.AGENT and end.report.strip() and end.exit_code == 0:
        response: dict[str, object] = {"status": "completed", "content": [{"type": "text", "text": end.report}]}
    elif use.kind is ToolKind.SHELL and use.command and end.exit_code is not None:
        if end.exit_code == 0 and read_command_line(use.command).main.purpose not in _TOLD:
            return []
        response = {"output": printed_text(started.get("tool_response")), "exit_code": end.exit_code}
        event_type = "tool_use_failure" if end.exit_code else "tool_use"
    else:
        return []
    common = hook_payload.read_texts(fields, "session_id", "cwd", "hook_event_name", "prompt_id", "turn_id")
    cwd = {"cwd": started["cwd"]} if isinstance(started.get("cwd"), str) else {}
    payload: hook_payload.Fields = {
        **common,
        **cwd,
        "tool_name": name,
        "tool_input": tool_input,
        "tool_use_id": end.tool_use_id,
        "tool_response": response,
    }
    metadata = hook_payload.read_texts(started, "agent_id", "agent_type")
    return hook_payload.build_tool_end_event(event_type, {**payload, **metadata})
