"""The request of a search, its intermediate rows and its hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.sessions.model import ListedPrompt

MatchType = Literal["lexical", "semantic", "both"]
"""Whether a hit shares words with the query, is among its nearest vectors, or both."""

SearchedKind = Literal["observation", "summary", "manual", "prompt"]


OBSERVATION_KINDS: list[SearchedKind] = ["observation", "summary", "manual"]


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """How hits are scored. The settings give the defaults; a search may override them.

    `k1` and `b` are those of BM25. `meaning_weight` (0 to 1) is the share of vector similarity in a score, the rest is BM25.
    `recency` is the share of its score that a very old hit loses. With `neighbours`, a hit raises the observations just before and
    after it in its session. A search has no hits when the best one scores less than `min_score`.
    """

    k1: float = 0.9
    b: float = 0.4
    meaning_weight: float = 0.45
    min_score: float = 0.0
    recency: float = 0.1
    neighbours: bool = True


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a hit, all of which must hold. A list holds when one of its values fits; None is no condition.

    `files` are whole paths as stored, `file_prefix` is the beginning of a path, `file_parts` are parts of one. `agents` are the
    platforms of sessions (claude-code, codex). `must` is in the syntax of websearch_to_tsquery. `since` is inclusive, `until`
    exclusive.
    """

    kinds: list[SearchedKind] | None = None
    types: list[str] | None = None
    concepts: list[str] | None = None
    files: list[str] | None = None
    file_prefix: str | None = None
    file_parts: list[str] | None = None
    session_id: UUID | None = None
    agents: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    must: str = ""

    @property
    def takes_observations(self) -> bool:
        return self.kinds is None or any(kind != "prompt" for kind in self.kinds)

    @property
    def takes_prompts(self) -> bool:
        """Not with a filter on a field that prompts do not have."""
        observation_filters = self.types or self.concepts or self.files or self.file_prefix or self.file_parts
        return (self.kinds is None or "prompt" in self.kinds) and not observation_filters

    @property
    def are_any(self) -> bool:
        return any(getattr(self, name) not in (None, "") for name in self.__struct_fields__)


class QueryVector(msgspec.Struct, frozen=True, kw_only=True):
    """A query's embedding by the current model."""

    model_id: int
    provider: str
    """The name of its embedder, as in the settings."""
    dimensions: int
    vector: str
    """The vector in the text form of pgvector."""


class PagePosition(msgspec.Struct, frozen=True, kw_only=True):
    """The last hit of a page; `seen` counts the hits up to it."""

    score: float
    id: UUID
    seen: int


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One search, of the whole team when `project_ids` is None.

    `min_score` hides each hit that scores less; it replaces the ranking's minimum for the best hit.
    """

    query: str
    project_ids: Sequence[UUID] | None
    filters: Filters = Filters()
    limit: int = 20
    after: PagePosition | None = None
    min_score: float | None = None


class WordSample(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the newest documents contain a word of the query."""

    found_in: int
    sampled: int
    words: float
    """Average number of words in a document."""
    documents: int
    """The documents in the scope, counted up to a limit."""
    rows: float
    """In the table, of all teams, by the planner's estimate."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A word of the query. Where `documents` is None, its document count comes from the hits, all of which are read."""

    lexeme: str
    documents: float | None


class RankedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A document that shares words with the query. `score` is its BM25; `found_in` is the document count of each word."""

    id: UUID | None
    score: float
    documents: float
    found_in: list[float]


class NearObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A document and the cosine of its vector and the query's."""

    id: UUID
    cosine: float


class SessionNeighbours(msgspec.Struct, frozen=True, kw_only=True):
    """An observation's kind and time, and the observations just before and after it in its session."""

    id: UUID
    kind: str
    created_at: datetime
    before: UUID | None
    after: UUID | None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or a prompt. `alike` are the numbers of hits with the same text, which are not listed."""

    id: UUID
    source: Observation | ListedPrompt
    score: float
    match_type: MatchType = "lexical"
    parts: Mapping[str, float] = {}
    alike: Sequence[int] = ()

    @property
    def observation(self) -> Observation | None:
        return self.source if isinstance(self.source, Observation) else None

    @property
    def prompt(self) -> ListedPrompt | None:
        return self.source if isinstance(self.source, ListedPrompt) else None


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, best first, and the position of the next page. `total` is an estimate when not all hits were read."""

    hits: list[Hit]
    next: PagePosition | None
    total: int
    is_estimate: bool
    terms: Mapping[str, float]
    """The idf of each word of the query."""
