"""One batch from claim to effects: reload, ask the provider, keep its answer, apply it. A promise that may be kept twice."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from uuid import UUID

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation import prompt, reindex, repository
from cmserver.generation.answers.files import changed_files
from cmserver.generation.answers.model import Parsed
from cmserver.generation.answers.parse import parse
from cmserver.generation.apply import Answered, apply
from cmserver.generation.ask import BudgetExhaustedError, Caller
from cmserver.generation.batch import LONGEST_REST_SECONDS, Batch, groups
from cmserver.generation.bell import Bell
from cmserver.generation.calls import pauses
from cmserver.generation.calls import repository as calls
from cmserver.generation.calls.budget import Exhausted
from cmserver.generation.experience import Experience
from cmserver.generation.model import Claim, HeldJob, Pause, StoredAnswer
from cmserver.generation.patience import LeaseLostError, Patience
from cmserver.observations import repository as observations
from cmserver.providers.failures import in_prose
from cmserver.providers.model import FailureKind, Prompt, Provider, ProviderError
from cmserver.providers.rules.summaries import summarise
from cmserver.sessions import repository as sessions

log: FilteringBoundLogger = structlog.get_logger(__name__)

_TRIED_SECONDS = 2.0
"""How long the others wait for whoever finds out whether a provider answers again; an answer wakes them."""
_LARGE = 50_000
"""Characters from which an answer is read in a thread, so that the worker's heartbeats go on meanwhile."""
_PAUSES_PROVIDER = {FailureKind.QUOTA_EXHAUSTED, FailureKind.AUTH_INVALID, FailureKind.SETUP_REQUIRED}
_TIME_HEALS = {FailureKind.TRANSIENT, FailureKind.RATE_LIMITED}
_SPLITS = {FailureKind.CONTEXT_TOO_LONG, FailureKind.UNUSABLE_ANSWER, FailureKind.REFUSED}


class _Asking:
    """Whom a batch may still ask; what may not be asked now is sent back."""

    def __init__(self, providers: Sequence[Provider], pauses: Sequence[Pause], experience: Experience, until: float) -> None:
        self._providers = providers
        self._paused = {one.provider: one for one in pauses if one.seconds_left > 0}
        self.recovering = {one.provider: one for one in pauses if one.seconds_left <= 0}
        """Their pause is over, and they have not answered since."""
        self._experience = experience
        self._until = until
        self.exhausted: Exhausted | None = None
        self.failed = False

    def provider(self) -> Provider | None:
        """The first that is not paused."""
        return next((one for one in self._providers if one.name not in self._paused), None)

    def pause(self, pause: Pause) -> None:
        self._paused[pause.provider] = pause

    def whom(self, batch: Batch, jobs: list[HeldJob]) -> Provider | None:
        """Whom to ask for these jobs; None when they were sent back."""
        provider = self.provider()
        if self.exhausted is not None:
            batch.hold_for_budget(self.exhausted, jobs)
        elif provider is None:
            ours = [self._paused[one.name] for one in self._providers]
            batch.hold_for(min(ours, key=lambda one: one.seconds_left), jobs)
        elif self.failed:
            batch.send_back(jobs)
        elif provider.name in self.recovering and self._experience.is_tried(provider.name):
            batch.hold_for(msgspec.structs.replace(self.recovering[provider.name], seconds_left=_TRIED_SECONDS), jobs)
        elif seconds := self._experience.rests(provider.name):
            batch.wait_for(provider.name, seconds, jobs)
        elif time.monotonic() > self._until:
            batch.back_off(jobs, "out_of_time", "Its batch was split so often that another call could pass the hard limit.")
        else:
            return provider
        return None


class _Changed(Mapping[UUID, Sequence[str]]):
    """The files that each job's event changed, found out for those that an answer names."""

    def __init__(self, jobs: Sequence[HeldJob]) -> None:
        self._payloads = {job.id: job.payload for job in jobs}
        self._root = prompt.root_of(jobs)

    def __getitem__(self, job_id: UUID) -> Sequence[str]:
        return changed_files(self._payloads[job_id], self._root)

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._payloads)

    def __len__(self) -> int:
        return len(self._payloads)


class Generator:
    """Runs batches. One per worker."""

    def __init__(
        self,
        db: Db,
        providers: Sequence[Provider],
        bell: Bell,
        *,
        call_timeout_seconds: float,
        hard_limit_seconds: float,
        lease_seconds: float,
        language: str = "English",
        event_tokens: int = 16_000,
    ) -> None:
        self._db = db
        self._providers = providers
        self._bell = bell
        self._longest_asking_seconds = hard_limit_seconds - call_timeout_seconds
        self._hard_limit_seconds = hard_limit_seconds
        self._language = language
        self._event_tokens = event_tokens
        self._patiently = Patience(db, lease_seconds)
        self._experience = Experience()
        self._caller = Caller(self._patiently, timeout_seconds=call_timeout_seconds)

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
        for reason, jobs in batch.failed().items():
            log.warning("jobs.failed", reason=reason, jobs=[str(job) for job in jobs])
        if batch.hold.seconds > 0:
            log.info("batch.held", seconds=round(batch.hold.seconds, 1), reason=batch.hold.reason)
        log.debug("batch.completed", jobs=len(batch.jobs), observations=numbers)

    async def _work(self, batch: Batch) -> None:
        claim = batch.claim

        async def load(conn: Conn) -> tuple[list[HeldJob], list[Pause], list[StoredAnswer]]:
            jobs = await repository.held_jobs(conn, claim.claim, claim.job_ids)
            run_ids = {job.generation_run_id for job in jobs if job.generation_run_id}
            return jobs, await calls.pauses(conn), await calls.stored_answers(conn, list(run_ids)) if run_ids else []

        until = time.monotonic() + self._longest_asking_seconds
        batch.jobs, paused, stored = await self._patiently(load)
        asking = _Asking(self._providers, paused, self._experience, until)
        possible = batch.possible()
        for job in possible:
            if job.source_type == "observation_reindex":
                await self._reindex(batch, job)
        todo = deque(groups(self._wanted(batch, possible, stored), stored))
        while todo:
            jobs, answer = todo.popleft()
            try:
                if answer is not None:
                    batch.answered.append(await self._understood(jobs, answer))
                else:
                    await self._ask(batch, asking, jobs)
            except ProviderError as error:
                if error.kind in _SPLITS and len(jobs) > 1:
                    log.info("batch.split", jobs=len(jobs), error_class=error.kind.value)
                    middle = len(jobs) // 2
                    todo.extendleft([(jobs[middle:], None), (jobs[:middle], None)])
                elif error.pauses:
                    await self._pause(asking, error)
                    todo.appendleft((jobs, None))
                else:
                    await self._call_failed(batch, jobs, error, asking)

    def _wanted(self, batch: Batch, jobs: Sequence[HeldJob], stored: Sequence[StoredAnswer]) -> list[HeldJob]:
        """The jobs to ask about. What a skip rule of their project forbids ends here, unless its answer is already paid."""
        answered = {answer.id for answer in stored}
        wanted: list[HeldJob] = []
        for job in jobs:
            rule = None if job.generation_run_id in answered else prompt.forbidden(job)
            if rule is not None:
                batch.skip(job, f"skip rule: {rule}")
            elif job.source_type != "observation_reindex":
                wanted.append(job)
        return wanted

    async def _ask(self, batch: Batch, asking: _Asking, jobs: list[HeldJob]) -> None:
        provider = asking.whom(batch, jobs)
        if provider is None:
            return
        try:
            with self._experience.trying(provider.name) if provider.name in asking.recovering else nullcontext():
                answer = await self._caller.ask(batch.claim, jobs, provider, await self._prompt(jobs))
        except BudgetExhaustedError as error:
            asking.exhausted = error.exhausted
            batch.hold_for_budget(error.exhausted, jobs)
            return
        except ProviderError as error:
            error.provider = provider.name
            if error.doubtful and self._experience.is_about(provider.name, jobs):
                error.kind = FailureKind.REFUSED
            if error.kind is FailureKind.RATE_LIMITED and error.retry_after_seconds:
                self._experience.rest(provider.name, min(error.retry_after_seconds, LONGEST_REST_SECONDS))
            error.pauses = error.kind in _PAUSES_PROVIDER or (
                error.kind is FailureKind.TRANSIENT and error.out_of_reach and self._experience.is_away(provider.name)
            )
            raise
        self._experience.answered(provider.name, jobs)
        batch.answered.append(await self._understood(jobs, answer))
        if asking.recovering.pop(provider.name, None):
            await self._resume(provider.name)

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
        time_heals = error.kind in _TIME_HEALS
        asking.failed = asking.failed or time_heals
        is_summary = jobs[0].source_type == "session_summary"
        if time_heals and not (is_summary and batch.is_last_try(jobs, error)):
            batch.failed_call(jobs, error)
        elif is_summary:
            log.info("summary.minimal", error_class=error.kind.value)
            batch.answered.append(await self._minimal(jobs, f"a minimal one: {error}"))
        else:
            batch.fail(jobs, error.kind.value, str(error), error.run_id)

    async def _pause(self, asking: _Asking, error: ProviderError) -> None:
        """Said once, by whoever is first."""
        name = error.provider
        paused, is_new = await self._patiently(lambda conn: pauses.pause(conn, name, error))
        asking.pause(paused)
        if is_new:
            log.warning("provider.paused", provider=name, reason=paused.reason, seconds=round(paused.seconds_left))

    async def _resume(self, name: str) -> None:
        if await self._patiently(lambda conn: pauses.resume(conn, name)):
            log.info("provider.resumed", provider=name)

    async def _understood(self, jobs: list[HeldJob], stored: StoredAnswer) -> Answered:
        """An answer that is stored, read; one that cannot be read is marked so, and its text stays."""
        try:
            parsed = await self._read(jobs, stored)
        except ProviderError as error:
            error.run_id, error.provider = stored.id, stored.provider
            error.pauses = error.kind in _PAUSES_PROVIDER
            kind, message = error.kind.value, str(error)
            await self._patiently(
                lambda conn: calls.end_runs(conn, [stored.id], "unusable", error_class=kind, error_message=message)
            )
            raise
        if parsed.dropped:
            log.info("observations.dropped", count=parsed.dropped)
        answered = Answered(
            run_id=stored.id,
            jobs=jobs,
            parsed=parsed,
            provider=stored.provider,
            model=stored.model,
            tokens=stored.input_tokens + stored.output_tokens,
        )
        if jobs[0].source_type == "session_summary" and parsed.summary is None:
            minimal = await self._minimal(jobs, "a minimal one: the answer held no summary")
            parsed = msgspec.structs.replace(parsed, summary=minimal.parsed.summary, reasons=minimal.parsed.reasons)
            answered = msgspec.structs.replace(answered, parsed=parsed, remark=minimal.remark)
        return answered

    async def _read(self, jobs: list[HeldJob], stored: StoredAnswer) -> Parsed:
        changed = _Changed(jobs)
        try:
            if len(stored.answer) < _LARGE:
                return parse(stored.answer, stored.job_ids, changed)
            return await asyncio.to_thread(parse, stored.answer, stored.job_ids, changed)
        except ProviderError as error:
            raise in_prose(stored.provider, stored.answer) or error from None

    async def _minimal(self, jobs: list[HeldJob], remark: str) -> Answered:
        """A session's summary by rules, where no better one can be had."""
        said = summarise(await self._prompt(jobs))
        parsed = parse(msgspec.json.encode(said).decode(), [job.id for job in jobs])
        return Answered(run_id=None, jobs=jobs, parsed=parsed, provider="offline", model="rules", tokens=0, remark=remark)

    async def _prompt(self, jobs: list[HeldJob]) -> Prompt:
        job = jobs[0]
        session_id = job.server_session_id

        async def load(conn: Conn) -> prompt.Session:
            if session_id is None:
                return prompt.Session()
            known = prompt.Session(
                prompts=await sessions.prompts(
                    conn, job.team_id, session_id, newest=prompt.REQUESTS, max_chars=prompt.REQUEST_CHARS
                ),
                recorded=await observations.of_session(conn, job.team_id, job.project_id, session_id, prompt.RECORDED_LINES),
            )
            if job.source_type == "agent_event":
                return known
            return msgspec.structs.replace(
                known,
                last_message=await events.last_message(conn, job.team_id, job.project_id, session_id),
                earlier_summary=await observations.last_summary(conn, job.team_id, job.project_id, session_id),
                events=await events.count_of_session(conn, job.team_id, job.project_id, session_id),
            )

        return prompt.build(jobs, await self._patiently(load), language=self._language, event_tokens=self._event_tokens)

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
