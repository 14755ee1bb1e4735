"""Events of the live stream, and positions in the two logs that it reads."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from cmserver.base.log_position import LogLook

Name = Literal["observation.created", "observation.updated", "observation.deleted", "job.updated", "session.updated"]
NAMES: tuple[Name, ...] = get_args(Name)

STREAM_NAMES: dict[str, Name] = {
    "observations.generated": "observation.created",
    "observations.created": "observation.created",
    "observation.corrected": "observation.updated",
    "observation.promoted": "observation.updated",
    "observation.deleted": "observation.deleted",
    "observation.expired": "observation.deleted",
    "session.started": "session.updated",
    "session.resumed": "session.updated",
    "session.ended": "session.updated",
}
"""The actions in the audit log that the stream sends, and the names of their events."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The ids in the audit log and in the jobs' lifecycle log up to which all rows are sent.

    `part` counts the events that were sent of the audit log's next row, which may name many observations.
    """

    audit: int
    jobs: int
    part: int = 0


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """Looks at both logs in one snapshot."""

    audit: LogLook
    jobs: LogLook


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the audit log. `observations` are the ids in its details; None without such a list."""

    id: int
    team_id: UUID
    project_id: UUID | None
    is_isolated: bool
    action: str
    resource_id: str | None
    observations: list[object] | None
    created_at: datetime


class JobStepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the jobs' lifecycle log."""

    id: int
    team_id: UUID
    project_id: UUID
    is_isolated: bool
    generation_job_id: UUID
    event_type: str
    status_after: str
    attempt: int
    created_at: datetime


class ObservationPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of an observation that the stream sends."""

    id: UUID
    team_id: UUID
    project_id: UUID
    number: int
    server_session_id: UUID | None
    kind: str
    type: str
    title: str | None
    created_at: datetime
    readers: list[UUID] | None
    """The people who may read it; None for everybody."""


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream, encoded once for all readers."""

    team_id: UUID
    project_id: UUID | None
    is_isolated: bool
    """Its project is: only who listens to that hears of it."""
    readers: list[UUID] | None
    """The people who may read it; None for everybody."""
    name: Name
    after: Position
    """The position of a client that has received it."""
    is_step: bool
    """From the lifecycle log, not the audit log."""
    text: bytes
