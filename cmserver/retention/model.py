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
    """How long what is kept where no policy says it, in days; 0 is for good. The last six are the operator's alone."""

    observations_days: int
    min_importance: float
    events_days: int
    job_log_days: int
    receipts_days: int
    audit_days: int
    audit_min_days: int
    expired_days: int
    superseded_days: int
    event_rows_days: int
    telemetry_days: int
    steward_days: int


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
    """How many rows of each kind a sweep took, or would take. `isComplete` is false where its budget or a backup stopped it."""

    dry_run: bool
    is_complete: bool
    backup_runs: bool
    counts: dict[Kind, int]
