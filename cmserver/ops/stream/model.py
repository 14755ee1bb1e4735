"""What the live stream tells, and where in the two logs it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

Name = Literal["observation.created", "observation.updated", "observation.deleted", "job.updated", "session.updated"]
NAMES: tuple[Name, ...] = get_args(Name)

TOLD: dict[str, Name] = {
    "observations.generated": "observation.created",
    "observations.created": "observation.created",
    "observation.corrected": "observation.updated",
    "observation.deleted": "observation.deleted",
    "session.started": "session.updated",
    "session.resumed": "session.updated",
    "session.ended": "session.updated",
}
"""The acts of the audit log that the stream tells, and as what."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the audit log and in the jobs' lifecycle log: all up to it has been told.

    `part` counts what has been told of the audit log's next row, which may name many observations.
    """

    audit: int
    jobs: int
    part: int = 0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is visible behind a position: the last id of each log, its gaps (the id before each, and the last that is missing), and
    that every transaction before `oldest_running` has ended.
    """

    audit_last: int
    audit_gaps: list[int]
    audit_gap_ends: list[int]
    jobs_last: int
    jobs_gaps: list[int]
    jobs_gap_ends: list[int]
    oldest_running: int


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the audit log. `observations` are the ids that its details name, if they do."""

    id: int
    team_id: UUID
    project_id: UUID | None
    action: str
    resource_id: str | None
    observations: list[object] | None
    created_at: datetime


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the lifecycle log: what has become of a job."""

    id: int
    team_id: UUID
    project_id: UUID
    generation_job_id: UUID
    event_type: str
    status_after: str
    attempt: int
    created_at: datetime


class Glimpse(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream tells of an observation."""

    id: UUID
    team_id: UUID
    project_id: UUID
    number: int
    server_session_id: UUID | None
    kind: str
    type: str
    title: str | None
    created_at: datetime


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream, as bytes for every reader alike."""

    team_id: UUID
    project_id: UUID | None
    name: Name
    after: Position
    """Where somebody stands who has heard it."""
    is_step: bool
    """Drawn from the lifecycle log, and not from the audit log."""
    text: bytes
