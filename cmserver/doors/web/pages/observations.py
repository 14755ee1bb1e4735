"""Observations: searched and listed with every filter of the API, and acts on several of them at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Text
from cmserver.consolidation.history import find_forgotten
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages import memory
from cmserver.doors.web.pages.memory import TYPES as TYPE_OPTIONS
from cmserver.doors.web.pages.mine import shown_own
from cmserver.doors.web.visit import Visit
from cmserver.observations.model import TYPES, ListedState, Observation, ObservationFilter, Scope
from cmserver.observations.past.model import read_moment
from cmserver.observations.plain import one_line, turn_kind
from cmserver.observations.read import list_observations, read_batch
from cmserver.observations.write import delete, expire, promote
from cmserver.recall.search.model import TURN_KINDS, Hit, SearchedKind
from cmserver.recall.search.searcher import Searcher, SearchResult
from cmserver.recall.search.wire import SearchIn, is_doubtful
from cmserver.sessions.read import find_session

_PAGE = 50
_MAX_CHOSEN = 100

Act = Literal["promote", "expire", "forget"]


class ObservationsPageQuery(memory.PastQuery, frozen=True, kw_only=True):
    """The search in the address: the fields of POST /v1/search and GET /v1/observations."""

    q: Annotated[Text, Meta(max_length=2_000)] | None = None
    project: Text | None = None
    kind: SearchedKind | None = None
    type: Text | None = None
    scope: Scope | None = None
    state: ListedState | None = None
    session: UUID | None = None
    concept: Text | None = None
    file: Text | None = None
    file_prefix: Text | None = None
    agent: Text | None = None
    since: Text | None = None
    until: Text | None = None
    min_score: Annotated[float, Meta(ge=0, le=1)] | None = None
    meaning: Annotated[float, Meta(ge=0, le=1)] | None = None
    explain: bool = False
    cursor: str | None = None


_OF_SEARCH = ("concept", "file", "file_prefix", "agent", "since", "until", "min_score", "meaning", "explain")
"""Filters that need words to search for."""
_OF_LIST = ("scope", "state")
"""Filters that a search does not have."""
_MORE = (*_OF_SEARCH, *_OF_LIST, "session", "as_of")


class ShownHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list: an observation, or a turn that a search found."""

    line: memory.ObservationItem | None = None
    turn: str | None = None
    turn_kind: str = ""
    turn_session: UUID | None = None
    project: str = ""
    who: str = ""
    is_forgotten: bool = False
    hit: Hit | None = None


async def get_observations(visit: Visit) -> Response:
    """What is remembered: searched or listed, newest first, with every filter of the API."""
    filters = visit.query(ObservationsPageQuery)
    if filters.type is not None and filters.type not in TYPES:
        raise Invalid.at("$.type", f"Not one of the types: {', '.join(TYPE_OPTIONS)}.")
    words = (filters.q or "").strip()
    result = None
    if words:
        rows, result = await _search(visit, filters, words)
        next_cursor = result.next_cursor
    else:
        rows, next_cursor = await _list(visit, filters)
    async with visit.tenant() as conn:
        projects = await memory.list_projects(conn, visit.principal)
        session = None
        if filters.session:
            found = await find_session(conn, visit.principal, str(filters.session))
            session = (await memory.session_labels(conn, visit.team_id, [found.id]))[found.id]
    ignored = [name for name in (_OF_LIST if words else _OF_SEARCH) if getattr(filters, name)]
    return visit.render(
        "observations.html",
        title=f"{words[:60]} \u2013 observations" if words else "Observations",
        rows=rows,
        result=result,
        yours=[*map(shown_own, result.personal)] if result else [],
        is_doubtful=result is not None and is_doubtful(result.page.confidence),
        projects=projects,
        session=session,
        filters=filters,
        has_filters=any(getattr(filters, name) for name in ("q", "project", "kind", "type", *_MORE)),
        has_more=any(getattr(filters, name) for name in _MORE if name != "state"),
        ignored=[name.replace("_", " ") for name in ignored],
        words=words,
        types=TYPE_OPTIONS,
        badges=memory.BADGES,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


async def _list(visit: Visit, filters: ObservationsPageQuery) -> tuple[list[ShownHit], str | None]:
    if filters.kind in TURN_KINDS:
        raise Invalid.at("$.kind", "Turns are found by a search only: enter some words, or open a session.")
    project_id = await visit.dependency(Projects).within(visit.principal, filters.project)
    async with visit.tenant() as conn:
        wanted = reshape(filters, ObservationFilter, project_id=project_id, session_id=filters.session)
        moment = read_moment(filters.true_at, filters.known_at, at=("$.as_of", "$.as_of"))
        page, next_cursor = await list_observations(
            conn, visit.principal, wanted, limit=_PAGE, cursor=filters.cursor, moment=moment
        )
        names = await memory.names_of_projects(conn, visit.principal, {row.project_id for row in page})
        forgotten = await find_forgotten(conn, visit.principal, page) if filters.state == "expired" else {}
    shown = [
        ShownHit(line=memory.observation_line(visit.principal, row, names), is_forgotten=row.number in forgotten) for row in page
    ]
    return shown, next_cursor


async def _search(visit: Visit, filters: ObservationsPageQuery, words: str) -> tuple[list[ShownHit], SearchResult]:
    query = SearchIn(
        query=words,
        project_id=filters.project,
        kinds=[filters.kind] if filters.kind else None,
        types=[filters.type] if filters.type else None,
        concepts=[filters.concept] if filters.concept else None,
        files=[filters.file] if filters.file else None,
        file_prefix=filters.file_prefix,
        agents=[filters.agent] if filters.agent else None,
        session=filters.session,
        since=filters.since,
        until=filters.until,
        as_of=filters.true_at,
        known_at=filters.known_at,
        min_score=filters.min_score,
        meaning_weight=filters.meaning,
        explain=filters.explain,
        limit=_PAGE,
        cursor=filters.cursor,
    )
    result = await visit.dependency(Searcher).search(visit.principal, query, full=False)
    hits = result.page.hits
    async with visit.tenant() as conn:
        names = await memory.names_of_projects(conn, visit.principal, {hit.source.project_id for hit in hits})
    return [_shown_hit(visit, hit, names) for hit in hits], result


def _shown_hit(visit: Visit, hit: Hit, names: dict[UUID, str]) -> ShownHit:
    if isinstance(hit.source, Observation):
        return ShownHit(line=memory.observation_line(visit.principal, hit.source, names), hit=hit)
    turn = hit.source
    return ShownHit(
        turn=f"#{turn.number} {one_line(turn.line, memory.TITLE_CHARS)}",
        turn_kind=turn_kind(turn.agent_id),
        turn_session=turn.server_session_id,
        project=names.get(turn.project_id, ""),
        who=visit.principal.name_of(turn.actor_id) or "",
        hit=hit,
    )


class SelectionQuery(msgspec.Struct, frozen=True):
    """The numbers of the observations that are chosen."""

    number: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=_MAX_CHOSEN)] = []


async def get_chosen(visit: Visit) -> Response:
    """Several observations that were chosen in a list, and how many of them an act would change."""
    chosen = visit.query(SelectionQuery)
    numbers = list(chosen.number) or [int(number) for number in visit.submitted.get("number", []) if number.isdigit()]
    async with visit.tenant() as conn:
        batch = await read_batch(conn, visit.principal, numbers[:_MAX_CHOSEN])
        names = await memory.names_of_projects(conn, visit.principal, {row.project_id for row in batch.observations})
    lines = [memory.observation_line(visit.principal, row, names) for row in batch.observations]
    return visit.render(
        "observations_chosen.html",
        title=f"{len(lines)} observations",
        lines=lines,
        expiring=sum(line.expires_at is not None for line in lines),
        missing=batch.missing,
        badges=memory.BADGES,
    )


class ChosenForm(msgspec.Struct, frozen=True):
    """The chosen ones again, and for what deletes them the words that confirm it."""

    number: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=_MAX_CHOSEN)]
    confirm: str = ""


Verb = Callable[[Conn, Principal, str], Awaitable[object]]
_VERBS: dict[Act, tuple[Verb, str, str]] = {
    "promote": (promote, "Kept for good", ""),
    "expire": (
        expire,
        "Forgotten",
        " For a week they stand in Observations under State \u201cforgotten\u201d, where each can be brought back.",
    ),
    "forget": (delete, "Deleted for ever", ""),
}


async def _act_on_chosen(visit: Visit, act: Act) -> Response:
    """Do it with all of them, or with none."""
    form = await visit.form(ChosenForm)
    numbers = list(dict.fromkeys(form.number))
    if act == "forget":
        visit.confirm(form.confirm, f"delete {len(numbers)}")
    verb, done, way_back = _VERBS[act]
    await visit.db.in_tenant(visit.team_id, lambda conn: _for_each(conn, visit.principal, numbers, verb))
    shown = ", ".join(f"#{number}" for number in numbers[:20]) + (", \u2026" if len(numbers) > 20 else "")
    return visit.redirect("/ui/observations", f"{done}: {len(numbers)} ({shown}).{way_back}")


async def _for_each(conn: Conn, principal: Principal, numbers: Sequence[int], verb: Verb) -> None:
    for number in numbers:
        await verb(conn, principal, str(number))


async def post_chosen_promote(visit: Visit) -> Response:
    """Keep the chosen observations for good."""
    return await _act_on_chosen(visit, "promote")


async def post_chosen_expire(visit: Visit) -> Response:
    """End the time of the chosen observations."""
    return await _act_on_chosen(visit, "expire")


async def post_chosen_forget(visit: Visit) -> Response:
    """Delete the chosen observations for ever."""
    return await _act_on_chosen(visit, "forget")


_WRITE = "observations:write"

routes = [
    Page("GET", "/ui/observations", get_observations, scope="observations:read"),
    Page("GET", "/ui/observations/chosen", get_chosen, scope=_WRITE),
    Page("POST", "/ui/observations/chosen/promote", post_chosen_promote, scope=_WRITE, form_of=get_chosen),
    Page("POST", "/ui/observations/chosen/expire", post_chosen_expire, scope=_WRITE, form_of=get_chosen),
    Page("POST", "/ui/observations/chosen/forget", post_chosen_forget, scope=_WRITE, form_of=get_chosen),
]
