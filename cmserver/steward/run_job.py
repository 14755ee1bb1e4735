"""Decides what a job does, and writes it in the transaction that ends the job. Claim, lease and tries are the outbox's."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, cast

import msgspec

from cmserver.base.db import Db
from cmserver.base.errors import StatementTimeout, Unavailable
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.metrics import metrics
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation import repository as outbox
from cmserver.generation.batch import Batch, Effect
from cmserver.generation.lease import LeaseLostError
from cmserver.generation.model import End
from cmserver.redaction.clean import clean
from cmserver.steward import repository
from cmserver.steward.ask import ModelAsker
from cmserver.steward.executors.auto_merge import AutoMerge, AutoMergePayload
from cmserver.steward.executors.derive import Derive, DerivePayload
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.executors.recheck import Recheck, RecheckPayload
from cmserver.steward.model import JobContext, Plan, PlanResult, RunStatus, StewardJob
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs

log = get_logger(__name__)

_MAX_FIELD_CHARS = 4_000

EXECUTORS: dict[str, tuple[type[JobPayload], Executor[Any]]] = {
    "auto_merge": (AutoMergePayload, AutoMerge()),
    "derive": (DerivePayload, Derive()),
    "recheck": (RecheckPayload, Recheck()),
}


class StewardRunner:
    """Works on jobs of all teams, each as its team."""

    def __init__(self, db: Db, settings: Settings, *, job_seconds: float | None = None) -> None:
        self._db = db
        self._asker = ModelAsker(db, settings)
        self._job_seconds = job_seconds or settings.job_seconds - settings.provider_timeout_seconds

    async def work(self, batch: Batch) -> Effect:
        """Decide, also with a model, and write nothing; returns what writes it."""
        try:
            context, stopped = await self._load(batch)
        except Unavailable:
            raise LeaseLostError from None
        job = context.job
        if stopped is not None:
            return lambda conn: _leave(conn, job, batch, stopped)
        known = EXECUTORS.get(job.job_type)
        if known is None:
            return _fail(batch, "unknown_type", f"There is no executor {job.job_type!r}.", is_final=True)
        payload_type, executor = known
        try:
            payload = msgspec.convert(job.payload, payload_type)
        except msgspec.ValidationError as error:
            return _fail(batch, "bad_payload", str(error), is_final=True)
        try:
            async with asyncio.timeout(self._job_seconds):
                plan = await executor.prepare(self._db, self._asker, context, payload)
        except (TimeoutError, StatementTimeout) as error:
            return _fail(batch, "timeout", str(error) or f"It took longer than {self._job_seconds:g} seconds.")
        except Unavailable:
            raise LeaseLostError from None
        except Exception as error:  # noqa: BLE001 - `fail` logs it
            return self.fail(batch, error)
        return lambda conn: _end(conn, batch, context, executor, plan)

    def fail(self, batch: Batch, error: Exception) -> Effect:
        """After an error in an executor, also while it wrote: returns what writes the failed run."""
        log.error("steward.job_failed", job=str(batch.jobs[0].id), exc_info=error)
        return _fail(batch, "executor_error", f"{type(error).__name__}: {error}")

    async def _load(self, batch: Batch) -> tuple[JobContext, str | None]:
        """The job as its team sees it, and why it is left alone, if it is."""
        claimed = batch.jobs[0]
        async with self._db.tenant(claimed.team_id) as conn:
            job = await repository.job(conn, claimed.team_id, claimed.id)
            if job is None:
                raise LeaseLostError
            permission = await repository.permission(conn, job.team_id, job.project_id, job.job_type)
            policies = await thresholds.read_values(conn, job.team_id)
        stopped = permission.stops or (None if claimed.project_open else "team_archived")
        return JobContext(job=job, policies=policies, run_id=new_id()), stopped


async def _leave(conn: Conn, job: StewardJob, batch: Batch, reason: str) -> End:
    """End the job undone, so that it is planned again when the steward goes on."""
    await _decide(conn, batch, job, {"decision": "nothing", "reasons": [reason], "goesOn": True})
    return End(job_id=job.id, status="completed", outcome="skipped", reason=f"nothing: {reason}")


def _fail(batch: Batch, error_class: str, message: str, *, is_final: bool = False) -> Effect:
    message = str(clean(message, field_max_chars=_MAX_FIELD_CHARS).value)
    end_all = batch.fail if is_final else batch.back_off
    end_all(batch.jobs, error_class, message)

    async def write(conn: Conn) -> End:
        job = await repository.job(conn, batch.claim.team_id, batch.jobs[0].id)
        if job is None:
            raise LeaseLostError
        await runs.add(conn, new_id(), job.team_id, "failed", job=job, error_class=error_class, error_message=message)
        _count(job, "failed")
        return batch.ends[-1]

    return write


def _count(job: StewardJob, status: RunStatus) -> None:
    metrics().steward_runs.labels(job.job_type if job.job_type in EXECUTORS else "unknown", status).inc()


async def _decide(conn: Conn, batch: Batch, job: StewardJob, decision: dict[str, object]) -> None:
    await outbox.save_progress(conn, batch.claim.claim, job.id, {"decision": decision})


async def _end(conn: Conn, batch: Batch, context: JobContext, executor: Executor[Any], plan: Plan) -> End:
    """What is written, the events that tell it, the run, and how the job ends."""
    job, run_id = context.job, context.run_id
    current = await repository.job(conn, job.team_id, job.id)
    if current is None or current.project_id != job.project_id:  # what it is about was moved to another one meanwhile
        return End(job_id=job.id, status="queued", give_back=True)
    if plan.call is not None:
        await outbox.add_event(conn, job.id, run_id, "model_invoked", to_stored(plan.call))
    decision: dict[str, object] = {"decision": plan.decision, "reasons": plan.reasons, "confidence": plan.confidence}
    await outbox.add_event(conn, job.id, run_id, "decision_made", decision)
    applied, refusal = await _write(conn, context, executor, plan)
    output = {
        **decision,
        "effects": applied.effects,
        "skipped": [*([refusal] if refusal else []), *applied.skipped],
        "proposals": [] if applied.effects else plan.proposals,
    }
    given = to_stored(plan.input)
    status: RunStatus = "succeeded" if applied.effects else "skipped"
    await runs.add(
        conn,
        run_id,
        job.team_id,
        status,
        job=job,
        call=plan.call,
        input_snapshot=given,
        output_snapshot=to_stored(output),
        input_hash=hashlib.sha256(msgspec.json.encode(given, order="sorted")).hexdigest(),
        error_class=plan.call and plan.call.error,
        error_message=plan.call and plan.call.message and str(to_stored(plan.call.message)),
    )
    kept = {**decision, "runId": run_id, "skipped": output["skipped"], "triesAgain": plan.tries_again, "readTo": plan.read_to}
    if refusal not in (None, cast("dict[str, object]", job.payload).get("mode")) or (plan.is_cut and applied.effects):
        kept["goesOn"] = True
    await _decide(conn, batch, job, {name: value for name, value in kept.items() if value is not None})
    _count(job, status)
    reason = f"{plan.decision}: {', '.join([*plan.reasons, *([refusal] if refusal else []), *applied.skipped])}"
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)


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
        await outbox.add_event(conn, job.id, run_id, "write_skipped", {"reason": refusal, "proposals": len(plan.proposals)})
        return nothing, refusal
    applied = await executor.apply(conn, context, plan)
    if applied.effects:
        await outbox.add_event(conn, job.id, run_id, "write_applied", {"effects": applied.effects})
    if applied.skipped:
        await outbox.add_event(conn, job.id, run_id, "write_skipped", {"reasons": applied.skipped})
    return applied, None


def to_stored(value: object) -> object:
    """The value without secrets, as JSON; numbers stay numbers."""
    builtins = msgspec.json.decode(msgspec.json.encode(value))
    return clean(builtins, field_max_chars=_MAX_FIELD_CHARS).value
