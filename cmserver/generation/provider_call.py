"""Makes one call of a provider: recorded before it is sent, with its answer stored before it is used, and its cost either way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from cmserver.access.audit import repository as audit_log
from cmserver.base.db import SystemDb
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.lease import LeaseLostError, retry_until_lease_ends
from cmserver.generation.model import Claim, ClaimedJob
from cmserver.models.calls import budget
from cmserver.models.calls import repository as calls
from cmserver.models.calls.budget import BudgetRefusal
from cmserver.models.calls.complete import ANSWER_TOKENS, clamp_completion, complete_in_time, truncated_error
from cmserver.models.calls.model import StoredAnswer
from cmserver.models.providers.model import Completion, Prompt, Provider, ProviderError
from cmserver.models.providers.prices import compute_cost
from cmserver.models.providers.prompts.render import estimate_tokens


class ProviderCaller:
    """Makes the provider calls of a worker's batches."""

    def __init__(self, db: SystemDb, settings: Settings) -> None:
        self._db = db
        self._lease_seconds = settings.lease_seconds
        self._timeout_seconds = settings.provider_timeout_seconds

    async def call(
        self, claim: Claim, jobs: Sequence[ClaimedJob], provider: Provider, prompt: Prompt
    ) -> StoredAnswer | BudgetRefusal:
        """Store and return a new answer for these jobs; a refusal if a budget is spent, and nothing was sent.

        Raises ProviderError for a call that failed, which is recorded, too, and LeaseLostError before anything is sent.
        """
        run_id = new_id()
        if refusal := await self._begin(claim, run_id, provider, prompt, jobs):
            return refusal
        ids = [job.id for job in jobs]
        started = time.monotonic()
        try:
            completion = await complete_in_time(provider, prompt, self._timeout_seconds)
            error = truncated_error(completion) if completion.truncated and len(jobs) > 1 else None
        except ProviderError as failure:
            completion, error = failure.completion, failure
        completion = completion and clamp_completion(completion)
        await self._finish(claim, run_id, provider, ids, round((time.monotonic() - started) * 1000), completion, error)
        if error is not None:
            error.run_id = run_id
            raise error
        assert completion is not None
        return StoredAnswer(
            id=run_id,
            job_ids=ids,
            answer=completion.text,
            provider=provider.name,
            model=completion.model,
            input_tokens=completion.input_tokens + completion.cache_read_tokens + completion.cache_write_tokens,
            output_tokens=completion.output_tokens,
        )

    async def _begin(
        self, claim: Claim, run_id: UUID, provider: Provider, prompt: Prompt, jobs: Sequence[ClaimedJob]
    ) -> BudgetRefusal | None:
        estimate = Completion(text="", model=provider.model, input_tokens=estimate_tokens(prompt), output_tokens=ANSWER_TOKENS)
        first = jobs[0]

        async def begin(conn: Conn) -> BudgetRefusal | None:
            """Record the run unless a budget refuses it; LeaseLostError when the claim is lost."""
            if not await repository.lock_held(conn, claim.claim, [job.id for job in jobs]):
                raise LeaseLostError
            if refusal := await budget.admit(conn, team_id=claim.team_id, project_id=claim.project_id):
                return refusal
            await calls.begin_run(
                conn,
                run_id=run_id,
                team_id=claim.team_id,
                project_id=claim.project_id,
                lane=claim.lane,
                claim=claim.claim,
                kind=prompt.kind,
                provider=provider.name,
                job_ids=[job.id for job in jobs],
                estimate=estimate,
                cost_usd=compute_cost(provider.name, estimate),
            )
            await audit_log.append(
                conn,
                team_id=claim.team_id,
                project_id=claim.project_id,
                actor_id=first.actor_id,
                api_key_id=first.api_key_id,
                action="generation.started",
                resource_type="generation_run",
                resource_id=str(run_id),
                request_id=first.request_id,
                details={"jobs": [str(job.id) for job in jobs], "kind": prompt.kind, "provider": provider.name},
            )
            return None

        return await retry_until_lease_ends(self._db, self._lease_seconds, begin)

    async def _finish(
        self,
        claim: Claim,
        run_id: UUID,
        provider: Provider,
        job_ids: Sequence[UUID],
        latency_ms: int,
        completion: Completion | None,
        error: ProviderError | None,
    ) -> None:
        """Record the result, and attach an answer to its jobs so that a crash does not buy it again."""
        price = completion and compute_cost(provider.name, completion)
        status = "answered" if error is None else "failed" if completion is None else "unusable"

        async def finish(conn: Conn) -> bool:
            """Record the outcome; returns whether the claim still holds the jobs."""
            held = bool(await repository.lock_held(conn, claim.claim, job_ids))
            await calls.finish_run(
                conn,
                run_id,
                status if held else "lost",
                latency_ms=latency_ms,
                completion=completion,
                cost_usd=price,
                error=error,
            )
            if held and error is None:
                await repository.attach_run(conn, claim.claim, run_id, job_ids)
            return held

        if not await retry_until_lease_ends(self._db, self._lease_seconds, finish):
            raise LeaseLostError
