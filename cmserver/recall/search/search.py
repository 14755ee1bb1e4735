"""Search: any word of the query may match, meaning finds what is worded otherwise, and one score puts all in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.embedding import repository as embeddings
from cmserver.observations.model import Observation
from cmserver.recall.search import lexical, repository
from cmserver.recall.search.lexical import MAX_WORDS, QueryWords, WordMatches
from cmserver.recall.search.model import (
    OBSERVATION_KINDS,
    Filters,
    Hit,
    NearObservation,
    PagePosition,
    QueryVector,
    Ranking,
    SearchPage,
    SearchRequest,
)
from cmserver.recall.search.score import (
    Candidate,
    ScoreScale,
    adjust_scores,
    is_good_enough,
    is_same_text,
    min_score_beside,
    score_candidate,
    text_words,
)
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import ListedPrompt

# A search has two arms, words and meaning, each with its own order. The order of hits must not depend on the requested page. So
# there are tiers: the first documents of either arm, the first of four times as many, and so on; and within a tier blocks, in which
# neighbours and age may bring a document forward.
_MIN_DEPTH = 60
"""At least this many documents of each arm are scored, or `_PER_HIT` for each hit that is requested or was returned before."""
_PER_HIT = 3
_TIER_GROWTH = 4
_BLOCK_EXTRA = 20
"""How many more candidates than a page a block has."""
_PAGE_EXTRA = 20
"""How many more candidates than a page are adjusted at least: some say the same as others."""
_MAX_SEEN = 10_000
"""How many hits may come before a page: this many, or as many as the scope has documents if that is more."""
_PROMPT_CHARS = 16_000
MAX_EXACT = repository.MAX_COUNTED - 1
"""In a scope of up to this many documents all vectors are compared: that is quicker than the index."""
_PROBED_SHARE = 5
"""One in this many of the index's lists is read, the nearest: `bin/bench search` finds nearly everything in them."""


async def find_page(
    conn: Conn, principal: Principal, request: SearchRequest, ranking: Ranking, vector: QueryVector | None = None
) -> SearchPage:
    """The hits of the query, the best first. It writes no audit: the caller records what it shows.

    A key that is bound to a project searches that one. Without `vector` only words count. A query of only stop words, or of only
    excluded ones, finds nothing. When not even the best reaches `min_score`, nothing is found.
    """
    text, must = lexical.parse_query(request.query)
    request = msgspec.structs.replace(
        request,
        filters=msgspec.structs.replace(request.filters, must=must),
        project_ids=request.project_ids if principal.project_id is None else [principal.project_id],
    )
    lexemes = await repository.lexemes(conn, principal.team_id, request.project_ids, text, MAX_WORDS)
    if not lexemes:
        return SearchPage(hits=[], next=None, total=0, is_estimate=False, terms={})
    words = await lexical.read_query_words(conn, principal.team_id, request.project_ids, lexemes)
    search = _Search(conn, principal.team_id, request, ranking, vector, words)
    ordered = await search.order()
    start = _page_start(ordered, request.after)
    hits, taken = await search.read_page(ordered[start:])
    last = start + taken
    # Whoever is behind what was looked at fits no better than the worst of it. So a page that is not filled is the last one, though
    # of what is only near there is always more.
    is_all = search.adjusted_all and taken < request.limit
    is_cut = search.is_cut and not is_all
    has_more = taken > 0 and (last < len(ordered) or is_cut or not search.adjusted_all)
    return SearchPage(
        hits=hits,
        next=PagePosition(score=ordered[last - 1].score, id=ordered[last - 1].id, seen=last) if has_more else None,
        total=max(search.total, round(words.hits) + search.matching_prompts) if is_cut else search.total,
        is_estimate=is_cut,
        terms=search.terms,
    )


async def find_best(
    conn: Conn, principal: Principal, project_id: UUID | None, query: str, ranking: Ranking, vector: QueryVector | None
) -> Observation | None:
    """The observation that fits best, of the project or of all of the team."""
    project_ids = None if project_id is None else [project_id]
    request = SearchRequest(query=query, project_ids=project_ids, filters=Filters(kinds=OBSERVATION_KINDS), limit=1)
    page = await find_page(conn, principal, request, ranking, vector)
    return page.hits[0].observation if page.hits else None


async def find_nearest(
    conn: Conn, team_id: UUID, request: SearchRequest, vector: QueryVector, limit: int, documents: int
) -> list[NearObservation]:
    """The nearest in meaning that the filters leave: exactly in a scope of usual size, by an index in a larger one.

    What filters leave of a single project, or a session has, is too little of the team's index: it would find less than there is,
    and later. Where the index does not find `limit` observations, all are compared, too.
    """
    lists = None
    filters, project_ids = request.filters, request.project_ids
    is_wide = not filters.are_any or (project_ids is None and filters.session_id is None)
    if documents > MAX_EXACT and is_wide:
        lists = await embeddings.lists(conn, team_id, vector.model_id)
    if lists is not None:
        nearest = await repository.nearest_by_index(conn, team_id, project_ids, vector, filters, count_probes(lists), limit)
        if len(nearest) == limit:
            return nearest
    return await repository.nearest(conn, team_id, project_ids, vector, filters, limit)


def count_probes(lists: int) -> int:
    """How many of an index's lists are read for a query."""
    return -(-lists // _PROBED_SHARE)


class _Search:
    """The state of one search."""

    def __init__(
        self,
        conn: Conn,
        team_id: UUID,
        request: SearchRequest,
        ranking: Ranking,
        vector: QueryVector | None,
        words: QueryWords,
    ) -> None:
        self._conn = conn
        self._team_id = team_id
        self._request = request
        self._ranking = ranking
        self._vector = vector
        self._words = words
        self._first_tier = max(_MIN_DEPTH, _PER_HIT * request.limit)
        self.is_cut = False
        self.adjusted_all = True
        self.total = 0
        self.matching_prompts = 0
        """At least so many prompts have a word of the query."""
        self.terms: dict[str, float] = {}

    async def order(self) -> list[Candidate]:
        """The candidates, the best first, as far as the page may need. Empty when not even the best fits well enough."""
        depth, filters = self._depth(), self._request.filters
        candidates = await self._find_observations(depth) if filters.takes_observations else []
        candidates += await self._find_prompts(depth) if filters.takes_prompts else []
        candidates = [candidate for candidate in candidates if candidate.score > 0]
        candidates.sort(key=lambda candidate: (-candidate.tier, *_rank(candidate)), reverse=True)
        is_gated = self._request.min_score is None
        if not candidates or (is_gated and not is_good_enough(candidates[0], len(self._words.lexemes), self._ranking)):
            self.is_cut = False
            return []
        return await self._adjust(candidates)

    def _depth(self) -> int:
        """How many documents of each arm are scored: the first tier, or the first wider one that the page lies in."""
        seen = self._request.after.seen if self._request.after else 0
        seen = min(seen, max(self._words.documents, _MAX_SEEN))  # the client sends it
        depth = self._first_tier
        while depth < _PER_HIT * (seen + self._request.limit):
            depth *= _TIER_GROWTH
        return depth

    def _tier(self, place: int) -> int:
        """The tier of the document at that place of an arm; both count from 0."""
        tier, width = 0, self._first_tier
        while place >= width:
            tier, width = tier + 1, width * _TIER_GROWTH
        return tier

    async def _adjust(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Adjust the scores block by block, until there is a page; returns the candidates adjusted, in their order."""
        now, after, limit = datetime.now(UTC), self._request.after, self._request.limit
        min_score = self._request.min_score
        if min_score is None:
            min_score = min_score_beside(candidates[0], self._words.documents, self._ranking)
        ordered: list[Candidate] = []
        neighbours: dict[UUID, Candidate] = {}
        tier, adjusted, is_reached = -1, 0, after is None
        for block in _blocks(candidates, limit + _BLOCK_EXTRA):
            if block[0].tier > tier:
                tier = block[0].tier
                neighbours = {candidate.id: candidate for candidate in candidates if candidate.tier <= tier}
            briefs = await repository.briefs(self._conn, self._team_id, [candidate.id for candidate in block])
            adjust_scores(neighbours, briefs, now, self._ranking)
            shown = sorted((candidate for candidate in block if candidate.score >= min_score), key=_rank, reverse=True)
            ordered += shown
            adjusted += len(block)
            is_reached = is_reached or any(after is not None and candidate.id == after.id for candidate in shown)
            if is_reached and len(ordered) - _page_start(ordered, after) >= limit + _PAGE_EXTRA:
                break
        self.adjusted_all = adjusted == len(candidates)
        self.total = len(ordered) + sum(candidate.score >= min_score for candidate in candidates[adjusted:])
        return ordered

    async def read_page(self, ordered: Sequence[Candidate]) -> tuple[list[Hit], int]:
        """The hits of a page, and how many candidates they took. A candidate that repeats a hit above it is only named there."""
        hits: list[Hit] = []
        words_by_id: dict[UUID, frozenset[str]] = {}
        alike: dict[UUID, list[int]] = {}
        taken, limit = 0, self._request.limit
        while len(hits) < limit and taken < len(ordered):
            chunk = ordered[taken : taken + limit]
            texts = await self._read_texts(chunk)
            for candidate in chunk:
                if len(hits) == limit:
                    break
                taken += 1
                text = texts.get(candidate.id)
                if isinstance(text, Observation):
                    words = text_words(text)
                    same = next((id_ for id_, other in words_by_id.items() if is_same_text(words, other)), None)
                    if same is not None:
                        alike.setdefault(same, []).append(text.number)
                        continue
                    words_by_id[candidate.id] = words
                if text is not None:
                    match_type, parts = candidate.match_type, candidate.parts
                    hits.append(Hit(id=candidate.id, source=text, score=candidate.score, match_type=match_type, parts=parts))
        return [msgspec.structs.replace(hit, alike=alike.get(hit.id, ())) for hit in hits], taken

    async def _find_observations(self, depth: int) -> list[Candidate]:
        """The first `depth` observations by words and by meaning, with their scores; each has both values where they exist."""
        matches = await lexical.rank_observations(self._conn, self._request, self._words, self._ranking, depth)
        candidates = self._matched(matches)
        near_ids: set[UUID] = set()
        background = 0.0
        if self._vector:
            background = await repository.background(self._conn, self._team_id, self._request.project_ids, self._vector)
            nearest = await find_nearest(self._conn, self._team_id, self._request, self._vector, depth, self._words.documents)
            for place, near in enumerate(nearest):
                near_ids.add(near.id)
                candidate = candidates.setdefault(near.id, Candidate(id=near.id, tier=self._tier(place)))
                candidate.cosine = near.cosine
                candidate.tier = min(candidate.tier, self._tier(place))
            without_cosine = [id_ for id_, candidate in candidates.items() if candidate.cosine is None]
            for near in await repository.nearness(self._conn, self._team_id, without_cosine, self._vector):
                candidates[near.id].cosine = near.cosine
            without_bm25 = [id_ for id_, candidate in candidates.items() if candidate.bm25 == 0]
            for row in await lexical.rank_ids(self._conn, without_bm25, self._words, matches, self._ranking):
                if row.id:
                    candidates[row.id].bm25 = row.score
        for candidate in candidates.values():
            candidate.is_near = candidate.id in near_ids
        self.is_cut = self.is_cut or len(matches.ranked) >= depth or len(near_ids) >= depth
        return self._score(candidates.values(), matches, background, has_meaning=bool(near_ids))

    async def _find_prompts(self, depth: int) -> list[Candidate]:
        matches = await lexical.rank_prompts(self._conn, self._request, self._words, self._ranking, depth)
        self.is_cut = self.is_cut or len(matches.ranked) >= depth
        self.matching_prompts = matches.matching
        return self._score(self._matched(matches, is_prompt=True).values(), matches, 0.0, has_meaning=False)

    def _matched(self, matches: WordMatches, *, is_prompt: bool = False) -> dict[UUID, Candidate]:
        return {
            row.id: Candidate(id=row.id, bm25=row.score, is_prompt=is_prompt, tier=self._tier(place))
            for place, row in enumerate(matches.ranked)
            if row.id
        }

    def _score(
        self, candidates: Iterable[Candidate], matches: WordMatches, background: float, *, has_meaning: bool
    ) -> list[Candidate]:
        """The candidates with their scores; `background` is how near anything is to the query."""
        scale = ScoreScale(
            max_bm25=matches.max_bm25,
            known_share=matches.known_share,
            background=background,
            has_meaning=has_meaning,
            ranking=self._ranking,
        )
        scored = list(candidates)
        for candidate in scored:
            score_candidate(candidate, scale)
        self.terms = dict(zip(self._words.lexemes, matches.idfs, strict=True)) | self.terms
        return scored

    async def _read_texts(self, candidates: Sequence[Candidate]) -> dict[UUID, Observation | ListedPrompt]:
        texts: dict[UUID, Observation | ListedPrompt] = {}
        if ids := [candidate.id for candidate in candidates if not candidate.is_prompt]:
            rows = await observations.by_ids(self._conn, self._team_id, ids)
            texts |= {observation.id: observation for observation in rows}
        if ids := [candidate.id for candidate in candidates if candidate.is_prompt]:
            texts |= await sessions.prompts_by_ids(self._conn, self._team_id, ids, max_chars=_PROMPT_CHARS)
        return texts


def _page_start(ordered: Sequence[Candidate], after: PagePosition | None) -> int:
    """The index of the page's first hit: after the last hit of the page before, wherever that is by now, or else by its score."""
    if after is None:
        return 0
    behind = next((place for place, candidate in enumerate(ordered, 1) if candidate.id == after.id), None)
    if behind is not None:
        return behind
    return next((place for place, candidate in enumerate(ordered) if _rank(candidate) < (after.score, after.id)), len(ordered))


def _blocks(candidates: Sequence[Candidate], size: int) -> Iterator[list[Candidate]]:
    """The candidates in blocks of up to `size`, each of one tier."""
    for _, group in groupby(candidates, lambda candidate: candidate.tier):
        members = list(group)
        yield from (members[first : first + size] for first in range(0, len(members), size))


def _rank(candidate: Candidate) -> tuple[float, UUID]:
    return candidate.score, candidate.id
