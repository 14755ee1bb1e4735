"""Copilot CLI: its hooks' payloads as events.

Hooks whose names begin with a capital get Claude Code's names and fields, but their output is Copilot's own. Tool uses and turns
have no ids, so an event is known by what it says and its moment. A sub-agent has a session id of its own, beside that of the agent
that started it; its Stop says less than the SubagentStop that follows. The agent's last words stand in no payload, and the
transcript that Stop names is written after the hook has begun.
https://docs.github.com/en/copilot/reference/hooks-reference
"""

from __future__ import annotations

import re

from msgspec import structs

from cmserver.doors.hooks import claude_code
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall
from cmserver.ingest.door import read_object

_EXIT = re.compile(r"<shellId: [^\n<>]{1,100} completed with exit code (-?\d{1,10})>\s*\Z")
"""The last line of what the shell answers; a command that failed is a success of the tool."""


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook of Copilot CLI reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields = hook_payload.parse_fields(payload)
    if parent := hook_payload.read_text(fields, "parent_agent_id"):
        fields = {**fields, "session_id": parent}
    if fields.get("hook_event_name") == "PostToolUse":
        fields = _read_result(fields)
    call = claude_code.parse(fields, delivery_id)
    return structs.replace(call, events=[]) if call.name == "Stop" and call.is_subagent else call


def _read_result(fields: hook_payload.Fields) -> hook_payload.Fields:
    """The fields with what the tool answered, and the exit code of a command, where others look for them."""
    result = read_object(fields.get("tool_result"))
    text = hook_payload.read_text(result, "text_result_for_llm", None)
    if text is None:
        return fields
    ended = _EXIT.search(text) if fields.get("tool_name") == "Bash" else None
    response = {"output": text[: ended.start()], "exit_code": int(ended[1])} if ended else text
    return {**{name: value for name, value in fields.items() if name != "tool_result"}, "tool_response": response}


ADAPTER = Adapter(
    platform="copilot",
    parse=parse,
    context_hooks={"SessionStart", "UserPromptSubmit"},
    silent_hooks={"Stop", "SubagentStop", "SessionEnd"},
    flat_field="additionalContext",
)
