"""What recall gives back: hits of a search, and what a session is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation

Start = Literal["startup", "resume", "clear", "compact", "fork"]
"""How a session starts."""

Reason = Literal[Start, "prompt", "file", "asked"]
"""Why somebody is told something: how the session starts, a prompt, a file that is opened, or because a person or program asks."""

Why = Literal["budget", "limit", "shown", "duplicate"]
"""Why something has no line: no room is left, there are as many as may be, the session has it already, or another line says it."""

MOST_CHANGED_FILES = 200
"""As many of a branch's files are taken into account."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A word that a prompt and an observation have in common: in how many of all documents it is, and where it stands in this one.

    `weight` is A in the title, B in subtitle and facts, C in the narrative, D in concepts and files; the best of them.
    """

    id: UUID
    lexeme: str
    found_in: int
    documents: int
    weight: Literal["A", "B", "C", "D"]


class AboutFile(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that names a file, and the files it names."""

    id: UUID
    files_modified: list[str]
    files_read: list[str]
    created_at: datetime


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that a search found."""

    observation: Observation
    score: float


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """On what occasion something is told, and to which session. `changed_files` are those of the branch that is worked on.

    `reader` is the program on the agent's machine by which it reads more, where there is one. With `is_look` somebody only wants to
    see what would be told: no receipt is written.
    """

    reason: Reason
    session_id: UUID | None = None
    platform: str | None = None
    changed_files: list[str] = []
    reader: str | None = None
    is_look: bool = False


_LEAST_TOKENS = 200


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session is told at its start, by the settings. `tokens` are estimated at 4 characters each."""

    tokens: int = 2_000
    observations: int = 50
    summaries: int = 10

    def among(self, projects: int) -> Shape:
        """What one of several projects has that a session is told of at once."""
        return self if projects < 2 else msgspec.structs.replace(self, tokens=max(_LEAST_TOKENS, self.tokens // projects))


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What has a line in an index, or has none for the reason `left_out`, and how useful it is by what."""

    number: int
    type: str
    title: str
    created_at: datetime
    read_tokens: int
    usefulness: float
    parts: Mapping[str, float]
    left_out: Why | None = None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """How an index came about: what it shows, newest first; the most useful of what it does not; and how much that is, by why."""

    entries: list[Entry] = []
    left_out: list[Entry] = []
    left_out_counts: Mapping[str, int] = {}
    budget_tokens: int = 0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody is told of a project. `tokens` is an estimate of what reading the text costs a model."""

    text: str
    observations: list[Observation] = []
    tokens: int
    index: Index | None = None
