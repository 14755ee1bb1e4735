"""Claude Code: what its hooks send, as our events, and our answers in its output schema.

The payloads carry no time and no order; a tool use is known by its tool_use_id, anything else by the delivery id of the hook
client.
https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.base.text import KEY_MOST, storable

PLATFORM = "claude-code"

_TYPES = {
    "UserPromptSubmit": "user_prompt",
    "PostToolUse": "tool_use",
    "PostToolUseFailure": "tool_use_failure",
    "Stop": "assistant_message",
}
_GENERATES = {"PostToolUse", "PostToolUseFailure"}
_SAYS_NOTHING_NEW = {"PreToolUse", "MessageDisplay", "Notification"}
_LONGEST_PATH = 4096
_OURS = re.compile(r"^mcp__(?:plugin_)?cmserver_")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class SpecificOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What belongs to one kind of hook."""

    hook_event_name: str
    additional_context: str


class HookOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """What Claude Code reads from a hook; an empty object leaves everything as it is."""

    hook_specific_output: SpecificOutput | None = None


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a hook, understood. `event_type` is None when there is nothing to store."""

    name: str
    session_id: str
    cwd: str | None
    event_type: str | None
    source_event_id: str | None
    generate: bool
    metadata: dict[str, object]

    @property
    def starts_session(self) -> bool:
        return self.name == "SessionStart"

    @property
    def ends_session(self) -> bool:
        return self.name == "SessionEnd"


def understand(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook has sent. Unknown kinds of hooks are stored and never refused; Invalid only when it is no hook's payload."""
    if not isinstance(payload, dict):
        raise Invalid("A hook sends a JSON object.", [Issue("$", "Expected an object")])
    fields = cast("dict[str, object]", payload)
    name = _required(fields, "hook_event_name")
    return HookCall(
        name=name,
        session_id=_required(fields, "session_id"),
        cwd=_text(fields, "cwd", _LONGEST_PATH),
        event_type=None if _is_noise(name, fields) else _TYPES.get(name) or _WORDS.sub("_", name).lower(),
        source_event_id=_source_event_id(name, fields, delivery_id),
        generate=name in _GENERATES,
        metadata={key: value for key in ("agent_id", "agent_type") if (value := _text(fields, key))},
    )


def session_metadata(payload: object) -> dict[str, object]:
    """What is kept of a SessionStart with the session."""
    fields = cast("dict[str, object]", payload)
    return {key: value for key in ("cwd", "source", "model") if (value := _text(fields, key, _LONGEST_PATH))}


def context_output(context: str) -> HookOutput:
    """Claude Code puts the text before the session's first prompt."""
    return HookOutput(hook_specific_output=SpecificOutput(hook_event_name="SessionStart", additional_context=context))


def _is_noise(name: str, fields: dict[str, object]) -> bool:
    """Hooks that repeat what another one says, and calls of our own tools, which would come back as observations."""
    tool = fields.get("tool_name")
    return name in _SAYS_NOTHING_NEW or (isinstance(tool, str) and _OURS.match(tool) is not None)


def _source_event_id(name: str, fields: dict[str, object], delivery_id: str | None) -> str | None:
    tool_use_id = _text(fields, "tool_use_id")
    if tool_use_id:
        return f"{name}:{tool_use_id}"
    if delivery_id and len(delivery_id) <= KEY_MOST:
        return f"delivery:{storable(delivery_id)}"
    prompt_id = _text(fields, "prompt_id")
    return f"{name}:{prompt_id}" if prompt_id and name == "UserPromptSubmit" else None


def _required(fields: dict[str, object], name: str) -> str:
    text = _text(fields, name)
    if text is None:
        raise Invalid(
            f"A hook's payload has a text {name} of 1 to {KEY_MOST} characters.",
            [Issue(f"$.{name}", f"Expected a text of 1 to {KEY_MOST} characters")],
        )
    return text


def _text(fields: dict[str, object], name: str, most: int = KEY_MOST) -> str | None:
    """No hook is refused for a character that cannot be stored; it is replaced."""
    value = fields.get(name)
    return storable(value) if isinstance(value, str) and 0 < len(value) <= most else None
