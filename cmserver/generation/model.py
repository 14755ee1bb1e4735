"""The outbox: jobs, the batches in which workers take them, and how each job of a batch ends."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

from cmserver.access.model import GenerationPolicy

JOB_FOR_EVENT = "observation_generate_for_event"
JOB_FOR_SUMMARY = "observation_generate_session_summary"
JOB_FOR_REINDEX = "observation_reindex"
JOB_FOR_TURN = "entities"

Status = Literal["queued", "processing", "completed", "failed", "cancelled"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One queued piece of work. Made with its event; ended only by the claim that holds it."""

    id: UUID
    project_id: UUID
    team_id: UUID
    lane: UUID
    agent_event_id: UUID | None = None
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
    last_error: dict[str, object] | None = None
    next_attempt_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    cancelled_at: datetime | None = None
    created_at: datetime
    updated_at: datetime


JOB_COLUMNS: LiteralString = (
    "id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type, status,"
    " attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at, completed_at, failed_at,"
    " cancelled_at, created_at, updated_at"
)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has done since its last summary was requested."""

    events: int
    waits_for_end: bool
    """Whether any of them waits for the session's end, by its project's policy."""
    seconds: float


MAX_ATTEMPTS = 3
"""How often a new job is tried: the default of the column."""


class JobOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for a job, and by which request."""

    team_id: UUID
    api_key_id: UUID | None
    """None for the idle sweep."""
    actor_id: str
    request_id: str | None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A lane held by a worker. `claim` is the fencing token; without jobs the lane was empty."""

    lane: UUID
    team_id: UUID
    project_id: UUID
    claim: int
    job_ids: list[UUID]
    set_number: int = 1
    """Plain batches of one claim that have the same number are a set."""
    is_plain: bool = False
    """Whether all of them are of events, and none has a stored answer."""
    is_replay: bool = False
    """Whether what was done is forgotten again: nobody asks what of earlier turns is over with it."""


class ReportedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an event. `id` is the job's where it is read for a job."""

    id: UUID
    event_type: str | None
    payload: object
    occurred_at: datetime | None
    branch: str | None = None
    """The branch of the repository, where the event's client named it."""
    root: str | None = None
    """The root of the repository that the session is in, where its client named it."""
    created_at: datetime


class PastEvent(ReportedEvent, frozen=True, kw_only=True):
    """An event of a turn that is over, with its place among the turn's."""

    received_at: datetime


class ClaimedJob(ReportedEvent, frozen=True, kw_only=True):
    """A claimed job with the present state of its source and key. Event fields are None for a summary and a reindex."""

    seq: int
    team_id: UUID
    project_id: UUID
    lane: UUID
    source_type: str
    source_id: UUID
    source_run: int
    agent_event_id: UUID | None
    server_session_id: UUID | None
    attempts: int
    max_attempts: int
    api_key_id: UUID | None
    actor_id: str | None
    request_id: str | None
    generation_run_id: UUID | None
    job_payload: object
    late_at: datetime | None = None
    """When the job's event happened (for a summary: the session's last event), if that was delivered late; else None."""
    origin: str | None
    prompt_number: int | None
    """The number of the user's newest prompt when the event arrived."""
    project_name: str
    project_open: bool
    project_joined: bool = False
    """To another one, to which what was written meanwhile is moved within a minute."""
    policy: GenerationPolicy
    team_policy: GenerationPolicy
    key_revoked: bool
    key_expired: bool
    """False for a key that was rotated before."""
    key_scopes: list[str] | None
    """None when no key asked for the job."""
    key_project_id: UUID | None
    unreached_times: int
    """How often in a row the provider was unreachable for it."""


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one job of a batch ends. `queued` sends it back; with `give_back` the attempt does not count."""

    job_id: UUID
    status: Literal["completed", "failed", "queued"]
    outcome: Literal["observed", "skipped"] | None = None
    reason: str | None = None
    error: dict[str, object] | None = None
    give_back: bool = False
    run_id: UUID | None = None
    """The call whose failure ended the job."""
    hold_seconds: float = 0
    """Of one that is sent back: how long its lane waits."""


class LaneHold(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lane waits after this batch, and why."""

    seconds: float = 0
    reason: str | None = None
    held_for: str | None = None
    """The paused provider, or BUDGET; None for a back-off."""
