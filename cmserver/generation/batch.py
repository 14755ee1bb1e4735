"""Holds a batch's results while it is worked on, and decides what each failure means for its jobs. No I/O."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from cmserver.access.model import expand_scopes
from cmserver.base.sql import Conn
from cmserver.generation.model import Claim, ClaimedJob, End, LaneHold
from cmserver.generation.prompt import find_root, read_events
from cmserver.generation.record import SettledAnswer
from cmserver.models.calls.budget import BUDGET, BudgetRefusal
from cmserver.models.calls.model import Pause, StoredAnswer
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.reading.model import EventReading

FIRST_BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 900.0
MAX_REST_SECONDS = 3600.0
"""Upper bound of what a provider may ask for: unlike a pause, a rest cannot be ended by hand."""
_MAX_MESSAGE_CHARS = 2000

_ASKING_SCOPES = {"events:write", "sessions:write", "jobs:write", "admin", "*"}
"""Any of these lets a key ask for observations and summaries."""
_REINDEX_SCOPES = {"jobs:write", "admin", "*"}

_JOINED_SECONDS = 60.0
"""Until then, a job that was written while its project was joined is moved."""

Group = tuple[list[ClaimedJob], StoredAnswer | None]
"""Jobs that share one answer, and the answer if it was stored before."""
Effect = Callable[[Conn], Awaitable[End]]
"""Writes what a job is for, in the transaction that ends it, and says how it ends. May be called again when that fails."""


class Batch:
    """The jobs of one claim, the calls that answered them, and the ends of those without an answer."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.began = time.monotonic()
        self.jobs: list[ClaimedJob] = []
        self.root: str | None = None
        """What paths in its events are relative to."""
        self.readings: dict[UUID, EventReading] = {}
        """What the events of its jobs say, by job."""
        self.answered: list[SettledAnswer] = []
        self.ends: list[End] = []
        self.hold = LaneHold()
        self.effect: Effect | None = None
        """Of a job that no provider is called for here: the steward's."""

    async def read_events(self) -> None:
        """Read the events of the jobs, each once for all that is made of it; in a thread, so that heartbeats go on."""
        self.root = find_root(self.jobs)
        self.readings = await asyncio.to_thread(read_events, self.jobs, self.root)

    def check_jobs(self) -> list[ClaimedJob]:
        """The jobs that may be generated. The others fail at once, without a provider call."""
        allowed: list[ClaimedJob] = []
        for job in self.jobs:
            if job.project_joined:
                message = "The project of this job was joined to another one meanwhile."
                self._requeue([job], {"reason": "project_joined", "message": message})
                self._rest(_JOINED_SECONDS, "project_joined")
            elif refusal := key_refusal(job):
                self.fail([job], "key_revoked", refusal)
            elif not job.project_open:
                self.fail([job], "project_closed", "The project or team of this job is archived or no longer the same.")
            elif job.source_type == "agent_event" and job.event_type is None:
                self.fail([job], "source_gone", "The event of this job was deleted.")
            elif job.source_type == "agent_event" and job.id not in self.readings:
                self.fail([job], "payload_unusable", "The event could not be read, which is a bug. The log says more.")
            else:
                allowed.append(job)
        return allowed

    def skip(self, job: ClaimedJob, reason: str) -> None:
        """End the job without a provider call."""
        self.ends.append(End(job_id=job.id, status="completed", outcome="skipped", reason=reason))

    def fail(self, jobs: Sequence[ClaimedJob], reason: str, message: str, run_id: UUID | None = None) -> None:
        """Fail the jobs for good, until an operator retries them; `run_id` is the call that explains it."""
        error: dict[str, object] = {"reason": reason, "message": message[:_MAX_MESSAGE_CHARS]}
        self.ends += [End(job_id=job.id, status="failed", error=error, run_id=run_id) for job in jobs]

    def back_off(
        self,
        jobs: Sequence[ClaimedJob],
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
        run_id: UUID | None = None,
    ) -> None:
        """Queue the jobs again after a pause of their lane; fail those that have no attempts left."""
        error: dict[str, object] = {"reason": reason, "message": message[:_MAX_MESSAGE_CHARS]}
        retried = [job for job in jobs if job.attempts < job.max_attempts]
        self.ends += [End(job_id=job.id, status="queued", error=error) for job in retried]
        self.fail([job for job in jobs if job.attempts >= job.max_attempts], reason, message, run_id)
        if retried:
            self._rest(max(full_jitter(max(job.attempts for job in retried)), retry_after_seconds or 0), reason)

    def hold_for_pause(self, pause: Pause, jobs: Sequence[ClaimedJob]) -> None:
        """Wait for the end of the provider's pause; no attempt is used up."""
        self._requeue(jobs, {"reason": "paused", "message": f"The provider {pause.provider} is paused ({pause.reason})."})
        self.hold = LaneHold(seconds=max(pause.seconds_left, 0.1), reason=f"paused: {pause.reason}", held_for=pause.provider)

    def hold_for_rate_limit(self, provider: str, seconds: float, jobs: Sequence[ClaimedJob]) -> None:
        """Wait as long as the provider told another batch; no attempt is used up."""
        reason = FailureKind.RATE_LIMITED.value
        self._requeue(jobs, {"reason": reason, "message": f"The provider {provider} is limiting the request rate."})
        self._rest(seconds, reason)

    def hold_for_budget(self, refusal: BudgetRefusal, jobs: Sequence[ClaimedJob]) -> None:
        """Wait until the budget allows calls again; no attempt is used up."""
        self._requeue(jobs, {"reason": BUDGET, "message": refusal.reason})
        self.hold = LaneHold(seconds=max(refusal.seconds_left, 0.1), reason=refusal.reason, held_for=BUDGET)

    def give_back(self, jobs: Sequence[ClaimedJob]) -> None:
        """Queue the jobs as if they had not been claimed: no provider call was made for them."""
        self._requeue(jobs, None)

    def is_last_attempt(self, jobs: Sequence[ClaimedJob], error: ProviderError) -> bool:
        """Whether a temporary failure uses up the last attempt of all jobs."""
        return not error.out_of_reach and all(job.attempts >= job.max_attempts for job in jobs)

    def retry_later(self, jobs: Sequence[ClaimedJob], error: ProviderError) -> None:
        """After a temporary failure. A provider that cannot have seen the events uses up none of their attempts."""
        if not error.out_of_reach:
            self.back_off(jobs, error.kind.value, str(error), error.retry_after_seconds, error.run_id)
            return
        times = 1 + max(job.unreached_times for job in jobs)
        self._requeue(jobs, {"reason": error.kind.value, "message": str(error)[:_MAX_MESSAGE_CHARS], "times": times})
        self._rest(max(full_jitter(times), error.retry_after_seconds or 0), error.kind.value)

    def failed_jobs(self) -> dict[str, list[UUID]]:
        """The jobs that failed for good, by reason."""
        by_reason: dict[str, list[UUID]] = {}
        for end in self.ends:
            if end.status == "failed" and end.error:
                by_reason.setdefault(str(end.error["reason"]), []).append(end.job_id)
        return by_reason

    def discard_answers(self, job_ids: Sequence[UUID]) -> None:
        """Every job was cancelled: drop the answers; the database turns each end into `cancelled`."""
        self.answered, self.effect = [], None
        self.ends = [End(job_id=job_id, status="failed") for job_id in job_ids]

    def _requeue(self, jobs: Sequence[ClaimedJob], error: dict[str, object] | None) -> None:
        self.ends += [End(job_id=job.id, status="queued", error=error, give_back=True) for job in jobs]

    def _rest(self, seconds: float, reason: str) -> None:
        seconds = min(max(self.hold.seconds, seconds), MAX_REST_SECONDS)
        self.hold = LaneHold(seconds=seconds, reason=f"back-off: {reason}")


def key_refusal(job: ClaimedJob) -> str | None:
    """Why the key that asked for the job no longer may; None when it still may, or no key asked."""
    if job.key_revoked:
        return "The API key that asked for this was revoked."
    if job.key_expired:
        return "The API key that asked for this has expired and was not rotated."
    if job.key_project_id not in {None, job.project_id}:
        return "The API key that asked for this is bound to another project."
    scopes = _REINDEX_SCOPES if job.source_type == "observation_reindex" else _ASKING_SCOPES
    if job.key_scopes is not None and not expand_scopes(job.key_scopes) & scopes:
        return f"The API key that asked for this has none of the scopes {', '.join(sorted(scopes - {'admin', '*'}))}."
    return None


def group_by_answer(jobs: Sequence[ClaimedJob], stored: Sequence[StoredAnswer]) -> list[Group]:
    """Jobs grouped by their stored answer, in order; those without one together at the end."""
    answers = {answer.id: answer for answer in stored}
    with_answer: dict[UUID, list[ClaimedJob]] = {}
    without: list[ClaimedJob] = []
    for job in jobs:
        run_id = job.generation_run_id
        if run_id is not None and run_id in answers:
            with_answer.setdefault(run_id, []).append(job)
        else:
            without.append(job)
    groups: list[Group] = [(members, answers[run_id]) for run_id, members in with_answer.items()]
    return [*groups, (without, None)] if without else groups


def full_jitter(attempts: int) -> float:
    """Seconds to wait before the next attempt: random, up to a bound that grows exponentially with the attempts."""
    return random.uniform(0.1, min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** max(0, attempts - 1)))  # noqa: S311
