"""Replays, their lines, and what is compared."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, LiteralString
from uuid import UUID

import msgspec

ReplayState = Literal["running", "stopped", "done", "taken_over"]
Difference = Literal["lost", "new", "reworded"]
What = Literal["observation", "summary", "turn"]

RULES = "offline"
"""The name of the rules where providers are named."""
MODEL_EVENTS, MODEL_CHARS = 20, 60_000
"""Of one call of a model, as a worker has them."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay, with how far it has come and what it has found so far."""

    id: UUID
    team_id: UUID
    number: int
    project_id: UUID | None
    since: datetime | None
    provider: str
    program: str
    state: ReplayState
    reason: str | None
    session_count: int
    event_count: int
    purged_count: int
    sessions_done: int
    events_done: int
    kept: int
    by_people: int
    done_to: datetime | None
    done_to_id: UUID | None
    created_at: datetime
    updated_at: datetime
    lost: int = 0
    new: int = 0
    reworded: int = 0

    @property
    def differences(self) -> int:
        """How many rows would be others."""
        return self.lost + self.new + self.reworded


REPLAY_COLUMNS: LiteralString = (
    "r.id, r.team_id, r.number, r.project_id, r.since, r.provider, r.program, r.state, r.reason, r.session_count, r.event_count,"
    " r.purged_count, r.sessions_done, r.events_done, r.kept, r.by_people, r.done_to, r.done_to_id, r.created_at, r.updated_at"
)


class ToldRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of an observation or a summary: what is compared."""

    type: str
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] = []
    concepts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    quote: str | None = None
    content: str = ""
    importance: float = 0.5
    is_open: bool = False
    """Whether it began as something that is open."""


class ToldWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn's line tells of what was done: what is compared of a turn."""

    files: list[str] = []
    checks: list[str] = []
    commits: list[str] = []


class ReplayedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or summary of a session, as it is stored or as the replay made it."""

    id: UUID
    number: int
    server_session_id: UUID
    turn_id: UUID | None
    kind: Literal["observation", "summary"]
    generation_key: str | None
    job_ids: list[UUID]
    """What it was drawn of."""
    told: ToldRow
    version: int
    is_untouched: bool
    """Whether no person, and nobody for them, has changed, merged or ended it since."""
    row: dict[str, Any] | None = None
    """All that is stored of it, of what the replay made."""


class ReplayedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in a turn, as it is noted and as the replay noted it."""

    id: UUID
    number: int
    server_session_id: UUID
    before: ToldWork
    after: ToldWork


class ErasedRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the rows that were made of these jobs are gone."""

    job_ids: list[UUID]
    count: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of some sessions, and what the shadow has of the same; `without_rows` is of what all is gone."""

    stored: list[ReplayedRow]
    made: list[ReplayedRow]
    turns: list[ReplayedTurn]
    without_rows: list[ErasedRows]


class NewLine(msgspec.Struct, frozen=True, kw_only=True):
    """A difference about to be stored."""

    id: UUID
    server_session_id: UUID
    turn_id: UUID | None
    observation_id: UUID | None
    difference: Difference
    what: What
    version: int | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    new_row: dict[str, Any] | None = None


class ReplayLine(msgspec.Struct, frozen=True, kw_only=True):
    """A difference. `number` is that of the row, or of the turn; None for what is new."""

    id: UUID
    project_id: UUID
    server_session_id: UUID
    turn_id: UUID | None
    observation_id: UUID | None
    place: int
    difference: Difference
    what: What
    number: int | None
    version: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    new_row: dict[str, Any] | None = None
    undo: dict[str, Any] | None = None
    is_shown: bool = True
    """Whether its row is still there to be told of."""


class ReplayScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would run: whole sessions that have ended their work, and their events."""

    sessions: int
    events: int
    purged: int
    """Sessions that are left out, since retention has taken what was said in them."""
    waiting: int
    """Sessions that are left out, since something of them still waits to be worded."""
    chars: int
    calls: int
    """Batches of a model's size, and summaries."""


class SessionToReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose turn it is."""

    id: UUID
    project_id: UUID
    started_at: datetime
    names_others: bool
    """Whether a prompt of it names the number of something that another session has left open."""


class ReplayedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were worded together, by the claim that did."""

    lane: UUID
    project_id: UUID
    claim: int
    job_ids: list[UUID]
    is_plain: bool
    chars: int
    ended_at: datetime
