"""Stores observations without repeating what is there: exact repeats once, near ones merged or suggested."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.consolidation import repository
from cmserver.consolidation.combine import merge_alike
from cmserver.consolidation.comparison import repository as comparison
from cmserver.consolidation.difference import differs_in_form
from cmserver.consolidation.marks import compared_text, read_marks
from cmserver.consolidation.model import Suggestion
from cmserver.consolidation.similarity import TextComparison, change_other_files, compare_texts, find_thresholds
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import ObservationText, QueryVector, document_text
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.events.model import Origin
from cmserver.observations import repository as observations
from cmserver.observations.approval import repository as approvals
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change, Measure, MergeStrategy
from cmserver.observations.model import TYPE_FAMILIES, Correction, ManualObservation, Observation, Scope
from cmserver.observations.wire import ObservationIn, OnDuplicate
from cmserver.observations.write import clean_observation, correct, write

CANDIDATES = 5
"""A new observation is compared with so many others."""


class StoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an observation that was to be stored.

    `created`, `held` for a rule that waits for a person's yes, or `repeated`: the one that says it already is returned, or `merged`
    into the one that is returned. `similarity` (0 to 1) is to that one, and `measured_by` says by what; both are None for what was
    created. `suggestions` are near ones.
    """

    observation: Observation
    action: Literal["created", "held", "repeated", "merged"]
    similarity: float | None = None
    measured_by: Measure | None = None
    suggestions: list[Suggestion] = []


class _Match(msgspec.Struct, frozen=True, kw_only=True):
    """A stored observation that was compared with a new one."""

    observation: Observation
    comparison: TextComparison

    @property
    def is_equal(self) -> bool:
        return self.comparison.decision == "merge"

    def is_near(self, text: str, above: float | None) -> bool:
        """Whether the text is nearer than that, and nothing in it differs from the stored one's."""
        if above is None or self.comparison.similarity < above or self.comparison.difference is not None:
            return False
        return not differs_in_form(text, compared_text(self.observation))


class _Plan(msgspec.Struct, kw_only=True):
    """What is to become of a new observation: it repeats a stored one, or another of the request, or is written, and merged."""

    new: ManualObservation
    vector: QueryVector | None
    text_hash: bytes = b""
    repeats: Observation | None = None
    waits_as: Observation | None = None
    """The rule of the same text that waits for a person's yes, or has got none."""
    same_as: int | None = None
    merge_into: _Match | None = None
    near: list[_Match] = []


async def store_observations(
    db: Db,
    projects: Projects,
    embedder: QueryEmbedder,
    principal: Principal,
    new: Sequence[ObservationIn],
    *,
    on_duplicate: OnDuplicate | None = None,
    strategy: MergeStrategy = "smart_merge",
    merge_above: float | None = None,
    size_bytes: int,
    origin: Origin = "api",
    is_batch: bool = False,
) -> list[StoreResult]:
    """Store all of these or none; returns what became of each, in their order.

    `on_duplicate` is for those that say nothing about it themselves. Texts are embedded first, outside of any transaction; then
    each project is locked for as long as it takes to look, decide and write. Observations of one request are compared with stored
    ones, and among each other by their text only. Where they are merged, those nearer than `merge_above` are, too, if nothing
    differs. Errors name the wrong one by its path (`$[3].title`) when it is a batch.
    """
    paths = [f"$[{place}]" if is_batch else "$" for place in range(len(new))]
    for observation, at in zip(new, paths, strict=True):
        if observation.scope == "user":
            raise Invalid.at(f"{at}.scope", "What is yours alone is written by itself, with POST /v1/observations.")
    clean = [
        await clean_observation(projects, principal, observation, at, size_bytes)
        for observation, at in zip(new, paths, strict=True)
    ]
    chosen: list[OnDuplicate] = [observation.on_duplicate or on_duplicate or "keep" for observation in new]
    compared = [place for place, choice in enumerate(chosen) if choice != "keep"]
    texts = [_embedded_text(clean[place]) for place in compared]
    vectors = await embedder.embed_documents(texts) if texts else None
    by_place = dict(zip(compared, vectors or [None] * len(compared), strict=True))
    return await db.in_tenant(
        principal.team_id,
        lambda conn: _store(conn, principal, clean, chosen, by_place, strategy, merge_above, origin),
    )


async def _store(
    conn: Conn,
    principal: Principal,
    new: Sequence[ManualObservation],
    chosen: Sequence[OnDuplicate],
    vectors: dict[int, QueryVector | None],
    strategy: MergeStrategy,
    merge_above: float | None,
    origin: Origin,
) -> list[StoreResult]:
    """One transaction: locks in their order are the projects, the rows that are merged into, the counter."""
    for project_id in sorted({new[place].project_id for place in vectors}):
        await history.lock_project(conn, project_id)
    plans = [_Plan(new=observation, vector=vectors.get(place)) for place, observation in enumerate(new)]
    for place, plan in enumerate(plans):
        if chosen[place] != "keep":
            await _decide(conn, principal, plan, plans[:place], is_merging=chosen[place] == "merge", merge_above=merge_above)
    targets = {plan.merge_into.observation.id for plan in plans if plan.merge_into is not None}
    targets |= {plan.repeats.id for plan in plans if plan.repeats is not None}
    if targets:
        await history.lock(conn, principal.team_id, sorted(targets))
    await _say_again(conn, principal, plans)
    to_write = [plan for plan in plans if plan.repeats is None and plan.same_as is None and plan.waits_as is None]
    rows = await write(conn, principal, [plan.new for plan in to_write], origin=origin) if to_write else []
    written, held = iter(rows), await _find_held(conn, principal, rows)
    results: list[StoreResult] = []
    for plan in plans:
        there = plan.repeats if plan.same_as is None else results[plan.same_as].observation
        if plan.waits_as is not None:
            results.append(StoreResult(observation=plan.waits_as, action="held"))
        elif there is not None:
            results.append(StoreResult(observation=there, action="repeated", similarity=1.0, measured_by="text"))
        else:
            results.append(await _finish(conn, principal, plan, next(written), strategy, held))
    return results


async def _say_again(conn: Conn, principal: Principal, plans: Sequence[_Plan]) -> None:
    """Let what is there already, or stands earlier in the request, be as the repeats say."""
    for plan in plans:
        if plan.repeats is not None:
            plan.repeats = await _hold_again(conn, principal, plan.repeats, plan.new)
        elif plan.same_as is not None:
            plans[plan.same_as].new = _join(plans[plan.same_as].new, plan.new)


async def _find_held(conn: Conn, principal: Principal, written: Sequence[Observation]) -> set[UUID]:
    """Those that wait for a person's yes: nothing is compared with them, or merged."""
    rules = [row.id for row in written if row.type == "decision" and row.expires_at is not None]
    return set(await approvals.unapproved(conn, principal.team_id, rules)) if rules else set()


async def _hold_again(conn: Conn, principal: Principal, there: Observation, again: ManualObservation) -> Observation:
    """What is there and was written again: it holds, for the longer life, the higher importance, and in both scopes.

    A program that says a rule again changes nothing of it, in a team in which a person decides what counts.
    """
    if there.type == "decision" and not principal.is_person and await approvals.is_asking(conn, principal.team_id):
        return there
    lives_longer = there.expires_at is not None and (
        again.ttl_seconds is None or there.expires_at < datetime.now(UTC) + timedelta(seconds=again.ttl_seconds)
    )
    correction = Correction(
        state=None if there.state in {"done", "dropped"} else UNSET,
        stale=None if there.stale is not None else UNSET,
        importance=again.importance if again.importance > there.importance else UNSET,
        ttl_seconds=again.ttl_seconds if lives_longer else UNSET,
        scope="team" if (there.scope, again.scope) == ("project", "team") else UNSET,
    )
    if not correction.fields:
        return there
    return await correct(conn, principal, str(there.id), correction, measured_by="text")


def _join(first: ManualObservation, again: ManualObservation) -> ManualObservation:
    """An observation that is sent twice: as important, shared and long-lived as either says."""
    is_for_good = first.ttl_seconds is None or again.ttl_seconds is None
    return msgspec.structs.replace(
        first,
        importance=max(first.importance, again.importance),
        scope="team" if "team" in (first.scope, again.scope) else "project",
        ttl_seconds=None if is_for_good else max(first.ttl_seconds or 0, again.ttl_seconds or 0),
    )


async def _decide(
    conn: Conn, principal: Principal, plan: _Plan, earlier: Sequence[_Plan], *, is_merging: bool, merge_above: float | None
) -> None:
    """Find what the new observation repeats, and otherwise what it is near to."""
    plan.text_hash = await comparison.hash_of(conn, plan.new)
    # A key that is bound to a project may not change what the whole team shares.
    scopes: Collection[Scope] = {plan.new.scope} if principal.project_id is not None else {"project", "team"}
    same_id = await comparison.exact(conn, principal.team_id, plan.new, plan.text_hash, scopes)
    if same_id is not None:
        plan.repeats = await observations.by_id(conn, principal.team_id, same_id)
    if plan.new.type == "decision" and not principal.is_person and await approvals.is_asking(conn, principal.team_id):
        if plan.repeats is not None and plan.repeats.state in {"done", "dropped"}:
            plan.repeats = None  # that it holds again is what a person is asked
        if plan.repeats is None:
            plan.waits_as = await approvals.waiting_as(conn, principal.team_id, plan.new, plan.text_hash)
    if plan.repeats is not None or plan.waits_as is not None:
        return
    plan.same_as = next((place for place, other in enumerate(earlier) if _is_repeat(plan, other)), None)
    if plan.same_as is not None:
        return
    matches = await find_matches(conn, principal.team_id, plan.new, plan.vector, plan.text_hash)
    if is_merging:
        text = compared_text(plan.new)
        plan.merge_into = next((match for match in matches if match.is_equal or match.is_near(text, merge_above)), None)
    plan.near = [match for match in matches if match.comparison.decision != "none" and match is not plan.merge_into]


async def find_alike(conn: Conn, principal: Principal, observation: Observation) -> list[int]:
    """The numbers of those that say nearly the same by their words, with nothing in them that differs, and hold; nearest first."""
    if observation.kind == "summary":
        return []
    new = reshape(observation, ManualObservation, at="$")
    text_hash = await comparison.hash_of(conn, new)
    matches = await find_matches(conn, principal.team_id, new, None, text_hash)
    alike = [match for match in matches if match.comparison.decision != "none" and match.comparison.difference is None]
    rows = [match.observation for match in alike if match.observation.id != observation.id]
    held = await _find_held(conn, principal, rows)
    return [row.number for row in rows if row.state not in {"done", "dropped"} and row.stale is None and row.id not in held]


async def find_matches(
    conn: Conn, team_id: UUID, new: ManualObservation, vector: QueryVector | None, text_hash: bytes
) -> list[_Match]:
    """The stored observations that are nearest to the new one, nearest first, each with what may become of the pair."""
    types = next(sorted(family) for family in TYPE_FAMILIES if new.type in family)
    cosines: dict[UUID, float] = {}
    if vector is not None:
        near = await comparison.nearest(conn, team_id, new, types, vector, CANDIDATES)
        cosines = {row.id: row.cosine for row in near}
    text = compared_text(new)
    found = set(cosines) or set(await comparison.by_words(conn, new, types, text, CANDIDATES))
    marks = read_marks(text)
    policy = await access.retention_of(conn, team_id, new.project_id)
    thresholds = find_thresholds(vector.provider if vector else "", vector.model if vector else "", policy)
    hashes = await comparison.hashes(conn, team_id, found)
    matches: list[_Match] = []
    for row in await observations.by_ids(conn, team_id, list(found)):
        if change_other_files(new.files_modified, row.files_modified):
            continue
        is_equal = hashes.get(row.id) == text_hash
        compared = compare_texts(marks, read_marks(compared_text(row)), cosines.get(row.id), thresholds, is_equal=is_equal)
        matches.append(_Match(observation=row, comparison=compared))
    return sorted(matches, key=lambda match: (-match.comparison.similarity, match.observation.number))


async def _finish(
    conn: Conn, principal: Principal, plan: _Plan, stored: Observation, strategy: MergeStrategy, held: Collection[UUID]
) -> StoreResult:
    """What else belongs to a new row: its vector, its merge, or suggestions; nothing is merged with a rule that is `held`."""
    if plan.vector is not None:
        await embeddings.fill(conn, principal.team_id, stored.id, plan.vector.model_id, plan.vector.vector)
    if stored.id in held:
        return StoreResult(observation=stored, action="held")
    match = plan.merge_into
    target = await _find_target(conn, stored, match) if match is not None else None
    if match is not None and target is not None:
        change = Change(
            action="merged",
            performed_by=SYSTEM if match.is_equal else principal.actor_id,
            source_ids=[stored.id],
            strategy=strategy,
            similarity=1.0 if match.is_equal else match.comparison.similarity,
            measured_by="text" if match.is_equal else match.comparison.measured_by,
        )
        merged = await merge_alike(conn, principal, target, stored, change)
        if merged is not None:
            return StoreResult(observation=merged, action="merged", similarity=change.similarity, measured_by=change.measured_by)
    return await _suggest(conn, principal, stored, [match, *plan.near] if match is not None else plan.near)


async def _find_target(conn: Conn, stored: Observation, match: _Match) -> Observation | None:
    """What the new row is merged into, as it is now; None when it is gone, or has another text since something else was merged."""
    await history.lock(conn, stored.team_id, [match.observation.id])
    targets = await observations.by_ids(conn, stored.team_id, [match.observation.id])
    if not targets or targets[0].version == match.observation.version:
        return targets[0] if targets else None
    is_equal = await comparison.are_equal(conn, stored.team_id, stored.id, match.observation.id)
    return targets[0] if is_equal else None


async def _suggest(conn: Conn, principal: Principal, stored: Observation, matches: Sequence[_Match]) -> StoreResult:
    """Suggest the new row with each of those that are still there."""
    pairs = [match.comparison.suggest(stored.id, match.observation.id) for match in matches]
    if not pairs:
        return StoreResult(observation=stored, action="created")
    await repository.suggest(conn, principal.team_id, stored.project_id, pairs)
    suggestions = await repository.suggestions(conn, principal.team_id, status="open", observation_id=stored.id, limit=CANDIDATES)
    return StoreResult(observation=stored, action="created", suggestions=suggestions)


def _is_repeat(plan: _Plan, earlier: _Plan) -> bool:
    """Whether two observations of a request say the same."""
    mine, other = plan.new, earlier.new
    return plan.text_hash == earlier.text_hash and (mine.project_id, mine.type, mine.caller_type) == (
        other.project_id,
        other.type,
        other.caller_type,
    )


def _embedded_text(observation: ManualObservation) -> str:
    text = reshape(observation, ObservationText, observation_id=UUID(int=0), summary=None, content=observation.content or "")
    return document_text(text)
