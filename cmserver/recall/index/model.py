"""What the index is made of: rows without their long texts, how useful each is, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.recall.model import Why


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What a line needs to know of an observation. `title` is the beginning of its text where it has none.

    `files` are the first ones that it changed or read, and only there when somebody asks for them.
    """

    number: int
    project_id: UUID
    server_session_id: UUID | None
    scope: str
    kind: str
    type: str
    title: str
    files: list[str]
    read_tokens: int
    discovery_tokens: int
    created_at: datetime


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What a full line says besides."""

    number: int
    subtitle: str | None
    facts: list[str]


class SummaryText(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary says; `content` is its beginning."""

    summary: dict[str, str | None] | None
    content: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A row and how useful it is for the session: in all, and by what. `file` is the one under change that it is about."""

    row: Row
    usefulness: float
    parts: Mapping[str, float]
    file: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What has been chosen, as it stands in the text: one line, or a few when it is told in full."""

    judged: Judged
    text: str
    is_full: bool = False


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What has no line, and why."""

    judged: Judged
    why: Why


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the index shows, in the order in which it was chosen, and what it does not, the most useful first."""

    lines: list[Line]
    left_out: list[LeftOut]
