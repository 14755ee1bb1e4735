"""Finds the files that an event changed, from its tool's input; what an answer says of them does not count."""

from __future__ import annotations

from cmserver.base.tolerant_json import field, record
from cmserver.providers.event_tool_use import read_event_tool_use
from cmserver.providers.model import PromptEvent
from cmserver.rules import acts
from cmserver.tooluse.model import ToolUse
from cmserver.tooluse.text import relative

_ERROR_PREFIXES = ("<tool_use_error>", "Error:", "error:")


def changed_files(payload: object, root: str | None) -> list[str]:
    """Files that a stored event changed, relative to `root` (the agent's working folder) where they are below it.

    Covers the editing tools of all agents, patches, and files that a shell wrote, moved or removed. A failed tool use changes none.
    """
    event = _read_tool_event(payload)
    if event is None or _has_failed(event, record(payload)):
        return []
    act = acts.read_act(event, root)
    if isinstance(act, acts.FileEdit):
        return list(dict.fromkeys(change.path for change in act.changes if change.path))
    use = read_event_tool_use(event)
    if use.edits_files and not _changes_nothing(use):
        # An empty file, or an edit of which only the file's name was kept.
        return [relative(path, root) for path in use.paths[:1]]
    return []


def _read_tool_event(payload: object) -> PromptEvent | None:
    """The tool use in the payload of an event; None when it names no tool."""
    fields = record(payload)
    name = field(fields, "tool_name")
    if not name:
        return None
    error = fields.get("error")
    return PromptEvent(
        tag="e1",
        event_type=field(fields, "hook_event_name") or "tool_use",
        occurred_at_epoch=0,
        tool_name=name,
        tool_input=fields.get("tool_input"),
        tool_response=fields.get("tool_response", fields.get("tool_output")),
        error=error if isinstance(error, str) else "failed" if error else None,
    )


def _has_failed(event: PromptEvent, payload: dict[str, object]) -> bool:
    """Whether the tool reports an error, in any of the forms that agents use."""
    response = event.tool_response
    if acts.is_failed(event) or payload.get("is_error") is True:
        return True
    if isinstance(response, str):
        return response.lstrip().startswith(_ERROR_PREFIXES)
    fields = record(response)
    is_error = fields.get("is_error") is True or fields.get("isError") is True
    return is_error or fields.get("success") is False or bool(fields.get("error"))


def _changes_nothing(use: ToolUse) -> bool:
    """Whether an edit replaces a text by itself."""
    old, new = (field(use.fields, *names) for names in (("old_string", "old_str"), ("new_string", "new_str")))
    return bool(old) and old == new
