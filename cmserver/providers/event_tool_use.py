"""Reads the tool use of a prompt's event."""

from __future__ import annotations

from cmserver.providers.model import PromptEvent
from cmserver.tooluse.model import ToolUse
from cmserver.tooluse.read import read_tool_use


def read_event_tool_use(event: PromptEvent) -> ToolUse:
    """The event's tool use; kind OTHER without a name if it is none."""
    return read_tool_use(event.tool_name, event.tool_input, event.tool_response, event.error)
