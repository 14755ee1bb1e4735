"""What goes into search, and what comes out."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.ids import epoch_ms
from cmserver.base.text import Key, Text
from cmserver.observations.model import Observation
from cmserver.observations.plain import one_line
from cmserver.observations.wire import ObservationOut, observation_out, type_shown
from cmserver.recall.search.model import Hit, MatchType, SearchedKind
from cmserver.recall.search.plain import TITLE_CHARS
from cmserver.sessions.model import ListedPrompt

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
    (or later) and `until` (before it) are milliseconds of the epoch, or times in ISO 8601 (in UTC without a zone).

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
    since: Moment | Words | None = None
    until: Moment | Words | None = None
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


def found_out(hit: Hit, one: Observation, *, explain: bool) -> FoundOut:
    shown = msgspec.structs.asdict(observation_out(one, score=_rounded(hit.score)))
    return FoundOut(**shown, match_type=hit.match_type, alike=list(hit.alike), parts=_parts(hit, explain=explain))


def hit_out(hit: Hit, one: Observation, *, explain: bool) -> HitOut:
    return HitOut(
        number=one.number,
        type=type_shown(one.kind, one.type),
        title=one_line(one.title or one.narrative or one.content, TITLE_CHARS),
        project_id=one.project_id,
        server_session_id=one.server_session_id,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.cost,
        score=_rounded(hit.score),
        match_type=hit.match_type,
        alike=list(hit.alike),
        parts=_parts(hit, explain=explain),
    )


def prompt_out(hit: Hit, one: ListedPrompt, *, full: bool, explain: bool) -> PromptHitOut:
    return PromptHitOut(
        event_id=one.event_id,
        prompt_number=one.prompt_number,
        project_id=one.project_id,
        server_session_id=one.server_session_id,
        text=one.text if full else one_line(one.text, TITLE_CHARS),
        created_at_epoch=epoch_ms(one.created_at),
        score=_rounded(hit.score),
        match_type=hit.match_type,
        parts=_parts(hit, explain=explain),
    )


def _parts(hit: Hit, *, explain: bool) -> dict[str, float] | UnsetType:
    return {name: _rounded(part) for name, part in hit.parts.items()} if explain else UNSET


def _rounded(number: float) -> float:
    return round(number, 4)
