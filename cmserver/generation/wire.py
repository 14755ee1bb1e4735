"""A generation job on the wire."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.generation.model import Job


class GenerationJobOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The job of an event or a session's end, as the answer to it shows it. `bullmqJobId` is an older name of the id."""

    id: UUID
    status: str
    bullmq_job_id: UUID
    source_type: str
    source_id: UUID
    transport: Literal["enqueued"] = "enqueued"
    attempts: int
    max_attempts: int
    created_at_epoch: int
    updated_at_epoch: int


def job_out(job: Job) -> GenerationJobOut:
    """The job as the answer to its event shows it."""
    return GenerationJobOut(
        id=job.id,
        status=job.status,
        bullmq_job_id=job.id,
        source_type=job.source_type,
        source_id=job.source_id,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        created_at_epoch=epoch_ms(job.created_at),
        updated_at_epoch=epoch_ms(job.updated_at),
    )
