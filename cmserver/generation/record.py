"""Turns drafts into observations, whether a model or the rules wrote them: normalises, quotes, numbers and stores them.

`settle_answer` does what needs no database, `store_observations` the rest in the transaction that ends the batch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import NewAuditEntry
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.generation.model import ClaimedJob
from cmserver.graph.model import EntityName
from cmserver.models.calls.model import StoredAnswer
from cmserver.models.providers.model import KINDS, SUMMARY_FIELDS, Answer, DraftObservation, DraftSummary, Rules, event_tag
from cmserver.observations import repository as observations
from cmserver.observations.approval import repository as approvals
from cmserver.observations.model import (
    BY_USER,
    INSTRUCTION_IMPORTANCE,
    NewObservation,
    NewSource,
    ObservationState,
    compose,
    estimate_tokens,
)
from cmserver.observations.normalise import NOT_SAID_WHY, normalise_answer
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_command_results

_IMPORTANT_TYPES = {name for name, kind in KINDS.items() if kind.is_important}
_FOR_NOW = {"trade-off", "what-changed"}
"""Concepts of what a user decided that holds for the task at hand."""
_MIN_QUOTED_CHARS = 8
_MAX_QUOTED_CHARS = 100_000
"""The part of an event in which a quote is looked for."""


UNUSABLE = "unusable answer"
"""How the reason of a job begins of which a model said nothing, though rules find something."""
NOTHING_FOUND = "The answer holds nothing of what rules find in its events."


class CitedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation ready to be numbered and stored, with the jobs it cites."""

    row: NewObservation
    jobs: list[ClaimedJob]
    closes: list[int] = []
    """Numbers of open observations that are done with it, or dropped: by the user's decision, or for a newer one in their place."""
    drops: bool = False

    @property
    def may_wait(self) -> bool:
        """Whether it may be one that counts only after a person's yes: not what rules quote of what the user sent."""
        return self.row.origin == "model" or any(job.origin == "mcp" for job in self.jobs)


class SettledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What will be stored of one answer. A job that no observation cites is skipped; `reasons` says why if the answer did."""

    run_id: UUID | None
    """None for what rules made."""
    jobs: list[ClaimedJob]
    observations: list[CitedObservation]
    reasons: dict[UUID, str]
    provider: str
    tokens: int
    skipped: set[UUID] = set()
    """The jobs for which the answer has a reason of their own."""
    remarks: dict[UUID, str] = {}
    """The reasons of jobs that end as observed."""
    ends_jobs: bool = True
    """Not for what rules made of jobs that fail, since the call of a model brought nothing for them."""
    is_usable: bool = True
    """Whether a model's answer could be used; one that holds nothing where the rules find something could not."""
    names: list[EntityName] = []
    """What a turn is about, of the job of a turn."""
    dropped: int = 0
    """Observations that were empty in every field, or too many."""


def settle_answer(
    answer: Answer,
    jobs: Sequence[ClaimedJob],
    readings: Mapping[UUID, EventReading],
    author: StoredAnswer | Rules,
    remark: str | None = None,
) -> SettledAnswer:
    """What will be stored of the drafts. Those that cite a job which is no longer ours are left out."""
    job_ids = author.job_ids if isinstance(author, StoredAnswer) else [job.id for job in jobs]
    ids_by_tag = {event_tag(place): job_id for place, job_id in enumerate(job_ids)}
    changed = {tag: readings[job_id].changed_files if job_id in readings else [] for tag, job_id in ids_by_tag.items()}
    clean = normalise_answer(answer, changed)
    name = author.provider if isinstance(author, StoredAnswer) else author.name
    tokens = author.input_tokens + author.output_tokens if isinstance(author, StoredAnswer) else 0
    settled = _AnswerRows(
        readings,
        origin="rules" if name == Rules().name else "model",
        author={"provider": name, "model": author.model},
        tokens=tokens // max(1, len(clean.observations) + (clean.summary is not None)),
    )
    jobs_by_id = {job.id: job for job in jobs}
    for draft in clean.observations:
        # An observation that cites no event of the batch belongs to the batch as a whole.
        sources = [jobs_by_id.get(ids_by_tag[tag]) for tag in draft.events or ids_by_tag]
        if None not in sources:
            settled.add_observation(draft, [job for job in sources if job])
    if clean.summary is not None:
        settled.add_summary(clean.summary, jobs[-1])  # an unrequested summary of a batch of events belongs to its last event
    marks = {mark.event: mark.reason for mark in clean.skipped}
    reasons = {job_id: reason for tag, job_id in ids_by_tag.items() if (reason := marks.get(tag) or marks.get(""))}
    return SettledAnswer(
        run_id=author.id if isinstance(author, StoredAnswer) else None,
        jobs=list(jobs),
        observations=settled.rows,
        reasons=reasons,
        skipped={job_id for tag, job_id in ids_by_tag.items() if marks.get(tag, NOT_SAID_WHY) != NOT_SAID_WHY},
        provider=name,
        tokens=tokens,
        remarks={job.id: remark for job in jobs} if remark else {},
        dropped=len(answer.observations) - len(clean.observations),
    )


class _AnswerRows:
    """Builds the rows of one answer."""

    def __init__(self, readings: Mapping[UUID, EventReading], *, origin: str, author: dict[str, object], tokens: int) -> None:
        self.rows: list[CitedObservation] = []
        self._readings = readings
        self._origin = origin
        self._author = author
        self._tokens = tokens
        self._indexes: dict[UUID, int] = {}
        """By job: the index of the latest observation made of it first; part of the key by which a repeated write is recognised."""

    def add_observation(self, draft: DraftObservation, jobs: list[ClaimedJob]) -> None:
        events = {job.id: self._readings[job.id] for job in jobs if job.id in self._readings}
        metadata = {**self._author, **_common_agent(list(events.values()))}
        if results := read_command_results(events.values()):
            metadata["commands"] = msgspec.to_builtins(results)
        if draft.entities:
            metadata["entities"] = draft.entities
        quoted = find_quoted_job(draft.quote, jobs)
        by_user = draft.type == "decision" and all(
            job.id in events and events[job.id].is_by_user for job in ([quoted] if quoted else jobs)
        )
        metadata |= {BY_USER: True} if by_user else {}
        draft = msgspec.structs.replace(draft, quote=draft.quote if quoted else None, events=[])
        if draft.quote and draft.quote not in (draft.narrative or ""):
            draft = msgspec.structs.replace(draft, facts=[*draft.facts, draft.quote])
        content = compose(draft.title, draft.subtitle, draft.narrative, draft.facts)
        row = msgspec.structs.replace(
            self._new_row(draft, draft, content, metadata, jobs),
            quote=draft.quote,
            quote_event_id=quoted.agent_event_id if quoted else None,
            anchors=draft.anchors or None,
            state=draft.state,
            importance=_importance(draft, by_user=by_user),
        )
        drops = by_user or draft.state == "open"
        self.rows.append(CitedObservation(row=row, jobs=jobs, closes=draft.closes, drops=drops))

    def add_summary(self, summary: DraftSummary, job: ClaimedJob) -> None:
        title = " ".join((summary.request or summary.completed or "Session summary").split())[:200]
        fields = {name: getattr(summary, name) for name in SUMMARY_FIELDS}
        row = self._new_row(DraftObservation(title=title), summary, summary.text, self._author, [job])
        self.rows.append(CitedObservation(row=msgspec.structs.replace(row, kind="summary", summary=fields), jobs=[job]))

    def _new_row(
        self,
        draft: DraftObservation,
        key: DraftObservation | DraftSummary,
        content: str,
        metadata: dict[str, object],
        jobs: Sequence[ClaimedJob],
    ) -> NewObservation:
        """The row to insert, which gets its number later. If all its events were late, it is dated by the last of them."""
        job, late = jobs[0], [job.late_at for job in jobs if job.late_at]
        index = self._indexes[job.id] = self._indexes.get(job.id, -1) + 1
        fingerprint = hashlib.sha256(msgspec.json.encode(key, order="sorted")).hexdigest()
        return NewObservation(
            id=new_id(),
            number=0,
            server_session_id=job.server_session_id,
            kind="observation",
            type=draft.type,
            origin=self._origin,
            title=draft.title,
            subtitle=draft.subtitle,
            narrative=draft.narrative,
            facts=draft.facts or None,
            concepts=draft.concepts or None,
            files_read=draft.files_read or None,
            files_modified=draft.files_modified or None,
            prompt_number=job.prompt_number,
            actor_id=job.actor_id,
            content=content or draft.type,
            read_tokens=estimate_tokens(content),
            discovery_tokens=self._tokens,
            generation_key=f"generation:v1:{job.id}:{index}:{fingerprint}",
            metadata=metadata,
            created_by_job_id=job.id,
            created_at=max(late) if len(late) == len(jobs) else None,
        )


def _common_agent(events: Sequence[EventReading]) -> dict[str, object]:
    """The sub-agent that caused all of the events, for the metadata."""
    agents = {(event.agent_id, event.agent_type) for event in events}
    names = zip(("agent_id", "agent_type"), agents.pop(), strict=True) if len(agents) == 1 else ()
    return {name: text for name, text in names if text}


def _importance(draft: DraftObservation, *, by_user: bool) -> float:
    """What a user laid down counts most, then what is open or was decided, then what rests on the agent's conclusion."""
    if by_user and not _FOR_NOW & {*draft.concepts}:
        return INSTRUCTION_IMPORTANCE
    if draft.state == "open" or draft.type in _IMPORTANT_TYPES:
        return 0.7
    return 0.6 if draft.quote else 0.5


def find_quoted_job(quote: str | None, jobs: Sequence[ClaimedJob]) -> ClaimedJob | None:
    """The job whose event says the quote word by word, white space aside; None when none does. Last words come first."""
    if not quote:
        return None
    wanted = _squeeze(quote.removesuffix("…"))
    if len(wanted) < _MIN_QUOTED_CHARS:
        return None
    texts = ((job, "\n".join(_texts(job.payload))[:_MAX_QUOTED_CHARS]) for job in reversed(jobs))
    return next((job for job, text in texts if wanted in _squeeze(text)), None)


def _squeeze(text: str) -> str:
    """The text without white space and Markdown's emphasis, which a quote leaves out."""
    return re.sub(r"[\s*_`]+", "", text)


def _texts(value: object) -> Iterator[str]:
    """Every text in a payload."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, object]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _texts(inner)


async def store_observations(conn: Conn, team_id: UUID, cited: Mapping[UUID, Sequence[CitedObservation]]) -> dict[UUID, list[int]]:
    """Store the team's observations, of each lane, with their numbers, sources and an audit entry; returns the numbers by lane."""
    entries = [_audit_entry(of_lane) for of_lane in cited.values() if of_lane]
    if not entries:
        return {}
    await audit_log.append_all(conn, team_id, entries)
    # The counter's row stays locked until the commit: everything else comes first.
    numbers = iter(await observations.take_numbers(conn, team_id, sum(map(len, cited.values()))))
    numbered = [
        (lane, observation, msgspec.structs.replace(observation.row, number=next(numbers)))
        for lane, of_lane in cited.items()
        for observation in of_lane
    ]
    made: dict[UUID, list[int]] = {}
    for project_id in sorted({observation.jobs[0].project_id for _, observation, _ in numbered}):
        of_project = [it for it in numbered if it[1].jobs[0].project_id == project_id]
        inserted = await observations.insert(conn, team_id, project_id, [row for _, _, row in of_project])
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
            for _, observation, _ in of_project
            for job in observation.jobs
        ]
        await observations.insert_sources(conn, team_id, project_id, sources)
        decided = {it.row.generation_key for _, it, _ in of_project if it.row.type == "decision" and it.may_wait}
        rules = [row.id for row in inserted if row.generation_key in decided]
        held = {row.number for row in await approvals.hold(conn, team_id, rules)} if rules else set[int]()
        for lane, observation, _ in of_project:
            number = stored[observation.row.generation_key].number
            made.setdefault(lane, []).append(number)
            if observation.closes and number not in held:
                state: ObservationState = "dropped" if observation.drops else "done"
                await observations.close(conn, team_id, project_id, observation.closes, number, state)
    return made


def _audit_entry(cited: Sequence[CitedObservation]) -> NewAuditEntry:
    first = cited[0].jobs[0]
    return NewAuditEntry(
        project_id=first.project_id,
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
