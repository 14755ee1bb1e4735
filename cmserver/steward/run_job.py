"""Runs one job: claims it, lets its executor decide, and ends it in one transaction with what it writes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import socket
from collections.abc import Awaitable
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.errors import StatementTimeout, Unavailable
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.metrics import metrics
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.redaction.clean import clean
from cmserver.steward import repository
from cmserver.steward.ask import ModelAsker
from cmserver.steward.executors.auto_merge import AutoMerge, AutoMergePayload
from cmserver.steward.executors.derive import Derive, DerivePayload
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.executors.policy_tune import PolicyTune, TunePayload
from cmserver.steward.executors.recheck import Recheck, RecheckPayload
from cmserver.steward.model import JobContext, Plan, PlanResult, RunStatus, StewardJob
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs

T = TypeVar("T")

log = get_logger(__name__)

JOB_SECONDS = 300.0
"""How long an executor may take to decide."""
_LEASES = 3
"""A job may be silent for as long as three leases of a worker: it takes minutes, and is only begun anew."""
_MAX_FIELD_CHARS = 4_000

EXECUTORS: dict[str, tuple[type[JobPayload], Executor[Any]]] = {
    "auto_merge": (AutoMergePayload, AutoMerge()),
    "derive": (DerivePayload, Derive()),
    "recheck": (RecheckPayload, Recheck()),
    "policy_tune": (TunePayload, PolicyTune()),
}


class JobLostError(Exception):
    """Another worker has the job by now, or it is cancelled. Nothing was written."""


class StewardRunner:
    """Runs jobs of all teams, each as its team."""

    def __init__(self, db: Db, settings: Settings, *, job_seconds: float = JOB_SECONDS) -> None:
        self._db = db
        self._asker = ModelAsker(db, settings)
        self._lease_seconds = _LEASES * settings.lease_seconds
        self._job_seconds = job_seconds
        self._label = f"{socket.gethostname()}:{os.getpid()}"

    async def run(self, job_id: UUID) -> StewardJob | None:
        """Claim and run the job; returns it as it was claimed, or None when it is not to be run now."""
        job = await self._db.in_system(
            lambda conn: repository.claim(conn, job_id, locked_by=self._label, lease_seconds=self._lease_seconds)
        )
        if job is None:
            return None
        run_id = new_id()
        try:
            context = await self._db.in_tenant(job.team_id, lambda conn: self._begin(conn, job, run_id))
            await self._hold_lease(job, self._decide_and_end(job, context))
        except JobLostError:
            log.warning("steward.job_lost", job=str(job.id), claim=job.claim)
            with contextlib.suppress(Exception):
                await self._fail(job, run_id, "cancelled", "It was cancelled, or the worker was too slow.")
        except asyncio.CancelledError:  # the worker stops: the next one begins anew
            with contextlib.suppress(Exception):
                await asyncio.shield(self._fail(job, run_id, "worker_stopped", "The worker was stopped."))
            raise
        return job

    async def _begin(self, conn: Conn, job: StewardJob, run_id: UUID) -> JobContext:
        await _hold(conn, job)
        await runs.begin(conn, run_id, job)
        return JobContext(job=job, policies=await thresholds.read_values(conn, job.team_id), run_id=run_id)

    async def _decide_and_end(self, job: StewardJob, context: JobContext) -> None:
        known = EXECUTORS.get(job.job_type)
        if known is None:
            await self._fail(job, context.run_id, "unknown_type", f"There is no executor {job.job_type!r}.", is_unknown=True)
            return
        payload_type, executor = known
        try:
            payload = msgspec.convert(job.payload, payload_type)
        except msgspec.ValidationError as error:
            await self._fail(job, context.run_id, "bad_payload", str(error), is_retryable=False)
            return
        try:
            async with asyncio.timeout(self._job_seconds):
                plan = await executor.prepare(self._db, self._asker, context, payload)
            _count(job, await self._db.in_tenant(job.team_id, lambda conn: _end(conn, context, executor, plan)))
        except TimeoutError:
            await self._fail(job, context.run_id, "timeout", f"It took longer than {self._job_seconds:g} seconds.")
        except StatementTimeout as error:
            await self._fail(job, context.run_id, "timeout", str(error))
        except (JobLostError, Unavailable):
            raise
        except Exception as error:
            log.exception("steward.job_failed", job=str(job.id), type=job.job_type, exc_info=error)
            await self._fail(job, context.run_id, "executor_error", f"{type(error).__name__}: {error}")

    async def _fail(
        self,
        job: StewardJob,
        run_id: UUID,
        error_class: str,
        message: str,
        *,
        is_retryable: bool = True,
        is_unknown: bool = False,
    ) -> None:
        """End the run, and send the job back or end it; nothing is written when the job is lost."""
        pause_seconds = min(2.0 ** (job.attempt_count - 1), 64.0) * random.uniform(1, 1.25)  # noqa: S311 - no secret
        message = str(clean(message, field_max_chars=_MAX_FIELD_CHARS).value)

        async def write(conn: Conn) -> bool:
            error = f"{error_class}: {message}"
            is_ours = await repository.send_back(
                conn, job, error, pause_seconds=pause_seconds, is_retryable=is_retryable, is_unknown=is_unknown
            )
            if is_ours:
                await runs.finish(conn, job, run_id, "failed", error_class=error_class, error_message=message)
            return is_ours

        if await self._db.in_system(write):
            _count(job, "failed")

    async def _hold_lease(self, job: StewardJob, work: Awaitable[T]) -> T:
        """The result of `work`, during which the lease is extended; JobLostError when that fails, and `work` is cancelled."""
        task = asyncio.ensure_future(work)
        is_lost = False

        async def extend() -> None:
            nonlocal is_lost
            while True:
                await asyncio.sleep(self._lease_seconds / 3)
                with contextlib.suppress(Unavailable):
                    held = await self._db.in_system(lambda conn: repository.extend_lease(conn, job, self._lease_seconds))
                    if not held:
                        is_lost = True
                        task.cancel()
                        return

        extending = asyncio.create_task(extend())
        try:
            return await task
        except asyncio.CancelledError:
            if is_lost:
                raise JobLostError from None
            task.cancel()
            raise
        except Unavailable as error:  # the lease ends by itself, and another worker begins anew
            raise JobLostError from error
        finally:
            extending.cancel()


async def _hold(conn: Conn, job: StewardJob) -> None:
    if job.project_id is not None:
        await observations.hold_projects(conn, job.team_id, {job.project_id})
    if not await repository.hold(conn, job):
        raise JobLostError


def _count(job: StewardJob, status: str) -> None:
    metrics().steward_runs.labels(job.job_type if job.job_type in EXECUTORS else "unknown", status).inc()


async def _end(conn: Conn, context: JobContext, executor: Executor[Any], plan: Plan) -> RunStatus:
    """One transaction: what is written, the events that tell it, the run's end and the job's; returns how the run ended."""
    job, run_id = context.job, context.run_id
    await _hold(conn, job)
    if plan.call is not None:
        await runs.add_event(conn, job, run_id, "model_invoked", _clean(plan.call))
    decision: dict[str, object] = {"decision": plan.decision, "reasons": plan.reasons, "confidence": plan.confidence}
    await runs.add_event(conn, job, run_id, "decision_made", decision)
    applied, refusal = await _write(conn, context, executor, plan)
    output = {
        **decision,
        "effects": applied.effects,
        "skipped": [*([refusal] if refusal else []), *applied.skipped],
        "proposals": [] if applied.effects else plan.proposals,
    }
    given = _clean(plan.input)
    status: RunStatus = "succeeded" if applied.effects else "skipped"
    await runs.finish(
        conn,
        job,
        run_id,
        status,
        call=plan.call,
        input_snapshot=given,
        output_snapshot=_clean(output),
        input_hash=hashlib.sha256(msgspec.json.encode(given, order="sorted")).hexdigest(),
        error_class=plan.call and plan.call.error,
        error_message=plan.call and plan.call.message and str(_clean(plan.call.message)),
    )
    kept = {**decision, "runId": run_id, "skipped": output["skipped"], "triesAgain": plan.tries_again, "readTo": plan.read_to}
    if refusal not in (None, cast("dict[str, object]", job.payload).get("mode")) or (plan.is_cut and applied.effects):
        kept["goesOn"] = True
    await repository.end_job(conn, job, {name: value for name, value in kept.items() if value is not None})
    return status


async def _write(conn: Conn, context: JobContext, executor: Executor[Any], plan: Plan) -> tuple[PlanResult, str | None]:
    """Write the plan if that is allowed at this moment; returns what was written, and why nothing might be."""
    job, run_id = context.job, context.run_id
    nothing = PlanResult(effects=[])
    if not plan.proposals:
        await executor.decline(conn, context, plan)
        return nothing, None
    # Read here and nowhere before: whoever switches the mode waits for this transaction, or is obeyed by it.
    refusal = (await repository.permission(conn, job.team_id, job.project_id, job.job_type)).refusal
    if refusal is not None:
        await executor.decline(conn, context, plan)
        await runs.add_event(conn, job, run_id, "write_skipped", {"reason": refusal, "proposals": len(plan.proposals)})
        return nothing, refusal
    applied = await executor.apply(conn, context, plan)
    if applied.effects:
        await runs.add_event(conn, job, run_id, "write_applied", {"effects": applied.effects})
    if applied.skipped:
        await runs.add_event(conn, job, run_id, "write_skipped", {"reasons": applied.skipped})
    return applied, None


def _clean(value: object) -> object:
    """The value without secrets, as JSON; numbers stay numbers."""
    builtins = msgspec.json.decode(msgspec.json.encode(value))
    return clean(builtins, field_max_chars=_MAX_FIELD_CHARS).value
