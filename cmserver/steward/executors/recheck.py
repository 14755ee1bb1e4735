"""Marks what an observation says of a file as stale when later tool calls of its project say otherwise. No file is read."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms
from cmserver.base.sentences import split_sentences
from cmserver.base.sql import Conn
from cmserver.consolidation.marks import compared_text, read_marks
from cmserver.events import repository as events
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation, StaleMark
from cmserver.observations.stale import mark_stale
from cmserver.steward.ask import ModelAsker
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.executors.file_history import PathChange, defined_values, is_about, mentions, read_path_changes
from cmserver.steward.model import Effect, JobContext, Plan, PlanResult

CALLS_AT_ONCE = 2_000
"""At most this many tool calls are read in a run; the next run goes on from there."""
_CLAIMS_AT_ONCE = 5_000
_MAX_MARKS = 200
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[._]\d+)*(?![\w])")


class RecheckPayload(JobPayload, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time of receipt of the tool calls to read, behind the first and up to the second."""

    since: datetime | None
    until: datetime


class StaleProposal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation to mark, as it was judged."""

    observation_id: UUID
    number: int
    version: int
    mark: StaleMark


class Recheck(Executor[RecheckPayload]):
    """The executor `recheck`."""

    async def prepare(self, db: Db, asker: ModelAsker, context: JobContext, payload: RecheckPayload) -> Plan:  # noqa: ARG002
        """Which observations of the project do not hold any more, and by which call."""
        job = context.job
        async with db.tenant(job.team_id) as conn:
            rows = await events.tool_uses(
                conn, job.team_id, job.project_id, since=payload.since, until=payload.until, limit=CALLS_AT_ONCE
            )
        # A full page ends before its last moment, of which it may not have all.
        calls = [row for row in rows if len(rows) < CALLS_AT_ONCE or row.received_at < rows[-1].received_at]
        changes = await asyncio.to_thread(read_path_changes, calls)
        claims: list[Observation] = []
        if changes:
            names = {f"{change.path}/" if change.is_folder else posixpath.basename(change.path) for change in changes}
            async with db.tenant(job.team_id) as conn:
                claims = await observations.naming_files(conn, job.team_id, job.project_id, names, _CLAIMS_AT_ONCE)
        proposals = await asyncio.to_thread(judge_claims, claims, changes)
        facts = {"calls": len(calls), "fileChanges": len(changes), "claims": len(claims)}
        return Plan(
            decision="mark" if proposals else "nothing",
            reasons=sorted({proposal.mark.reason for proposal in proposals}) or ["nothing_changed"],
            confidence=1.0 if proposals else None,
            proposals=list(proposals[:_MAX_MARKS]),
            is_cut=len(proposals) > _MAX_MARKS,
            input=facts,
            read_to=payload.until if len(rows) < CALLS_AT_ONCE else calls[-1].received_at,
        )

    async def apply(self, conn: Conn, context: JobContext, plan: Plan) -> PlanResult:
        """Mark those that still say what was judged."""
        effects: list[Effect] = []
        skipped: list[str] = []
        for proposal in plan.proposals:
            assert isinstance(proposal, StaleProposal)
            marked = await mark_stale(conn, context.job.principal, proposal.observation_id, proposal.version, proposal.mark)
            if marked is None:
                skipped.append(f"#{proposal.number} changed_meanwhile")
                continue
            effects.append(Effect(kind="marked_stale", observation_id=marked.id, number=marked.number, version=marked.version))
        return PlanResult(effects=effects, skipped=skipped)


def judge_claims(claims: Sequence[Observation], changes: Sequence[PathChange]) -> list[StaleProposal]:
    """The observations that do not hold any more after all of these calls, each with the call that says so."""
    return [
        StaleProposal(observation_id=claim.id, number=claim.number, version=claim.version, mark=mark)
        for claim in claims
        if claim.stale is None and (mark := _judge_claim(claim, changes)) is not None
    ]


def _judge_claim(claim: Observation, changes: Sequence[PathChange]) -> StaleMark | None:
    later = [change for change in changes if change.at > claim.created_at]
    if not later:
        return None
    text = compared_text(claim)
    for path in _claimed_paths(claim, text):
        about = [change for change in later if is_about(change, path)]
        if about and (mark := _judge_file(path, text, about)) is not None:
            return mark
    return None


def _claimed_paths(claim: Observation, text: str) -> list[str]:
    """The files that the text names: what merely was read or changed on the way makes no claim about a file."""
    files = [*(claim.files_modified or ()), *(claim.files_read or ()), *(claim.anchors or ())]
    named = [token.text for token in read_marks(text).tokens.values() if token.kind == "path"]
    known = [path for path in files if "." in path and (path in text or posixpath.basename(path) in named)]
    return list(dict.fromkeys([*known, *named]))


def _judge_file(path: str, text: str, changes: Sequence[PathChange]) -> StaleMark | None:
    """What of the text does not hold after these calls, which were about the file; None when all may hold."""
    gone: StaleMark | None = None
    changed: dict[str, StaleMark] = {}
    values = _claimed_values(text)
    for change in changes:
        match change.act:
            case "deleted":
                gone = _mark("deleted", path, change)
            case "moved":
                gone = _mark("moved", path, change, change.name)
            case "restored":
                gone = None
            case "edited" | "written":
                gone = None
                for name, claimed in values.items():
                    changed |= _judge_edit(path, name, claimed, change)
                    if name in changed and _is_back(name, claimed, change):
                        del changed[name]
    return gone or next(iter(changed.values()), None)


def _judge_edit(path: str, name: str, claimed: set[str], change: PathChange) -> dict[str, StaleMark]:
    """The mark of a name whose definition the edit took away, or gave another value than the one claimed."""
    before = defined_values(change.before, name) if change.before is not None else None
    after = defined_values(change.after, name)
    if before is None:  # written whole: what it said before is not known
        if after and claimed and not any(claimed & _numbers(value) for value in after):
            return {name: _mark("changed", path, change, name)}
        return {}
    if before and not after and not mentions(change.after, name):
        return {name: _mark("removed", path, change, name)}
    held = {value for line in before for value in _numbers(line)} & claimed
    now = {value for line in after for value in _numbers(line)}
    if held and after and not held & now:
        return {name: _mark("changed", path, change, name)}
    return {}


def _is_back(name: str, claimed: set[str], change: PathChange) -> bool:
    """Whether the name is defined again as it was claimed."""
    after = defined_values(change.after, name)
    return bool(after) and (not claimed or any(claimed & _numbers(value) for value in after))


def _claimed_values(text: str) -> dict[str, set[str]]:
    """The names in the text that code may define, each with the numbers that stand in one sentence with it."""
    values: dict[str, set[str]] = {}
    for sentence in split_sentences(text):
        names = [token.text for token in read_marks(sentence).tokens.values() if token.kind == "identifier"]
        for name in names:
            values.setdefault(name, set()).update(_numbers(sentence))
    return values


def _numbers(text: str) -> set[str]:
    return {match.replace("_", "") for match in _NUMBER.findall(text)}


def _mark(reason: str, path: str, change: PathChange, name: str = "") -> StaleMark:
    return msgspec.convert(
        {"reason": reason, "path": path, "name": name, "eventId": change.event_id, "markedAtEpoch": epoch_ms(change.at)}, StaleMark
    )
