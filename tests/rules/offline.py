"""Prompts for the offline provider: events, what a session has recorded, and the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cmserver.providers.model import Answer, PriorObservation, Prompt, PromptEvent, RecordingPreferences, Verbosity
from cmserver.rules.acts import read_command_results
from cmserver.rules.offline import Offline
from tests.rules.session_orders import ROOT


async def complete(prompt: Prompt) -> Answer:
    return msgspec.json.decode((await Offline().complete(prompt)).text, type=Answer)


async def observe(
    *events: PromptEvent,
    recorded: list[PriorObservation] | None = None,
    requests: list[str] | None = None,
    verbosity: Verbosity = "normal",
) -> Answer:
    return await complete(
        Prompt(
            kind="observations",
            project="orders",
            root=ROOT,
            requests=requests or [],
            recorded=recorded or [],
            events=list(events),
            preferences=RecordingPreferences(verbosity=verbosity),
        )
    )


async def summarise(
    *,
    requests: list[str] | None = None,
    recorded: list[PriorObservation] | None = None,
    last_message: str | None = None,
    events_in_session: int = 0,
) -> Answer:
    return await complete(
        Prompt(
            kind="summary",
            project="orders",
            root=ROOT,
            requests=requests or [],
            recorded=recorded or [],
            last_message=last_message,
            events_in_session=events_in_session,
        )
    )


def record(answer: Answer, events: Iterable[PromptEvent], numbers: Iterator[int]) -> list[PriorObservation]:
    """The observations as a later prompt of the session shows them."""
    events = list(events)
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
            commands=read_command_results([event for event in events if event.tag in draft.events], ROOT),
        )
        for draft in answer.observations
    ]


def tool_use(tag: str, tool: str, tool_input: object, tool_response: object = None, error: str | None = None) -> PromptEvent:
    return PromptEvent(
        tag=tag,
        event_type="tool_use",
        occurred_at_epoch=1_790_000_000_000,
        tool_name=tool,
        tool_input=tool_input,
        tool_response=tool_response,
        error=error,
    )


def run(tag: str, command: str, stdout: str = "") -> PromptEvent:
    response = {"stdout": stdout, "stderr": "", "interrupted": False, "isImage": False}
    return tool_use(tag, "Bash", {"command": command}, response)


def failed_run(tag: str, command: str, output: str, code: int = 1) -> PromptEvent:
    return tool_use(tag, "Bash", {"command": command}, error=f"Exit code {code}\n{output}")


def edit(tag: str, path: str, old: str = "def a():\n    return 1\n", new: str = "def a():\n    return 2\n") -> PromptEvent:
    return tool_use(tag, "Edit", {"file_path": f"{ROOT}/{path}", "old_string": old, "new_string": new})


def note(tag: str, event_type: str, payload: object) -> PromptEvent:
    return PromptEvent(tag=tag, event_type=event_type, occurred_at_epoch=1_790_000_000_000, payload=payload)
