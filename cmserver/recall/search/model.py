"""The request of a search, its intermediate rows and its hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite, log
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.text import PROMPT_MOST
from cmserver.observations.model import Observation, Scope
from cmserver.recall.model import FilePaths
from cmserver.sessions.turns.model import SessionTurn

MatchType = Literal["lexical", "semantic", "both"]
"""Whether a hit shares words with the query, is among its nearest vectors, or both."""

HitOrder = Literal["relevance", "recent"]
"""The best first, or the newest first."""

SearchedKind = Literal["observation", "summary", "manual", "turn", "prompt"]
"""`prompt` is what turns were called before."""
TURN_KINDS: frozenset[SearchedKind] = frozenset({"turn", "prompt"})


OBSERVATION_KINDS: list[SearchedKind] = ["observation", "summary", "manual"]


K1 = 0.9
"""Term-frequency saturation of BM25: a word that comes again adds little. Flat from 0.7 to 1.2."""
B = 0.75
"""Length normalization of BM25: the textbook's. A long text has more words by chance."""
MEANING_WEIGHT = 0.5
"""Words and meaning count alike: each is measured in units of its own spread, so no embedder needs a weight of its own."""
NEIGHBOUR_SHARE = 0.4
"""The share of its words that a document lends the ones before and after it in its session. Flat from 0.3 to 0.6."""
SECONDARY_SHARE = 0.3
"""The share of a positive score that a summary keeps, and a turn that observations were made of or nobody answered."""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """How hits are scored. A search may override `meaning_weight` and `neighbours`.

    `k1` and `b` are those of BM25. `meaning_weight` (0 to 1) is the share of nearness in meaning in a score, the rest is words.
    With `neighbours`, a document's words count for those beside it in its session.
    """

    k1: float = K1
    b: float = B
    meaning_weight: float = MEANING_WEIGHT
    neighbours: bool = True


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a hit, all of which must hold. A list holds when one of its values fits; None is no condition.

    `files` are files and folders, `file_prefixes` are beginnings of paths, `file_parts` are parts of them, all as stored. `agents`
    are the platforms of sessions (claude-code, codex). `must` is in the syntax of websearch_to_tsquery. `since` is inclusive,
    `until` exclusive. `labels` are types of the caller, else ours (LABEL); `authors` wrote it by hand; `all_concepts` must all be
    there. Concepts, agents and authors are in lower case. `entity_ids` are entities that an observation mentions; without any, none
    fits.
    """

    kinds: list[SearchedKind] | None = None
    types: list[str] | None = None
    concepts: list[str] | None = None
    files: FilePaths | None = None
    file_prefixes: FilePaths | None = None
    file_parts: FilePaths | None = None
    session_id: UUID | None = None
    agents: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    must: str = ""
    labels: list[str] | None = None
    scope: Scope | None = None
    authors: list[str] | None = None
    all_concepts: list[str] | None = None
    min_importance: float | None = None
    entity_ids: list[UUID] | None = None
    of_users: bool | None = None
    """Whether turns of sub-agents are left out."""

    @property
    def takes_observations(self) -> bool:
        return self.kinds is None or any(kind not in TURN_KINDS for kind in self.kinds)

    @property
    def takes_turns(self) -> bool:
        """Not with a filter on a field that turns do not have."""
        of_both = {"kinds", "session_id", "agents", "since", "until", "must", "of_users"}
        has_filters = any(getattr(self, name) not in (None, [], "") for name in self.__struct_fields__ if name not in of_both)
        return (self.kinds is None or not TURN_KINDS.isdisjoint(self.kinds)) and not has_filters

    @property
    def are_any(self) -> bool:
        return any(getattr(self, name) not in (None, "") for name in self.__struct_fields__)

    @property
    def are_kinds_alone(self) -> bool:
        return self.kinds is not None and not msgspec.structs.replace(self, kinds=None).are_any

    def of(self, *, turns: bool) -> Filters:
        """What they ask of observations, or of turns, alone: kinds that all of these have are no condition."""
        is_met = turns or (self.kinds is not None and set(OBSERVATION_KINDS) <= set(self.kinds))
        return msgspec.structs.replace(self, kinds=None) if is_met else self


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The mean and standard deviation of a figure among the documents of a scope."""

    mean: float = 0.0
    deviation: float = 0.0

    def standardize(self, value: float) -> float:
        """How many standard deviations the value is above the mean; 0 where all are the same."""
        return (value - self.mean) / self.deviation if self.deviation > 1e-6 else 0.0


class Baseline(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the scores of observations, or of turns, are relative to: all of the scope that is searched, before filters."""

    words: Spread = Spread()
    """Of the BM25."""
    meaning: Spread = Spread()
    """Of the cosine."""
    background: float = 0.0
    """How near in meaning anything is."""

    @property
    def figures(self) -> tuple[float, ...]:
        return (self.words.mean, self.words.deviation, self.meaning.mean, self.meaning.deviation, self.background)


class ScopeStatistics(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the scores of one query are relative to: the scope that is searched, before filters.

    `found_in` counts the documents with each word of the query; `leading` are the places of the words that lead to the hits, and
    `together` those of the rarest ones that the first hits by words have all together, where even the rarest is in many documents.
    A page's cursor carries all of it, so that the pages of one search agree.
    """

    documents: int
    mean_words: float
    """Mean length of a document, in words."""
    found_in: list[float]
    leading: list[int]
    together: list[int] = []
    observations: Baseline = Baseline()
    turns: Baseline = Baseline()
    are_turns: bool = False
    """There are no observations, and `found_in` counts turns."""
    projects: int = 1
    """How many are searched."""
    turn_count: int = 0
    turn_words: float = 1.0
    """Mean length of a turn, in different words."""

    @property
    def idfs(self) -> list[float]:
        """The inverse document frequency of each word of the query."""
        return [log(1 + max(self.documents - found_in + 0.5, 0.5) / (found_in + 0.5)) for found_in in self.found_in]


class PagePosition(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The last hit of a page; `seen` counts the hits up to it. `rank` is what the hits are in order of, see `Candidate.rank`."""

    rank: float
    id: UUID
    seen: int
    statistics: ScopeStatistics
    searched_at: float = 0.0
    """When the first page was searched, in seconds since 1970: "last week" of all pages is the same."""
    ignores_quotes: bool = False
    """Whether quotes do not bind, because nothing has what is in them."""

    @property
    def is_valid(self) -> bool:
        """Whether its numbers can be computed with: it comes from outside."""
        it = self.statistics
        counts = [self.seen, it.documents, it.mean_words - 1, it.projects, it.turn_count, it.turn_words - 1, *it.found_in]
        figures = [self.rank, *it.observations.figures, *it.turns.figures]
        places = range(len(it.found_in))
        return (
            all(0 <= count <= 2**62 for count in counts)
            and all(map(isfinite, figures))
            and 0 <= self.searched_at <= 253_402_300_799  # the end of the year 9999
            and bool(it.leading)
            and len(set(it.leading)) == len(it.leading)
            and len(it.together) <= len(it.found_in)
            and all(place in places for place in [*it.leading, *it.together])
        )


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One search, of the whole team when `project_ids` is None. Hits that score less than `min_score` (0 to 1) are hidden.

    The query is cut to PROMPT_MOST characters: whichever door it came by, its readers see no more.
    """

    query: str
    project_ids: Sequence[UUID] | None
    filters: Filters = Filters()
    limit: int = 20
    after: PagePosition | None = None
    min_score: float = 0.0
    order: HitOrder = "relevance"
    at: datetime | None = None
    """The moment of which it is asked; None is now."""

    def __post_init__(self) -> None:
        if len(self.query) > PROMPT_MOST:
            msgspec.structs.force_setattr(self, "query", self.query[:PROMPT_MOST])


class WordSample(msgspec.Struct, frozen=True, kw_only=True):
    """A word of a query, and which of the newest documents contain it; those of the scope stand beside each."""

    lexeme: str
    found_in: list[int]
    """In which of the newest, by their places among them."""
    sampled: int
    words: float
    """Average number of words in an observation."""
    turn_words: float
    """The same of a turn."""
    documents: int
    """The observations in the scope, counted up to a limit."""
    rows: float
    """In the table, of all teams, by the planner's estimate."""
    projects: int
    """How many are searched."""
    turns: int
    """In the scope, of projects counted up to a limit."""


class MatchedWords(msgspec.Struct, frozen=True, kw_only=True):
    """The first documents by words, in order; the best BM25, its mean and deviation in the scope, how many documents match and
    pass the filters, and how many have each word.
    """

    ids: list[UUID]
    best: float
    matching: int
    found_in: list[float]
    mean: float
    deviation: float


class RankedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, an observation or a turn: its BM25, the sum of its session neighbours' BM25, its cosine where it has a vector
    and is not near, and its place in the arm where it stands higher (from 1).

    The row without an id has the statistics of a sample's cosines: the mean, the deviation, and `background`, the mean with two
    more documents of cosine 0: among few documents nearly all are nearer.
    """

    id: UUID | None
    bm25: float
    neighbours: float = 0.0
    neighbour_count: int = 0
    place: int = 0
    is_secondary: bool = False
    """Whether it is a summary, or a turn that observations were made of, nobody answered, or a sub-agent had."""
    created_at: datetime | None = None
    cosine: float | None = None
    mean: float = 0.0
    deviation: float = 0.0
    background: float = 0.0


class NearText(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or a turn, and the cosine of its vector and the query's."""

    id: UUID
    cosine: float


class SharedWord(WordSample, frozen=True, kw_only=True):
    """A word of several queries; `texts` are which of them, from 1, and `places` its place in each."""

    texts: list[int]
    places: list[int]


class WordsOfText(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation or a turn has of the words: their places among those asked for, from 1, and the BM25 of each without its
    rarity.
    """

    id: UUID
    created_at: datetime
    places: list[int]
    shares: list[float]


class NeighbourRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, and the two before and after it in its session, the nearest first; or a turn, with neither."""

    id: UUID
    created_at: datetime
    is_secondary: bool
    before: list[UUID]
    after: list[UUID]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or a turn. `alike` are the numbers of hits with the same text, which are not listed.

    `later` are the numbers of turns in which what it says was taken up later; `changed` that of the turn whose edits took it out
    again.
    """

    id: UUID
    source: Observation | SessionTurn
    score: float
    match_type: MatchType = "lexical"
    parts: Mapping[str, float] = {}
    alike: Sequence[int] = ()
    later: Sequence[int] = ()
    changed: int | None = None

    @property
    def observation(self) -> Observation | None:
        return self.source if isinstance(self.source, Observation) else None

    @property
    def turn(self) -> SessionTurn | None:
        return self.source if isinstance(self.source, SessionTurn) else None


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, and the position of the next page. `total` is an estimate when not all hits were read."""

    hits: list[Hit]
    next: PagePosition | None
    total: int
    is_estimate: bool
    terms: Mapping[str, float]
    """The idf of each word of the query, 0 for one that no document has."""
    confidence: float | None = None
    """How likely, 0 to 1, the query is about what is searched; None where nothing calibrated says so."""
    ignores_quotes: bool = False
    """Whether nothing has what the query quotes: then these are the nearest without it."""
