"""OpenCode: what our plugin sends, as events. `cmserver connect opencode` writes the plugin; its hooks are named as Codex's are.

A sub-agent works in a session of its own, which the plugin gives as `agent_id`. Only at a session's start does context reach the
model. `opencode run` puts an argument that has spaces into double quotes, and escapes those within; what it reads from a pipe
follows on the next line.
https://opencode.ai/v1/docs/plugins.md
"""

from __future__ import annotations

import re

from msgspec import structs

from cmserver.doors.hooks import codex
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import Adapter, HookCall

_QUOTED = re.compile(r'"((?:[^"\\]|\\"|\\)*)"(?=\n|\Z)')
"""An argument as `opencode run` quotes it."""


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What the plugin reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    fields = hook_payload.parse_fields(payload)
    if fields.get("hook_event_name") == "UserPromptSubmit" and isinstance(prompt := fields.get("prompt"), str):
        fields = {**fields, "prompt": _unquote(prompt)}
    call = codex.parse(fields, delivery_id)
    return structs.replace(call, moment="other") if call.is_subagent else call


def _unquote(prompt: str) -> str:
    """What was typed of an argument of `opencode run`; any other prompt as it is."""
    quoted = _QUOTED.match(prompt)
    if quoted is None or " " not in quoted[1]:
        return prompt
    return quoted[1].replace('\\"', '"') + prompt[quoted.end() :]


ADAPTER = Adapter(platform="opencode", parse=parse, context_hooks={"SessionStart"}, silent_hooks={"Stop", "SessionEnd"})
