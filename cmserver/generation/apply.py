"""The effects of a batch: observations, sources, audit, the jobs' ends and the lane's release, in one fenced transaction."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access.audit import repository as audit
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.answers.content import content_of, fingerprint, summary_content
from cmserver.generation.answers.model import SUMMARY_FIELDS, Parsed
from cmserver.generation.calls import repository as calls
from cmserver.generation.model import Claim, End, HeldJob
from cmserver.generation.patience import LeaseLostError
from cmserver.generation.prompt import agent_of
from cmserver.observations import repository as observations
from cmserver.observations.model import NewObservation, NewSource, estimate_tokens
from cmserver.providers.model import DraftObservation
from cmserver.sessions import repository as sessions

log: FilteringBoundLogger = structlog.get_logger(__name__)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One applied provider call: its run, its jobs, what it said, who said it, and what it cost in tokens."""

    run_id: UUID | None
    """None for what was made without a call."""
    jobs: list[HeldJob]
    parsed: Parsed
    provider: str
    model: str
    tokens: int
    remark: str | None = None
    """What its jobs' reason says when they were observed."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lane rests after this batch, and why."""

    seconds: float = 0
    reason: str | None = None
    held_for: str | None = None
    """The provider whose pause it is, or BUDGET; None for a back-off."""


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """An observation ready to be numbered and stored, with the jobs it cites."""

    row: NewObservation
    cited: list[HeldJob]


async def apply(
    conn: Conn, claim: Claim, jobs: Sequence[HeldJob], answered: Sequence[Answered], ends: Sequence[End], hold: Hold
) -> list[int]:
    """Write everything the batch came to; the numbers of the new observations. LeaseLostError leaves nothing behind.

    `answered` are the calls whose answers are applied; `ends` those jobs that end in another way. A job that was cancelled in
    the meantime ends as cancelled, and an observation that cites it is dropped.
    """
    session_ids = sorted({job.server_session_id for job in jobs if job.server_session_id})
    failed = any(end.status == "failed" for end in ends)
    news = any(job.source_type == "agent_event" for job in jobs)
    for session_id in session_ids:
        await sessions.generated(conn, claim.team_id, session_id, "failed" if failed else "completed", news=news)
    held = await repository.still_held(conn, claim.claim, [job.id for job in jobs])
    drafted = [one for call in answered for one in _drafted(call) if all(job.id in held for job in one.cited)]
    observed = {job.id for one in drafted for job in one.cited}
    all_ends = [*ends, *(_end(job, call, observed) for call in answered for job in call.jobs)]
    await repository.end_jobs(conn, claim.claim, all_ends, hold_seconds=hold.seconds)
    await calls.end_runs(conn, [call.run_id for call in answered if call.run_id], "applied")
    numbers = await _store(conn, claim, drafted)
    single = all(job.lane == job.id for job in jobs) and all(end.status != "queued" for end in ends)
    ours = (
        await repository.remove_lane(conn, claim.lane, claim.claim)
        if single and jobs
        else await repository.release(
            conn, claim.lane, claim.claim, hold_seconds=hold.seconds, hold_reason=hold.reason, held_for=hold.held_for
        )
    )
    if not ours:
        raise LeaseLostError
    return numbers


def _end(job: HeldJob, call: Answered, observed: set[UUID]) -> End:
    if job.id in observed:
        return End(job_id=job.id, status="completed", outcome="observed", reason=call.remark)
    reason = call.parsed.reasons.get(job.id, "nothing worth recording")
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)


def _drafted(call: Answered) -> list[Drafted]:
    by_id = {job.id: job for job in call.jobs}
    parsed = call.parsed
    share = call.tokens // max(1, len(parsed.observations) + (parsed.summary is not None))
    said_by: dict[str, object] = {"provider": call.provider, "model": call.model}
    drafted: list[Drafted] = []
    places: dict[UUID, int] = {}
    for worded in parsed.observations:
        if any(job_id not in by_id for job_id in worded.job_ids):
            continue  # it cites a job that is no longer ours
        cited = [by_id[job_id] for job_id in worded.job_ids]
        first = cited[0]
        place = places[first.id] = places.get(first.id, -1) + 1
        draft, content = worded.draft, content_of(worded.draft)
        agents = [agent_of(job) for job in cited]
        by_one = agents[0] if all(agent == agents[0] for agent in agents) else {}
        row = _row(first, place, fingerprint(draft), draft, content, share, {**said_by, **by_one})
        drafted.append(Drafted(row=row, cited=cited))
    if parsed.summary is not None:
        job = call.jobs[-1]  # of a batch of events, which nobody asked for a summary, it came after the last
        place = places.get(job.id, -1) + 1
        fields = {name: getattr(parsed.summary, name) for name in SUMMARY_FIELDS}
        title = " ".join((parsed.summary.request or parsed.summary.completed or "Session summary").split())[:200]
        draft, content = DraftObservation(title=title), summary_content(parsed.summary)
        row = _row(job, place, fingerprint(parsed.summary), draft, content, share, said_by)
        drafted.append(Drafted(row=msgspec.structs.replace(row, kind="summary", summary=fields), cited=[job]))
    return drafted


def _row(
    job: HeldJob, place: int, key: str, draft: DraftObservation, content: str, tokens: int, said_by: dict[str, object]
) -> NewObservation:
    return NewObservation(
        id=new_id(),
        number=0,
        server_session_id=job.server_session_id,
        kind="observation",
        type=draft.type,
        origin="model",
        title=draft.title,
        subtitle=draft.subtitle,
        narrative=draft.narrative,
        facts=draft.facts or None,
        concepts=draft.concepts or None,
        files_read=draft.files_read or None,
        files_modified=draft.files_modified or None,
        summary=None,
        prompt_number=job.prompt_number,
        content=content or draft.type,
        read_tokens=estimate_tokens(content),
        discovery_tokens=tokens,
        generation_key=f"generation:v1:{job.id}:{place}:{key}",
        metadata=said_by,
        created_by_job_id=job.id,
    )


async def _store(conn: Conn, claim: Claim, drafted: Sequence[Drafted]) -> list[int]:
    if not drafted:
        return []
    job = drafted[0].cited[0]
    await audit.append(
        conn,
        team_id=claim.team_id,
        project_id=claim.project_id,
        actor_id=job.actor_id,
        api_key_id=job.api_key_id,
        action="observations.generated",
        resource_type="generation_job",
        resource_id=str(job.id),
        request_id=job.request_id,
        details={
            "jobs": sorted({str(one.id) for each in drafted for one in each.cited}),
            "count": len(drafted),
            "observations": [str(one.row.id) for one in drafted],
        },
    )
    # The counter's row is locked until the end: everything above is done first.
    numbers = await observations.take_numbers(conn, claim.team_id, len(drafted))
    rows = [msgspec.structs.replace(one.row, number=number) for one, number in zip(drafted, numbers, strict=True)]
    stored = {one.generation_key: one for one in await observations.insert(conn, claim.team_id, claim.project_id, rows)}
    links = [
        NewSource(
            id=new_id(),
            observation_id=stored[one.row.generation_key].id,
            source_type="agent_event" if job.source_type == "agent_event" else "session_summary",
            source_id=job.source_id,
            agent_event_id=job.agent_event_id,
            generation_job_id=job.id,
        )
        for one in drafted
        for job in one.cited
    ]
    await observations.insert_sources(conn, claim.team_id, claim.project_id, links)
    return sorted(one.number for one in stored.values())
