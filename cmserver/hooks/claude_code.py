"""Claude Code: what its hooks send, as our events, and our answers in its output schema.

The payloads carry no time and no order; a tool use is known by its tool_use_id, anything else by the delivery id of the hook
client.
https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

import re
from typing import cast

from cmserver.hooks.events import told, tool_use
from cmserver.hooks.model import Adapter, HookCall, HookEvent, Moment, Told
from cmserver.hooks.output import HookOutput, spoken
from cmserver.hooks.payload import (
    PATH_MOST,
    Fields,
    array,
    delivery_event_id,
    fields_of,
    prompt_event_id,
    record,
    required,
    session_source,
    snake,
    text,
    texts,
)

PLATFORM = "claude-code"

_TOOL_USES = {"PostToolUse": "tool_use", "PostToolUseFailure": "tool_use_failure"}
_SAYS_NOTHING_NEW = {"PreToolUse", "MessageDisplay", "Notification"}
_TAKES_CONTEXT = {"SessionStart", "UserPromptSubmit", "PreToolUse"}
# Whatever is said there makes the model go on.
_TURN_ENDS = {"Stop", "SubagentStop"}
_MOST_CALLS = 500
_OF_THE_BATCH = (
    "session_id",
    "transcript_path",
    "cwd",
    "prompt_id",
    "permission_mode",
    "agent_id",
    "agent_type",
    "hook_event_name",
)
# What the program itself says to the model in the user's place.
_SAID_BY_MACHINE = re.compile(
    r"\s*+(?:<(task-notification|teammate-message|local-command-stdout|local-command-stderr|local-command-caveat|system-reminder|tick)"
    r"(?:\s[^>]*+)?>.*?</\1>\s*+)++",
    re.DOTALL,
)
# How a batch shows the model a tool use that failed.
_FAILED = re.compile(r"<tool_use_error>|(?:Error: )?Exit code [1-9]\d*+(?:\n|$)")


def understand(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook has sent. Unknown kinds of hooks are stored and never refused; Invalid only when it is no hook's payload."""
    fields = fields_of(payload)
    name, session_id = required(fields, "hook_event_name"), required(fields, "session_id")
    # The type alone is also that of a whole session, started as such an agent.
    is_subagent = text(fields, "agent_id") is not None or name in {"SubagentStart", "SubagentStop"}
    prompt = _prompt(fields) if name == "UserPromptSubmit" and not is_subagent else None
    file = _file(fields) if name == "PreToolUse" else None
    return HookCall(
        name=name,
        session_id=session_id,
        cwd=text(fields, "cwd", PATH_MOST),
        moment=_moment(name, prompt=prompt, file=file, is_subagent=is_subagent),
        events=_events(name, fields, delivery_id, is_users=prompt is not None, is_subagent=is_subagent),
        source=session_source(fields),
        prompt=prompt,
        file=file,
        is_subagent=is_subagent,
        metadata=texts(fields, "cwd", "source", "model", most=PATH_MOST) if name == "SessionStart" else {},
    )


def output(call: HookCall | None, what: Told) -> HookOutput:
    """Never a word about permissions, and none at all at a turn's end."""
    return spoken(call, what, context_at=_TAKES_CONTEXT, silent_at=_TURN_ENDS)


def _moment(name: str, *, prompt: str | None, file: str | None, is_subagent: bool) -> Moment:
    if name == "SessionStart":
        return "start"
    if name == "SessionEnd":
        return "end"
    if name == "Stop" and not is_subagent:
        return "turn_end"
    return "prompt" if prompt is not None else "file" if file is not None else "other"


def _prompt(fields: Fields) -> str | None:
    """What the user has said; None when it is only what the program says in their place."""
    prompt = text(fields, "prompt", None) or ""
    return None if _SAID_BY_MACHINE.fullmatch(prompt) else prompt


def _file(fields: Fields) -> str | None:
    """The file that is about to be read."""
    return text(record(fields.get("tool_input")), "file_path", PATH_MOST) if fields.get("tool_name") == "Read" else None


def _events(name: str, fields: Fields, delivery_id: str | None, *, is_users: bool, is_subagent: bool) -> list[HookEvent]:
    if name in _SAYS_NOTHING_NEW:
        return []
    if name in _TOOL_USES:
        return tool_use(_TOOL_USES[name], fields, delivery_id)
    if name == "PostToolBatch":
        return _batch(fields, delivery_id)
    event_id = delivery_event_id(delivery_id)
    match name:
        case "UserPromptSubmit":
            event_type, event_id = "user_prompt" if is_users else "machine_prompt", event_id or prompt_event_id(fields)
        case "Stop":
            event_type = "subagent_stop" if is_subagent else "assistant_message"
        case "StopFailure":
            event_type = "turn_failed"
        case _:
            event_type = snake(name)
    return told(event_type, fields, event_id)


def _batch(fields: Fields, delivery_id: str | None) -> list[HookEvent]:
    """Each call as if it had come by itself. Most have: their ids say that they are the same."""
    common = texts(fields, *_OF_THE_BATCH, most=PATH_MOST)
    events: list[HookEvent] = []
    for nth, call in enumerate(array(fields.get("tool_calls"))[:_MOST_CALLS]):
        if not isinstance(call, dict):
            continue
        use = {**common, **record(cast("object", call))}
        event_type, response = "tool_use", use.get("tool_response")
        if isinstance(response, str) and _FAILED.match(response):
            event_type, use["error"] = "tool_use_failure", use.pop("tool_response")
        events += tool_use(event_type, use, delivery_id, nth)
    return events


ADAPTER = Adapter(platform=PLATFORM, understand=understand, output=output)
