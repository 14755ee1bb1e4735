"""Events as they were read."""

from __future__ import annotations

from cmserver.reading.model import EventReading
from cmserver.reading.read import read_event

ROOT = "/home/alice/src/orders"


def read_call(
    tool: str | None,
    tool_input: object = None,
    tool_response: object = None,
    error: str | None = None,
    *,
    root: str | None = ROOT,
    event_type: str = "tool_use",
    at: int = 0,
) -> EventReading:
    """A call of a tool."""
    payload = {"tool_name": tool, "tool_input": tool_input, "tool_response": tool_response, "error": error}
    return read_event(event_type, payload, root, occurred_at_epoch=at)
