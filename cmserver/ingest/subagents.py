"""What sub-agents were asked and answered: turns of their own, beside those of their session."""

from __future__ import annotations

from typing import cast

from cmserver.base.text import KEY_MOST
from cmserver.ingest.model import SubagentWords
from cmserver.ingest.wire import EventIn

_STARTING_TOOLS = {"Agent", "Task"}
"""Of Claude Code: their input is what the sub-agent was asked, and their answer names it."""


def read_subagent_words(event: EventIn) -> SubagentWords | None:
    """What the event says of a sub-agent's turn; None for any other event. Its agent's id is in the metadata."""
    fields = _read_object(event.payload)
    agent_id = _read_id(_read_object(event.metadata), "agent_id")
    if event.event_type == "tool_use" and _read_text(fields, "tool_name") in _STARTING_TOOLS:
        started_id = _read_id(_read_object(fields.get("tool_response")), "agentId")
        prompt = _read_text(_read_object(fields.get("tool_input")), "prompt")
        return SubagentWords(agent_id=started_id, prompt=prompt) if started_id and prompt else None
    if event.event_type == "machine_prompt" and agent_id and (prompt := _read_text(fields, "prompt")):
        return SubagentWords(agent_id=agent_id, prompt=prompt)
    if event.event_type == "subagent_stop" and agent_id and (reply := _read_text(fields, "last_assistant_message")):
        return SubagentWords(agent_id=agent_id, reply=reply)
    return None


def _read_object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _read_id(fields: dict[str, object], name: str) -> str | None:
    """The id; None for one that is too long to be one, and for an index."""
    text = _read_text(fields, name)
    return text if text is not None and len(text) <= KEY_MOST else None


def _read_text(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value.strip() else None
