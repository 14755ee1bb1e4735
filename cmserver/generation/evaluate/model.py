"""Sessions whose events are labelled, and what comes of showing them to a provider."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

Label = Literal["keep", "skip", "either"]


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event in its short form, with what is expected of it."""

    label: Label
    types: list[str] = []
    """Which types are right for an observation of it."""
    files: list[str] = []
    """Which files an observation of it has to name."""
    why: str = ""

    ran: str = ""
    edited: str = ""
    old: str = ""
    new: str = ""
    wrote: str = ""
    existing: bool = False
    read: str = ""
    start: int = 1
    content: str = ""
    searched: str = ""
    path: str = ""
    found: str = ""
    files_found: list[str] = []
    tool: str = ""
    input: object = None
    response: object = None
    output: str = ""
    failed: str = ""

    @property
    def shown(self) -> str:
        """A few words by which people know it again."""
        return self.ran or self.edited or self.wrote or self.read or self.searched or self.found or self.tool


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session: a batch as it would be claimed."""

    project: str
    cwd: str
    requests: list[str]
    events: list[Event]
    agent: Literal["claude-code", "codex", "gemini"] = "claude-code"
    recorded: list[Before] = []
    name: str = ""
    """Of its file."""


class Before(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the session had recorded before."""

    number: int
    type: str
    title: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One event: what was expected of it, and what became of it."""

    session: str
    event: str
    """A few words by which people know it again."""
    label: Label
    types: list[str]
    files: list[str]
    asked: bool
    """False when the call of its session failed."""
    kept: bool
    """At least one observation names it."""
    types_given: list[str]
    files_given: list[str]
    reason: str | None
    """Why it was skipped, where the provider said so."""

    @property
    def right_type(self) -> bool:
        return bool(set(self.types) & set(self.types_given))

    @property
    def files_named(self) -> int:
        return len(set(self.files) & set(self.files_given))


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider did on the labelled set. Ratios are None where there is nothing to divide by."""

    provider: str
    model: str
    verbosity: str
    language: str
    events: int
    """With a label of keep or skip; the others are not counted."""
    right_kept: int
    wrong_kept: int
    right_skipped: int
    missed: int
    precision: float | None
    recall: float | None
    f1: float | None
    type_accuracy: float | None
    """Of the events that were rightly kept: how many have an observation of a type that is right for them."""
    file_recall: float | None
    """Of the files that the observations of those events have to name: how many are named."""
    observations: int
    calls: int
    failed_calls: int
    """Their events count as not kept."""
    cut_calls: int
    """Answers that were cut at the most tokens an answer may have."""
    input_tokens: int
    """With those that were read from or written to a cache."""
    cached_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    """None when the price of one of the calls is not known."""
    failures: dict[str, str]
    """The session, and what its call failed with."""
    judged: list[Judged]
