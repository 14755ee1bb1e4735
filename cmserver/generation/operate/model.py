"""Jobs as whoever looks after the queue sees them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.generation.model import Status

SourceType = Literal["agent_event", "session_summary", "observation_reindex"]
STATUSES: tuple[str, ...] = Status.__args__


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that is told of it."""

    id: UUID
    project_id: UUID
    team_id: UUID
    lane: UUID
    agent_event_id: UUID | None
    server_session_id: UUID | None
    source_type: str
    source_id: UUID
    source_run: int
    job_type: str
    status: Status
    attempts: int
    max_attempts: int
    outcome: str | None
    outcome_reason: str | None
    last_error: dict[str, object] | None
    next_attempt_at: datetime | None
    cancel_requested_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    cancelled_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a list is of; None is any."""

    team_id: UUID
    project_id: UUID | None
    status: Status | None = None
    source_type: SourceType | None = None
    since: datetime | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a job's life; `place` counts them from 1."""

    place: int
    event_type: str
    status_after: Status
    attempt: int
    details: dict[str, object]
    created_at: datetime


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to be made of: its own payload and its event, if it has one."""

    id: UUID
    payload: dict[str, object]
    event_id: UUID | None
    event_type: str | None
    event_payload: object


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job's newest call of a provider. `answer` is one that could not be used, or is not applied yet."""

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


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at a glance. `delayed` waits for its time (debounce), `held` for a back-off or a pause; `recovered` counts how
    often a job came back from a worker that was lost. The oldest is one of those that are `waiting`, and waits since it was queued.
    """

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    recovered: int
    oldest_waiting_seconds: float | None


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one source are in one state: a status, for queued ones `waiting` or `delayed`; `recovered` comes on top."""

    source_type: str
    state: str
    jobs: int


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A team whose oldest waiting job has waited for long."""

    team: str
    oldest_waiting_seconds: float
