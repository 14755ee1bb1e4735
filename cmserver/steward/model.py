"""Jobs of the steward, their runs and timeline, what teams allow, and policies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, LiteralString, get_args
from uuid import UUID

import msgspec

from cmserver.access.model import Principal

JobType = Literal["auto_merge", "derive", "recheck", "policy_tune"]
JOB_TYPES: tuple[JobType, ...] = get_args(JobType)
Mode = Literal["off", "dry_run", "write"]
ActKind = Literal["merged", "repeated", "promoted", "done", "dropped", "steward"]
ACT_DAYS = 7
"""What happened by itself is listed for so long."""
JobStatus = Literal["queued", "running", "succeeded", "failed", "dead_letter", "cancelled"]
RunStatus = Literal["succeeded", "failed", "skipped"]
EventType = Literal[
    "job_created",
    "job_claimed",
    "model_invoked",
    "decision_made",
    "write_applied",
    "write_skipped",
    "job_completed",
    "job_failed",
    "recovery_detected",
    "run_undone",
]

STEWARD = "steward"
"""The actor of what the steward does, in the audit log and in histories."""
MAX_QUEUED, MAX_QUEUED_OF_PROJECT = 200, 50
"""At most this many jobs of all teams, and of one project, are open; the rest is planned later."""
BREAKER_FAILURES, BREAKER_SECONDS = 3, 120.0
"""After so many failed calls in a row a team's steward asks no model for that long, and then tries a single call."""


class TeamMode(msgspec.Struct, frozen=True, kw_only=True):
    """What a team allows."""

    mode: Mode = "off"
    is_paused: bool = False
    executors: list[str] = msgspec.field(default_factory=lambda: list[str](JOB_TYPES))
    changed_by: str | None = None
    changed_at: datetime | None = None


class ProjectExecutors(msgspec.Struct, frozen=True, kw_only=True):
    """The executors that a project has, of those that its team has."""

    project_id: UUID
    project: str
    executors: list[str]


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one job at this moment."""

    mode: Mode
    is_paused: bool
    is_allowed: bool
    """Whether its executor is one of the team's and the project's."""
    is_archived: bool
    """Whether its project is archived, or joined to another one."""

    @property
    def stops(self) -> str | None:
        """Why nothing is begun; None when it may be."""
        if self.mode == "off":
            return self.mode
        if self.is_paused:
            return "paused"
        return "project_archived" if self.is_archived else None

    @property
    def refusal(self) -> str | None:
        """Why nothing may be written; None when it may."""
        if self.mode != "write":
            return self.mode
        return self.stops or (None if self.is_allowed else "executor_not_allowed")


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job about to be queued, unless one of its type is open for the same step: a suggestion, or a project."""

    team_id: UUID
    project_id: UUID
    job_type: str
    source_id: UUID
    payload: dict[str, object]
    """Why it is there (`trigger`), what it is about (`sources`), and what its executor is told (`input`)."""


class StewardJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the outbox, as the view steward_jobs names its columns."""

    id: UUID
    team_id: UUID
    project_id: UUID
    job_type: str
    payload: object
    status: JobStatus
    attempt_count: int
    locked_at: datetime | None
    decision: dict[str, object] | None
    last_error: str | None

    @property
    def principal(self) -> Principal:
        """As whom the job acts: the steward, in this team and project."""
        scopes = frozenset({"observations:read", "observations:write"})
        return Principal(
            kind="steward", team_id=self.team_id, project_id=self.project_id, key_id=None, actor_id=STEWARD, scopes=scopes
        )


JOB_COLUMNS: LiteralString = "id, team_id, project_id, job_type, payload, status, attempt_count, locked_at, decision, last_error"


class StewardRun(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job that came to an end. `provider` is None where no model was asked.

    A tuning of thresholds has no job: its own id stands for it.
    """

    id: UUID
    team_id: UUID
    project_id: UUID | None
    project: str | None = None
    job_id: UUID
    job_type: str
    job_status: JobStatus
    trigger_reason: str | None
    attempt: int
    provider: str | None
    model: str | None
    input_snapshot: dict[str, object]
    output_snapshot: dict[str, object] | None
    input_hash: str | None
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    latency_ms: int | None
    status: RunStatus
    error_class: str | None
    error_message: str | None
    created_at: datetime
    completed_at: datetime | None
    undone_at: datetime | None
    undone_by: str | None


class StewardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the life of a job or a run."""

    id: int
    job_id: UUID
    run_id: UUID | None
    event_type: EventType
    data: dict[str, object]
    schema_version: int
    created_at: datetime


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a model that a run made. `error` is None where it answered."""

    provider: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None
    message: str | None = None


_RUN_DID = {
    "auto_merge": "took in another that says the same",
    "derive": "was derived from several that say it",
    "recheck": "was marked as stale",
}
"""What a run did to the observations that it wrote, by its job type."""


class AutomaticAct(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened by itself: what, by which evidence, and whether undoing it is still possible.

    `number` and `title` are of the observation that it was done to; a run of the steward has its `run_id`, and its job type as
    title. `by_numbers` are the sources of a merge, what closed an open end, or what a run wrote. `similarity` is of merges.
    """

    at: datetime
    project_id: UUID | None
    kind: ActKind
    number: int | None
    title: str
    by_numbers: list[int]
    measured_by: Literal["text", "vector", "words"] | None
    similarity: float | None
    run_id: UUID | None
    can_undo: bool

    @property
    def why(self) -> str:
        """The end of a sentence that begins with `by_numbers`."""
        match self.kind:
            case "merged" if self.measured_by == "text":
                return "said the same"
            case "merged":
                return f"was as near as the team wants it ({self.similarity or 0:.2f} by {self.measured_by})"
            case "repeated":
                return "the same text was written down again"
            case "promoted":
                return "it matters, or was read, as much as the policy says"
            case "done" | "dropped":
                return "shows it"
            case "steward":
                return _RUN_DID.get(self.title, "was written") if self.by_numbers else "a threshold was moved"


class Effect(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """Something that a run wrote: which thing, and the version that it got, by which a later change is noticed."""

    kind: Literal["merged", "derived", "marked_stale", "policy_changed"]
    observation_id: UUID | None = None
    number: int | None = None
    version: int | None = None
    source_numbers: list[int] = []
    policy_key: str | None = None
    policy_change_id: UUID | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor decided, before anything is written. `proposals` is empty where nothing is to be written."""

    decision: str
    reasons: list[str]
    confidence: float | None = None
    proposals: list[msgspec.Struct] = []
    refused: list[msgspec.Struct] = []
    """What is not to be written in any mode, and not to be thought of again."""
    input: Mapping[str, object] = {}
    call: ModelCall | None = None
    read_to: datetime | None = None
    """Up to where a log was read; the next job of its kind goes on there."""
    is_cut: bool = False
    """More is to be written than one run may; another one begins where this one did."""
    tries_again: bool = False
    """The reason may be gone tomorrow: no model was there, or no budget."""


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and why some of the plan was not."""

    effects: list[Effect]
    skipped: list[str] = []


class NewDerivation(msgspec.Struct, frozen=True, kw_only=True):
    """What was derived, or would have been."""

    team_id: UUID
    project_id: UUID
    run_id: UUID
    fingerprint: str
    source_ids: list[UUID]
    derivation_type: str
    confidence: float
    novelty: float
    status: Literal["accepted", "candidate", "skipped"]
    model: str | None
    payload: dict[str, object]


class DerivationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what was derived: it stands, or people took it back."""

    kept: int
    rejected: int


class SuggestionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What people did with suggestions that were similar enough to be merged by the steward."""

    accepted: int
    dismissed: int


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a threshold, with what spoke for it."""

    id: UUID
    policy_key: str
    prior_value: float
    new_value: float
    reason: str
    sample_size: int = 0
    evidence: dict[str, object] = {}
    changed_by: str
    rollback_of_id: UUID | None = None
    run_id: UUID | None = None
    created_at: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))


class PolicyBounds(msgspec.Struct, frozen=True):
    """A threshold's usual value, and between which values the steward may move it."""

    usual: float
    least: float
    most: float
    meaning: str


POLICIES: dict[str, PolicyBounds] = {
    "auto_merge.threshold": PolicyBounds(0.92, 0.90, 0.97, "From this similarity on a suggestion is put to the model."),
    "derive.confidence": PolicyBounds(0.80, 0.70, 0.90, "A derivation that is less sure is not stored."),
    "derive.novelty": PolicyBounds(0.20, 0.15, 0.40, "A derivation that says less that is new is not stored."),
}
GUARD_CONFIDENCE = 0.85
"""A model that is less sure merges nothing. No policy moves it."""


class QueueHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a team that are open or ended badly."""

    queued: int
    running: int
    dead_letter: int
    oldest_queued_seconds: float | None


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why runs failed or asked in vain; `count` is how often it was the reason."""

    reason: str
    count: int


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last 24 hours, but for the first."""

    runs_last_hour: int
    runs: int
    succeeded: int
    average_tokens: float
    average_latency_ms: float
    p95_latency_ms: int | None


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """Failed model calls in a row, and until when none is made."""

    consecutive_failures: int
    last_failure: str | None
    opened_at: datetime | None
    open_until: datetime | None
    is_open: bool


class UndoneEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken back: `kind` is what the run had done; `restored` are the numbers of observations that are shown again."""

    kind: str
    number: int | None
    restored: list[int] = []


class UnjudgedSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """An open suggestion, with the present versions of both texts."""

    id: UUID
    project_id: UUID
    left_version: int
    right_version: int
    left_id: UUID
    right_id: UUID


class SuggestionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The last decision on a suggestion."""

    suggestion_id: UUID
    decision: dict[str, object]


class DueProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project whose calls are to be read, and between which times of receipt; None is from the first."""

    project_id: UUID
    since: datetime | None
    until: datetime


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor works with: the job as it was claimed, and the policies that hold."""

    job: StewardJob
    policies: dict[str, float]
    run_id: UUID
