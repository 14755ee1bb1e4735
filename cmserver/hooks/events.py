"""Makes events of payloads: what a tool did, and whatever else an agent tells of."""

from __future__ import annotations

from cmserver.hooks.model import HookEvent
from cmserver.hooks.ours import is_our_tool, reads_our_memory
from cmserver.hooks.payload import ID_MOST, Fields, delivery_event_id, record, text, texts

SHELLS = {"Bash", "shell", "local_shell", "shell_command", "exec_command", "run_shell_command"}
"""What the agents call the tool that runs commands."""


def told(event_type: str, fields: Fields, event_id: str | None) -> list[HookEvent]:
    """Something that is only kept: nothing is made of it by itself."""
    return [HookEvent(event_type=event_type, payload=fields, source_event_id=event_id, generate=False, metadata=agent(fields))]


def tool_use(event_type: str, fields: Fields, delivery_id: str | None, nth: int | None = None) -> list[HookEvent]:
    """A tool use has the same id whichever hook tells of it. None of a look into our own memory."""
    tool, given = text(fields, "tool_name"), fields.get("tool_input")
    if is_our_tool(tool, record(fields.get("mcp_context")).get("server_name")):
        return []
    if tool in SHELLS and reads_our_memory(given):
        return []
    tool_use_id = text(fields, "tool_use_id", ID_MOST)
    event_id = f"tool:{tool_use_id}" if tool_use_id else delivery_event_id(delivery_id, nth)
    return [HookEvent(event_type=event_type, payload=fields, source_event_id=event_id, generate=True, metadata=agent(fields))]


def agent(fields: Fields) -> dict[str, object]:
    """Which agent within the session it was."""
    return texts(fields, "agent_id", "agent_type")
