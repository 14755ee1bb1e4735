"""Derives one observation from several of several sessions, cites all of them, and stores it when it says something new."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.marks import compared_text, read_marks
from cmserver.consolidation.model import DERIVED_FROM, NewRelation
from cmserver.models.providers.model import Prompt
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import (
    OF_SEVERAL,
    TITLE_MOST,
    NewObservation,
    Observation,
    ObservationFilter,
    compose,
    estimate_tokens,
)
from cmserver.steward.ask import DerivedAnswer, ModelAsker
from cmserver.steward.derivations import repository as derivations
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.executors.recurring import (
    MIN_SESSIONS,
    RecurringFailure,
    find_recurring,
    list_new_words,
    list_words,
    measure_novelty,
    source_ids,
)
from cmserver.steward.model import STEWARD, Effect, JobContext, ModelCall, NewDerivation, Plan, PlanResult

_LOOKED_AT = 2_000
"""The newest observations of a project are looked at."""
_MAX_DERIVED = 3
"""At most this many are derived in a run."""
_MAX_NOTES, _MAX_NOTE_CHARS = 8, 600
"""What a model is asked about: so many notes, and so much of each."""
_IMPORTANCE = 0.7
_MAX_NEW_WORDS_SHARE = 0.2


class DerivePayload(JobPayload, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing but the mode: the project is the job's."""


class DerivedProposal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation to derive. `versions` are those of its sources, by number."""

    kind: str
    title: str
    narrative: str
    facts: list[str]
    files: list[str]
    sources: list[UUID]
    versions: dict[str, int]
    fingerprint: str
    confidence: float
    novelty: float
    model: str | None = None


class Derive(Executor[DerivePayload]):
    """The executor `derive`."""

    async def prepare(self, db: Db, asker: ModelAsker, context: JobContext, payload: DerivePayload) -> Plan:
        """By rule where the same error was mended in the same way three times; else by a model, whose citations are checked."""
        job = context.job
        async with db.tenant(job.team_id) as conn:
            # History is told, and nothing concluded from it.
            wanted = ObservationFilter(project_id=job.project_id, without_history=True)
            rows = await observations.newest(conn, job.team_id, wanted, limit=_LOOKED_AT)
            known = await derivations.fingerprints(conn, job.team_id, job.project_id, with_candidates=payload.mode == "dry_run")
            project = await access.project(conn, job.team_id, job.project_id)
        rows = [row for row in rows if row.kind != "summary"]
        notes = [row for row in rows if row.agent != STEWARD and row.stale is None]
        proposals = await asyncio.to_thread(_derive_by_rule, notes, rows, known)
        call: ModelCall | None = None
        reasons: list[str] = []
        refused: list[DerivedProposal] = []
        if not proposals and asker.has_model and project is not None:
            group = await asyncio.to_thread(_choose_group, notes, known)
            if group:
                stored = [compared_text(row)[:_MAX_NOTE_CHARS] for row in group]
                prompt = Prompt(kind="derive", project=project.canonical_id, stored=stored)
                answered = await asker.ask(job.team_id, job.project_id, prompt, DerivedAnswer)
                call = answered.call
                if answered.answer is None:
                    reason = answered.refusal or "model_failed"
                    return Plan(decision="nothing", reasons=[reason], call=call, tries_again=True)
                proposal, reason = await asyncio.to_thread(_check_answer, answered.answer, group, rows, call)
                if reason is None:
                    proposals = [proposal]
                else:
                    refused, reasons = [proposal], [reason]
        faults = {proposal.fingerprint: _faults(proposal, context.policies) for proposal in proposals}
        good = [proposal for proposal in proposals if not faults[proposal.fingerprint]]
        facts = {"observations": len(rows), "candidates": len(proposals)}
        if not good:
            reasons += sorted({fault for found in faults.values() for fault in found})
            refused += [proposal for proposal in proposals if proposal.model is not None]
            return Plan(decision="nothing", reasons=reasons or ["nothing_recurs"], input=facts, call=call, refused=list(refused))
        return Plan(
            decision="derive",
            reasons=["same_error_and_remedy" if call is None else "model_sees_common"],
            confidence=min(proposal.confidence for proposal in good),
            proposals=list(good[:_MAX_DERIVED]),
            input=facts,
            call=call,
        )

    async def apply(self, conn: Conn, context: JobContext, plan: Plan) -> PlanResult:
        """Store what was derived from observations that still say the same."""
        job = context.job
        await history.lock_project(conn, job.project_id)
        effects: list[Effect] = []
        skipped: list[str] = []
        for proposal in plan.proposals:
            assert isinstance(proposal, DerivedProposal)
            sources = await observations.by_ids(conn, job.team_id, proposal.sources)
            if {str(row.number): row.version for row in sources} != proposal.versions:
                skipped.append("changed_meanwhile")
                continue
            derivation_id = await _keep_record(conn, context, proposal, "accepted")
            if derivation_id is None:
                skipped.append("derived_already")
                continue
            effect = await _store(conn, context, proposal, sorted(sources, key=lambda row: row.number))
            assert effect.observation_id is not None
            await derivations.set_observation(conn, job.team_id, derivation_id, effect.observation_id)
            effects.append(effect)
        return PlanResult(effects=effects, skipped=skipped)

    async def decline(self, conn: Conn, context: JobContext, plan: Plan) -> None:
        """Keep what would be derived as a candidate, and what a model was asked in vain, so that it is not asked again."""
        await history.lock_project(conn, context.job.project_id)
        for proposal in plan.proposals:
            assert isinstance(proposal, DerivedProposal)
            await _keep_record(conn, context, proposal, "candidate")
        for proposal in plan.refused:
            assert isinstance(proposal, DerivedProposal)
            await _keep_record(conn, context, proposal, "skipped")


async def _keep_record(
    conn: Conn, context: JobContext, proposal: DerivedProposal, status: Literal["accepted", "candidate", "skipped"]
) -> UUID | None:
    """The record's id; None when it was derived, undone or refused before."""
    job = context.job
    payload: dict[str, object] = {"title": proposal.title, "narrative": proposal.narrative, "facts": proposal.facts}
    return await derivations.keep(
        conn,
        NewDerivation(
            team_id=job.team_id,
            project_id=job.project_id,
            run_id=context.run_id,
            fingerprint=proposal.fingerprint,
            source_ids=proposal.sources,
            derivation_type=proposal.kind,
            confidence=proposal.confidence,
            novelty=proposal.novelty,
            status=status,
            model=proposal.model,
            payload=payload if status == "candidate" else {},  # what is stored says it itself
        ),
    )


async def _store(conn: Conn, context: JobContext, proposal: DerivedProposal, sources: Sequence[Observation]) -> Effect:
    """The new observation with its relations; it is never suggested to be merged with a source."""
    job = context.job
    content = compose(proposal.title, None, proposal.narrative, proposal.facts)
    observation_id = new_id()
    await audit.record(
        conn,
        job.principal,
        "observations.created",
        "project",
        job.project_id,
        project_id=job.project_id,
        observations=[str(observation_id)],
    )
    (number,) = await observations.take_numbers(conn, job.team_id, 1)
    new = NewObservation(
        id=observation_id,
        number=number,
        kind="observation",
        type="discovery",
        origin="rules" if proposal.model is None else "model",
        title=proposal.title,
        narrative=proposal.narrative,
        facts=proposal.facts or None,
        concepts=["pattern"],
        files_read=proposal.files or None,
        importance=_IMPORTANCE,
        content=content,
        read_tokens=estimate_tokens(content),
        generation_key=f"steward:{proposal.fingerprint}:{context.run_id}",
        metadata={"derivedFrom": [row.number for row in sources]},
        agent=STEWARD,
        person_id=OF_SEVERAL,
    )
    await observations.insert(conn, job.team_id, job.project_id, [new])
    for source in sources:
        relation = NewRelation(
            from_id=new.id,
            from_project_id=job.project_id,
            to_id=source.id,
            to_project_id=source.project_id,
            relationship=DERIVED_FROM,
            strength=proposal.confidence,
        )
        await consolidation.relate(conn, job.team_id, relation)
    stored = await observations.by_id(conn, job.team_id, new.id)
    assert stored is not None
    await consolidation.dismiss(conn, stored, [row.id for row in sources], similarity=1.0, resolved_by=STEWARD)
    await announce.notify_stream(conn)
    numbers = [row.number for row in sources]
    return Effect(kind="derived", observation_id=new.id, number=number, version=stored.version, source_numbers=numbers)


def _derive_by_rule(notes: Sequence[Observation], rows: Sequence[Observation], known: set[str]) -> list[DerivedProposal]:
    """What recurs and is not known. The rows are read once for all, as reading one takes a millisecond."""
    recurring = [failure for failure in find_recurring(notes) if failure.fingerprint not in known]
    words = {row.id: list_words(row) for row in rows} if recurring else {}
    return [_propose(failure, words) for failure in recurring]


def _propose(recurring: RecurringFailure, words_by_id: Mapping[UUID, frozenset[str]]) -> DerivedProposal:
    sources = [failure.observation for failure in recurring.sources]
    ids = set(source_ids(recurring.sources))
    first = min(recurring.sources, key=lambda failure: len(failure.error_words))
    words = first.error_words | first.remedy_words
    cited = ", ".join(f"#{row.number}" for row in sources)
    return DerivedProposal(
        kind="recurring_failure",
        title=f"Recurring: {recurring.error}"[:TITLE_MOST],
        narrative=f"{recurring.sessions} sessions met it ({cited}), and the same helped each time.",
        facts=[f"Error: {recurring.error}", f"Remedy: {recurring.remedy}"],
        files=_files(sources),
        sources=[row.id for row in sources],
        versions={str(row.number): row.version for row in sources},
        fingerprint=recurring.fingerprint,
        confidence=min(0.95, 0.85 + 0.05 * (recurring.sessions - MIN_SESSIONS)),
        novelty=round(measure_novelty(words, (other for id_, other in words_by_id.items() if id_ not in ids)), 3),
    )


def _choose_group(notes: Sequence[Observation], known: set[str]) -> list[Observation]:
    """The largest group of notes about one file, of at least three sessions, that no model was asked about; empty without one."""
    by_file: dict[str, list[Observation]] = defaultdict(list)
    for row in notes:
        for path in {*(row.files_modified or ()), *(row.files_read or ()), *(row.anchors or ())}:
            by_file[path].append(row)
    newest = [sorted(group, key=lambda row: row.number)[-_MAX_NOTES:] for group in by_file.values()]
    groups = [
        group
        for group in newest
        if len({row.server_session_id or row.created_at.date() for row in group}) >= MIN_SESSIONS
        and _group_fingerprint(group) not in known
    ]
    return max(groups, key=lambda group: (len(group), group[-1].number)) if groups else []


def _group_fingerprint(group: Sequence[Observation]) -> str:
    ids = ",".join(sorted(str(row.id) for row in group))
    return f"group:{hashlib.sha256(ids.encode()).hexdigest()[:32]}"


def _check_answer(
    answer: DerivedAnswer, group: Sequence[Observation], rows: Sequence[Observation], call: ModelCall | None
) -> tuple[DerivedProposal, str | None]:
    """What the model derived, and why it may not be stored; None when each word and citation of it can be checked."""
    places = sorted({place for place in answer.sources if 1 <= place <= len(group)})
    sources = [group[place - 1] for place in places]
    texts = [text for text in (answer.title, answer.narrative, *answer.facts) if text]
    marks = [read_marks(text) for text in texts]
    words = frozenset(value for mark in marks for value in mark.whole.counts)
    ids = {row.id for row in sources}
    proposal = DerivedProposal(
        kind="common_statement",
        title=answer.title[:TITLE_MOST],
        narrative=f"{answer.narrative} ({', '.join(f'#{row.number}' for row in sources)})".strip(),
        facts=[fact for fact in answer.facts if fact],
        files=_files(sources),
        sources=[row.id for row in sources] or [row.id for row in group],
        versions={str(row.number): row.version for row in sources},
        fingerprint=_group_fingerprint(group),
        confidence=answer.confidence,
        novelty=round(measure_novelty(words, (list_words(row) for row in rows if row.id not in ids)), 3),
        model=call.model if call else None,
    )
    if not answer.common:
        return proposal, "model_sees_nothing_common"
    if len(places) < len(set(answer.sources)) or not answer.title:
        return proposal, "model_cites_unknown"
    if len({row.server_session_id or row.created_at.date() for row in sources}) < MIN_SESSIONS:
        return proposal, "model_cites_too_few"
    new = list_new_words(texts, sources)
    exact = {value for mark in marks for value, token in mark.tokens.items() if token.kind not in {"word", "name"}}
    negates = any(mark.whole.negation_count for mark in marks)
    may_negate = any(read_marks(compared_text(row)).whole.negation_count for row in sources)
    if new & exact or len(new) > _MAX_NEW_WORDS_SHARE * len(words) or (negates and not may_negate):
        return proposal, "model_says_more"
    return proposal, None


def _faults(proposal: DerivedProposal, policies: Mapping[str, float]) -> list[str]:
    """Why a derivation is not to be stored."""
    faults = ["unsure"] if proposal.confidence < policies["derive.confidence"] else []
    return [*faults, "nothing_new"] if proposal.novelty < policies["derive.novelty"] else faults


def _files(sources: Sequence[Observation]) -> list[str]:
    """The files that all sources name."""
    common: set[str] | None = None
    for row in sources:
        files = {*(row.files_modified or ()), *(row.files_read or ())}
        common = files if common is None else common & files
    return sorted(common or ())
