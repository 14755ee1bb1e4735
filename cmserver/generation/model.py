"""The outbox: jobs, the batches in which workers take them, and how each job of a batch ends."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access.model import GenerationPolicy

JOB_FOR_EVENT = "observation_generate_for_event"
JOB_FOR_SUMMARY = "observation_generate_session_summary"
JOB_FOR_REINDEX = "observation_reindex"

Status = Literal["queued", "processing", "completed", "failed", "cancelled"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work, and the row that is claimed for it. Made with its event; ended only by the claim that holds it."""

    id: UUID
    project_id: UUID
    team_id: UUID
    lane: UUID
    source_type: str
    source_id: UUID
    source_run: int
    server_session_id: UUID | None
    job_type: str
    status: Status
    attempts: int
    max_attempts: int
    outcome: str | None
    outcome_reason: str | None
    created_at: datetime
    updated_at: datetime


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has done since its last summary was asked for."""

    events: int
    waits_for_end: bool
    """Whether any of them waits for the session's end, by its project's policy."""
    seconds: float


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a job is made, and on what occasion."""

    team_id: UUID
    api_key_id: UUID | None
    """None for the idle sweep."""
    actor_id: str
    request_id: str | None
    max_attempts: int


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A lane in a worker's hands. `claim` is the fencing token; without jobs the lane turned out to be empty."""

    lane: UUID
    team_id: UUID
    project_id: UUID
    claim: int
    job_ids: list[UUID]


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job with its source as it is now. Event fields are None for a summary and a reindex."""

    id: UUID
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
    created_at: datetime
    event_type: str | None
    payload: object
    occurred_at: datetime | None
    origin: str | None
    prompt_number: int | None
    """The user's request that was current when the event arrived."""
    project_name: str
    project_open: bool
    policy: GenerationPolicy
    team_policy: GenerationPolicy
    key_revoked: bool
    unreached_times: int
    """How often the provider could not be reached for it, one after the other."""


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer that was paid for and not yet applied; `job_ids` in the order of the prompt's tags."""

    id: UUID
    job_ids: list[UUID]
    answer: str
    provider: str
    model: str
    input_tokens: int
    output_tokens: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How one job of a batch ends. `queued` sends it back; with `give_back` the attempt does not count."""

    job_id: UUID
    status: Literal["completed", "failed", "queued"]
    outcome: Literal["observed", "skipped"] | None = None
    reason: str | None = None
    error: dict[str, object] | None = None
    give_back: bool = False
    run_id: UUID | None = None
    """The call that failed it for good."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Why nobody calls a provider at the moment."""

    provider: str
    reason: str
    message: str
    paused_at: datetime
    until_at: datetime
    seconds_left: float
