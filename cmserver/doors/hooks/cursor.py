"""Cursor: its hooks' payloads as events.

A conversation is a session, and each prompt in it has its own generation. What a tool answers comes as JSON in a text. A reply
comes in a hook of its own, before the hook of the turn's end, which says no more. Only at a session's start does context reach the
model.
https://cursor.com/docs/hooks
"""

from __future__ import annotations

from cmserver.base.errors import Invalid
from cmserver.base.json_text import MAX_DEPTH, decode_json
from cmserver.base.tolerant_json import array
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall, HookEvent, Moment

_TYPES = {"beforeSubmitPrompt": "user_prompt", "afterAgentResponse": "assistant_message"}
_TOOL_USES = {"postToolUse": "tool_use", "postToolUseFailure": "tool_use_failure"}
_REPEATING_HOOKS = {
    *("preToolUse", "beforeShellExecution", "beforeMCPExecution", "beforeReadFile", "beforeTabFileRead", "workspaceOpen"),
    *("afterShellExecution", "afterMCPExecution", "afterFileEdit", "afterTabFileEdit", "afterAgentThought"),
}
"""They say what is about to happen, repeat postToolUse, or are not of the agent."""
_MOMENTS: dict[str, Moment] = {
    "sessionStart": "start",
    "beforeSubmitPrompt": "prompt",
    "afterAgentResponse": "turn_end",
    "sessionEnd": "end",
}


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook of Cursor reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields = {name: value for name, value in hook_payload.parse_fields(payload).items() if name != "user_email"}
    name = hook_payload.require_text(fields, "hook_event_name")
    session_id = hook_payload.read_text(fields, "conversation_id") or hook_payload.require_text(fields, "session_id")
    roots = [root for root in array(fields.get("workspace_roots")) if isinstance(root, str)]
    return HookCall(
        name=name,
        session_id=session_id,
        cwd=hook_payload.read_text({"root": roots[0]} if roots else {}, "root", hook_payload.MAX_PATH_CHARS)
        or hook_payload.read_text(fields, "cwd", hook_payload.MAX_PATH_CHARS),
        moment=_MOMENTS.get(name, "other"),
        events=_build_events(name, fields, delivery_id),
        prompt=hook_payload.read_text(fields, "prompt", None) or "" if name == "beforeSubmitPrompt" else None,
        metadata=hook_payload.read_texts(fields, "model", "composer_mode", max_chars=hook_payload.MAX_PATH_CHARS)
        if name == "sessionStart"
        else {},
    )


def _build_events(name: str, fields: hook_payload.Fields, delivery_id: str | None) -> list[HookEvent]:
    """The events of a hook; none of one that repeats what others say."""
    if name in _TOOL_USES:
        added: hook_payload.Fields = {"error": fields.get("error_message")} if "error_message" in fields else {}
        if "tool_output" in fields:
            added["tool_response"] = _read_output(fields["tool_output"])
        kept = {key: value for key, value in fields.items() if key != "tool_output"}
        return hook_payload.build_tool_event(_TOOL_USES[name], {**kept, **added}, delivery_id)
    if name == "afterAgentResponse":
        fields = {**fields, "last_assistant_message": fields.get("text")}  # where a summary looks for it
    event_type = _TYPES.get(name) or hook_payload.to_snake_case(name)
    return hook_payload.build_event(event_type, fields, delivery_id, is_repetition=name in _REPEATING_HOOKS)


def _read_output(output: object) -> object:
    """What the tool answered: the JSON in the text, else the text."""
    if not isinstance(output, str):
        return output
    try:
        return decode_json(output.encode(), keeps_all=True, max_depth=MAX_DEPTH - 1)  # it is a field
    except (Invalid, UnicodeEncodeError):
        return output


ADAPTER = Adapter(
    platform="cursor",
    parse=parse,
    context_hooks={"sessionStart"},
    silent_hooks={"beforeSubmitPrompt", "postToolUse", "postToolUseFailure", "afterAgentResponse", "sessionEnd"},
    flat_field="additional_context",
)
