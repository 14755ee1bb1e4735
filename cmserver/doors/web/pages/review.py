"""Review: pairs of observations that seem to say the same, or to contradict each other, decided one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

import msgspec
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import parse_id
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.consolidation import relate, review
from cmserver.consolidation.combine import undo
from cmserver.consolidation.marks import compared_text
from cmserver.consolidation.model import Relation, Suggestion, SuggestionStatus
from cmserver.consolidation.wording import MergeWriter
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import BADGES, list_projects, names_of_projects, title_of
from cmserver.doors.web.visit import Visit
from cmserver.doors.web.word_diff import WordDiff, compare_all
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.model import Correction, Observation, ObservationState
from cmserver.observations.read import find_observation, read_batch
from cmserver.observations.wire import type_shown
from cmserver.observations.write import correct
from cmserver.steward import repository as steward

_PAGE = 10
_MAX_CHARS = 1_500
"""Of each text; the whole stands on its own page."""
_KEPT = "kept both in review"
"""The context of a relation that keeping both makes."""
_HELD = "holds by review"
_WAS: dict[ObservationState | None, str] = {None: _HELD, "open": f"{_HELD}, it was open", "done": f"{_HELD}, it was done"}
"""The context of a relation from the one of a pair that holds to the other, by the other's state before."""
_RELATIONSHIPS = {"same": "RELATED_TO", "related": "RELATED_TO", "contradicts": "CONTRADICTS"}


class ReviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown, in the address. `last` is the suggestion that was decided last, to be undone."""

    project: Text | None = None
    about: Literal["same", "contradictions"] = "same"
    status: SuggestionStatus = "open"
    last: UUID | None = None
    cursor: str | None = None


class ReviewedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One of a pair."""

    observation: Observation
    title: str
    type: str
    is_cut: bool


class ShownPair(msgspec.Struct, frozen=True, kw_only=True):
    """A suggestion with both texts, the older one first. Either is None where it is not shown any more."""

    suggestion: Suggestion
    older: ReviewedObservation | None
    newer: ReviewedObservation | None
    diff: WordDiff | None
    project: str
    verdict: dict[str, object] | None
    """What the steward decided last about it."""


async def get_review(visit: Visit) -> Response:
    """Pairs that seem to say the same, side by side word by word, and contradictions: to be merged, kept or dismissed."""
    filters = visit.query(ReviewQuery)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    async with visit.tenant() as conn:
        page, next_cursor = await review.list_suggestions(
            conn,
            principal,
            project_id=project_id,
            status=filters.status,
            contradictions=filters.about == "contradictions",
            limit=_PAGE,
            cursor=filters.cursor,
        )
        numbers = [number for suggestion in page for number in suggestion.merge_order()]
        batch = await read_batch(conn, principal, numbers) if numbers else None
        by_number = {row.number: row for row in batch.observations} if batch else {}
        names = await names_of_projects(conn, principal, {suggestion.project_id for suggestion in page})
        projects = await list_projects(conn, principal)
        others, _ = await review.list_suggestions(
            conn, principal, project_id=project_id, status="open", contradictions=filters.about != "contradictions", limit=_PAGE
        )
        last = await review.find_suggestion(conn, principal, filters.last) if filters.last else None
        verdicts = await steward.verdicts(conn, principal.team_id, [suggestion.id for suggestion in page])
    diffs = await _compare(visit, page, by_number)
    return visit.render(
        "review.html",
        title="Review" if filters.about == "same" else "Contradictions",
        pairs=[_shown_pair(suggestion, by_number, names, verdicts, diffs.get(suggestion.id)) for suggestion in page],
        projects=projects,
        filters=filters,
        badges=BADGES,
        others=len(others),
        page_rows=_PAGE,
        last=last if last and last.status != "open" else None,
        parameters={**msgspec.structs.asdict(filters), "last": None},
        next_cursor=next_cursor,
        may_decide=visit.may("observations:write"),
    )


async def _compare(visit: Visit, page: Sequence[Suggestion], by_number: Mapping[int, Observation]) -> dict[UUID, WordDiff]:
    """Where the texts differ, of the pairs that are both shown."""
    orders = {suggestion.id: suggestion.merge_order() for suggestion in page}
    both = {id_: order for id_, order in orders.items() if by_number.keys() >= set(order)}
    shown = {number: compared_text(row)[:_MAX_CHARS] for number, row in by_number.items()}
    texts = [(shown[older], shown[newer]) for older, newer in both.values()]
    return dict(zip(both, await compare_all(visit.team_id, texts), strict=True))


def _shown_pair(
    suggestion: Suggestion,
    by_number: dict[int, Observation],
    names: dict[UUID, str],
    verdicts: dict[UUID, dict[str, object]],
    diff: WordDiff | None,
) -> ShownPair:
    older_number, newer_number = suggestion.merge_order()
    older, newer = by_number.get(older_number), by_number.get(newer_number)
    return ShownPair(
        suggestion=suggestion,
        older=_shown(older) if older else None,
        newer=_shown(newer) if newer else None,
        diff=diff,
        project=names.get(suggestion.project_id, ""),
        verdict=verdicts.get(suggestion.id),
    )


def _shown(observation: Observation) -> ReviewedObservation:
    return ReviewedObservation(
        observation=observation,
        title=title_of(observation),
        type=type_shown(observation.kind, observation.type),
        is_cut=len(compared_text(observation)) > _MAX_CHARS,
    )


class DecisionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What stays (`into`) when a pair is merged, and the filters of the page to come back to."""

    into: int | None = None
    strategy: MergeStrategy = "smart_merge"
    project: Text | None = None
    about: Literal["same", "contradictions"] = "same"


def _suggestion_id(visit: Visit) -> UUID:
    suggestion_id = parse_id(visit.parameter("id").lower())
    if suggestion_id is None:
        raise NotFound(review.NO_SUCH)
    return suggestion_id


def _back(visit: Visit, form: DecisionForm, notice: str, last: UUID | None = None) -> Response:
    return visit.redirect("/ui/review", notice, project=form.project, about=None if form.about == "same" else form.about, last=last)


async def post_merge(visit: Visit) -> Response:
    """Merge a pair, either way."""
    form = await visit.form(DecisionForm)
    suggestion_id, principal = _suggestion_id(visit), visit.principal
    wording = await visit.dependency(MergeWriter).word_suggestion(principal, suggestion_id, form.strategy, form.into)
    suggestion, _ = await visit.db.in_tenant(
        visit.team_id,
        lambda conn: review.resolve_suggestion(conn, principal, suggestion_id, "accepted", form.strategy, wording, form.into),
    )
    target, source = suggestion.merge_order(form.into)
    return _back(visit, form, f"#{source} is merged into #{target}.", suggestion_id)


async def post_dismiss(visit: Visit) -> Response:
    """Dismiss a suggestion: the pair is not suggested again."""
    form = await visit.form(DecisionForm)
    suggestion_id, principal = _suggestion_id(visit), visit.principal
    suggestion, _ = await visit.db.in_tenant(
        visit.team_id, lambda conn: review.resolve_suggestion(conn, principal, suggestion_id, "dismissed")
    )
    older, newer = suggestion.merge_order()
    return _back(visit, form, f"Dismissed: #{older} and #{newer} are not suggested again.", suggestion_id)


async def post_keep(visit: Visit) -> Response:
    """Keep both of a pair, and relate them to each other; the pair is not suggested again."""
    form = await visit.form(DecisionForm)
    suggestion_id, principal = _suggestion_id(visit), visit.principal

    async def act(conn: Conn) -> Suggestion:
        suggestion, _ = await review.resolve_suggestion(conn, principal, suggestion_id, "dismissed")
        older, newer = suggestion.merge_order()
        relationship = _RELATIONSHIPS[suggestion.reason]
        await _relate(conn, principal, newer, older, relationship, suggestion.similarity, _KEPT)
        return suggestion

    suggestion = await visit.db.in_tenant(visit.team_id, act)
    older, newer = suggestion.merge_order()
    return _back(visit, form, f"Kept: #{older} and #{newer} are related to each other.", suggestion_id)


async def _relate(conn: Conn, principal: Principal, from_: int, to: int, relationship: str, strength: float, context: str) -> None:
    """Relate them; a relation that somebody made before stays as it is."""
    related = await relate.read_related(conn, principal, str(from_), relationships=[relationship], depth=1)
    if all((relation.from_number, relation.to_number) != (from_, to) for relation in related.relations):
        await relate.relate(conn, principal, str(from_), str(to), relationship, strength, context)


async def post_holds(visit: Visit) -> Response:
    """Say which one of a contradicting pair holds: the other no longer does, and the pair is not suggested again."""
    form = await visit.form(DecisionForm)
    suggestion_id, principal = _suggestion_id(visit), visit.principal

    async def act(conn: Conn) -> tuple[int, int]:
        suggestion, _ = await review.resolve_suggestion(conn, principal, suggestion_id, "dismissed")
        kept, other = suggestion.merge_order(form.into)
        observation = await find_observation(conn, principal, str(other))
        if observation.state != "dropped":
            await correct(conn, principal, str(other), Correction(state="dropped"))
            await _relate(conn, principal, kept, other, "CONTRADICTS", suggestion.similarity, _WAS[observation.state])
        return kept, other

    kept, other = await visit.db.in_tenant(visit.team_id, act)
    return _back(visit, form, f"#{kept} holds: #{other} no longer does.", suggestion_id)


async def post_undo(visit: Visit) -> Response:
    """Undo a decision: both observations are shown, and the pair is suggested again."""
    form = await visit.form(DecisionForm)
    suggestion_id, principal = _suggestion_id(visit), visit.principal

    async def act(conn: Conn) -> tuple[Suggestion, str]:
        suggestion, left = await review.find_suggestion(conn, principal, suggestion_id), ""
        older, newer = suggestion.merge_order()
        if suggestion.status == "accepted":
            merged = (await read_batch(conn, principal, [older, newer])).observations
            if len(merged) == 1:
                await undo(conn, principal, str(merged[0].number))
        elif suggestion.status == "dismissed":
            related = await relate.read_related(conn, principal, str(newer), relationships=None, depth=1)
            for relation in related.relations:
                if {relation.from_number, relation.to_number} != {older, newer}:
                    continue
                context = relation.context or ""
                if context.startswith(_HELD):
                    state = _state_before(relation)
                    await relate.unrelate(conn, principal, relation.id)
                    await correct(conn, principal, str(relation.to_number), Correction(state=state))
                elif context == _KEPT:
                    await relate.unrelate(conn, principal, relation.id)
            pair = (await read_batch(conn, principal, [older, newer])).observations
            left = "".join(
                f" #{one.number} still no longer holds: its page changes that." for one in pair if one.state == "dropped"
            )
        return await review.reopen_suggestion(conn, principal, suggestion_id), left

    suggestion, left = await visit.db.in_tenant(visit.team_id, act)
    older, newer = suggestion.merge_order()
    return _back(visit, form, f"Undone: #{older} and #{newer} wait for a decision again.{left}")


def _state_before(relation: Relation) -> ObservationState | None:
    """The state that the other one had before this one was said to hold; Conflict where the relation is not of the review."""
    states: list[ObservationState | None] = [state for state, context in _WAS.items() if context == relation.context]
    if relation.relationship != "CONTRADICTS" or not states:
        raise Conflict(
            f"The relation of #{relation.from_number} to #{relation.to_number} does not tell what the review did: "
            "delete it, and undo again."
        )
    return states[0]


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/review", get_review, scope="observations:read"),
    Page("POST", "/ui/review/{id}/merge", post_merge, scope=_WRITE, form_of=get_review),
    Page("POST", "/ui/review/{id}/keep", post_keep, scope=_WRITE, form_of=get_review),
    Page("POST", "/ui/review/{id}/holds", post_holds, scope=_WRITE, form_of=get_review),
    Page("POST", "/ui/review/{id}/dismiss", post_dismiss, scope=_WRITE, form_of=get_review),
    Page("POST", "/ui/review/{id}/undo", post_undo, scope=_WRITE, form_of=get_review),
]
