"""Makes events of payloads: what a tool did, and whatever else an agent tells of."""

from __future__ import annotations

from cmserver.hooks.model import HookEvent
from cmserver.hooks.payload import ID_MOST, Fields, delivery_event_id, record, text, texts
from cmserver.ingest.ours import is_look


def told(event_type: str, fields: Fields, event_id: str | None) -> list[HookEvent]:
    """Something that is only kept: nothing is made of it by itself."""
    return [HookEvent(event_type=event_type, payload=fields, source_event_id=event_id, generate=False, metadata=agent(fields))]


def tool_use(event_type: str, fields: Fields, delivery_id: str | None, nth: int | None = None) -> list[HookEvent]:
    """A tool use has the same id whichever hook tells of it. None of a look into our own memory."""
    server = record(fields.get("mcp_context")).get("server_name")
    if is_look(text(fields, "tool_name"), fields.get("tool_input"), server):
        return []
    tool_use_id = text(fields, "tool_use_id", ID_MOST)
    event_id = f"tool:{tool_use_id}" if tool_use_id else delivery_event_id(delivery_id, nth)
    return [HookEvent(event_type=event_type, payload=fields, source_event_id=event_id, generate=True, metadata=agent(fields))]


def agent(fields: Fields) -> dict[str, object]:
    """Which agent within the session it was."""
    return texts(fields, "agent_id", "agent_type")
