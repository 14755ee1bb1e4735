"""What agents read from a hook. They agree on these names; where each of them takes what differs."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from cmserver.hooks.model import HookCall, Told


class SpecificOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What belongs to one kind of hook."""

    hook_event_name: str
    additional_context: str


class HookOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """An empty object leaves everything as it is. What is not there is left out: an unknown key is an error to some."""

    hook_specific_output: SpecificOutput | None = None
    system_message: str | None = None


def spoken(call: HookCall | None, told: Told, *, context_at: Collection[str], silent_at: Collection[str]) -> HookOutput:
    """The context where the agent takes it, the message everywhere; at the hooks of `silent_at` neither."""
    if call is None:
        return HookOutput(system_message=told.message or None)
    if call.name in silent_at:
        return HookOutput()
    specific = None
    if told.context and call.name in context_at:
        specific = SpecificOutput(hook_event_name=call.name, additional_context=told.context)
    return HookOutput(hook_specific_output=specific, system_message=told.message or None)
