"""A job as an agent reads it: how far it is, what went wrong, and the numbers of what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from cmserver.generation.operate.read import JobStanding
from cmserver.observations.plain import one_line

_SENTENCE_CHARS = 300
"""A reason may be in the words of a model, an error in those of a provider."""


def told(standing: JobStanding) -> str:
    """In a few lines."""
    return "".join(f"{line}\n" for line in _lines(standing))


def _lines(standing: JobStanding) -> Iterator[str]:
    job = standing.job
    stops = " (to be cancelled)" if job.status == "processing" and job.cancel_requested_at else ""
    yield f"Job {job.id}: {job.status}{stops}, {job.attempts} of {job.max_attempts} attempts used"
    if job.next_attempt_at:
        yield f"Next attempt: not before {job.next_attempt_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if job.last_error:
        yield f"Error: {_error(job.last_error)}"
    if standing.numbers:
        yield f"Observations: {', '.join(f'#{number}' for number in standing.numbers)}"
    elif job.outcome == "observed":
        yield "Observations: none is left, they were deleted"
    if job.outcome_reason:
        yield f"Reason: {one_line(job.outcome_reason, _SENTENCE_CHARS)}"


def _error(error: dict[str, object]) -> str:
    """The sentence for people, where there is one, else the word for the kind; never who worked on it."""
    return one_line(str(error.get("message") or error.get("reason") or "unknown"), _SENTENCE_CHARS)
