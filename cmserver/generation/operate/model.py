"""Jobs, their events and calls, and the figures of the queue, as an operator sees them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.generation.model import Status

SourceType = Literal["agent_event", "session_summary", "observation_reindex"]
STATUSES: tuple[str, ...] = Status.__args__


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; None is any."""

    team_id: UUID
    project_id: UUID | None
    session_id: UUID | None = None
    status: Status | None = None
    source_type: SourceType | None = None
    since: datetime | None = None


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


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs. `delayed` wait for a debounce, `held` for a back-off or pause; `recovered` came back from a lost worker.

    `oldest_waiting_seconds` is the age of the oldest `waiting` job since it was queued.
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
