"""Writes the effects of a batch in one fenced transaction: observations, sources, audit, the jobs' ends, the lane's release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.answers.model import SUMMARY_FIELDS, BatchAnswer, fingerprint, summary_text
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.calls import repository as calls
from cmserver.consolidation.replace import find_earlier_words, replace_earlier_words
from cmserver.generation import repository
from cmserver.generation.lease import LeaseLostError
from cmserver.generation.model import Claim, ClaimedJob, End, LaneHold
from cmserver.generation.prompt import find_quoted_job
from cmserver.generation.turn_work import add_turn_work
from cmserver.graph.model import EntityName
from cmserver.graph.read_turn import keep_turn_names
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import (
    BY_USER,
    INSTRUCTION_IMPORTANCE,
    NewObservation,
    NewSource,
    ObservationState,
    compose,
    estimate_tokens,
)
from cmserver.providers.model import DraftObservation, Rules
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_command_results
from cmserver.sessions import repository as sessions

_FOR_NOW = {"trade-off", "what-changed"}
"""Concepts of what a user decided that holds for the task at hand."""


class AnsweredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One provider call with its jobs and its parsed answer."""

    run_id: UUID | None
    """None for what rules made."""
    jobs: list[ClaimedJob]
    answer: BatchAnswer
    provider: str
    model: str
    tokens: int
    remark: str | None = None
    """The reason of its jobs when they end as observed."""
    names: list[EntityName] = []
    """What a turn is about, of the job of a turn."""


class CitedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation ready to be numbered and stored, with the jobs it cites."""

    row: NewObservation
    jobs: list[ClaimedJob]
    closes: list[int] = []
    """Numbers of open observations that are done with it, or dropped: by the user's decision, or for a newer one in their place."""
    drops: bool = False
    words: str = ""
    """What a user laid down or decided with it."""


async def write_batch_effects(
    conn: Conn,
    claim: Claim,
    jobs: Sequence[ClaimedJob],
    readings: Mapping[UUID, EventReading],
    answered: Sequence[AnsweredCall],
    ends: Sequence[End],
    hold: LaneHold,
) -> list[int]:
    """Write the results of the batch and return the numbers of the new observations. LeaseLostError rolls everything back.

    `answered` are the calls whose answers are applied, `ends` the ends of the other jobs. A job that was cancelled meanwhile ends
    as cancelled, and observations that cite it are dropped.
    """
    drawn = [observation for call in answered for observation in _cited_observations(call, readings)]
    if any(observation.words for observation in drawn):
        # Moves and joins take the project's lock before the rows of sessions and jobs.
        await history.lock_project(conn, claim.project_id)
    # A turn's job says nothing of how its session was worded.
    session_ids = sorted({job.server_session_id for job in jobs if job.server_session_id and job.source_type != "turn"})
    failed = any(end.status == "failed" for end in ends)
    has_events = any(job.source_type == "agent_event" for job in jobs)
    for session_id in session_ids:
        await sessions.generated(conn, claim.team_id, session_id, "failed" if failed else "completed", news=has_events)
    held = await repository.still_held(conn, claim.claim, [job.id for job in jobs])
    cited = [observation for observation in drawn if all(job.id in held for job in observation.jobs)]
    observed = {job.id for observation in cited for job in observation.jobs}
    all_ends = [*ends, *(_answered_end(job, call, observed) for call in answered for job in call.jobs)]
    await repository.end_jobs(conn, claim.claim, all_ends, hold_seconds=hold.seconds)
    await calls.end_runs(conn, [call.run_id for call in answered if call.run_id], "applied")
    await add_turn_work(conn, [job for call in answered for job in call.jobs if job.id in held], readings)
    for call in answered:
        if call.jobs[0].source_type == "turn" and call.jobs[0].id in held:
            await keep_turn_names(conn, claim.team_id, call.jobs[0].source_id, call.names)
    numbers = await _store(conn, claim, cited)
    is_single = all(job.lane == job.id for job in jobs) and all(end.status != "queued" for end in ends)
    still_ours = (
        await repository.remove_lane(conn, claim.lane, claim.claim)
        if is_single and jobs
        else await repository.release(conn, claim.lane, claim.claim, hold)
    )
    if not still_ours:
        raise LeaseLostError
    return numbers


def _answered_end(job: ClaimedJob, call: AnsweredCall, observed: set[UUID]) -> End:
    """The end of an answered job: observed, or skipped with the reason that the answer has for it."""
    if job.id in observed:
        return End(job_id=job.id, status="completed", outcome="observed", reason=call.remark)
    reason = call.answer.reasons.get(job.id, "nothing worth recording")
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)


def _cited_observations(call: AnsweredCall, readings: Mapping[UUID, EventReading]) -> list[CitedObservation]:
    """The observations and the summary of the answer as rows, each with the jobs that it is made of."""
    jobs_by_id = {job.id: job for job in call.jobs}
    observed, summary = call.answer.observations, call.answer.summary
    tokens_each = call.tokens // max(1, len(observed) + (summary is not None))
    author: dict[str, object] = {"provider": call.provider, "model": call.model}
    cited: list[CitedObservation] = []
    indexes: dict[UUID, int] = {}
    """By job: the index of the latest observation made of it first; part of the key by which a repeated write is recognised."""
    for sourced in observed:
        if any(job_id not in jobs_by_id for job_id in sourced.job_ids):
            continue  # cites a job that is no longer ours
        jobs = [jobs_by_id[job_id] for job_id in sourced.job_ids]
        first, draft = jobs[0], sourced.draft
        index = indexes[first.id] = indexes.get(first.id, -1) + 1
        events = {job.id: readings[job.id] for job in jobs if job.id in readings}
        metadata = {**author, **_common_agent(list(events.values()))}
        if results := read_command_results(events.values()):
            metadata["commands"] = msgspec.to_builtins(results)
        if draft.entities:
            metadata["entities"] = draft.entities
        quoted = find_quoted_job(draft.quote, jobs)
        by_user = draft.type == "decision" and all(events[job.id].is_by_user for job in ([quoted] if quoted else jobs))
        metadata |= {BY_USER: True} if by_user else {}
        if quoted is None:
            draft = msgspec.structs.replace(draft, quote=None)
        if draft.quote and draft.quote not in (draft.narrative or ""):
            draft = msgspec.structs.replace(draft, facts=[*draft.facts, draft.quote])
        content = compose(draft.title, draft.subtitle, draft.narrative, draft.facts)
        row = _new_observation(jobs, index, fingerprint(draft), draft, content, tokens_each, metadata)
        row = msgspec.structs.replace(
            row,
            origin="rules" if call.provider == Rules().name else "model",
            quote=draft.quote,
            quote_event_id=quoted.agent_event_id if quoted else None,
            anchors=draft.anchors or None,
            state=draft.state,
            importance=_importance(draft, by_user=by_user),
        )
        drops = by_user or draft.state == "open"
        words = (draft.quote or draft.title or content) if by_user else ""
        cited.append(CitedObservation(row=row, jobs=jobs, closes=draft.closes, drops=drops, words=words))
    if summary is not None:
        job = call.jobs[-1]  # an unrequested summary of a batch of events belongs to its last event
        index = indexes.get(job.id, -1) + 1
        fields = {name: getattr(summary, name) for name in SUMMARY_FIELDS}
        title = " ".join((summary.request or summary.completed or "Session summary").split())[:200]
        draft, content = DraftObservation(title=title), summary_text(summary)
        row = _new_observation([job], index, fingerprint(summary), draft, content, tokens_each, author)
        origin = "rules" if call.provider == Rules().name else "model"
        row = msgspec.structs.replace(row, kind="summary", summary=fields, origin=origin)
        cited.append(CitedObservation(row=row, jobs=[job]))
    return cited


def _common_agent(events: Sequence[EventReading]) -> dict[str, object]:
    """The sub-agent that caused all of the events, for the metadata."""
    agents = {(event.agent_id, event.agent_type) for event in events}
    names = zip(("agent_id", "agent_type"), agents.pop(), strict=True) if len(agents) == 1 else ()
    return {name: text for name, text in names if text}


def _importance(draft: DraftObservation, *, by_user: bool) -> float:
    """What a user laid down counts most, then what is open or was decided, then what rests on the agent's conclusion."""
    if by_user and not _FOR_NOW & {*draft.concepts}:
        return INSTRUCTION_IMPORTANCE
    if draft.state == "open" or draft.type in {"decision", "security_alert"}:
        return 0.7
    return 0.6 if draft.quote else 0.5


def _new_observation(
    jobs: Sequence[ClaimedJob],
    index: int,
    key: str,
    draft: DraftObservation,
    content: str,
    tokens: int,
    metadata: dict[str, object],
) -> NewObservation:
    """The row to insert, which gets its number later. If all its events were late, it is dated by the last of them."""
    job, late = jobs[0], [job.late_at for job in jobs if job.late_at]
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
        actor_id=job.actor_id,
        content=content or draft.type,
        read_tokens=estimate_tokens(content),
        discovery_tokens=tokens,
        generation_key=f"generation:v1:{job.id}:{index}:{key}",
        metadata=metadata,
        created_by_job_id=job.id,
        created_at=max(late) if len(late) == len(jobs) else None,
    )


async def _store(conn: Conn, claim: Claim, cited: Sequence[CitedObservation]) -> list[int]:
    """Store the observations with their numbers, sources and audit entry; returns the numbers."""
    if not cited:
        return []
    first = cited[0].jobs[0]
    await audit_log.append(
        conn,
        team_id=claim.team_id,
        project_id=claim.project_id,
        actor_id=first.actor_id,
        api_key_id=first.api_key_id,
        action="observations.generated",
        resource_type="generation_job",
        resource_id=str(first.id),
        request_id=first.request_id,
        details={
            "jobs": sorted({str(job.id) for observation in cited for job in observation.jobs}),
            "count": len(cited),
            "observations": [str(observation.row.id) for observation in cited],
        },
    )
    # The counter's row stays locked until the commit: everything else comes first.
    words = [observation.words for observation in cited]
    found = await find_earlier_words(conn, claim.team_id, claim.project_id, words)
    earlier = {observation.row.id: standing for observation, standing in zip(cited, found, strict=True)}
    numbers = await observations.take_numbers(conn, claim.team_id, len(cited))
    marks = [earlier[observation.row.id].metadata for observation in cited]
    rows = [
        msgspec.structs.replace(observation.row, number=number, metadata={**observation.row.metadata, **mark})
        for observation, number, mark in zip(cited, numbers, marks, strict=True)
    ]
    inserted = await observations.insert(conn, claim.team_id, claim.project_id, rows)
    stored = {observation.generation_key: observation for observation in inserted}
    sources = [
        NewSource(
            id=new_id(),
            observation_id=stored[observation.row.generation_key].id,
            source_type="agent_event" if job.source_type == "agent_event" else "session_summary",
            source_id=job.source_id,
            agent_event_id=job.agent_event_id,
            generation_job_id=job.id,
        )
        for observation in cited
        for job in observation.jobs
    ]
    await observations.insert_sources(conn, claim.team_id, claim.project_id, sources)
    for row_id, words in earlier.items():
        if words.replaced:
            await replace_earlier_words(conn, claim.team_id, row_id, words)
    for observation in cited:
        if observation.closes:
            closed_by = stored[observation.row.generation_key].number
            state: ObservationState = "dropped" if observation.drops else "done"
            await observations.close(conn, claim.team_id, claim.project_id, observation.closes, closed_by, state)
    return sorted(observation.number for observation in inserted)
