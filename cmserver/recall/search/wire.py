"""The requests and answers of the search API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.ids import epoch_ms
from cmserver.base.text import Cursor, Key, Line, QueryText
from cmserver.observations.model import Observation
from cmserver.observations.plain import one_line
from cmserver.observations.wire import ObservationOut, observation_out, type_shown
from cmserver.personal.wire import PersonalObservationOut
from cmserver.recall.search.model import Hit, HitOrder, MatchType, SearchedKind, SearchPage
from cmserver.sessions.turns.model import SessionTurn

TITLE_CHARS = 160
_UNQUOTED = "Nothing has what is in quotes: this is the nearest without it. "
_PROBABLY_NOT = 0.2
"""Below this confidence the hits are probably only the best of nothing."""

EpochMs = Annotated[int, Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Texts = Annotated[list[Line], Meta(min_length=1, max_length=50)]


class SearchIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/search. Without a project, a key of the whole team searches all of its projects.

    `project` is the same as `projectId`, as in other paths; `projects` are several projects, by their ids or names. Every project's
    search includes what is shared with the team. A "quoted phrase" in the query must occur, unless nothing has it; a -word must
    not. A `query` has at most 2,000 characters. A filter holds when one value of its list fits: `kinds`, `types`, `concepts`,
    `files`, `agents` (claude-code, codex, ...). `files` are files or folders; `filePrefix` is the beginning of a path. Paths may be
    whole, or relative to the repository's root or to a folder where an agent worked. `kinds` are which to search: without them all,
    turns included; `type` is the same as `types`. `entity` is a name of an entity that the observation mentions; `session` is the
    server's id of a session.
    `since` is the first moment, in milliseconds since 1970 or ISO 8601 (UTC without a zone); `until` is the moment after the last,
    in the same way. `minImportance` is the least importance of an observation, from 0 to 1.

    `asOf` is a time, in ISO 8601 with a zone or in milliseconds since 1970: what held then, what was over behind it. `knownAt` is
    such a time, too: what the server would have answered then. Nothing that was erased since is in either.

    `sort: "recent"` puts the newest of the best hits first; pages behind them hold the next best.

    `format: "index"` returns one line per hit, to be fetched by number; `full`, the default as in claude-mem, returns whole texts.
    `minScore` hides hits that score less; usually none are hidden. `meaningWeight` (0: words only, 0.5: both alike, 1: meaning
    only) and `neighbours` override the ranking; `neighbours` is whether words of what stands beside it in its session count for a
    hit, too; `explain` adds the parts of each score. Other keys of claude-mem's clients have no effect; the answer names them.
    """

    query: QueryText
    project_id: Key | None = None
    project: Key | None = None
    projects: Annotated[list[Key], Meta(min_length=1, max_length=50)] | None = None
    kinds: Annotated[list[SearchedKind], Meta(min_length=1)] | None = None
    types: Texts | None = None
    type: Texts | Line | None = None
    concepts: Texts | None = None
    files: Texts | None = None
    file_prefix: Line | None = None
    entity: Line | None = None
    agents: Texts | None = None
    min_importance: Fraction | None = None
    session: UUID | None = None
    since: EpochMs | Line | None = None
    until: EpochMs | Line | None = None
    as_of: Line | None = None
    known_at: Line | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    sort: HitOrder = "relevance"
    cursor: Cursor | None = None
    format: Literal["index", "full"] | None = None
    min_score: Fraction | None = None
    meaning_weight: Fraction | None = None
    neighbours: bool | None = None
    explain: bool = False


class ContextIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/context."""

    query: QueryText
    project_id: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class HitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A hit as one line. `type` is the type of the observation, `summary`, or `commit` or `document` for what came from git.

    `later` are the numbers of turns in which the matter was taken up later, the newest first: what is said there may hold instead.
    `changed` is the number of the last turn whose edits took out again what the hit says, or null.
    """

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
    later: list[int]
    changed: int | None
    parts: dict[str, float] | UnsetType = UNSET


class FullHitOut(ObservationOut, rename="camel", frozen=True, kw_only=True):
    """A hit as a whole observation. `later` are the numbers of turns in which the matter was taken up later, the newest first.

    `changed` is the number of the last turn whose edits took out again what the hit says, or null.
    """

    match_type: MatchType
    alike: list[int]
    later: list[int]
    changed: int | None
    parts: dict[str, float] | UnsetType = UNSET


class PromptHitOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A turn. `text` is the user's prompt, or the task of a sub-agent, whose turn has an `agentId`; `reply` is the agent's last
    message, or null before it. In an index both are only beginnings.

    `eventId` is the event that brought the prompt, or null for one that was written by hand. `readTokens` are the tokens of both,
    estimated. `later` are the numbers of turns in which the matter was taken up later, the newest first. `changed` is the number of
    the last turn whose edits took out again what the hit says, or null.
    """

    number: int
    event_id: UUID | None
    prompt_number: int | None
    project_id: UUID
    server_session_id: UUID
    text: str
    reply: str | None
    agent_id: str | None
    created_at_epoch: int
    read_tokens: int
    score: float
    match_type: MatchType
    later: list[int]
    changed: int | None
    parts: dict[str, float] | UnsetType = UNSET


class SearchAnswerOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The fields of both formats. `ignoresQuotes` is whether nothing has what the query quotes, and these are the nearest without
    it.

    `confidence` is how likely, from 0 to 1, the query is about what was searched at all, or null without an embedder that it is
    known for, and where fewer than 24 observations and turns are searched. `total` is how many hits there are: an estimate
    (`totalIsEstimate`) when not all were read. `byMeaning` is whether it searched by meaning, too: false without an embedder,
    or while it does not answer. `tokens` are what this answer takes: its observations and turns as text, at 4 characters per
    token. `personal` are up to three of what is the caller's alone, behind the first page of a search without filters, and so
    are `private`; nothing else here counts them. `private` are the texts of up to three hits in the caller's private sessions.
    """

    prompts: list[PromptHitOut]
    next_cursor: str | None
    total: int
    total_is_estimate: bool
    by_meaning: bool
    confidence: float | None
    ignores_quotes: bool
    tokens: int
    personal: list[PersonalObservationOut] = []
    private: list[str] = []
    terms: dict[str, float] | UnsetType = UNSET


class SearchOut(SearchAnswerOut, frozen=True, kw_only=True):
    """Whole texts, best first, each with its `score`, 0 to 1: how far it stands out of what was searched (0.1: not at all)."""

    observations: list[FullHitOut]


class SearchIndexOut(SearchAnswerOut, frozen=True, kw_only=True):
    """The answer with `format: "index"`: one line per hit."""

    observations: list[HitOut]


class ContextOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Hits. `context` is their texts as one block for a model, between our tags, which no stored text can close. `ignoresQuotes` is
    whether nothing has what the query quotes, and these are the nearest without it. `confidence` is how likely, from 0 to 1, the
    query is about what was searched at all, or null without an embedder that is calibrated, and where fewer than 24 observations
    and turns are searched.
    """

    observations: list[FullHitOut]
    context: str
    confidence: float | None
    ignores_quotes: bool


def full_hit_out(hit: Hit, observation: Observation, *, explain: bool) -> FullHitOut:
    fields = msgspec.structs.asdict(observation_out(observation, score=_rounded(hit.score)))
    return FullHitOut(
        **fields,
        alike=list(hit.alike),
        **_of_hit(hit, explain=explain),
    )


def hit_out(hit: Hit, observation: Observation, *, explain: bool) -> HitOut:
    return HitOut(
        number=observation.number,
        type=type_shown(observation.kind, observation.type, observation.origin, observation.caller_type),
        title=one_line(observation.title or observation.narrative or observation.content, TITLE_CHARS),
        project_id=observation.project_id,
        server_session_id=observation.server_session_id,
        created_at_epoch=epoch_ms(observation.created_at),
        read_tokens=observation.cost,
        score=_rounded(hit.score),
        alike=list(hit.alike),
        **_of_hit(hit, explain=explain),
    )


def turn_hit_out(hit: Hit, turn: SessionTurn, *, full: bool, explain: bool) -> PromptHitOut:
    return PromptHitOut(
        number=turn.number,
        event_id=turn.event_id,
        prompt_number=turn.prompt_number,
        project_id=turn.project_id,
        server_session_id=turn.server_session_id,
        text=turn.prompt if full else one_line(turn.prompt, TITLE_CHARS),
        reply=turn.reply if full or turn.reply is None else one_line(turn.reply, TITLE_CHARS),
        agent_id=turn.agent_id,
        created_at_epoch=epoch_ms(turn.created_at),
        read_tokens=turn.cost,
        score=_rounded(hit.score),
        **_of_hit(hit, explain=explain),
    )


def render_parts(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {part:.2f}" for name, part in parts.items())


def render_remarks(answer: SearchPage | SearchAnswerOut | ContextOut) -> str:
    """What is said of all hits together; empty where nothing is known."""
    unquoted = _UNQUOTED if answer.ignores_quotes else ""
    likely = "" if answer.confidence is None else f"The query is about what was searched: {answer.confidence:.0%} likely."
    if is_doubtful(answer.confidence):
        likely += " Probably nothing here fits."
    return f"{unquoted}{likely}".rstrip()


def render_doubts(answer: SearchAnswerOut) -> str:
    """What people are told of all hits together, without figures: what is unlikely in a small memory may be right all the same."""
    doubt = "Perhaps nothing here is about the question." if is_doubtful(answer.confidence) else ""
    return f"{_UNQUOTED if answer.ignores_quotes else ''}{doubt}".rstrip()


def is_doubtful(confidence: float | None) -> bool:
    """Whether the query is probably not about what was searched."""
    return confidence is not None and confidence < _PROBABLY_NOT


def _of_hit(hit: Hit, *, explain: bool) -> dict[str, Any]:
    parts = {name: _rounded(part) for name, part in hit.parts.items()} if explain else UNSET
    return {"match_type": hit.match_type, "later": list(hit.later), "changed": hit.changed, "parts": parts}


def rounded(confidence: float | None) -> float | None:
    return None if confidence is None else _rounded(confidence)


def _rounded(number: float) -> float:
    return round(number, 4)
