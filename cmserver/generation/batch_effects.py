"""Writes the effects of batches in one fenced transaction: observations, sources, audit, the jobs' ends, the lanes' release."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.batch import Batch
from cmserver.generation.lease import LeaseLostError
from cmserver.generation.model import ClaimedJob, End
from cmserver.generation.personal_words import draw_personal
from cmserver.generation.record import NOTHING_FOUND, CitedObservation, SettledAnswer, store_observations
from cmserver.generation.settle_failures import settle_failures
from cmserver.generation.turn_work import add_turn_work
from cmserver.graph.read_turn import keep_turn_names
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import FailureKind
from cmserver.observations import repository as observations
from cmserver.sessions import repository as sessions


async def write_effects(conn: Conn, batches: Sequence[Batch]) -> dict[UUID, list[int]]:
    """Write the results of batches of one team; returns the numbers of the new observations by lane.

    LeaseLostError, when one of the lanes is lost, rolls everything back. A batch with an effect is alone; the project of its job is
    held before the job is locked. A job that was cancelled meanwhile ends as cancelled, without its effect, and observations that
    cite it are dropped.
    """
    team_id = batches[0].claim.team_id
    claims = [batch.claim.claim for batch in batches]
    jobs = [job for batch in batches for job in batch.jobs]
    await _note_sessions(conn, team_id, batches)
    if any(batch.effect for batch in batches):
        await observations.hold_projects(conn, team_id, {job.project_id for job in jobs})
    held = await repository.still_held(conn, claims, [job.id for job in jobs])
    drawn: dict[UUID, list[CitedObservation]] = {}
    for batch in batches:
        made = (observation for call in batch.answered for observation in call.observations)
        drawn[batch.claim.lane] = [observation for observation in made if all(job.id in held for job in observation.jobs)]
    cited = await draw_personal(conn, team_id, batches, held, drawn)
    ends: list[End] = []
    for batch in batches:
        if batch.effect is not None:
            batch_ends = [await batch.effect(conn)] if held else [End(job_id=job.id, status="failed") for job in jobs]
        else:
            batch_ends = batch.ends
        observed = {job.id for observation in cited[batch.claim.lane] for job in observation.jobs}
        ends += [msgspec.structs.replace(it, hold_seconds=batch.hold.seconds) if it.status == "queued" else it for it in batch_ends]
        ends += [_answered_end(job, call, observed) for call in batch.answered if call.ends_jobs for job in call.jobs]
    await repository.end_jobs(conn, claims, ends)
    await _end_runs(conn, [call for batch in batches for call in batch.answered if call.run_id])
    programs = await _note_work(conn, batches, held)
    worded = [job.id for batch in batches for call in batch.answered if call.run_id and call.is_usable for job in call.jobs]
    observed = {job.id for of_lane in cited.values() for observation in of_lane for job in observation.jobs}
    if worded := [job_id for job_id in worded if job_id in held & observed]:
        await observations.remove_rules_rows(conn, team_id, worded)
    numbers = await store_observations(conn, team_id, cited)
    for project_id in sorted(programs):
        await settle_failures(conn, team_id, project_id, programs[project_id])
    await _release(conn, batches, {end.job_id for end in ends if end.status == "queued"})
    return numbers


async def _note_sessions(conn: Conn, team_id: UUID, batches: Sequence[Batch]) -> None:
    """What became of the sessions. A turn's job says nothing of how its session was worded."""
    failed, news = dict[UUID, bool](), dict[UUID, bool]()
    for batch in batches:
        has_failed = any(end.status == "failed" for end in batch.ends)
        has_events = any(job.source_type == "agent_event" for job in batch.jobs)
        for session_id in {job.server_session_id for job in batch.jobs if job.server_session_id and job.source_type != "turn"}:
            failed[session_id] = has_failed or failed.get(session_id, False)
            news[session_id] = has_events or news.get(session_id, False)
    if failed:
        statuses = ["failed" if it else "completed" for it in failed.values()]
        await sessions.generated(conn, team_id, [*failed], statuses, [*news.values()])


async def _end_runs(conn: Conn, answered: Sequence[SettledAnswer]) -> None:
    if usable := [call.run_id for call in answered if call.run_id and call.is_usable]:
        await calls.end_runs(conn, usable, "applied")
    if unusable := [call.run_id for call in answered if call.run_id and not call.is_usable]:
        kind = FailureKind.UNUSABLE_ANSWER.value
        await calls.end_runs(conn, unusable, "unusable", error_class=kind, error_message=NOTHING_FOUND)


async def _note_work(conn: Conn, batches: Sequence[Batch], held: set[UUID]) -> dict[UUID, set[str]]:
    """Add what was done to the turns; returns the programs of the checks that ran, by project.

    A project's ledger is locked until the end: all lock them in the order of their ids.
    Jobs that have failed may be tried again: their turn's work is added when they end.
    """
    programs: dict[UUID, set[str]] = {}
    for batch in sorted(batches, key=lambda batch: (batch.claim.project_id, batch.claim.lane)):
        ended = [job for call in batch.answered if call.ends_jobs for job in call.jobs if job.id in held]
        if found := await add_turn_work(conn, ended, batch.readings, is_replay=batch.claim.is_replay):
            programs.setdefault(batch.claim.project_id, set()).update(found)
        for call in batch.answered:
            if call.jobs[0].source_type == "turn" and call.jobs[0].id in held:
                await keep_turn_names(conn, batch.claim.team_id, call.jobs[0].source_id, call.names)
    return programs


async def _release(conn: Conn, batches: Sequence[Batch], sent_back: set[UUID]) -> None:
    """Give the lanes back, those of single jobs that have ended for good; LeaseLostError when one of them is not ours any more."""
    single = [
        batch.claim for batch in batches if batch.jobs and all(it.lane == it.id and it.id not in sent_back for it in batch.jobs)
    ]
    others = [batch.claim for batch in batches if batch.claim not in single]
    lanes = await repository.remove_lanes(conn, single) if single else set[UUID]()
    if others:
        lanes |= await repository.release(conn, others, {batch.claim.lane: batch.hold for batch in batches})
    if len(lanes) < len(batches):
        raise LeaseLostError


def _answered_end(job: ClaimedJob, call: SettledAnswer, observed: set[UUID]) -> End:
    """The end of an answered job: observed, or skipped with the reason that the answer has for it."""
    if job.id in observed:
        reason = call.remarks.get(job.id)
        return End(job_id=job.id, status="completed", outcome="observed", reason=reason)
    reason = call.reasons.get(job.id, "nothing worth recording")
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)
