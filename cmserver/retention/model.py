"""What retention takes, and how long each kind is kept where no policy says it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import msgspec

Kind = Literal[
    "aged_observations",
    "expired_observations",
    "superseded_observations",
    "event_payloads",
    "event_rows",
    "job_log",
    "receipts",
    "telemetry",
    "steward_jobs",
    "audit_log",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
OBSERVATION_KINDS: tuple[Kind, ...] = ("aged_observations", "expired_observations", "superseded_observations")
"""Those that searches find less of."""

DESCRIPTIONS: dict[Kind, str] = {
    "aged_observations": "observations that expire by their age",
    "expired_observations": "observations that expired",
    "superseded_observations": "observations that were merged",
    "event_payloads": "payloads of events",
    "event_rows": "events without payload and trace",
    "job_log": "rows of the log of ended jobs",
    "receipts": "receipts",
    "telemetry": "counts of what clients of Contextify looked for and stored",
    "steward_jobs": "ended jobs of the steward, with their runs and events",
    "audit_log": "rows of the audit log",
}

KEPT_ACTIONS = (
    "memory.purged",
    "project.deleted",
    "team.deleted",
    "session.deleted",
    "observation.deleted",
    "turn.deleted",
    "entity.deleted",
    "observations.purged",
)
"""Rows of the audit log that prove what was erased. They stay for good."""


class RetentionDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is kept where no policy says it, in days; 0 is for good. The last five are no policy's."""

    observations_days: int = 0
    """Nobody asked them to go."""
    min_importance: float = 0.8
    events_days: int = 0
    """Observations can only be made anew from them."""
    job_log_days: int = 90
    receipts_days: int = 90
    audit_days: int = 0
    """Who read what must not depend on a default."""
    audit_min_days: int = 365
    """No team keeps its audit log for less: a year is what auditors mostly ask for."""
    undo_days: int = 7
    """A mistake is seen within a week of work."""
    """What expired, and what was merged."""
    event_rows_days: int = 365
    """Without their payload: a client that sends an event again must not store it twice; hook clients keep events for a week."""
    telemetry_days: int = 365
    """Contextify's funnel looks back no further."""
    steward_days: int = 30
    """After the end of a job. A run can be undone only while it is there, and merges for less."""


class ShortestDays(msgspec.Struct, frozen=True, kw_only=True):
    """For each kind the shortest time that a team, a project or the settings keep it; None where all keep it for good."""

    observations: int | None
    events: int | None
    job_log: int | None
    receipts: int | None
    audit: int | None


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken of a page of a log. `last_id` is None where the pass has reached the end of what may be old enough."""

    last_id: int | None
    row_count: int


class TakenRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a kind retention has taken of a team, and when last."""

    team: str
    kind: str
    row_count: int
    last_at: datetime


class RetentionReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many rows of each kind a sweep took, or would take. `isComplete` is false where its budget or a backup stopped it;
    `lostPins` are what is pinned and held before.
    """

    dry_run: bool
    is_complete: bool
    backup_runs: bool
    counts: dict[Kind, int]
    lost_pins: list[str] = []
