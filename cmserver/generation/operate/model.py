"""Jobs, their events and calls, and the figures of the queue, as an operator sees them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.generation.model import Status

SourceType = Literal["agent_event", "session_summary", "observation_reindex", "turn", "steward"]
OPEN_STATUSES: tuple[Status, ...] = ("queued", "processing")
"""Their jobs are in the phase `open`, all others in that of their status: what the indexes hold."""


class QueueHour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour of the queue: how many jobs came, and how many ended in any way."""

    hour: datetime
    came: int
    ended: int


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs: those that match all conditions; None is any. `ids` are at most MAX_SELECTED."""

    project_id: UUID | None = None
    session_id: UUID | None = None
    status: Status | None = None
    source_type: SourceType | None = None
    job_type: str | None = None
    since: datetime | None = None
    ids: list[UUID] | None = None
    with_steward: bool = True
    """Whether the steward's jobs are among them."""


MAX_SELECTED = 1_000
"""Jobs that are retried or cancelled by one request."""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a job's history; `number` counts them from 1."""

    number: int
    event_type: str
    status_after: Status
    attempt: int
    details: dict[str, object]
    created_at: datetime


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A job's input: its own payload and its event, if it has one."""

    id: UUID
    payload: dict[str, object]
    event_id: UUID | None
    event_type: str | None
    event_payload: object


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job's newest provider call. `answer` is set while it is unusable or not yet applied."""

    id: UUID
    provider: str
    model: str
    status: str
    error_class: str | None
    error_message: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    latency_ms: int
    answer: str | None
    created_at: datetime


LaneState = Literal["working", "due", "waiting", "held", "idle"]


class LaneWait(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane waits for."""

    state: LaneState
    is_of_steward: bool
    due_at: datetime | None
    held_until: datetime | None
    held_reason: str | None
    held_for: str | None
    """The provider, or what else is waited for."""


class WaitingJob(LaneWait, frozen=True, kw_only=True):
    """A queued job, and what its lane waits for. `before` are the open jobs ahead of it in the lane, counted up to 1,000."""

    id: UUID
    waits_for_end: bool
    """Of its session."""
    before: int


class Lane(LaneWait, frozen=True, kw_only=True):
    """The ordered queue of one session, of the steward's work on one project, or of one job of neither."""

    lane: UUID
    project_id: UUID
    session_id: UUID | None
    """The session that the lane is of, as long as it exists."""
    queued: int
    locked_at: datetime | None
    """When the worker took it that has it now."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs. `delayed` wait for a debounce, `held` for a back-off or pause; `recovered` came back from a lost worker.

    `of_steward` are the steward's among those four that have not ended. `oldest_waiting_seconds` is the age of the oldest `waiting`
    job since it was queued, but for the steward's.
    """

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    recovered: int
    of_steward: int
    oldest_waiting_seconds: float | None


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs by source and state: a status, for queued ones `waiting` or `delayed`; `recovered` is counted in addition."""

    source_type: str
    state: str
    jobs: int


class QueueDelay(msgspec.Struct, frozen=True, kw_only=True):
    """A team whose oldest waiting job is over the limit."""

    team: str
    oldest_waiting_seconds: float


class QueueLength(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of a team's queued and running jobs."""

    team_id: UUID
    team: str
    queued: int
    processing: int
