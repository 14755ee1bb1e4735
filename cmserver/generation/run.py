"""One batch from claim to effects: reload, ask the provider, keep its answer, apply it. A promise that may be kept twice."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access.audit import repository as audit
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation import prompt, reindex, repository
from cmserver.generation.answer import Parsed, parse
from cmserver.generation.apply import Answered, LeaseLostError, apply
from cmserver.generation.batch import Batch, groups
from cmserver.generation.bell import Bell
from cmserver.generation.calls import pauses
from cmserver.generation.calls import repository as calls
from cmserver.generation.model import Claim, HeldJob, Pause, StoredAnswer
from cmserver.observations import repository as observations
from cmserver.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError
from cmserver.sessions import repository as sessions

log: FilteringBoundLogger = structlog.get_logger(__name__)
T = TypeVar("T")

_PAUSES_PROVIDER = {FailureKind.QUOTA_EXHAUSTED, FailureKind.AUTH_INVALID, FailureKind.SETUP_REQUIRED}
_TIME_HEALS = {FailureKind.TRANSIENT, FailureKind.RATE_LIMITED}
_SPLITS = {FailureKind.CONTEXT_TOO_LONG, FailureKind.UNUSABLE_ANSWER}


class _Asking:
    """Whether a batch may still call the provider; what it may not ask now is sent back."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.paused: Pause | None = None
        self.failed = False

    def may_go_on(self, batch: Batch, jobs: list[HeldJob]) -> bool:
        if self.paused is not None:
            batch.hold_for(self.paused, jobs)
        elif self.failed:
            batch.send_back(jobs)
        elif time.monotonic() > self.until:
            batch.back_off(jobs, "out_of_time", "Its batch was split so often that another call could pass the hard limit.")
        else:
            return True
        return False


class Generator:
    """Runs batches. One per worker."""

    def __init__(
        self,
        db: Db,
        provider: Provider,
        bell: Bell,
        *,
        call_timeout_seconds: float,
        hard_limit_seconds: float,
        lease_seconds: float,
    ) -> None:
        self._db = db
        self._provider = provider
        self._bell = bell
        self._call_timeout_seconds = call_timeout_seconds
        self._hard_limit_seconds = hard_limit_seconds
        self._lease_seconds = lease_seconds

    async def run(self, claim: Claim) -> None:
        """Run the batch and write its effects. Raises nothing but cancellation."""
        with structlog.contextvars.bound_contextvars(lane=str(claim.lane), claim=claim.claim):
            log.debug("batch.started", jobs=len(claim.job_ids))
            batch = Batch(claim)
            try:
                await self._work_and_apply(batch)
            except LeaseLostError:
                log.warning("lease.lost")
            except Exception as error:
                log.exception("batch.failed")
                await self._give_up(batch, error)
            finally:
                self._bell.done(claim.lane)

    async def _work_and_apply(self, batch: Batch) -> None:
        """A cancellation means that every job was cancelled, which is written, or that the worker stops and puts its work back."""
        try:
            await self._work(batch)
            await self._apply(batch)
        except asyncio.CancelledError as cancelled:
            try:
                async with self._db.system() as conn:
                    held = await repository.still_held(conn, batch.claim.claim, batch.claim.job_ids)
            except Unavailable:
                raise cancelled from None  # the end of the lease gives the batch back
            if held:
                raise
            batch.only_ends(batch.claim.job_ids)
            await self._apply(batch)

    async def _apply(self, batch: Batch) -> None:
        numbers = await self._patiently(lambda conn: apply(conn, batch.claim, batch.jobs, batch.answered, batch.ends, batch.hold))
        if batch.hold.seconds > 0:
            log.info("batch.held", seconds=round(batch.hold.seconds, 1), reason=batch.hold.reason)
        log.debug("batch.completed", jobs=len(batch.jobs), observations=numbers)

    async def _work(self, batch: Batch) -> None:
        claim = batch.claim

        async def load(conn: Conn) -> tuple[list[HeldJob], Pause | None, list[StoredAnswer]]:
            jobs = await repository.held_jobs(conn, claim.claim, claim.job_ids)
            pause = next((one for one in await calls.pauses(conn) if one.provider == self._provider.name), None)
            run_ids = {job.generation_run_id for job in jobs if job.generation_run_id}
            return jobs, pause, await calls.stored_answers(conn, list(run_ids)) if run_ids else []

        asking = _Asking(time.monotonic() + self._hard_limit_seconds - self._call_timeout_seconds)
        batch.jobs, pause, stored = await self._patiently(load)
        asking.paused = pause if pause and pause.seconds_left > 0 else None
        possible = batch.possible()
        for job in possible:
            if job.source_type == "observation_reindex":
                await self._reindex(batch, job)
        todo = deque(groups([job for job in possible if job.source_type != "observation_reindex"], stored))
        while todo:
            jobs, answer = todo.popleft()
            if answer is None and not asking.may_go_on(batch, jobs):
                continue
            try:
                batch.answered.append(await self._answered(claim, jobs, answer))
                if pause is not None and answer is None:
                    await self._resume()
                    pause = None
            except ProviderError as error:
                if error.kind in _SPLITS and len(jobs) > 1:
                    log.info("batch.split", jobs=len(jobs), error_class=error.kind.value)
                    middle = len(jobs) // 2
                    todo.extendleft([(jobs[middle:], None), (jobs[:middle], None)])
                else:
                    await self._call_failed(batch, jobs, error, asking)

    async def _reindex(self, batch: Batch, job: HeldJob) -> None:
        """Without a provider, and so also while it is paused. What takes long is given back in between, and goes on from there."""
        progress = reindex.progress_of(job)
        if isinstance(progress, str):
            batch.fail([job], "payload_unusable", progress)
            return
        scope = progress.scope
        if not await self._patiently(lambda conn: reindex.source_is_there(conn, job, scope)):
            batch.fail([job], "source_gone", "What was to be reindexed is gone.")
            return
        until = time.monotonic() + self._hard_limit_seconds / 2
        while True:
            now = progress
            further = await self._patiently(lambda conn, now=now: reindex.chunk(conn, batch.claim, job, now))
            if further is None:
                batch.ends.append(reindex.end_of(job, progress))
                return
            progress = further
            if time.monotonic() > until:
                batch.send_back([job])
                return

    async def _call_failed(self, batch: Batch, jobs: list[HeldJob], error: ProviderError, asking: _Asking) -> None:
        if error.kind in _PAUSES_PROVIDER:
            asking.paused = await self._pause(error)
            batch.hold_for(asking.paused, jobs)
        elif error.kind in _TIME_HEALS:
            asking.failed = True
            batch.failed_call(jobs, error)
        else:
            batch.fail(jobs, error.kind.value, str(error))

    async def _pause(self, error: ProviderError) -> Pause:
        """Said once, by whoever is first."""
        name = self._provider.name
        paused, is_new = await self._patiently(lambda conn: pauses.pause(conn, name, error))
        if is_new:
            log.warning("provider.paused", provider=name, reason=paused.reason, seconds=round(paused.seconds_left))
        return paused

    async def _resume(self) -> None:
        name = self._provider.name
        if await self._patiently(lambda conn: pauses.resume(conn, name)):
            log.info("provider.resumed", provider=name)

    async def _answered(self, claim: Claim, jobs: list[HeldJob], stored: StoredAnswer | None) -> Answered:
        """The answer for these jobs: the one that was bought before, or a new one, which is stored before it is used."""
        if stored is not None:
            parsed = await self._parsed(stored.answer, stored.job_ids, stored.id)
            return Answered(
                run_id=stored.id,
                jobs=jobs,
                parsed=parsed,
                provider=stored.provider,
                model=stored.model,
                tokens=stored.input_tokens + stored.output_tokens,
            )
        ids = [job.id for job in jobs]
        asked = await self._prompt(jobs)
        run_id = new_id()
        await self._patiently(lambda conn: self._started(conn, claim, run_id, asked, jobs))
        began = time.monotonic()
        try:
            completion = await self._completion(asked)
        except ProviderError as error:
            await self._keep(claim, run_id, asked, ids, began, error=error)
            raise
        await self._keep(claim, run_id, asked, ids, began, completion=completion)
        parsed = await self._parsed(completion.text, ids, run_id)
        return Answered(
            run_id=run_id,
            jobs=jobs,
            parsed=parsed,
            provider=self._provider.name,
            model=completion.model,
            tokens=completion.input_tokens + completion.output_tokens,
        )

    async def _started(self, conn: Conn, claim: Claim, run_id: UUID, asked: Prompt, jobs: list[HeldJob]) -> None:
        """What leaves the house is noted before it does; and whoever has lost the batch by now does not send it."""
        if not await repository.holds(conn, claim.lane, claim.claim):
            raise LeaseLostError
        first = jobs[0]
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
            details={"jobs": [str(job.id) for job in jobs], "kind": asked.kind, "provider": self._provider.name},
        )

    async def _completion(self, asked: Prompt) -> Completion:
        seconds = self._call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._provider.complete(asked)
        except TimeoutError as error:
            raise ProviderError(FailureKind.TRANSIENT, f"The provider did not answer within {seconds:g} seconds.") from error

    async def _keep(
        self,
        claim: Claim,
        run_id: UUID,
        asked: Prompt,
        job_ids: Sequence[UUID],
        began: float,
        *,
        completion: Completion | None = None,
        error: ProviderError | None = None,
    ) -> None:
        """Record the call; an answer is attached to its jobs, so that a crash from here on does not buy it again."""
        latency_ms = round((time.monotonic() - began) * 1000)

        async def keep(conn: Conn) -> None:
            if not await repository.lock_held(conn, claim.claim, job_ids):
                raise LeaseLostError
            await calls.insert_run(
                conn,
                run_id=run_id,
                claim=claim,
                kind=asked.kind,
                provider=self._provider.name,
                job_ids=job_ids,
                latency_ms=latency_ms,
                completion=completion,
                error=error,
            )
            if completion is not None:
                await repository.attach_run(conn, claim.claim, run_id, job_ids)

        await self._patiently(keep)

    async def _parsed(self, text: str, job_ids: Sequence[UUID], run_id: UUID) -> Parsed:
        try:
            return parse(text, job_ids)
        except ProviderError as error:
            kind, message = error.kind.value, str(error)
            await self._patiently(lambda conn: calls.end_runs(conn, [run_id], "unusable", error_class=kind, error_message=message))
            raise

    async def _prompt(self, jobs: list[HeldJob]) -> Prompt:
        job = jobs[0]
        if job.server_session_id is None:
            return prompt.for_events(jobs, [], []) if job.source_type == "agent_event" else prompt.for_summary(job, [], [], None)
        session_id = job.server_session_id

        async def load(conn: Conn) -> Prompt:
            asked = await sessions.prompts(conn, job.team_id, session_id, newest=prompt.REQUESTS, max_chars=prompt.REQUEST_CHARS)
            recorded = await observations.of_session(conn, job.team_id, job.project_id, session_id, prompt.RECORDED_LINES)
            if job.source_type == "agent_event":
                return prompt.for_events(jobs, asked, recorded)
            last = await events.last_message(conn, job.team_id, job.project_id, session_id)
            return prompt.for_summary(job, asked, recorded, last)

        return await self._patiently(load)

    async def _give_up(self, batch: Batch, error: Exception) -> None:
        """Send a batch back that broke on something nobody expected. If even that fails, the hard limit brings it back."""
        if not batch.jobs:
            return  # not even its jobs could be read: their attempts are not known here
        batch.answered, batch.ends = [], []
        batch.back_off(batch.jobs, "internal", f"{type(error).__name__}: an error inside cmserver, see its log.")
        try:
            await self._apply(batch)
        except Exception:
            log.exception("batch.failed")

    async def _patiently(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """`act` in a transaction; while the database is away, again and again, until the lease is over anyway."""
        end = time.monotonic() + self._lease_seconds
        wait = 0.1
        while True:
            try:
                return await self._db.in_system(act)
            except Unavailable:
                if time.monotonic() >= end:
                    raise LeaseLostError from None
                await asyncio.sleep(wait)
                wait = min(wait * 2, 1.0)
