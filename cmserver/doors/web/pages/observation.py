"""One observation: its text, where it came from, what became of it and who was given it; corrected, kept, ended, merged, undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.audit.model import ReaderCount
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Gone, Invalid, NotFound
from cmserver.base.ids import parse_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Text, split_commas, split_lines
from cmserver.consolidation import relate
from cmserver.consolidation.combine import merge_observations, undo
from cmserver.consolidation.history import ForgottenAct, find_forgotten, read_history
from cmserver.consolidation.marks import compared_text
from cmserver.consolidation.model import SYSTEM_RELATIONSHIPS, ExpectedState, Merge, Relation, Relationship
from cmserver.consolidation.store import find_alike
from cmserver.consolidation.wording import MergeWriter
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import (
    BADGES,
    TYPES,
    ObservationItem,
    names_of_projects,
    observation_line,
    session_labels,
    title_of,
)
from cmserver.doors.web.visit import UndoOffer, Visit
from cmserver.doors.web.word_diff import WordDiff, compare_all
from cmserver.events import repository as events
from cmserver.events.model import EventKind
from cmserver.observations import model as observations_model
from cmserver.observations.history.model import ACT_WORDS, Act, MergeStrategy, ObservationVersion
from cmserver.observations.plain import labelled_summary, one_line
from cmserver.observations.read import find_any_observation, find_observation, parse_number, read_observation
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import CorrectionIn, Importance, Title, Words, type_shown
from cmserver.observations.write import correct, delete, expire, promote
from cmserver.personal.keep import take_from_team
from cmserver.personal.model import parse_personal_name
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE
from cmserver.recall.model import ShownReceipt
from cmserver.recall.readers import read_readers
from cmserver.sessions.turns.read import find_turns

_VERSIONS = 20
_SOURCES = 30
_TOOL_CHARS = 80
_STRATEGIES = [
    ("smart_merge", "Each fact and sentence once"),
    ("append", "The whole texts, one after the other"),
    ("latest_wins", "Only the newest text"),
]


class ShownVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and where the text before it and after it differ; without a difference where only labels changed."""

    version: ObservationVersion
    act: str
    diff: WordDiff | None
    sources: list[int]


class ShownRelation(msgspec.Struct, frozen=True, kw_only=True):
    """A relation as seen from the observation of the page."""

    relation: Relation
    is_outward: bool
    other_number: int
    other_title: str | None
    """None where the other is not shown any more."""
    is_systems: bool

    @property
    def words(self) -> str:
        """The relationship as people say it: `depends on`."""
        words = self.relation.relationship.replace("_", " ").lower()
        return f"is {words}" if words in {"related to", "derived from"} else words


class ObservationView(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    observation: observations_model.Observation
    line: ObservationItem
    title: str
    type: str
    project: str | None
    session: str | None
    sources: list[observations_model.ObservationSource]
    events: dict[UUID, str]
    """What each event is that it was made of: `the call of Edit`."""
    source_count: int
    summary: list[tuple[str, str]]
    history: list[ObservationVersion]
    acts: dict[int, Act]
    forgotten: list[ForgottenAct]
    alike: list[int]
    """Where it no longer holds, the numbers of those that say nearly the same and do."""
    relations: list[ShownRelation]
    shown_to: list[ShownReceipt]
    sessions: dict[UUID, str]
    people: list[ReaderCount] | None
    narrative: str | None
    """None where it only repeats the quotation."""
    content: str | None
    """Only where it is not composed of the other texts."""


async def get_observation(visit: Visit) -> Response:
    """One observation whole: its text, sources, history, relations, and who was given it. A turn's number leads to its session, and
    that of what is yours alone to its page.
    """
    name = visit.parameter("observation")
    if (own := parse_personal_name(name)) is not None:
        return visit.redirect(f"/ui/mine/m{own}")
    try:
        async with visit.tenant() as conn:
            view = await _read(conn, visit, name)
    except Gone as error:
        return await _render_gone(visit, name, error)
    except NotFound:
        async with visit.tenant() as conn:
            turn = next(iter((await find_turns(conn, visit.principal, [parse_number(name) or 0])).values()), None)
        if turn is None:
            raise
        return visit.redirect(f"/ui/sessions/{turn.server_session_id}")
    return visit.render(
        "observation.html",
        title=f"#{view.observation.number} {view.title[:60]}",
        view=view,
        versions=(versions := await _shown_versions(visit, view)),
        past=sorted([*versions, *view.forgotten], key=_time_of, reverse=True),
        observation=view.observation,
        badges=BADGES,
        strategies=_STRATEGIES,
        may_change=_may_change(visit, view.observation),
    )


def _time_of(past: ShownVersion | ForgottenAct) -> datetime:
    return past.created_at if isinstance(past, ForgottenAct) else past.version.created_at


def _may_change(visit: Visit, observation: observations_model.Observation) -> bool:
    return visit.may("observations:write") and visit.principal.sees(observation.project_id)


async def _read(conn: Conn, visit: Visit, name: str) -> ObservationView:
    principal = visit.principal
    observation, sources = await read_observation(conn, principal, name)
    related = await relate.read_related(conn, principal, str(observation.id), relationships=None, depth=1)
    history: list[ObservationVersion] = []
    acts: dict[int, Act] = {}
    forgotten: list[ForgottenAct] = []
    shown_to: list[ShownReceipt] = []
    people = None
    if principal.sees(observation.project_id):
        past = await read_history(conn, principal, str(observation.id), _VERSIONS)
        history, acts, forgotten = past.versions, past.acts, past.forgotten
        readers = await read_readers(conn, principal, str(observation.id))
        shown_to, people = readers.shown, readers.people
    titles = {row.id: title_of(row) for row in related.observations}
    session_ids = {receipt.server_session_id for receipt in shown_to} | {observation.server_session_id}
    labels = await session_labels(conn, visit.team_id, [id_ for id_ in session_ids if id_])
    names = await names_of_projects(conn, principal, [observation.project_id])
    composed = observations_model.compose(observation.title, observation.subtitle, observation.narrative, observation.facts)
    is_composed = observation.content in (composed, observation.narrative)
    event_ids = [source.source_id for source in sources[:_SOURCES] if source.source_type == "agent_event"]
    return ObservationView(
        observation=observation,
        line=observation_line(principal, observation, names),
        title=title_of(observation),
        type=type_shown(observation.kind, observation.type, observation.origin, observation.caller_type),
        project=names.get(observation.project_id),
        session=labels.get(observation.server_session_id) if observation.server_session_id else None,
        sources=sources[:_SOURCES],
        events={event.id: _kind_of(event) for event in await events.kinds(conn, principal.team_id, event_ids)},
        source_count=len(sources),
        summary=labelled_summary(observation.summary),
        history=history,
        acts=acts,
        forgotten=forgotten,
        alike=await find_alike(conn, principal, observation) if observation.state == "dropped" else [],
        relations=[_shown_relation(observation.id, relation, titles) for relation in related.relations],
        shown_to=shown_to,
        sessions=labels,
        people=people,
        narrative=None if _repeats_quote(observation) else observation.narrative,
        content=None if is_composed or observation.summary else observation.content,
    )


def _kind_of(event: EventKind) -> str:
    if event.event_type in PROMPT_TYPES:
        return "the prompt"
    if event.tool:
        return f"the call of {one_line(event.tool, _TOOL_CHARS)}"
    return "the reply" if event.event_type == REPLY_TYPE else f"the event {event.event_type.replace('_', ' ')}"


def _repeats_quote(observation: observations_model.Observation) -> bool:
    """Whether the narrative only says whose words they are, which stand below it as a quotation."""
    words = " ".join((observation.narrative or "").split())
    return observation.quote is not None and words == f'The user: "{" ".join(observation.quote.split())}"'


async def _shown_versions(visit: Visit, view: ObservationView) -> list[ShownVersion]:
    """The last first. What came after a change is what stood before the next one, or stands now."""
    numbers = {shown.relation.to_id: shown.relation.to_number for shown in view.relations}
    changes = [version.before for version in view.history if version.before is not None]
    texts = [compared_text(view.observation), *map(compared_text, changes)]
    diffs = iter(await compare_all(visit.team_id, list(zip(texts[1:], texts, strict=False))))
    shown: list[ShownVersion] = []
    for version in view.history:
        diff = next(diffs) if version.before is not None else None
        sources = [numbers[id_] for id_ in version.source_ids if id_ in numbers]
        act = ACT_WORDS[view.acts[version.version]]
        shown.append(ShownVersion(version=version, act=act, diff=None if diff is None or diff.is_same else diff, sources=sources))
    return shown


def _shown_relation(observation_id: UUID, relation: Relation, titles: dict[UUID, str]) -> ShownRelation:
    is_outward = relation.from_id == observation_id
    return ShownRelation(
        relation=relation,
        is_outward=is_outward,
        other_number=relation.to_number if is_outward else relation.from_number,
        other_title=titles.get(relation.to_id if is_outward else relation.from_id),
        is_systems=relation.relationship in SYSTEM_RELATIONSHIPS,
    )


async def _render_gone(visit: Visit, name: str, error: Gone) -> Response:
    """An observation that was merged or has expired: where it went, and how to bring it back. Its text stays hidden."""
    async with visit.tenant() as conn:
        observation = await find_any_observation(conn, visit.principal, name)
        is_known = error.superseded_by is None and visit.principal.sees(observation.project_id)
        forgotten = await find_forgotten(conn, visit.principal, [observation]) if is_known else {}
    return visit.render(
        "observation_gone.html",
        title=f"#{observation.number}",
        status=410,
        observation=observation,
        reason=f"#{observation.number} has expired." if is_known else str(error),
        superseded_by=error.superseded_by,
        forgetting=forgotten.get(observation.number),
        may_change=_may_change(visit, observation),
    )


class EditForm(msgspec.Struct, frozen=True, kw_only=True):
    """The whole observation as it shall be. Facts and concepts stand one on a line; `version` is the one that was edited."""

    version: Annotated[int, Meta(ge=1)]
    type: observations_model.ObservationType
    title: Title | None = None
    subtitle: Words | None = None
    narrative: Words | None = None
    content: Words | None = None
    facts: Text = ""
    concepts: Text = ""
    importance: Importance = 0.5
    scope: observations_model.Scope = "project"
    state: observations_model.ObservationState | None = None


async def get_edit(visit: Visit) -> Response:
    """Edit an observation: its texts and labels. What it was before stays in its history."""
    async with visit.tenant() as conn:
        observation, _ = await read_observation(conn, visit.principal, visit.parameter("observation"))
    return visit.render(
        "observation_edit.html",
        title=f"Edit #{observation.number}",
        observation=observation,
        has_content=_has_content(observation),
        types=TYPES,
    )


def _has_content(observation: observations_model.Observation) -> bool:
    """Whether it has a text of its own beside those of which a content is composed."""
    composed = observations_model.compose(observation.title, observation.subtitle, observation.narrative, observation.facts)
    return observation.content not in (composed, observation.narrative)


async def post_edit(visit: Visit) -> Response:
    """Edit an observation."""
    form = await visit.form(EditForm)
    name = visit.parameter("observation")
    async with visit.tenant() as conn:
        observation = await find_observation(conn, visit.principal, name)
    changes = _changes(form, observation)
    sent = msgspec.convert(changes, CorrectionIn)
    size_bytes = sum(len(str(value)) for value in changes.values())
    correction = await tidy_correction(
        reshape(sent, observations_model.Correction),
        size_bytes=size_bytes,
    )

    async def act(conn: Conn) -> observations_model.Observation:
        current = await find_observation(conn, visit.principal, name)
        if current.version != form.version:
            raise Conflict("Somebody changed it since you opened this form. Open it in another tab, and compare.")
        return await correct(conn, visit.principal, name, correction)

    corrected = await visit.db.in_tenant(visit.team_id, act)
    notice = f"#{corrected.number} is edited." if changes else "Nothing was changed."
    offer = UndoOffer(corrected.number, corrected.version) if changes else None
    return visit.redirect(f"/ui/observations/{corrected.number}", notice, undo=offer)


def _changes(form: EditForm, observation: observations_model.Observation) -> dict[str, object]:
    """The fields of the form that differ from the observation, by their names on the wire."""
    wanted: dict[str, object] = {
        "type": form.type,
        "title": form.title,
        "subtitle": form.subtitle,
        "narrative": form.narrative and form.narrative.replace("\r\n", "\n"),
        "facts": split_lines(form.facts),
        "concepts": split_lines(form.concepts),
        "importance": form.importance,
        "scope": form.scope,
        "state": form.state,
    }
    if _has_content(observation):
        wanted["content"] = (form.content or "").replace("\r\n", "\n")
    return {name: value for name, value in wanted.items() if not _is_same(getattr(observation, name), value)}


def _is_same(stored: object, wanted: object) -> bool:
    """Whether the field came back as the form showed it: numbers with two digits, lines ended as browsers end them."""
    if isinstance(wanted, float) and isinstance(stored, float):
        return f"{stored:.2f}" == f"{wanted:.2f}"
    if isinstance(wanted, str) and isinstance(stored, str):
        return _typed(stored) == _typed(wanted)
    if isinstance(wanted, list) and isinstance(stored, list):
        return [*map(_typed, cast("list[str]", stored))] == [*map(_typed, cast("list[str]", wanted))]
    return (stored or None) == (wanted or None)


def _typed(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


class ActForm(msgspec.Struct, frozen=True, kw_only=True):
    """The page to come back to after an act on an observation."""

    back: Annotated[Text, Meta(max_length=4_000)] | None = None


class UndoForm(ActForm, frozen=True, kw_only=True):
    """And what the observation is with the change that is undone, so far as the page says it."""

    version: Annotated[int, Meta(ge=1)] | None = None
    expired: bool = False


Change = Callable[[Conn, Principal, str], Awaitable[observations_model.Observation]]


async def _act(
    visit: Visit,
    change: Change,
    notice: str,
    *,
    team_notice: str = "",
    can_undo: bool = True,
    expires: bool = False,
    drops: bool = False,
) -> Response:
    """Do it, and come back to the page of the form, with a button that undoes it, where that page has none. `notice` goes on behind
    the number; `team_notice` does for what is for all projects, where that is another. What `drops` it is told of others that say
    the same.
    """
    form = await visit.form(ActForm)
    name = visit.parameter("observation")
    changed = await visit.db.in_tenant(visit.team_id, lambda conn: change(conn, visit.principal, name))
    back = visit.way_back(form.back, f"/ui/observations/{changed.number}")
    brings_back = expires and back.partition("?")[0] in {f"/ui/observations/{changed.number}", f"/ui/observations/{name}"}
    offer = UndoOffer(changed.number, changed.version, expires) if can_undo and not brings_back else None
    said = team_notice if team_notice and changed.scope == "team" else notice
    alike: list[int] = []
    if drops:
        async with visit.tenant() as conn:
            alike = await find_alike(conn, visit.principal, changed)
    return visit.redirect(back, f"#{changed.number} {said}", undo=offer, alike=alike)


def _correcting(**fields: object) -> Change:
    """The correction of these fields, as an act."""
    correction = msgspec.convert(fields, observations_model.Correction)
    return lambda conn, principal, name: correct(conn, principal, name, correction)


async def post_done(visit: Visit) -> Response:
    """Say that an open end is done."""
    return await _act(visit, _correcting(state="done"), "is done.")


async def post_drop(visit: Visit) -> Response:
    """Say that an observation no longer holds: agents are told it no more, and a search still finds it, marked."""
    return await _act(visit, _correcting(state="dropped"), "no longer holds: sessions are told it no more.", drops=True)


async def post_top(visit: Visit) -> Response:
    """Make an observation a rule: agents of its project are told it first; one for all projects is told among what happened."""
    top = _correcting(type="decision", importance=observations_model.INSTRUCTION_IMPORTANCE, state=None)
    shared = "is a rule for all projects: agents may be told it, among what happened, but not first."
    return await _act(visit, top, "is a rule: agents of its project are told it first.", team_notice=shared)


async def post_take(visit: Visit) -> Response:
    """Take an observation to yourself: it is yours alone, and the team is shown it no longer."""
    form = await visit.form(ActForm)
    name, principal = visit.parameter("observation"), visit.principal
    own, _ = await visit.db.in_tenant(
        visit.team_id, lambda conn: take_from_team(conn, principal, name), person_id=principal.user_id
    )
    back = visit.way_back(form.back, f"/ui/mine/{own.name}")
    back = f"/ui/mine/{own.name}" if back.partition("?")[0] == f"/ui/observations/{name}" else back
    return visit.redirect(back, f"It is yours alone, as {own.name}: the team is shown it no longer.", undo_own=own.number)


async def post_promote(visit: Visit) -> Response:
    """Keep an observation for good."""
    return await _act(visit, promote, "is kept for good.", can_undo=False)


async def post_expire(visit: Visit) -> Response:
    """Forget an observation: agents are not told it any more, and it is deleted a week later."""
    until = "Until then it stands in Observations under State \u201cforgotten\u201d."
    return await _act(visit, expire, f"is forgotten: it is deleted for ever in a week. {until}", expires=True)


async def post_reopen(visit: Visit) -> Response:
    """Open an end again that was closed."""
    return await _act(visit, _correcting(state="open"), "is open again.")


async def post_hold(visit: Visit) -> Response:
    """Say that an observation that no longer held does hold."""
    return await _act(visit, _correcting(state=None), "holds again.")


async def post_forget(visit: Visit) -> Response:
    """Delete an observation for ever."""
    name = visit.parameter("observation")
    await visit.db.in_tenant(visit.team_id, lambda conn: delete(conn, visit.principal, name))
    number = parse_number(name)
    return visit.redirect("/ui/observations", f"#{number} is deleted for ever." if number else "It is deleted for ever.")


async def post_undo(visit: Visit) -> Response:
    """Undo the last change of an observation: a correction, a merge, or the end of its time."""
    form = await visit.form(UndoForm)
    name = visit.parameter("observation")
    expected = None if form.version is None else ExpectedState(form.version, form.expired)
    undone = await visit.db.in_tenant(visit.team_id, lambda conn: undo(conn, visit.principal, name, expected))
    restored = [number for number in undone.restored if number != undone.observation.number]
    shown = f" Shown again: {', '.join(f'#{number}' for number in restored)}." if restored else ""
    back = visit.way_back(form.back, f"/ui/observations/{undone.observation.number}")
    number, act = undone.observation.number, ACT_WORDS[undone.act]
    return visit.redirect(back, f"#{number} is {act}." if undone.act == "brought_back" else f"Undone: #{number} was {act}.{shown}")


class MergeForm(msgspec.Struct, frozen=True):
    """The numbers of the sources, with commas between them."""

    sources: Annotated[Text, Meta(max_length=1_000)] = ""
    strategy: MergeStrategy = "smart_merge"


async def post_merge(visit: Visit) -> Response:
    """Merge other observations into this one."""
    form = await visit.form(MergeForm)
    name = visit.parameter("observation")
    sources: list[int | str] = [_number(word) for word in split_commas(form.sources.replace(" ", ","))]
    if not sources:
        raise Invalid.at("$.sources", "Name the observations by their numbers: 15, 19.")
    wording = await visit.dependency(MergeWriter).word_merge(visit.principal, name, sources, form.strategy)
    merge = await visit.db.in_tenant(
        visit.team_id, lambda conn: merge_observations(conn, visit.principal, name, sources, form.strategy, wording)
    )
    if not merge.merged:
        raise Conflict(f"Nothing was merged: {_skipped(merge)}.")
    merged = ", ".join(f"#{source.number}" for source in merge.merged)
    notice = f"Merged {merged} into this one." + (f" Not merged: {_skipped(merge)}." if merge.skipped else "")
    return visit.redirect(f"/ui/observations/{merge.observation.number}", notice)


_REASONS = {
    "itself": "is this one",
    "missing": "is not there",
    "other_project": "is of another project",
    "superseded": "was merged before",
    "expired": "has expired",
    "summary": "is a summary",
}


def _skipped(merge: Merge) -> str:
    return ", ".join(f"{source.name} {_REASONS[source.reason]}" for source in merge.skipped)


def _number(word: str) -> int | str:
    number = parse_number(word)
    return word if number is None else number


class RelationForm(msgspec.Struct, frozen=True):
    """A relation from the page's observation to another."""

    to: Annotated[Text, Meta(min_length=1, max_length=100)] = ""
    relationship: Relationship = "RELATED_TO"
    context: Annotated[Text, Meta(max_length=2_000)] | None = None


async def post_relation(visit: Visit) -> Response:
    """Relate an observation to another."""
    form = await visit.form(RelationForm)
    if not form.to:
        raise Invalid.at("$.to", "Name the other observation by its number.")
    name = visit.parameter("observation")
    relation = await visit.db.in_tenant(
        visit.team_id,
        lambda conn: relate.relate(conn, visit.principal, name, form.to, form.relationship, 0.5, form.context),
    )
    return visit.redirect(f"/ui/observations/{relation.from_number}", f"Related to #{relation.to_number}.")


async def post_unrelate(visit: Visit) -> Response:
    """Delete a relation that somebody made."""
    relation_id = parse_id(visit.parameter("id").lower())
    if relation_id is None:
        raise NotFound(relate.NO_SUCH)
    name = visit.parameter("observation")
    await visit.db.in_tenant(visit.team_id, lambda conn: relate.unrelate(conn, visit.principal, relation_id))
    return visit.redirect(f"/ui/observations/{name}", "The relation is deleted.")


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/observations/{observation}", get_observation, scope="observations:read"),
    Page("GET", "/ui/observations/{observation}/edit", get_edit, scope=_WRITE),
    Page("POST", "/ui/observations/{observation}/edit", post_edit, scope=_WRITE, form_of=get_edit),
    Page("POST", "/ui/observations/{observation}/done", post_done, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/drop", post_drop, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/hold", post_hold, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/top", post_top, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/take", post_take, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/promote", post_promote, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/expire", post_expire, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/reopen", post_reopen, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/forget", post_forget, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/undo", post_undo, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/merge", post_merge, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/relations", post_relation, scope=_WRITE, form_of=get_observation),
    Page("POST", "/ui/observations/{observation}/relations/{id}/delete", post_unrelate, scope=_WRITE, form_of=get_observation),
]
