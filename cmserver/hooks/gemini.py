"""Gemini CLI: what its hooks send, as our events, and our answers as it reads them.

There are no ids of tool uses: an event is known by the delivery in which it came. What is said before a tool runs does not reach
the model, so that what is known of a file is told after it was read, with what was read.
https://geminicli.com/docs/hooks/reference
"""

from __future__ import annotations

from cmserver.hooks.events import told, tool_use
from cmserver.hooks.model import Adapter, HookCall, HookEvent, Moment, Told
from cmserver.hooks.output import HookOutput, spoken
from cmserver.hooks.payload import (
    PATH_MOST,
    Fields,
    delivery_event_id,
    fields_of,
    record,
    required,
    session_source,
    snake,
    text,
    texts,
)

PLATFORM = "gemini"

_TYPES = {"BeforeAgent": "user_prompt", "AfterAgent": "assistant_message", "PreCompress": "pre_compact"}
_SAYS_NOTHING_NEW = {"BeforeTool", "BeforeModel", "AfterModel", "BeforeToolSelection", "Notification"}
_MOMENTS: dict[str, Moment] = {"SessionStart": "start", "BeforeAgent": "prompt", "AfterAgent": "turn_end", "SessionEnd": "end"}
_TAKES_CONTEXT = {"SessionStart", "BeforeAgent", "AfterTool"}
_SILENT = {"AfterAgent"}


def understand(payload: object, delivery_id: str | None) -> HookCall:
    """What a hook has sent. Unknown kinds of hooks are stored and never refused; Invalid only when it is no hook's payload."""
    fields = fields_of(payload)
    name, session_id = required(fields, "hook_event_name"), required(fields, "session_id")
    file = _file(fields) if name == "AfterTool" else None
    return HookCall(
        name=name,
        session_id=session_id,
        cwd=text(fields, "cwd", PATH_MOST),
        moment="file" if file is not None else _MOMENTS.get(name, "other"),
        events=_events(name, fields, delivery_id),
        source=session_source(fields),
        prompt=text(fields, "prompt", None) or "" if name == "BeforeAgent" else None,
        file=file,
        metadata=texts(fields, "cwd", "source", most=PATH_MOST) if name == "SessionStart" else {},
    )


def output(call: HookCall | None, what: Told) -> HookOutput:
    """Context and a message; never a decision."""
    return spoken(call, what, context_at=_TAKES_CONTEXT, silent_at=_SILENT)


def _file(fields: Fields) -> str | None:
    """The file that has just been read."""
    if fields.get("tool_name") != "read_file" or _error(fields) is not None:
        return None
    given = record(fields.get("tool_input"))
    return text(given, "file_path", PATH_MOST) or text(given, "absolute_path", PATH_MOST)


def _events(name: str, fields: Fields, delivery_id: str | None) -> list[HookEvent]:
    if name in _SAYS_NOTHING_NEW:
        return []
    if name == "AfterTool":
        error = _error(fields)
        if error is None:
            return tool_use("tool_use", fields, delivery_id)
        return tool_use("tool_use_failure", {**fields, "error": error}, delivery_id)
    if name == "AfterAgent":
        # Our word for it, by which a summary finds it.
        fields = {**fields, "last_assistant_message": fields.get("prompt_response")}
    return told(_TYPES.get(name) or snake(name), fields, delivery_event_id(delivery_id))


def _error(fields: Fields) -> str | None:
    """Why a tool failed: what it printed, as far as that is a text, or the error's own words."""
    response = record(fields.get("tool_response"))
    error = response.get("error")
    if not error:
        return None
    message = error if isinstance(error, str) else text(record(error), "message", None)
    return text(response, "llmContent", None) or message or "failed"


ADAPTER = Adapter(platform=PLATFORM, understand=understand, output=output)
