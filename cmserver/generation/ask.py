"""One call of a provider: on record before it leaves the house, its answer kept before it is used, and its cost however it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.text import storable
from cmserver.generation import repository
from cmserver.generation.calls import budget
from cmserver.generation.calls import repository as calls
from cmserver.generation.calls.budget import Exhausted
from cmserver.generation.model import Claim, HeldJob, StoredAnswer
from cmserver.generation.patience import LeaseLostError, Patience
from cmserver.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError
from cmserver.providers.prices import charged
from cmserver.providers.wording.render import estimate_tokens

_ANSWER_TOKENS = 500
"""What an answer is thought to take until it is there."""
_LONGEST_ANSWER = 2_000_000
"""Characters, several times what the most tokens of an answer come to."""
_MOST_TOKENS = 100_000_000
_MOST_USD = Decimal(100_000)


class BudgetExhaustedError(Exception):
    """The call was not made: its team or project has spent what it may."""

    def __init__(self, exhausted: Exhausted) -> None:
        super().__init__(exhausted.reason)
        self.exhausted = exhausted


class Caller:
    """Makes calls. One per worker."""

    def __init__(self, patiently: Patience, *, timeout_seconds: float) -> None:
        self._patiently = patiently
        self._timeout_seconds = timeout_seconds

    async def ask(self, claim: Claim, jobs: Sequence[HeldJob], provider: Provider, asked: Prompt) -> StoredAnswer:
        """A new answer for these jobs, stored. ProviderError when there is none that can be used; its call is on record, too.

        BudgetExhaustedError and LeaseLostError before anything was sent.
        """
        run_id = new_id()
        await self._begin(claim, run_id, provider, asked, jobs)
        ids = [job.id for job in jobs]
        began = time.monotonic()
        try:
            completion = await self._completion(provider, asked)
            error = _cut(completion) if completion.truncated and len(jobs) > 1 else None
        except ProviderError as failure:
            completion, error = failure.completion, failure
        completion = completion and _believable(completion)
        await self._finish(claim, run_id, provider, ids, round((time.monotonic() - began) * 1000), completion, error)
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

    async def _begin(self, claim: Claim, run_id: UUID, provider: Provider, asked: Prompt, jobs: Sequence[HeldJob]) -> None:
        is_free = provider.name == "offline"
        tokens = 0 if is_free else estimate_tokens(asked)
        estimate = Completion(text="", model=provider.model, input_tokens=tokens, output_tokens=0 if is_free else _ANSWER_TOKENS)
        first = jobs[0]

        async def begin(conn: Conn) -> Exhausted | None:
            if not await repository.lock_held(conn, claim.claim, [job.id for job in jobs]):
                raise LeaseLostError
            if not is_free and (exhausted := await budget.admit(conn, team_id=claim.team_id, project_id=claim.project_id)):
                return exhausted
            await calls.begin_run(
                conn,
                run_id=run_id,
                claim=claim,
                kind=asked.kind,
                provider=provider.name,
                job_ids=[job.id for job in jobs],
                estimate=estimate,
                cost_usd=charged(provider.name, estimate),
            )
            await audit.append(
                conn,
                team_id=claim.team_id,
                project_id=claim.project_id,
                actor_id=first.actor_id,
                api_key_id=first.api_key_id,
                action="generation.started",
                resource_type="generation_run",
                resource_id=str(run_id),
                request_id=first.request_id,
                details={"jobs": [str(job.id) for job in jobs], "kind": asked.kind, "provider": provider.name},
            )
            return None

        if exhausted := await self._patiently(begin):
            raise BudgetExhaustedError(exhausted)

    async def _completion(self, provider: Provider, asked: Prompt) -> Completion:
        seconds = self._timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await provider.complete(asked)
        except TimeoutError as error:
            late = f"{provider.name} did not answer within {seconds:g} seconds."
            raise ProviderError(FailureKind.TRANSIENT, late, perhaps_paid=True) from error

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
        """An answer is attached to its jobs, so that a crash from here on does not buy it again."""
        price = completion and charged(provider.name, completion)
        status = "answered" if error is None else "failed" if completion is None else "unusable"

        async def finish(conn: Conn) -> bool:
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

        if not await self._patiently(finish):
            raise LeaseLostError


def _believable(said: Completion) -> Completion:
    """What a call can have brought and cost: budgets go by it, whatever stands at the other end."""
    counted = (said.input_tokens, said.output_tokens, said.cache_read_tokens, said.cache_write_tokens)
    read, written, cached, kept = (min(max(tokens, 0), _MOST_TOKENS) for tokens in counted)
    cost = said.cost_usd
    return msgspec.structs.replace(
        said,
        text=said.text[:_LONGEST_ANSWER],
        model=storable(said.model),
        input_tokens=read,
        output_tokens=written,
        cache_read_tokens=cached,
        cache_write_tokens=kept,
        cost_usd=cost if cost is not None and cost.is_finite() and 0 <= cost <= _MOST_USD else None,
    )


def _cut(completion: Completion) -> ProviderError:
    return ProviderError(
        FailureKind.UNUSABLE_ANSWER,
        f"The answer was cut at its most tokens ({completion.output_tokens:,}; CMSERVER_ANSWER_MAX_TOKENS).",
        completion=completion,
    )
