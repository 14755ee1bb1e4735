"""What is asked of a search, what it works with, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.sessions.model import ListedPrompt

MatchType = Literal["lexical", "semantic", "both"]
"""Whether a hit shares words with the query, is among the nearest in meaning, or both."""

SearchedKind = Literal["observation", "summary", "manual", "prompt"]


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """How hits are judged, by the settings; a single search may ask for something else.

    `meaning_weight` is the share of nearness in meaning in a score, the rest is words in common. `recency` is how much of its score
    a hit loses that is old beyond measure, `neighbours` whether a hit speaks for what was observed just before and after it.
    Nothing is found when not even the best reaches `min_score`.
    """

    k1: float = 0.9
    b: float = 0.4
    meaning_weight: float = 0.45
    min_score: float = 0.23
    recency: float = 0.1
    neighbours: bool = True


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What a hit must be. Where a list is given, one of it is enough; None asks for nothing.

    `files` are whole paths as they are stored, `file_prefix` is how one begins, `file_parts` what one has somewhere in it. `agents`
    are the platforms of sessions (claude-code, codex). `must` is in the syntax of websearch_to_tsquery. From `since` on, and before
    `until`.
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
        """Only when they are asked for, and not by what they have not."""
        asks_for_more = self.types or self.concepts or self.files or self.file_prefix or self.file_parts
        return self.kinds is not None and "prompt" in self.kinds and not asks_for_more

    @property
    def are_any(self) -> bool:
        return any(getattr(self, name) not in (None, "") for name in self.__struct_fields__)


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """A query's place among meanings, by the model that is in use."""

    model_id: int
    dimensions: int
    vector: str
    """As pgvector reads it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page has ended, and how many hits came before that."""

    score: float
    id: UUID
    seen: int


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One search. Without `project_ids` it goes through all of the team.

    `min_score` hides hits that score less, one by one, in place of what the ranking says about the best.
    """

    query: str
    project_ids: Sequence[UUID] | None
    filters: Filters = Filters()
    limit: int = 20
    after: Place | None = None
    min_score: float | None = None


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the newest documents have a word of the query."""

    found_in: int
    sampled: int
    words: float
    """Of a document on average."""
    documents: int
    """In the scope, counted up to a bound."""
    rows: float
    """In the table, of all teams, as the planner estimates it."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A word of the query. Where `documents` is None the hits say in how many it is: all of them are looked at."""

    lexeme: str
    documents: float | None


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A document that shares words with the query. `score` is its BM25; `found_in` of `documents` have each of the words."""

    id: UUID | None
    score: float
    documents: float
    found_in: list[float]


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A document near the query in meaning: the cosine of their vectors."""

    id: UUID
    cosine: float


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation is, when it was made, and what was observed in its session just before it and after it."""

    id: UUID
    kind: str
    created_at: datetime
    before: UUID | None
    after: UUID | None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: an observation or a prompt. `alike` are further hits that say the same and are not shown."""

    id: UUID
    observation: Observation | None = None
    prompt: ListedPrompt | None = None
    score: float
    match_type: MatchType = "lexical"
    parts: Mapping[str, float] = {}
    alike: Sequence[int] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Hits, the best first; where the next page begins; and how many there are, which beyond what was looked at is an estimate."""

    hits: list[Hit]
    next: Place | None
    total: int
    is_estimate: bool
    terms: Mapping[str, float]
    """The words that were looked for, and how much each weighs (its idf)."""
