"""Codex: what its hooks send, as our events, and our answers in its output schemas, which refuse every key that they do not know.

Its shell is called Bash there, with the command as one text; its edits are apply_patch, with the patch as the command. It reads
files in its shell, so there is no moment before that. A tool that fails tells nothing, a command that fails tells what it printed.
https://developers.openai.com/codex/hooks
"""

from __future__ import annotations

from cmserver.hooks.events import told, tool_use
from cmserver.hooks.model import Adapter, HookCall, HookEvent, Moment, Told
from cmserver.hooks.output import HookOutput, spoken
from cmserver.hooks.payload import (
    PATH_MOST,
    Fields,
    delivery_event_id,
    fields_of,
    required,
    session_source,
    snake,
    text,
    texts,
)

PLATFORM = "codex"

_TYPES = {"UserPromptSubmit": "user_prompt", "Stop": "assistant_message", "StopFailure": "turn_failed"}
_TOOL_USES = {"PostToolUse": "tool_use", "PostToolUseFailure": "tool_use_failure"}
_SAYS_NOTHING_NEW = {"PreToolUse", "PermissionRequest", "Notification"}
_MOMENTS: dict[str, Moment] = {"SessionStart": "start", "UserPromptSubmit": "prompt", "Stop": "turn_end", "SessionEnd": "end"}
_TAKES_CONTEXT = {"SessionStart", "UserPromptSubmit"}
# A session's end has no schema for an answer.
_SILENT = {"Stop", "SubagentStop", "SessionEnd"}


def understand(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook has sent. Unknown kinds of hooks are stored and never refused; Invalid only when it is no hook's payload."""
    fields = fields_of(payload)
    name, session_id = required(fields, "hook_event_name"), required(fields, "session_id")
    is_subagent = text(fields, "agent_id") is not None or name in {"SubagentStart", "SubagentStop"}
    moment = _MOMENTS.get(name, "other")
    if is_subagent and moment in {"prompt", "turn_end"}:
        moment = "other"
    return HookCall(
        name=name,
        session_id=session_id,
        cwd=text(fields, "cwd", PATH_MOST),
        moment=moment,
        events=_events(name, fields, delivery_id, is_subagent=is_subagent),
        source=session_source(fields),
        prompt=text(fields, "prompt", None) or "" if moment == "prompt" else None,
        is_subagent=is_subagent,
        metadata=texts(fields, "cwd", "source", "model", most=PATH_MOST) if name == "SessionStart" else {},
    )


def output(call: HookCall | None, what: Told) -> HookOutput:
    """Only what each hook's schema names, and nothing at a turn's end, where it could make the model go on."""
    return spoken(call, what, context_at=_TAKES_CONTEXT, silent_at=_SILENT)


def _events(name: str, fields: Fields, delivery_id: str | None, *, is_subagent: bool) -> list[HookEvent]:
    if name in _SAYS_NOTHING_NEW:
        return []
    if name in _TOOL_USES:
        return tool_use(_TOOL_USES[name], fields, delivery_id)
    event_type = _TYPES.get(name) or snake(name)
    if is_subagent:
        event_type = {"user_prompt": "machine_prompt", "assistant_message": "subagent_stop"}.get(event_type, event_type)
    return told(event_type, fields, delivery_event_id(delivery_id))


ADAPTER = Adapter(platform=PLATFORM, understand=understand, output=output)
