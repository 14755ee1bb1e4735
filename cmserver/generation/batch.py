"""What is known of a batch while it is worked on, and what each failure means for its jobs. Decides; touches nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from cmserver.generation.apply import Answered, Hold
from cmserver.generation.calls.budget import BUDGET, Exhausted
from cmserver.generation.model import Claim, End, HeldJob, Pause, StoredAnswer
from cmserver.providers.model import FailureKind, ProviderError

BACKOFF_FIRST_SECONDS = 5.0
BACKOFF_LONGEST_SECONDS = 900.0
LONGEST_REST_SECONDS = 3600.0
"""However long the provider wants to be left alone: asking again costs nothing, and nobody can end a rest as one ends a pause."""
_LONGEST_MESSAGE = 2000

Group = tuple[list[HeldJob], StoredAnswer | None]
"""Jobs that share one answer, and the answer when it was bought before."""


class Batch:
    """The jobs of one claim, the answers they got, and the ends of those that got none."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.jobs: list[HeldJob] = []
        self.answered: list[Answered] = []
        self.ends: list[End] = []
        self.hold = Hold()

    def possible(self) -> list[HeldJob]:
        """The jobs that may be generated. The others fail at once, without a provider call."""
        todo: list[HeldJob] = []
        for job in self.jobs:
            if job.key_revoked:
                self.fail([job], "key_revoked", "The API key that asked for this was revoked.")
            elif not job.project_open:
                self.fail([job], "project_closed", "The project or team of this job is archived or no longer the same.")
            elif job.source_type == "agent_event" and job.event_type is None:
                self.fail([job], "source_gone", "The event of this job is gone.")
            else:
                todo.append(job)
        return todo

    def skip(self, job: HeldJob, reason: str) -> None:
        """Without asking anybody."""
        self.ends.append(End(job_id=job.id, status="completed", outcome="skipped", reason=reason))

    def fail(self, jobs: Sequence[HeldJob], reason: str, message: str, run_id: UUID | None = None) -> None:
        """For good, until an operator sends them back; `run_id` is the call that says why."""
        error: dict[str, object] = {"reason": reason, "message": message[:_LONGEST_MESSAGE]}
        self.ends += [End(job_id=job.id, status="failed", error=error, run_id=run_id) for job in jobs]

    def back_off(
        self,
        jobs: Sequence[HeldJob],
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
        run_id: UUID | None = None,
    ) -> None:
        """Once more after a while, as often as their attempts allow; the lane waits with them."""
        error: dict[str, object] = {"reason": reason, "message": message[:_LONGEST_MESSAGE]}
        again = [job for job in jobs if job.attempts < job.max_attempts]
        self.ends += [End(job_id=job.id, status="queued", error=error) for job in again]
        self.fail([job for job in jobs if job.attempts >= job.max_attempts], reason, message, run_id)
        if again:
            self._rest(max(full_jitter(max(job.attempts for job in again)), retry_after_seconds or 0), reason)

    def _rest(self, seconds: float, reason: str) -> None:
        seconds = min(max(self.hold.seconds, seconds), LONGEST_REST_SECONDS)
        self.hold = Hold(seconds=seconds, reason=f"back-off: {reason}")

    def hold_for(self, pause: Pause, jobs: Sequence[HeldJob]) -> None:
        """Wait for the end of the provider's pause; no attempt is used up."""
        self._wait(jobs, "paused", f"The provider {pause.provider} is paused ({pause.reason}).")
        self.hold = Hold(seconds=max(pause.seconds_left, 0.1), reason=f"paused: {pause.reason}", held_for=pause.provider)

    def wait_for(self, provider: str, seconds: float, jobs: Sequence[HeldJob]) -> None:
        """Until the provider takes requests again, as it said to somebody else; no attempt is used up."""
        self._wait(jobs, FailureKind.RATE_LIMITED.value, f"The provider {provider} takes no more requests for the moment.")
        self._rest(seconds, FailureKind.RATE_LIMITED.value)

    def hold_for_budget(self, exhausted: Exhausted, jobs: Sequence[HeldJob]) -> None:
        """Wait until there is money again; no attempt is used up."""
        self._wait(jobs, BUDGET, exhausted.reason)
        self.hold = Hold(seconds=max(exhausted.seconds_left, 0.1), reason=exhausted.reason, held_for=BUDGET)

    def _wait(self, jobs: Sequence[HeldJob], reason: str, message: str) -> None:
        told: dict[str, object] = {"reason": reason, "message": message}
        self.ends += [End(job_id=job.id, status="queued", error=told, give_back=True) for job in jobs]

    def send_back(self, jobs: Sequence[HeldJob]) -> None:
        """To the queue as if they had not been claimed: no provider call was made for them."""
        self.ends += [End(job_id=job.id, status="queued", give_back=True) for job in jobs]

    def is_last_try(self, jobs: Sequence[HeldJob], error: ProviderError) -> bool:
        """Whether a failure that time could heal uses up the last attempt of them all."""
        return not error.out_of_reach and all(job.attempts >= job.max_attempts for job in jobs)

    def failed_call(self, jobs: Sequence[HeldJob], error: ProviderError) -> None:
        """A call that only time can heal. A provider that cannot have looked at the events uses up none of their attempts."""
        if not error.out_of_reach:
            self.back_off(jobs, error.kind.value, str(error), error.retry_after_seconds, error.run_id)
            return
        times = 1 + max(job.unreached_times for job in jobs)
        told: dict[str, object] = {"reason": error.kind.value, "message": str(error)[:_LONGEST_MESSAGE], "times": times}
        self.ends += [End(job_id=job.id, status="queued", error=told, give_back=True) for job in jobs]
        self._rest(max(full_jitter(times), error.retry_after_seconds or 0), error.kind.value)

    def failed(self) -> dict[str, list[UUID]]:
        """The jobs that have failed for good, by the reason."""
        found: dict[str, list[UUID]] = {}
        for end in self.ends:
            if end.status == "failed" and end.error:
                found.setdefault(str(end.error["reason"]), []).append(end.job_id)
        return found

    def only_ends(self, job_ids: Sequence[UUID]) -> None:
        """Drop what was answered: every job was cancelled, and the database turns each end into that."""
        self.answered = []
        self.ends = [End(job_id=job_id, status="failed") for job_id in job_ids]


def groups(jobs: Sequence[HeldJob], stored: Sequence[StoredAnswer]) -> list[Group]:
    """Jobs by the answer they carry, in order; those without one together."""
    answers = {answer.id: answer for answer in stored}
    with_answer: dict[UUID, list[HeldJob]] = {}
    without: list[HeldJob] = []
    for job in jobs:
        run_id = job.generation_run_id
        if run_id is not None and run_id in answers:
            with_answer.setdefault(run_id, []).append(job)
        else:
            without.append(job)
    known: list[Group] = [(held, answers[run_id]) for run_id, held in with_answer.items()]
    return [*known, (without, None)] if without else known


def full_jitter(attempts: int) -> float:
    """Seconds to wait after so many attempts: anything up to an exponentially growing bound."""
    return random.uniform(0.1, min(BACKOFF_LONGEST_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** max(0, attempts - 1)))  # noqa: S311
