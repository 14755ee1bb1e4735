"""The doors to search: hits in lines or whole, and the texts of the best in one for a model."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Literal, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, read, wants_text
from cmserver.base.ids import epoch_ms
from cmserver.base.paging import no_cursor
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.observations.model import Observation, estimate_tokens
from cmserver.observations.plain import one_line, said, summed_up, wrapped
from cmserver.observations.read import served
from cmserver.observations.wire import ObservationOut, observation_out, type_shown
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Asked, Filters, Hit, MatchType, Page, Place, Ranking, SearchedKind
from cmserver.recall.search.search import find
from cmserver.sessions.model import ListedPrompt
from cmserver.sessions.read import prompts_served

_TITLE_CHARS = 160

Words = Annotated[Text, Meta(min_length=1)]
Moment = Annotated[int, Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Share = Annotated[float, Meta(ge=0, le=1)]
Some = Annotated[list[Words], Meta(min_length=1, max_length=50)]


class SearchIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/search. Without a project, a key of the whole team searches all of its projects; `projects` are several.

    `project` is `projectId`, as other paths call it.

    What is shared with the team is found from each of its projects. A "quoted phrase" in the query must be there, a -word must not.
    Of each filter one of the list is enough: `kinds` (prompts are searched only when they are among these), `types`, `concepts`,
    `files` (whole paths), `agents` (claude-code, codex, ...). `filePrefix` is how a path begins, `session` our id of one; `since`
    (or later) and `until` (before it) are milliseconds of the epoch.

    `format: "index"` gives lines, from which one fetches more by number; `full`, the default as for clients of claude-mem, whole
    texts. `minScore` hides hits that score less; 0 shows all, also where not even the best fits well. `meaningWeight`, `recency`
    and `neighbours` change how hits are judged; `explain` says how they were. Other keys of claude-mem's clients have no effect.
    """

    query: Words
    project_id: Key | None = None
    project: Key | None = None
    projects: Annotated[list[Key], Meta(min_length=1, max_length=50)] | None = None
    kinds: Annotated[list[SearchedKind], Meta(min_length=1)] | None = None
    types: Some | None = None
    concepts: Some | None = None
    files: Some | None = None
    file_prefix: Words | None = None
    agents: Some | None = None
    session: UUID | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: str | None = None
    format: Literal["index", "full"] | None = None
    min_score: Share | None = None
    meaning_weight: Share | None = None
    recency: Share | None = None
    neighbours: bool | None = None
    explain: bool = False


class ContextIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/context."""

    query: Words
    project_id: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class HitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A hit in a line. `readTokens` is what reading the whole costs; `alike` are the numbers of further hits that say the same."""

    number: int
    type: str
    title: str
    project_id: UUID
    server_session_id: UUID | None
    created_at_epoch: int
    read_tokens: int
    score: float
    match_type: MatchType
    alike: list[int]
    parts: dict[str, float] | UnsetType = UNSET


class FoundOut(ObservationOut, rename="camel", frozen=True, kw_only=True):
    """A hit as a whole observation."""

    match_type: MatchType
    alike: list[int]
    parts: dict[str, float] | UnsetType = UNSET


class PromptHitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A prompt that a user typed, of a long one the first 16,000 characters; an index has its beginning.

    `eventId` is the event that it came in.
    """

    event_id: UUID
    prompt_number: int
    project_id: UUID
    server_session_id: UUID
    text: str
    created_at_epoch: int
    score: float
    match_type: MatchType
    parts: dict[str, float] | UnsetType = UNSET


class AnsweredOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What both forms of an answer have."""

    prompts: list[PromptHitOut]
    next_cursor: str | None
    total: int
    total_is_estimate: bool
    by_meaning: bool
    tokens: int
    terms: dict[str, float] | UnsetType = UNSET
    """With `explain`: the words that were looked for and what each weighs, 0 where none has it."""


class SearchOut(AnsweredOut, frozen=True, kw_only=True):
    """Whole texts, the best first, each with its `score`: 0 to 1, and comparable between queries.

    `nextCursor` is null on the last page. `total` is how many there are; where more fit than were looked at, it is an estimate, and
    `totalIsEstimate` says so. `byMeaning` says whether nearness in meaning counted: false without an embedder, or while it does not
    answer. `tokens` is what the observations and prompts of this answer cost a model that reads them as text, at 4 characters each.
    """

    observations: list[FoundOut]


class SearchIndexOut(AnsweredOut, frozen=True, kw_only=True):
    """With `format: "index"`: a line of each, and the rest as it is with whole texts."""

    observations: list[HitOut]


class ContextOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was found, and its texts in one, ready to be given to a model."""

    observations: list[FoundOut]
    context: str


async def post_search(request: Request) -> Response:
    """Search observations, summaries and prompts, the best first; who accepts only text/plain gets a line for each."""
    who = await caller(request, Principal)
    asked = await read(request, SearchIn)
    project_ids = await _projects_of(request, who, asked)
    ranking = _ranking(request, asked)
    search = Asked(
        query=asked.query,
        project_ids=project_ids,
        filters=_filters(asked),
        limit=asked.limit,
        after=_place(asked.cursor),
        min_score=asked.min_score,
    )
    as_text = wants_text(request)
    full = asked.format == "full" or (asked.format is None and not as_text)
    sought = await _meaning(request).of(asked.query) if ranking.meaning_weight > 0 else None
    async with db(request).tenant(who.team_id) as conn:
        page = await find(conn, who, search, ranking, sought)
        await _served(conn, who, project_ids, page, via="search.full" if full else "search")
        is_one = project_ids is not None and len(project_ids) == 1
        names = {} if is_one else await access.names_of(conn, who.team_id, {_project_of(hit) for hit in page.hits})
    texts = [_text(hit, names, full=full) for hit in page.hits]
    if as_text:
        return PlainTextResponse(wrapped(texts) if texts else "Nothing fits.\n")
    found = [(hit, hit.observation) for hit in page.hits if hit.observation]
    shown = AnsweredOut(
        prompts=[_prompt(hit, hit.prompt, full=full, explain=asked.explain) for hit in page.hits if hit.prompt],
        next_cursor=_cursor(page.next),
        total=page.total,
        total_is_estimate=page.is_estimate,
        by_meaning=sought is not None,
        tokens=estimate_tokens("".join(texts)),
        terms={word: round(weight, 3) for word, weight in page.terms.items()} if asked.explain else UNSET,
    )
    rest = msgspec.structs.asdict(shown)
    if full:
        return answer(SearchOut(**rest, observations=[_found(hit, one, explain=asked.explain) for hit, one in found]))
    return answer(SearchIndexOut(**rest, observations=[_line(hit, one, explain=asked.explain) for hit, one in found]))


async def post_context(request: Request) -> Response:
    """Search, with the texts of what was found in one, ready for a model."""
    who = await caller(request, Principal)
    asked = await read(request, ContextIn)
    project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId")
    search = Asked(query=asked.query, project_ids=[project.id], limit=asked.limit)
    sought = await _meaning(request).of(asked.query)
    async with db(request).tenant(who.team_id) as conn:
        page = await find(conn, who, search, _usual(request), sought)
        await _served(conn, who, [project.id], page, via="context.search")
    found = [(hit, hit.observation) for hit in page.hits if hit.observation]
    text = "\n\n".join(one.content for _, one in found)
    return answer(ContextOut(observations=[_found(hit, one, explain=False) for hit, one in found], context=text))


def _meaning(request: Request) -> Meaning:
    return cast("Meaning", request.app.state.meaning)


def _usual(request: Request) -> Ranking:
    return cast("Ranking", request.app.state.ranking)


def _ranking(request: Request, asked: SearchIn) -> Ranking:
    usual = _usual(request)
    return msgspec.structs.replace(
        usual,
        meaning_weight=usual.meaning_weight if asked.meaning_weight is None else asked.meaning_weight,
        recency=usual.recency if asked.recency is None else asked.recency,
        neighbours=usual.neighbours if asked.neighbours is None else asked.neighbours,
    )


async def _projects_of(request: Request, who: Principal, asked: SearchIn) -> list[UUID] | None:
    """None for the whole team."""
    named = asked.project_id or asked.project
    if asked.projects is not None and named is not None:
        raise Invalid.at("$.projects", "Say `projectId` for one project, or `projects` for several.")
    projects = _projects(request)
    if asked.projects is not None:
        found = [await projects.named_or_own(who, one, at=f"$.projects[{place}]") for place, one in enumerate(asked.projects)]
        return list(dict.fromkeys(one.id for one in found))
    if named is None and who.project_id is None:
        return None
    return [(await projects.named_or_own(who, named, at="$.projectId")).id]


def _filters(asked: SearchIn) -> Filters:
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise Invalid.at("$.until", "`until` must be later than `since`.")
    return Filters(
        kinds=asked.kinds,
        types=asked.types,
        concepts=None if asked.concepts is None else [one.lower() for one in asked.concepts],
        files=asked.files,
        file_prefix=asked.file_prefix,
        session_id=asked.session,
        agents=None if asked.agents is None else [one.lower() for one in asked.agents],
        since=None if asked.since is None else datetime.fromtimestamp(asked.since / 1000, UTC),
        until=None if asked.until is None else datetime.fromtimestamp(asked.until / 1000, UTC),
    )


async def _served(conn: Conn, who: Principal, project_ids: list[UUID] | None, page: Page, *, via: str) -> None:
    one = project_ids[0] if project_ids and len(project_ids) == 1 else None
    await served(conn, who, one, via, [hit.observation for hit in page.hits if hit.observation])
    await prompts_served(conn, who, one, sum(1 for hit in page.hits if hit.prompt))


def _found(hit: Hit, one: Observation, *, explain: bool) -> FoundOut:
    shown = msgspec.structs.asdict(observation_out(one, score=_rounded(hit.score)))
    return FoundOut(**shown, match_type=hit.match_type, alike=list(hit.alike), parts=_parts(hit, explain=explain))


def _line(hit: Hit, one: Observation, *, explain: bool) -> HitOut:
    return HitOut(
        number=one.number,
        type=type_shown(one.kind, one.type),
        title=one_line(one.title or one.narrative or one.content, _TITLE_CHARS),
        project_id=one.project_id,
        server_session_id=one.server_session_id,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.cost,
        score=_rounded(hit.score),
        match_type=hit.match_type,
        alike=list(hit.alike),
        parts=_parts(hit, explain=explain),
    )


def _prompt(hit: Hit, one: ListedPrompt, *, full: bool, explain: bool) -> PromptHitOut:
    return PromptHitOut(
        event_id=one.event_id,
        prompt_number=one.prompt_number,
        project_id=one.project_id,
        server_session_id=one.server_session_id,
        text=one.text if full else one_line(one.text, _TITLE_CHARS),
        created_at_epoch=epoch_ms(one.created_at),
        score=_rounded(hit.score),
        match_type=hit.match_type,
        parts=_parts(hit, explain=explain),
    )


def _text(hit: Hit, names: Mapping[UUID, str], *, full: bool) -> str:
    """What a model reads of it: a line with the score at its end, and where several are searched the project."""
    name = names.get(_project_of(hit))
    end = f" {hit.score:.2f} {one_line(name, _TITLE_CHARS)}\n" if name else f" {hit.score:.2f}\n"
    if hit.prompt:
        day = f"{hit.prompt.created_at.astimezone(UTC):%Y-%m-%d}"
        text = one_line(hit.prompt.text, len(hit.prompt.text) if full else _TITLE_CHARS)
        return f"prompt {hit.prompt.prompt_number} {day} {text}{end}"
    assert hit.observation
    first, *rest = said(hit.observation) if full else [summed_up(hit.observation)]
    return "".join([first, end, *(f"{line}\n" for line in rest)])


def _project_of(hit: Hit) -> UUID:
    one = hit.observation or hit.prompt
    assert one
    return one.project_id


def _parts(hit: Hit, *, explain: bool) -> dict[str, float] | UnsetType:
    return {name: _rounded(part) for name, part in hit.parts.items()} if explain else UNSET


def _rounded(number: float) -> float:
    return round(number, 4)


def _cursor(place: Place | None) -> str | None:
    if place is None:
        return None
    return base64.urlsafe_b64encode(struct.pack(">dI", place.score, place.seen) + place.id.bytes).decode()


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        score, seen = struct.unpack(">dI", raw[:12])
        if not isfinite(score):
            raise no_cursor()
        return Place(score=score, id=UUID(bytes=raw[12:]), seen=seen)
    except (binascii.Error, ValueError, struct.error) as error:
        raise no_cursor() from error


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


_LINES = operation.Text("text/plain", "A line for each, or its whole text, when only text/plain is accepted.")

routes = [
    Operation(
        "POST",
        "/v1/search",
        post_search,
        scope="observations:read",
        body=SearchIn,
        answers={200: (SearchOut, SearchIndexOut, _LINES)},
    ),
    Operation("POST", "/v1/context", post_context, scope="observations:read", body=ContextIn, answers={200: ContextOut}),
]
