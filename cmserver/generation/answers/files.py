"""Which files an event itself changed: what its tool was given, whatever an answer says of it."""

from __future__ import annotations

from cmserver.providers.model import PromptEvent
from cmserver.providers.rules import acts, edits
from cmserver.providers.rules.text import field, record

_ITS_FAULTS = ("<tool_use_error>", "Error:", "error:")


def changed_files(payload: object, root: str | None) -> list[str]:
    """The files that a stored event changed, relative to the agent's working folder where they are below it.

    Editing tools of all agents, their patches, and files that a shell wrote, moved or removed. A failed tool use changed nothing.
    """
    event = _tool_use(payload)
    if event is None or _failed(event, record(payload)):
        return []
    act = acts.understand(event, root)
    if isinstance(act, acts.Edited):
        return list(dict.fromkeys(change.path for change in act.changes if change.path))
    if acts.edits_files(event.tool_name or "") and not _alike(event):
        # An empty file, or an edit of which only the file's name was kept.
        path = edits.named_file(event.tool_input, event.tool_response, root)
        return [path] if path else []
    return []


def _tool_use(payload: object) -> PromptEvent | None:
    given = record(payload)
    name = field(given, "tool_name")
    if not name:
        return None
    server, _, verb = name.rpartition("__")
    error = given.get("error")
    return PromptEvent(
        tag="e1",
        event_type=field(given, "hook_event_name") or "tool_use",
        occurred_at_epoch=0,
        tool_name=verb if server and acts.edits_files(verb) else name,  # a file server's write_file is one, too
        tool_input=given.get("tool_input"),
        tool_response=given.get("tool_response", given.get("tool_output")),
        error=error if isinstance(error, str) else "failed" if error else None,
    )


def _failed(event: PromptEvent, payload: dict[str, object]) -> bool:
    response = event.tool_response
    if acts.failed(event) or payload.get("is_error") is True:
        return True
    if isinstance(response, str):
        return response.lstrip().startswith(_ITS_FAULTS)
    said = record(response)
    return said.get("is_error") is True or said.get("isError") is True or said.get("success") is False or bool(said.get("error"))


def _alike(event: PromptEvent) -> bool:
    """An edit that puts back what it takes out."""
    given = record(event.tool_input)
    old, new = (field(given, *names) for names in (("old_string", "old_str"), ("new_string", "new_str")))
    return bool(old) and old == new
