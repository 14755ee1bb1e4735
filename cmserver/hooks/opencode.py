"""OpenCode: what our plugin sends, as events. `cmserver connect opencode` writes the plugin; its hooks are named as Codex's are.

A sub-agent works in a session of its own, which the plugin gives as `agent_id`. Only at a session's start does context reach the
model.
https://opencode.ai/v1/docs/plugins.md
"""

from __future__ import annotations

from msgspec import structs

from cmserver.hooks import codex
from cmserver.hooks.model import Adapter, HookCall


def parse(payload: object, delivery_id: str | None) -> HookCall:
    """What the plugin reports (see `Adapter.parse`); Invalid for what is no hook's payload."""
    call = codex.parse(payload, delivery_id)
    return structs.replace(call, moment="other") if call.is_subagent else call


ADAPTER = Adapter(platform="opencode", parse=parse, context_hooks={"SessionStart"}, silent_hooks={"Stop", "SessionEnd"})
