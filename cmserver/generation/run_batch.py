"""Runs batches from claim to effects: load their jobs, call the provider, store the answer, apply it. Safe to run twice.

Batches by rules are run as sets: what each takes of the database is asked for all of them at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.answers.parse import parse
from cmserver.base.db import SystemDb
from cmserver.base.errors import Unavailable
from cmserver.base.metrics import metrics
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.tracing import trace_work
from cmserver.generation import prompt, reindex, repository
from cmserver.generation.batch import MAX_REST_SECONDS, Batch, Effect, group_by_answer
from cmserver.generation.batch_effects import write_effects
from cmserver.generation.lease import LeaseLostError, LeaseOverError, retry_until_lease_ends
from cmserver.generation.model import Claim, ClaimedJob
from cmserver.generation.operate.manage import resume_provider
from cmserver.generation.provider_call import ProviderCaller
from cmserver.generation.record import NOTHING_FOUND, UNUSABLE, SettledAnswer, settle_answer
from cmserver.generation.session_context import has_recorded, load_sessions
from cmserver.generation.turn_names import find_turn, load_turn_prompt
from cmserver.graph.model import EntityName
from cmserver.graph.read_turn import read_answer
from cmserver.models.calls import repository as calls
from cmserver.models.calls.budget import BudgetRefusal
from cmserver.models.calls.model import Pause, StoredAnswer
from cmserver.models.calls.provider_health import ProviderHealth, pause_provider
from cmserver.models.providers import registry
from cmserver.models.providers.failures import find_error_in_prose
from cmserver.models.providers.model import (
    UNUSABLE_KINDS,
    Answer,
    FailureKind,
    Prompt,
    Provider,
    ProviderChain,
    ProviderError,
    Rules,
)
from cmserver.rules.batch import observe
from cmserver.rules.summaries import NOTHING, summarise
from cmserver.sessions import repository as sessions

log: FilteringBoundLogger = structlog.get_logger(__name__)

T = TypeVar("T")
_Part: TypeAlias = tuple[Batch, list[ClaimedJob]]
"""Jobs of a batch that rules word together."""

_Run: TypeAlias = tuple[Sequence[Claim], int | None]
"""Claims whose batches are run together, and how many jobs of a single one; None for all."""
_TRIAL_SECONDS = 2.0
"""How long other batches wait while one finds out whether a provider answers again; an answer wakes them."""
_PAUSING_FAILURES = {FailureKind.QUOTA_EXHAUSTED, FailureKind.AUTH_INVALID, FailureKind.SETUP_REQUIRED}
_TEMPORARY_FAILURES = {FailureKind.TRANSIENT, FailureKind.RATE_LIMITED}
_SPLITTING_FAILURES = {FailureKind.CONTEXT_TOO_LONG, FailureKind.UNUSABLE_ANSWER, FailureKind.REFUSED}


class _ProviderSelection:
    """Chooses the provider for each call of a batch; gives jobs back that no provider may be called for now."""

    def __init__(self, providers: ProviderChain, pauses: Sequence[Pause], health: ProviderHealth, deadline: float) -> None:
        self._providers = providers
        self._paused = {pause.provider: pause for pause in pauses if pause.seconds_left > 0}
        self.recovering = {pause.provider: pause for pause in pauses if pause.seconds_left <= 0}
        """Providers whose pause is over and that have not answered since."""
        self._health = health
        self._deadline = deadline
        self.budget_refusal: BudgetRefusal | None = None
        self.has_failed = False
        """A call of this batch failed temporarily: no further call is made."""

    def pause(self, pause: Pause) -> None:
        self._paused[pause.provider] = pause

    def select(self, batch: Batch, jobs: list[ClaimedJob]) -> Provider | Rules | None:
        """The provider to call for these jobs; None when they were given back."""
        provider = next((provider for provider in self._providers if provider.name not in self._paused), None)
        if self.budget_refusal is not None:
            batch.hold_for_budget(self.budget_refusal, jobs)
        elif provider is None:
            pauses = [self._paused[provider.name] for provider in self._providers]
            batch.hold_for_pause(min(pauses, key=lambda pause: pause.seconds_left), jobs)
        elif self.has_failed:
            batch.give_back(jobs)
        elif provider.name in self.recovering and self._health.is_tried(provider.name):
            batch.hold_for_pause(msgspec.structs.replace(self.recovering[provider.name], seconds_left=_TRIAL_SECONDS), jobs)
        elif seconds := self._health.seconds_to_rest(provider.name):
            batch.hold_for_rate_limit(provider.name, seconds, jobs)
        elif time.monotonic() > self._deadline:
            batch.back_off(jobs, "out_of_time", "Its batch was split so often that another call could pass the hard limit.")
        else:
            return provider
        return None


class Steward(Protocol):
    """Does the steward's jobs, each alone in its batch."""

    async def work(self, batch: Batch) -> Effect:
        """Decide, and return what writes it."""
        ...

    def fail(self, batch: Batch, error: Exception) -> Effect:
        """End the job that failed on an unexpected error, and return what tells it."""
        ...


class EndNotifier(Protocol):
    """Tells those who wait of ended batches."""

    def notify_ended(self, *lanes: UUID) -> None:
        """Batches of the lanes have ended."""
        ...


class BatchRunner:
    """Runs the batches of one worker."""

    def __init__(
        self,
        db: SystemDb,
        providers: ProviderChain,
        notifier: EndNotifier,
        settings: Settings,
        steward: Steward,
    ) -> None:
        self._db = db
        self._steward = steward
        self._providers = providers
        self._notifier = notifier
        self._settings = settings
        self._health = ProviderHealth()
        self._caller = ProviderCaller(db, settings)
        self.is_by_rules = all(isinstance(provider, Rules) for provider in providers)

    async def run(self, *claims: Claim) -> None:
        """Run the batches and write their effects. Raises only CancelledError.

        Several are a set, by rules, of plain batches of one team. One that fails as a whole is run batch by batch; a batch by rules
        that fails is run with the first half of its jobs, and the others go back, until the event that it fails on is alone.
        """
        parts = deque[_Run]([(claims, None)])
        try:
            while parts:
                parts.extendleft(reversed(await self._run(*parts.popleft())))
                if parts and (task := asyncio.current_task()) and task.cancelling():
                    raise asyncio.CancelledError  # what was under way is written; the worker stops
        finally:
            self._notifier.notify_ended(*(claim.lane for claim in claims))

    async def _run(self, claims: Sequence[Claim], most: int | None) -> list[_Run]:
        """Run the batches, or the first jobs of one; returns what to try instead, where they failed as a whole."""
        batches = [Batch(claim) for claim in claims]
        with _logging(*batches):
            log.debug("batch.started", jobs=sum(len(claim.job_ids) for claim in claims))
            try:
                await self._work_and_apply(batches, most)
            except LeaseOverError:
                log.warning("lease.lost")
            except LeaseLostError:
                if len(claims) > 1:
                    log.info("set.split", batches=len(claims))
                    return [([claim], None) for claim in claims]
                log.warning("lease.lost")
            except Exception as error:
                if len(claims) > 1:
                    log.warning("set.split", batches=len(claims), exc_info=error)
                    return [([claim], None) for claim in claims]
                half = len(batches[0].jobs) // 2
                if half and claims[0].is_plain and self.is_by_rules:
                    log.warning("batch.halved", jobs=len(batches[0].jobs), exc_info=error)
                    return [(claims, half)]
                await self._give_up(batches[0], error)
        return []

    async def _retry(self, action: Callable[[Conn], Awaitable[T]]) -> T:
        return await retry_until_lease_ends(self._db, self._settings.lease_seconds, action)

    async def _work_and_apply(self, batches: Sequence[Batch], most: int | None) -> None:
        """Work on the batches and write the results; with `most` on so many jobs of the only batch.

        A cancellation means that every job was cancelled, which is written, or that the worker stops and puts its work back.
        """
        try:
            pauses, stored = await self._load(batches)
            if most is not None:
                batches[0].give_back(batches[0].jobs[most:])
                batches[0].jobs = batches[0].jobs[:most]
            jobs = [job for batch in batches for job in batch.jobs]
            request_ids = _log_requests(jobs)
            with trace_work("batch", {"cmserver.jobs": len(jobs)}, requests=request_ids):
                if len(batches) > 1:
                    await self._work_by_rules(batches)
                else:
                    await self._work(batches[0], pauses, stored)
                await self._apply(batches)
        except asyncio.CancelledError as cancelled:
            if len(batches) > 1:
                raise  # only a worker that stops ends a set
            (batch,) = batches
            try:
                async with self._db.system() as conn:
                    held = await repository.still_held(conn, [batch.claim.claim], batch.claim.job_ids)
            except Unavailable:
                raise cancelled from None  # the end of the lease gives the batch back
            if held:
                raise
            batch.discard_answers(batch.claim.job_ids)
            await self._apply(batches)

    async def _apply(self, batches: Sequence[Batch]) -> None:
        """Write what became of the batches, and log their failures and holds."""
        with metrics().apply_seconds.time(), trace_work("store") as span:
            numbers = await self._retry(lambda conn: write_effects(conn, batches))
            if span is not None:
                span.set_attribute("cmserver.observations", [number for of_lane in numbers.values() for number in of_lane])
        for batch in batches:
            with _logging(batch):
                self._report(batch, numbers.get(batch.claim.lane, []))

    def _report(self, batch: Batch, numbers: list[int]) -> None:
        _log_requests(batch.jobs)
        for call in batch.answered:
            if call.run_id:
                metrics().answers.labels(call.provider, "yes" if call.is_usable else "no").inc()
        for reason, job_ids in batch.failed_jobs().items():
            log.warning("jobs.failed", reason=reason, jobs=[str(job_id) for job_id in job_ids])
        if batch.hold.seconds > 0:
            log.info("batch.held", seconds=round(batch.hold.seconds, 1), reason=batch.hold.reason)
        if not numbers:
            log.debug("batch.empty", jobs=len(batch.jobs))
            return
        log.info(
            "batch.completed",
            jobs=len(batch.jobs),
            events=sum(job.source_type == "agent_event" for job in batch.jobs),
            observations=numbers,
            provider=",".join(dict.fromkeys(call.provider for call in batch.answered)) or None,
            tokens=sum(call.tokens for call in batch.answered),
            seconds=round(time.monotonic() - batch.began, 2),
        )

    async def _load(self, batches: Sequence[Batch]) -> tuple[list[Pause], list[StoredAnswer]]:
        """Load the batches' jobs; returns all pauses, and the jobs' stored answers."""
        return await self._retry(lambda conn: _load(conn, batches))

    async def _work_by_rules(self, batches: Sequence[Batch]) -> None:
        """Word batches of events by rules."""
        for batch in batches:
            await batch.read_events()
        parts = [(batch, jobs) for batch in batches if (jobs := _apply_skip_rules(batch, batch.check_jobs(), []))]
        if parts:
            for (batch, _), answer in zip(parts, await self._answer_all_by_rules(parts), strict=True):
                batch.answered.append(answer)

    async def _work(self, batch: Batch, pauses: list[Pause], stored: list[StoredAnswer]) -> None:
        if batch.jobs and batch.jobs[0].source_type == "steward":
            batch.effect = await self._steward.work(batch)
            return
        # The last call may begin so late that its timeout ends with the hard limit.
        deadline = time.monotonic() + self._settings.job_seconds - self._settings.provider_timeout_seconds
        await batch.read_events()
        chain = _ProviderSelection(self._providers, pauses, self._health, deadline)
        allowed = batch.check_jobs()
        for job in allowed:
            if job.source_type == "observation_reindex":
                await self._reindex(batch, job)
        selected = _apply_skip_rules(batch, await self._end_jobs_without_call(batch, allowed), stored)
        groups = deque(group_by_answer(selected, stored))
        while groups:
            jobs, answer = groups.popleft()
            try:
                if answer is None:
                    await self._call(batch, chain, jobs)
                else:
                    batch.answered.append(await self._parse(batch, jobs, answer))
            except ProviderError as error:
                if error.kind in UNUSABLE_KINDS:
                    metrics().answers.labels(error.provider, "no").inc()
                if error.kind in _SPLITTING_FAILURES and len(jobs) > 1:
                    log.info("batch.split", jobs=len(jobs), error_class=error.kind.value)
                    middle = len(jobs) // 2
                    groups.extendleft([(jobs[middle:], None), (jobs[:middle], None)])
                elif error.pauses:
                    await self._pause(chain, error)
                    groups.appendleft((jobs, None))
                else:
                    await self._handle_failed_call(batch, jobs, error, chain)

    async def _call(self, batch: Batch, chain: _ProviderSelection, jobs: list[ClaimedJob]) -> None:
        """Have the next provider of the chain answer the jobs, if one can be called; ProviderError when its call fails."""
        provider = chain.select(batch, jobs)
        if provider is None:
            return
        if isinstance(provider, Rules):
            batch.answered.append(await self._answer_by_rules(batch, jobs))
            return
        try:
            with self._health.trying(provider.name) if provider.name in chain.recovering else nullcontext():
                answer = await self._caller.call(batch.claim, jobs, provider, await self._prompt(batch, jobs))
        except ProviderError as error:
            error.provider = provider.name
            if error.doubtful and self._health.is_about(provider.name, [job.id for job in jobs]):
                error.kind = FailureKind.REFUSED
            if error.kind is FailureKind.RATE_LIMITED and error.retry_after_seconds:
                self._health.rest(provider.name, min(error.retry_after_seconds, MAX_REST_SECONDS))
            error.pauses = error.kind in _PAUSING_FAILURES or (
                error.kind is FailureKind.TRANSIENT and error.out_of_reach and self._health.is_away(provider.name)
            )
            raise
        if isinstance(answer, BudgetRefusal):
            chain.budget_refusal = answer
            batch.hold_for_budget(answer, jobs)
            return
        self._health.answered(provider.name, [job.id for job in jobs])
        batch.answered.append(await self._parse(batch, jobs, answer))
        was_paused = chain.recovering.pop(provider.name, None) is not None
        if was_paused and await self._retry(lambda conn: resume_provider(conn, provider.name)):
            log.info("provider.resumed", provider=provider.name)

    async def _reindex(self, batch: Batch, job: ClaimedJob) -> None:
        """Reindex what the job names. A long one is given back in between and resumed by its next claim."""
        progress = reindex.read_progress(job)
        if isinstance(progress, str):
            batch.fail([job], "payload_unusable", progress)
            return
        scope = progress.scope
        if not await self._retry(lambda conn: reindex.has_source(conn, job, scope)):
            batch.fail([job], "source_gone", "What was to be reindexed was deleted.")
            return
        deadline = time.monotonic() + self._settings.job_seconds / 2
        while True:
            current = progress
            following = await self._retry(lambda conn, current=current: reindex.reindex_chunk(conn, batch.claim, job, current))
            if following is None:
                batch.ends.append(reindex.completed_end(job, progress))
                return
            progress = following
            if time.monotonic() > deadline:
                batch.give_back([job])
                return

    async def _end_jobs_without_call(self, batch: Batch, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """The jobs that need a call: not of sessions that recorded nothing, nor of turns that are gone or that no model names."""
        others: list[ClaimedJob] = []
        for job in jobs:
            if job.source_type == "session_summary" and not await self._retry(lambda conn, job=job: has_recorded(conn, job)):
                batch.skip(job, NOTHING)
            elif job.source_type != "turn":
                others.append(job)
            elif await self._retry(lambda conn, job=job: find_turn(conn, job)) is None:
                batch.answered.append(_named_turn(job, [], reason="its turn was deleted"))
            elif self._settings.entities == "model":
                others.append(job)
            else:
                batch.answered.append(_named_turn(job, [], reason="no model names entities"))
        return others

    async def _handle_failed_call(
        self, batch: Batch, jobs: list[ClaimedJob], error: ProviderError, chain: _ProviderSelection
    ) -> None:
        """Try the jobs again later, or fail them. What the rules make of failed ones, also a minimal summary, is kept."""
        is_temporary = error.kind in _TEMPORARY_FAILURES
        chain.has_failed = chain.has_failed or is_temporary
        is_summary = jobs[0].source_type == "session_summary"
        if is_temporary and not (is_summary and batch.is_last_attempt(jobs, error)):
            batch.retry_later(jobs, error)
        elif is_summary:
            log.info("summary.minimal", error_class=error.kind.value)
            batch.answered.append(await self._answer_by_rules(batch, jobs, f"a minimal one: {error}"))
        else:
            batch.fail(jobs, error.kind.value, str(error), error.run_id)
        failed = {end.job_id for end in batch.ends if end.status == "failed"}
        if events := [job for job in jobs if job.id in failed and job.source_type == "agent_event"]:
            by_rules = await self._answer_by_rules(batch, events)
            batch.answered.append(msgspec.structs.replace(by_rules, ends_jobs=False))

    async def _pause(self, chain: _ProviderSelection, error: ProviderError) -> None:
        name = error.provider
        pause, is_new = await self._retry(lambda conn: pause_provider(conn, name, error))
        chain.pause(pause)
        if is_new:
            log.warning("provider.paused", provider=name, reason=pause.reason, seconds=round(pause.seconds_left))

    async def _parse(self, batch: Batch, jobs: list[ClaimedJob], stored: StoredAnswer) -> SettledAnswer:
        """Parse a stored answer. One that cannot be parsed is marked as unusable, and its text is kept."""
        if jobs[0].source_type == "turn":
            names = read_answer(stored.answer)
            if names is None:
                message = "The answer names no entities, and does not say that there are none."
                return msgspec.structs.replace(_named_turn(jobs[0], [], stored, reason=f"{UNUSABLE}: {message}"), is_usable=False)
            return _named_turn(jobs[0], names, stored, reason="its entities were found" if names else "the answer names none")
        try:
            answer = await _parse_text(stored)
        except ProviderError as error:
            error.run_id, error.provider = stored.id, stored.provider
            kind, message = error.kind.value, str(error)
            await self._retry(lambda conn: calls.end_runs(conn, [stored.id], "unusable", error_class=kind, error_message=message))
            raise
        remark = None
        if jobs[0].source_type == "session_summary" and not (answer.summary and answer.summary.text):
            minimal = await self._draft_minimal(batch, jobs)
            answer = msgspec.structs.replace(answer, summary=minimal.summary, skipped=minimal.skipped)
            remark = "a minimal one: the answer held no summary"
        call = await self._settle(batch, jobs, answer, stored, remark)
        if jobs[0].source_type == "session_summary":
            return msgspec.structs.replace(call, is_usable=remark is None)
        return await self._add_rules(batch, jobs, call)

    async def _add_rules(self, batch: Batch, jobs: list[ClaimedJob], call: SettledAnswer) -> SettledAnswer:
        """The call with what the rules make of those events that the model passed over without a word.

        Those are the events that no observation cites and no skip mark is for. Where the answer holds no observation, a reason for
        each of the events is an answer, too; a mark for all of them at once is none.
        """
        told = {job.id for observation in call.observations for job in observation.jobs}
        silent = [] if {job.id for job in jobs} <= call.skipped else jobs
        left = [job for job in jobs if job.id not in told and job.id not in call.reasons] if told else silent
        if not left:
            return call
        by_rules = await self._answer_by_rules(batch, jobs)
        left_ids = {job.id for job in left}
        added = [observation for observation in by_rules.observations if left_ids.issuperset(job.id for job in observation.jobs)]
        if not added:
            return call
        log.info("answer.completed_by_rules", observations=len(added))
        reason = f"{UNUSABLE}: {NOTHING_FOUND}" if not told else "by rules: the answer passes over this event"
        found = {job.id for observation in added for job in observation.jobs}
        reasons = call.reasons if told else {job.id: f"{UNUSABLE}; by rules: {by_rules.reasons.get(job.id, '-')}" for job in jobs}
        return msgspec.structs.replace(
            call,
            observations=[*call.observations, *added],
            remarks={**call.remarks, **dict.fromkeys(found, reason)},
            reasons=reasons,
            is_usable=bool(told),
        )

    async def _settle(
        self, batch: Batch, jobs: list[ClaimedJob], answer: Answer, author: StoredAnswer | Rules, remark: str | None
    ) -> SettledAnswer:
        return _log_dropped(await asyncio.to_thread(settle_answer, answer, jobs, batch.readings, author, remark))

    async def _answer_by_rules(self, batch: Batch, jobs: list[ClaimedJob], remark: str | None = None) -> SettledAnswer:
        """The observations of the events, or the session's summary, as the rules word them. No run is recorded."""
        if jobs[0].source_type == "turn":
            return _named_turn(jobs[0], [], reason="no model names entities")
        (answer,) = await self._answer_all_by_rules([(batch, jobs)], remark)
        return answer

    async def _answer_all_by_rules(self, parts: Sequence[_Part], remark: str | None = None) -> list[SettledAnswer]:
        """As `_answer_by_rules`, for jobs of several batches at once."""
        sessions = await self._retry(lambda conn: load_sessions(conn, [jobs for _, jobs in parts]))

        def word() -> list[SettledAnswer]:
            return [
                settle_answer(self._draft_by_rules(batch, jobs, session), jobs, batch.readings, Rules(), remark)
                for (batch, jobs), session in zip(parts, sessions, strict=True)
            ]

        return [_log_dropped(call) for call in await asyncio.to_thread(word)]

    async def _draft_minimal(self, batch: Batch, jobs: list[ClaimedJob]) -> Answer:
        """The summary as the rules word it."""
        (session,) = await self._retry(lambda conn: load_sessions(conn, [jobs]))
        return await asyncio.to_thread(self._draft_by_rules, batch, jobs, session)

    def _draft_by_rules(self, batch: Batch, jobs: list[ClaimedJob], session: prompt.SessionContext) -> Answer:
        """Beside the event loop."""
        first, record = jobs[0], prompt.record_of_session(session)
        if first.source_type == "session_summary":
            return summarise(record)
        preferences = prompt.resolve_preferences(
            first.policy, first.team_policy, language=prompt.LANGUAGE, verbosity=self._settings.verbosity
        )
        return observe([batch.readings[job.id] for job in jobs], record, preferences.verbosity)

    async def _prompt(self, batch: Batch, jobs: list[ClaimedJob]) -> Prompt:
        if jobs[0].source_type == "turn":
            return await self._retry(lambda conn: load_turn_prompt(conn, jobs[0]))
        (session,) = await self._retry(lambda conn: load_sessions(conn, [jobs]))
        return prompt.build_prompt(
            jobs,
            batch.readings,
            batch.root,
            session,
            language=prompt.LANGUAGE,
            verbosity=self._settings.verbosity,
            names_entities=self._settings.entities == "model",
            event_tokens=registry.event_tokens(self._settings),
        )

    async def _give_up(self, batch: Batch, error: Exception) -> None:
        """Give back a batch that failed on an unexpected error. If even that fails, the hard limit gives it back."""
        others = {end.job_id for end in batch.ends} - {job.id for job in batch.jobs}  # which go back
        batch.answered, batch.ends, batch.effect = [], [end for end in batch.ends if end.job_id in others], None
        if batch.jobs and batch.jobs[0].source_type == "steward":
            batch.effect = self._steward.fail(batch, error)
        else:
            log.error("batch.failed", exc_info=error)
            if not batch.jobs:
                return  # they were not loaded: their attempts are unknown
            batch.back_off(batch.jobs, "internal", f"{type(error).__name__}: an error inside cmserver, see its log.")
        try:
            await self._apply([batch])
        except Exception:
            log.exception("batch.failed")


async def _parse_text(stored: StoredAnswer) -> Answer:
    try:
        return await asyncio.to_thread(parse, stored.answer, len(stored.job_ids))
    except ProviderError as error:
        # A model's words, whatever they say: they pause nothing. Where a gateway speaks for it, the next attempt may succeed.
        reported = find_error_in_prose(stored.provider, stored.answer)
        raise (ProviderError(FailureKind.TRANSIENT, str(reported)) if reported else error) from None


def _find_skip_rule(batch: Batch, job: ClaimedJob) -> str | None:
    return prompt.excluding_rule(job, batch.readings[job.id].tool_use) if job.id in batch.readings else None


async def _load(conn: Conn, batches: Sequence[Batch]) -> tuple[list[Pause], list[StoredAnswer]]:
    """Load the jobs that the claims still hold; returns all pauses, and the jobs' stored answers.

    Marks the session of a single batch as processing; a set is worded so soon that nobody would see it.
    """
    claims = [batch.claim for batch in batches]
    # The session's lock comes first, so that a claim that lost its lease meanwhile finds no jobs and marks nothing.
    session = await sessions.lock(conn, claims[0].team_id, claims[0].lane) if len(claims) == 1 else None
    by_lane: dict[UUID, list[ClaimedJob]] = {claim.lane: [] for claim in claims}
    job_ids = [job_id for claim in claims for job_id in claim.job_ids]
    for job in await repository.claimed_jobs(conn, [claim.claim for claim in claims], job_ids):
        by_lane[job.lane].append(job)
    for batch in batches:
        batch.jobs = by_lane[batch.claim.lane]
    if session is not None and batches[0].jobs:
        await sessions.mark_processing(conn, session.team_id, session.id)
    run_ids = {job.generation_run_id for batch in batches for job in batch.jobs if job.generation_run_id}
    return await calls.PAUSES.all(conn), await calls.stored_answers(conn, list(run_ids)) if run_ids else []


def _named_turn(
    job: ClaimedJob, names: list[EntityName], stored: StoredAnswer | None = None, *, reason: str = "its entities were found"
) -> SettledAnswer:
    """What a model named in the turn of the job; nothing without a stored answer."""
    return SettledAnswer(
        run_id=stored.id if stored else None,
        jobs=[job],
        observations=[],
        reasons={job.id: reason},
        provider=stored.provider if stored else Rules().name,
        tokens=stored.input_tokens + stored.output_tokens if stored else 0,
        names=names,
    )


def _apply_skip_rules(batch: Batch, jobs: Sequence[ClaimedJob], stored: Sequence[StoredAnswer]) -> list[ClaimedJob]:
    """The jobs to call a provider for. Those that a skip rule excludes end here, unless their answer is already paid for."""
    answered = {answer.id for answer in stored}
    selected: list[ClaimedJob] = []
    for job in jobs:
        rule = None if job.generation_run_id in answered else _find_skip_rule(batch, job)
        if rule is not None:
            batch.skip(job, f"skip rule: {rule}")
        elif job.source_type != "observation_reindex":
            selected.append(job)
    return selected


@contextmanager
def _logging(*batches: Batch) -> Generator[None]:
    """Log records of the block say which batch they are of, or how many lanes their set has."""
    first = batches[0].claim
    job_ids = [str(job_id) for job_id in first.job_ids]
    of_batch = {"lane": str(first.lane), "claim": first.claim, "job_ids": job_ids}
    with structlog.contextvars.bound_contextvars(**(of_batch if len(batches) == 1 else {"lanes": len(batches)})):
        try:
            yield
        finally:
            structlog.contextvars.unbind_contextvars("request_id", "request_ids")


def _log_requests(jobs: Sequence[ClaimedJob]) -> list[str]:
    """Add the requests that caused the jobs to the log records of this batch; returns them."""
    request_ids = sorted({job.request_id for job in jobs if job.request_id})
    if len(request_ids) == 1:
        structlog.contextvars.bind_contextvars(request_id=request_ids[0])
    elif request_ids:
        structlog.contextvars.bind_contextvars(request_ids=request_ids)
    return request_ids


def _log_dropped(call: SettledAnswer) -> SettledAnswer:
    if call.dropped:
        log.info("observations.dropped", count=call.dropped)
    return call
