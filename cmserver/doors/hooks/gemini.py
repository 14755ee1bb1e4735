"""Gemini CLI: its hooks' payloads as events.

Neither turns nor tool uses have ids, so an event is known by what it says and its moment. Context before a tool runs does not reach
the model, so that of a file is sent after it was read.

Context of a session's start is put before the first prompt, and a prompt that begins with it is left out when the session is
resumed. So the index is given with the first prompt: what BeforeAgent gives is a part behind it.
https://geminicli.com/docs/hooks/reference
"""

from __future__ import annotations

import re

from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall, HookEvent, Moment
from cmserver.ingest.door import read_object
from cmserver.tooluse.model import ToolUse

_TYPES = {"BeforeAgent": "user_prompt", "AfterAgent": "assistant_message", "PreCompress": "pre_compact"}
_REPEATING_HOOKS = {"BeforeTool", "BeforeModel", "AfterModel", "BeforeToolSelection", "Notification"}
_HOOK_CONTEXT = re.compile(r"\s*<hook_context>.*?</hook_context>[ \t]*(?:\n\s*|\Z)", re.DOTALL)
"""What hooks gave at the start, before the first words of a session without a terminal. Within it < and > are escaped."""
_MOMENTS: dict[str, Moment] = {"SessionStart": "start", "BeforeAgent": "prompt", "AfterAgent": "turn_end", "SessionEnd": "end"}


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook of Gemini CLI reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields, name, session_id = hook_payload.read_call(payload)
    if isinstance(prompt := fields.get("prompt"), str):
        fields["prompt"] = _HOOK_CONTEXT.sub("", prompt, count=1) if _HOOK_CONTEXT.match(prompt) else prompt
    tool = hook_payload.read_tool(fields) if name == "AfterTool" else None
    file = hook_payload.read_file_path(tool) if tool and _read_error(fields) is None else None
    moment = "file" if file is not None else _MOMENTS.get(name, "other")
    typed = hook_payload.read_text(fields, "prompt", None) or "" if name == "BeforeAgent" else None
    events = _build_events(name, fields, delivery_id, tool)
    return hook_payload.build_call(fields, name, session_id, moment, events, prompt=typed, file=file)


def _build_events(name: str, fields: hook_payload.Fields, delivery_id: str | None, tool: ToolUse | None) -> list[HookEvent]:
    """The events of a hook; none of one that repeats what others say."""
    if tool is not None:
        error = _read_error(fields)
        if error is None:
            return hook_payload.build_tool_event("tool_use", fields, delivery_id, tool=tool)
        return hook_payload.build_tool_event("tool_use_failure", {**fields, "error": error}, delivery_id, tool=tool)
    if name == "AfterAgent":
        fields = {**fields, "last_assistant_message": fields.get("prompt_response")}  # where a summary looks for it
    event_type = _TYPES.get(name) or hook_payload.to_snake_case(name)
    return hook_payload.build_event(event_type, fields, delivery_id, is_repetition=name in _REPEATING_HOOKS)


def _read_error(fields: hook_payload.Fields) -> str | None:
    """Why a tool failed: what it printed, if that is text, else the error's message."""
    response = read_object(fields.get("tool_response"))
    error = response.get("error")
    if not error:
        return None
    message = error if isinstance(error, str) else hook_payload.read_text(read_object(error), "message", None)
    return hook_payload.read_text(response, "llmContent", None) or message or "failed"


ADAPTER = Adapter(
    platform="gemini",
    parse=parse,
    context_hooks={"BeforeAgent", "AfterTool"},
    silent_hooks={"AfterAgent"},
    starts_with_prompt=True,
)
