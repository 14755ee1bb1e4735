"""What the rules are given: events, and what a session has recorded; and what they answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cmserver.models.providers.model import Answer, PriorObservation, Verbosity, event_tag
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_command_results, read_event
from cmserver.rules import batch, summaries
from cmserver.rules.model import SessionRecord
from tests.reading.events import ROOT, read_call


async def observe(
    *events: EventReading,
    recorded: list[PriorObservation] | None = None,
    requests: list[str] | None = None,
    last_message: str | None = None,
    open_ends: list[PriorObservation] | None = None,
    verbosity: Verbosity = "normal",
) -> Answer:
    session = SessionRecord(requests=requests or [], recorded=recorded or [], open_ends=open_ends or [], last_message=last_message)
    return batch.observe(events, session, verbosity)


async def summarise(
    *, requests: list[str] | None = None, recorded: list[PriorObservation] | None = None, last_message: str | None = None
) -> Answer:
    return summaries.summarise(SessionRecord(requests=requests or [], recorded=recorded or [], last_message=last_message))


def record(answer: Answer, events: Iterable[EventReading], numbers: Iterator[int]) -> list[PriorObservation]:
    """The observations as a later prompt of the session shows them."""
    by_tag = {event_tag(place): event for place, event in enumerate(events)}
    return [
        PriorObservation(
            number=next(numbers),
            type=draft.type,
            title=draft.title or "",
            facts=draft.facts,
            files_read=draft.files_read,
            files_modified=draft.files_modified,
            quote=draft.quote,
            anchors=draft.anchors,
            state=draft.state,
            commands=read_command_results(by_tag[tag] for tag in draft.events if tag in by_tag),
        )
        for draft in answer.observations
    ]


def tool_use(tool: str, tool_input: object, tool_response: object = None, error: str | None = None) -> EventReading:
    return read_call(tool, tool_input, tool_response, error, at=1_790_000_000_000)


def run(command: str, stdout: str = "") -> EventReading:
    response = {"stdout": stdout, "stderr": "", "interrupted": False, "isImage": False}
    return tool_use("Bash", {"command": command}, response)


def failed_run(command: str, output: str, code: int = 1) -> EventReading:
    return tool_use("Bash", {"command": command}, error=f"Exit code {code}\n{output}")


def edit(path: str, old: str = "def a():\n    return 1\n", new: str = "def a():\n    return 2\n") -> EventReading:
    return tool_use("Edit", {"file_path": f"{ROOT}/{path}", "old_string": old, "new_string": new})


def note(event_type: str, payload: object) -> EventReading:
    return read_event(event_type, payload, ROOT, occurred_at_epoch=1_790_000_000_000)
