"""The page about a project, and what it is made of."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The page about a project: what it is, its parts, the present work and what is open, with numbers of observations."""

    id: UUID
    project_id: UUID
    body: str
    opening: list[str]
    """The lines with which the index of a session begins, at most OPENING_LINES."""
    numbers: list[int]
    """The observations and turns that it cites."""
    made_by: str
    """`rules`, the model that wrote it, or `people`."""
    summary_count: int
    """How many session summaries there were."""
    new_summaries: int
    """How many came since."""
    made_at: datetime


class DueOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A project whose page is to be made, or made anew."""

    team_id: UUID
    project_id: UUID


class NamedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and how often it is mentioned."""

    path: str
    mentions: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """What a user laid down."""

    number: int
    title: str


class SummaryCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many session summaries a project got."""

    project_id: UUID
    summaries: int
