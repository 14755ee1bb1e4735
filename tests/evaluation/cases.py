"""The labelled events that providers are judged by. `sessions/README.md` explains them, and `short_form.py` their payloads."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from tests.evaluation.short_form import Agent, ShortEvent, build_tool_payload

Label = Literal["keep", "skip", "either"]


class Event(ShortEvent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event in its short form, with its label."""

    label: Label
    types: list[str] = msgspec.field(default_factory=list[str])
    """The types that are right for an observation of it."""
    files: list[str] = msgspec.field(default_factory=list[str])
    """The files that an observation of it has to name."""
    why: str = ""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session, shown as one batch."""

    project: str
    cwd: str
    requests: list[str]
    events: list[Event]
    agent: Agent = "claude-code"
    recorded: list[RecordedObservation] = []
    name: str = ""
    """The file's name without its suffix."""


class RecordedObservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An observation that the session had recorded before."""

    number: int
    type: str
    title: str


@cache
def cases() -> tuple[Case, ...]:
    """All sessions, ordered by name."""
    return tuple(
        msgspec.structs.replace(msgspec.toml.decode(file.read_bytes(), type=Case), name=file.stem)
        for file in sorted((Path(__file__).parent / "sessions").glob("*.toml"))
    )


def payload(case: Case, event: Event) -> dict[str, object]:
    """The payload that the agent's hook would send for the event."""
    return build_tool_payload(case.agent, case.name, case.cwd, event)
