"""Codex: its hooks' payloads as events. Its output schemas refuse unknown keys.

Its shell is called Bash there, with the command as one text; its edits are apply_patch, with the patch as the command. It reads
files in its shell, so no hook runs before that. A tool that fails sends nothing; a command that fails sends what it printed. Its
exit code stands in the rollout, from which our hook client puts it into `command_ends` at the end of a turn.
https://developers.openai.com/codex/hooks
"""

from __future__ import annotations

from msgspec.structs import replace

from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall, HookEvent, Moment
from cmserver.doors.hooks.tool_ends import read_command_ends

_TYPES = {"UserPromptSubmit": "user_prompt", "Stop": "assistant_message", "StopFailure": "turn_failed"}
_SUBAGENT_TYPES = {"UserPromptSubmit": "machine_prompt", "Stop": "subagent_stop"}
_TOOL_USES = {"PostToolUse": "tool_use", "PostToolUseFailure": "tool_use_failure"}
_REPEATING_HOOKS = {"PreToolUse", "PermissionRequest", "Notification"}
_MOMENTS: dict[str, Moment] = {"SessionStart": "start", "UserPromptSubmit": "prompt", "Stop": "turn_end", "SessionEnd": "end"}


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook of Codex reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields, name, session_id = hook_payload.read_call(payload)
    command_ends = read_command_ends(fields.get("command_ends"))
    fields = {field: value for field, value in fields.items() if field != "command_ends"}
    if name == hook_payload.TRANSCRIPT_END:
        return hook_payload.parse_transcript_end(fields, session_id)
    is_subagent = hook_payload.read_text(fields, "agent_id") is not None or name in {"SubagentStart", "SubagentStop"}
    moment = _MOMENTS.get(name, "other")
    if is_subagent and moment in {"prompt", "turn_end"}:
        moment = "other"
    prompt = hook_payload.read_text(fields, "prompt", None) or "" if moment == "prompt" else None
    events = _build_events(name, fields, delivery_id, is_subagent=is_subagent)
    call = hook_payload.build_call(fields, name, session_id, moment, events, prompt=prompt, is_subagent=is_subagent)
    return replace(call, tool_ends=command_ends)


def _build_events(name: str, fields: hook_payload.Fields, delivery_id: str | None, *, is_subagent: bool) -> list[HookEvent]:
    if name in _TOOL_USES:
        return hook_payload.build_tool_event(_TOOL_USES[name], fields, delivery_id)
    event_type = (_SUBAGENT_TYPES.get(name) if is_subagent else None) or _TYPES.get(name) or hook_payload.to_snake_case(name)
    return hook_payload.build_event(event_type, fields, delivery_id, is_repetition=name in _REPEATING_HOOKS)


ADAPTER = Adapter(
    platform="codex",
    parse=parse,
    context_hooks={"SessionStart", "UserPromptSubmit"},
    silent_hooks={"Stop", "SubagentStop", "SessionEnd"},
)
