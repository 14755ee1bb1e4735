"""Claude Code: its hooks' payloads as events.

The payloads have no time and no order. A tool use is known by its tool_use_id, a prompt and a reply by the prompt_id and what they
say, any other event by its moment.
https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

import re
from typing import cast

from msgspec.structs import replace

from cmserver.base.tolerant_json import array
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall, HookEvent, Moment
from cmserver.doors.hooks.tool_ends import read_notifications
from cmserver.ingest.door import read_object
from cmserver.tooluse.typed_prompt import typed_text

_TOOL_USES = {"PostToolUse": "tool_use", "PostToolUseFailure": "tool_use_failure"}
_REPEATING_HOOKS = {"PreToolUse", "MessageDisplay", "Notification"}
_MAX_BATCH_CALLS = 500
_BATCH_FIELDS = (
    "session_id",
    "transcript_path",
    "cwd",
    "prompt_id",
    "permission_mode",
    "agent_id",
    "agent_type",
    "hook_event_name",
)
# How a batch shows the model a tool use that failed.
_FAILED = re.compile(r"<tool_use_error>|(?:Error: )?Exit code [1-9]\d*+(?:\n|$)")


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook of Claude Code reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields, name, session_id = hook_payload.read_call(payload)
    if name == hook_payload.TRANSCRIPT_END:
        return hook_payload.parse_transcript_end(fields, session_id)
    # A whole session can have a type as well, when it was started as such an agent.
    is_subagent = hook_payload.read_text(fields, "agent_id") is not None or name in {"SubagentStart", "SubagentStop"}
    prompt = _read_user_prompt(fields) if name == "UserPromptSubmit" and not is_subagent else None
    file = hook_payload.read_file_path(hook_payload.read_tool(fields)) if name == "PreToolUse" else None
    moment = _find_moment(name, prompt=prompt, file=file, is_subagent=is_subagent)
    events = _build_events(name, fields, delivery_id, is_users=prompt is not None, is_subagent=is_subagent)
    call = hook_payload.build_call(fields, name, session_id, moment, events, prompt=prompt, file=file, is_subagent=is_subagent)
    return replace(call, tool_ends=read_notifications(fields.get("prompt"))) if name == "UserPromptSubmit" else call


def _find_moment(name: str, *, prompt: str | None, file: str | None, is_subagent: bool) -> Moment:
    if name == "SessionStart":
        return "start"
    if name == "SessionEnd":
        return "end"
    if name == "Stop" and not is_subagent:
        return "turn_end"
    return "prompt" if prompt is not None else "file" if file is not None else "other"


def _read_user_prompt(fields: hook_payload.Fields) -> str | None:
    """The user's prompt; None for one that the program sends in the user's place."""
    prompt = hook_payload.read_text(fields, "prompt", None) or ""
    return None if prompt.strip() and not typed_text(prompt) else prompt


def _build_events(
    name: str, fields: hook_payload.Fields, delivery_id: str | None, *, is_users: bool, is_subagent: bool
) -> list[HookEvent]:
    """The events of a hook; none of one that repeats what others say."""
    if name in _TOOL_USES:
        return hook_payload.build_tool_event(_TOOL_USES[name], fields, delivery_id)
    if name == "PostToolBatch":
        return _build_batch(fields, delivery_id)
    match name:
        case "UserPromptSubmit":
            event_type = "user_prompt" if is_users else "machine_prompt"
        case "Stop":
            event_type = "subagent_stop" if is_subagent else "assistant_message"
        case "StopFailure":
            event_type = "turn_failed"
        case _:
            event_type = hook_payload.to_snake_case(name)
    # A compaction is made by an agent without a type that never started; PostCompact has its summary.
    is_repetition = name in _REPEATING_HOOKS or (name == "SubagentStop" and fields.get("agent_type") == "")
    return hook_payload.build_event(event_type, fields, delivery_id, is_repetition=is_repetition)


def _build_batch(fields: hook_payload.Fields, delivery_id: str | None) -> list[HookEvent]:
    """One event for each call. Most have been sent alone as well, with the same id."""
    common = hook_payload.read_texts(fields, *_BATCH_FIELDS, max_chars=hook_payload.MAX_PATH_CHARS)
    events: list[HookEvent] = []
    for index, call in enumerate(array(fields.get("tool_calls"))[:_MAX_BATCH_CALLS]):
        if not isinstance(call, dict):
            continue
        use = {**common, **read_object(cast("object", call))}
        event_type, response = "tool_use", use.get("tool_response")
        if isinstance(response, str) and _FAILED.match(response):
            event_type, use["error"] = "tool_use_failure", use.pop("tool_response")
        events += hook_payload.build_tool_event(event_type, use, delivery_id, index)
    return events


ADAPTER = Adapter(
    platform="claude-code",
    parse=parse,
    context_hooks={"SessionStart", "UserPromptSubmit", "PreToolUse"},
    silent_hooks={"Stop", "SubagentStop"},
)
