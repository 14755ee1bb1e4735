"""Writes the effects of a batch in one fenced transaction: observations, sources, audit, the jobs' ends, the lane's release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.calls import repository as calls
from cmserver.generation import repository
from cmserver.generation.batch import Effect
from cmserver.generation.lease import LeaseLostError
from cmserver.generation.model import Claim, ClaimedJob, End, LaneHold
from cmserver.generation.record import NOTHING_FOUND, SettledAnswer, store_observations
from cmserver.generation.settle_failures import settle_failures
from cmserver.generation.turn_work import add_turn_work
from cmserver.graph.read_turn import keep_turn_names
from cmserver.observations import repository as observations
from cmserver.providers.model import FailureKind
from cmserver.reading.model import EventReading
from cmserver.sessions import repository as sessions


async def write_batch_effects(
    conn: Conn,
    claim: Claim,
    jobs: Sequence[ClaimedJob],
    readings: Mapping[UUID, EventReading],
    answered: Sequence[SettledAnswer],
    ends: Sequence[End],
    hold: LaneHold,
    effect: Effect | None = None,
) -> list[int]:
    """Write the results of the batch and return the numbers of the new observations. LeaseLostError rolls everything back.

    `answered` are the calls whose answers are applied, `ends` the ends of the other jobs; `effect` is of the one job of its batch,
    whose project is held before the job is locked. A job that was cancelled meanwhile ends as cancelled, without its effect, and
    observations that cite it are dropped.
    """
    drawn = [observation for call in answered for observation in call.observations]
    # A turn's job says nothing of how its session was worded.
    session_ids = sorted({job.server_session_id for job in jobs if job.server_session_id and job.source_type != "turn"})
    failed = any(end.status == "failed" for end in ends)
    has_events = any(job.source_type == "agent_event" for job in jobs)
    for session_id in session_ids:
        await sessions.generated(conn, claim.team_id, session_id, "failed" if failed else "completed", news=has_events)
    if effect is not None:
        await observations.hold_projects(conn, claim.team_id, {job.project_id for job in jobs})
    held = await repository.still_held(conn, claim.claim, [job.id for job in jobs])
    if effect is not None:
        ends = [await effect(conn)] if held else [End(job_id=job.id, status="failed") for job in jobs]
    cited = [observation for observation in drawn if all(job.id in held for job in observation.jobs)]
    observed = {job.id for observation in cited for job in observation.jobs}
    all_ends = [*ends, *(_answered_end(job, call, observed) for call in answered if call.ends_jobs for job in call.jobs)]
    await repository.end_jobs(conn, claim.claim, all_ends, hold_seconds=hold.seconds)
    await calls.end_runs(conn, [call.run_id for call in answered if call.run_id and call.is_usable], "applied")
    if unusable := [call.run_id for call in answered if call.run_id and not call.is_usable]:
        kind = FailureKind.UNUSABLE_ANSWER.value
        await calls.end_runs(conn, unusable, "unusable", error_class=kind, error_message=NOTHING_FOUND)
    # Jobs that have failed may be tried again: their turn's work is added when they end.
    ended = [job for call in answered if call.ends_jobs for job in call.jobs if job.id in held]
    programs = await add_turn_work(conn, ended, readings)
    for call in answered:
        if call.jobs[0].source_type == "turn" and call.jobs[0].id in held:
            await keep_turn_names(conn, claim.team_id, call.jobs[0].source_id, call.names)
    worded = [job.id for call in answered if call.run_id and call.is_usable for job in call.jobs if job.id in held & observed]
    if worded:
        await observations.remove_rules_rows(conn, claim.team_id, worded)
    numbers = await store_observations(conn, claim, cited)
    if programs:
        await settle_failures(conn, claim.team_id, claim.project_id, programs)
    is_single = all(job.lane == job.id for job in jobs) and all(end.status != "queued" for end in ends)
    still_ours = (
        await repository.remove_lane(conn, claim.lane, claim.claim)
        if is_single and jobs
        else await repository.release(conn, claim.lane, claim.claim, hold)
    )
    if not still_ours:
        raise LeaseLostError
    return numbers


def _answered_end(job: ClaimedJob, call: SettledAnswer, observed: set[UUID]) -> End:
    """The end of an answered job: observed, or skipped with the reason that the answer has for it."""
    if job.id in observed:
        reason = call.remarks.get(job.id)
        return End(job_id=job.id, status="completed", outcome="observed", reason=reason)
    reason = call.reasons.get(job.id, "nothing worth recording")
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)
