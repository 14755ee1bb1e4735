"""Reads the payloads of hooks, whose fields may be missing or of another type, and makes events of them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import cast, get_args

from msgspec.structs import replace

from cmserver.base.errors import Invalid, Issue
from cmserver.base.ids import from_iso
from cmserver.base.text import KEY_MOST, storable
from cmserver.base.tolerant_json import array
from cmserver.doors.hooks.model import HookCall, HookEvent, Moment
from cmserver.ingest.door import STORED, Arrival, find_rule, read_object
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE
from cmserver.recall.model import SessionStart
from cmserver.tooluse.model import ToolKind, ToolUse
from cmserver.tooluse.read import read_tool_use

Fields = dict[str, object]

TRANSCRIPT_END = "TranscriptEnd"
"""What our hook client calls the last words of a turn that it found in the agent's transcript."""
MAX_PATH_CHARS = 4096
MAX_ID_CHARS = KEY_MOST - 20  # room for the prefix, and for the number of a call in its batch
_MAX_TYPE_CHARS = 200
_START_FIELDS = ("cwd", "source", "model")
_STARTS: tuple[object, ...] = get_args(SessionStart)
_TURN_IDS = ("prompt_id", "turn_id", "generation_id")
"""What agents call the id of a turn, or of the prompt that it answers."""
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NON_WORD = re.compile(r"\W+")


def parse_fields(payload: object) -> Fields:
    """The payload as an object; Invalid for anything else."""
    if not isinstance(payload, dict):
        raise Invalid("A hook's payload must be a JSON object.", [Issue("$", "Expected an object")])
    return cast("Fields", payload)


def require_text(fields: Fields, name: str) -> str:
    """The text of the field; Invalid when it is missing, no text, empty, or too long for a key."""
    value = read_text(fields, name)
    if value is None:
        raise Invalid.at(f"$.{name}", f"{name} must be a text of 1 to {KEY_MOST} characters.")
    return value


def read_text(fields: Fields, name: str, max_chars: int | None = KEY_MOST) -> str | None:
    """The text of the field, with unstorable characters replaced; None when it is missing, no text, empty, or too long."""
    value = fields.get(name)
    is_usable = isinstance(value, str) and value and (max_chars is None or len(value) <= max_chars)
    return storable(cast("str", value)) if is_usable else None


def read_texts(fields: Fields, *names: str, max_chars: int = KEY_MOST) -> dict[str, object]:
    """The fields of these names that have a usable text (see `read_text`)."""
    return {name: value for name in names if (value := read_text(fields, name, max_chars))}


def read_tool(fields: Fields) -> ToolUse:
    """The tool call that the hook is about."""
    return read_tool_use(read_text(fields, "tool_name"), fields.get("tool_input"))


def read_file_path(use: ToolUse) -> str | None:
    """The file that a tool reads; None for another tool, several files, or a path that is too long."""
    is_file = use.kind is ToolKind.READ and len(use.paths) == 1 and len(use.path) <= MAX_PATH_CHARS
    return storable(use.path) if is_file else None


def read_call(payload: object) -> tuple[Fields, str, str]:
    """The fields of the payload, the hook's name and the session's id, as most agents call them."""
    fields = parse_fields(payload)
    return fields, require_text(fields, "hook_event_name"), require_text(fields, "session_id")


def build_call(
    fields: Fields,
    name: str,
    session_id: str,
    moment: Moment,
    events: list[HookEvent],
    *,
    prompt: str | None = None,
    file: str | None = None,
    is_subagent: bool = False,
) -> HookCall:
    """The call, with its folder, and at a session's start with how it starts."""
    return HookCall(
        name=name,
        session_id=session_id,
        cwd=read_text(fields, "cwd", MAX_PATH_CHARS),
        moment=moment,
        events=events,
        source=read_source(fields.get("source")),
        prompt=prompt,
        file=file,
        is_subagent=is_subagent,
        metadata=read_texts(fields, *_START_FIELDS, max_chars=MAX_PATH_CHARS) if moment == "start" else {},
    )


def read_source(source: object) -> SessionStart:
    """How a session starts; an unknown way is an ordinary start."""
    return cast("SessionStart", source) if source in _STARTS else "startup"


def to_snake_case(name: str) -> str:
    """An agent's name for a hook as an event type."""
    return _NON_WORD.sub("_", _WORD_START.sub("_", name)).strip("_").lower()[:_MAX_TYPE_CHARS] or "unknown"


def make_delivery_event_id(delivery_id: str | None, index: int | None = None) -> str | None:
    """The id of the delivery of an event without an id of its own, and its index within that. A hook that runs twice has two."""
    if not delivery_id or len(delivery_id) > MAX_ID_CHARS:
        return None
    return f"delivery:{storable(delivery_id)}" + ("" if index is None else f":{index}")


def build_event(event_type: str, fields: Fields, delivery_id: str | None, *, is_repetition: bool = False) -> list[HookEvent]:
    """An event that is no tool use; none of a hook that repeats what others say.

    A prompt and a reply are known by their turn and what they say. Anything else may happen twice in a turn, and is known by its
    moment.
    """
    if find_rule("row", Arrival(event_type=event_type, by_hook=True, is_repetition=is_repetition)).name != STORED:
        return []
    is_said = event_type == REPLY_TYPE or event_type in PROMPT_TYPES
    turn_id = next(filter(None, (read_text(fields, name) for name in _TURN_IDS)), None) if is_said else None
    event = HookEvent(
        event_type=event_type,
        payload=fields,
        source_event_id=make_delivery_event_id(delivery_id),
        identity="turn" if turn_id else "moment",
        turn_id=turn_id,
        metadata=read_texts(fields, "agent_id", "agent_type"),
    )
    return [event]


def parse_transcript_end(fields: Fields, session_id: str) -> HookCall:
    """The call for a turn without the agent's last words: `message` (Claude Code) or `payload` (Codex) has them."""
    line = read_object(fields.get("transcript_line"))
    message = read_object(line.get("message")) or read_object(line.get("payload"))
    parts = [read_text(read_object(part), "text", None) for part in array(message.get("content"))]
    words = "\n\n".join(part for part in parts if part and part.strip())
    said_at = _read_time(line.get("timestamp"))
    payload: Fields = {"hook_event_name": TRANSCRIPT_END, "session_id": session_id, "last_assistant_message": words}
    events = build_event(REPLY_TYPE, payload, None) if words and said_at and message.get("role") == "assistant" else []
    return HookCall(name=TRANSCRIPT_END, session_id=session_id, cwd=None, moment="other", events=events, said_at=said_at)


def _read_time(value: object) -> datetime | None:
    """The time in ISO 8601 with its zone; None for anything else."""
    with suppress(ValueError):
        return from_iso(value) if isinstance(value, str) else None
    return None


def build_tool_event(
    event_type: str, fields: Fields, delivery_id: str | None, index: int | None = None, *, tool: ToolUse | None = None
) -> list[HookEvent]:
    """A tool use, with the same id whichever hook sends it. None when the tool only read our own memory."""
    tool = tool or read_tool(fields)
    server = read_object(fields.get("mcp_context")).get("server_name")
    if find_rule("row", Arrival(event_type=event_type, by_hook=True, tool=tool, mcp_server=server)).name != STORED:
        return []
    tool_use_id = read_text(fields, "tool_use_id", MAX_ID_CHARS)
    event = HookEvent(
        event_type=event_type,
        payload=fields,
        source_event_id=f"tool:{tool_use_id}" if tool_use_id else make_delivery_event_id(delivery_id, index),
        identity="id" if tool_use_id else "moment",
        tool=tool,
        metadata=read_texts(fields, "agent_id", "agent_type"),
    )
    return [event]


def build_tool_end_event(event_type: str, fields: Fields) -> list[HookEvent]:
    """How a tool use ended that is stored without its end: an event of its own beside that one, known by the same id."""
    return [
        replace(event, source_event_id=f"tool_end:{fields['tool_use_id']}") for event in build_tool_event(event_type, fields, None)
    ]
