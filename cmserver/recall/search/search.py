"""Search: any word of the query may match, meaning finds what is worded otherwise, and one score puts all in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.access.projects import projects_found_together
from cmserver.base.sql import Conn
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import QueryVector
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.recall.search import lexical, repository
from cmserver.recall.search.confidence import LEAST_DOCUMENTS, estimate_confidence, find_coefficients, share_of_words
from cmserver.recall.search.model import (
    OBSERVATION_KINDS,
    Baseline,
    Filters,
    Hit,
    NearText,
    PagePosition,
    RankedRow,
    Ranking,
    ScopeStatistics,
    SearchPage,
    SearchRequest,
    Spread,
)
from cmserver.recall.search.score import Candidate, is_same_text, score_candidate, text_words
from cmserver.recall.search.time_cues import add_time_bonus, find_time_cue
from cmserver.recall.search.word_index import WordIndex, read_index
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn

# A search has two arms, words and meaning, each with its own order. The order of hits must not depend on the requested page. So
# there are tiers: the first documents of either arm, the first of four times as many, and so on. Only in the first tier do
# neighbours count.
_TIER_GROWTH = 4
_MAX_SEEN = 10_000
"""How many hits may come before a page: this many, or as many as the scope has documents if that is more."""
MAX_EXACT, MAX_FILTERED = 20_000, 60_000
"""In a team of up to this many documents all vectors are compared, and in projects, or with filters, of up to so many: of the
team's index they would read more than they compare."""
OVERSAMPLING = 4
"""By this factor more are looked at than are needed, because filters take some away."""
MAX_FIRST_HITS = repository.FIRST_TIER - repository.PAGE_EXTRA
"""A page of so many is of the first tier."""
_SEARCHED_AT_ONCE = 1_000
"""Queries whose documents are in memory at a time."""
_MANY_LISTS = 245
_PROBED_SHARE, _PROBED_SHARE_OF_MANY = 3, 5
"""One in this many of the index's lists is read, the nearest: `bin/bench search` finds nearly everything in them."""


async def find_page(
    conn: Conn, principal: Principal, request: SearchRequest, ranking: Ranking, vector: QueryVector | None = None
) -> SearchPage:
    """The hits of the query, the best first. It writes no audit: the caller records what it shows.

    A key that is bound to a project searches that one. Without `vector` only words count. A query of only stop words, or of only
    excluded ones, finds nothing. Quotes bind, unless nothing has what is in them. What scores less than `min_score` is not shown.
    """
    text, quoted, excluded = lexical.parse_query(request.query)
    project_ids = await projects_found_together(conn, principal, request.project_ids)
    is_filtered = bool(quoted or excluded) or request.filters.of(turns=not request.filters.takes_observations).are_any
    await repository.keep_plans(conn, filtered=is_filtered or request.at is not None)
    lexemes, statistics = await lexical.read_words(conn, principal.team_id, project_ids, text, at=request.at)
    if not lexemes:
        await repository.forget_plans(conn)
        return SearchPage(hits=[], next=None, total=0, is_estimate=False, terms={})
    after = request.after if request.after and len(request.after.statistics.found_in) == len(lexemes) else None
    statistics = after.statistics if after else statistics

    def start_search(must: str) -> _Search:
        filters = msgspec.structs.replace(request.filters, must=must)
        bound = msgspec.structs.replace(request, filters=filters, project_ids=project_ids, after=after)
        searched_at = datetime.fromtimestamp(request.after.searched_at, UTC) if request.after else request.at or datetime.now(UTC)
        return _Search(conn, principal.team_id, bound, ranking, vector, lexemes, searched_at, statistics)

    ignores_quotes = request.after is not None and request.after.ignores_quotes
    search = start_search(excluded if ignores_quotes else f"{quoted} {excluded}".strip())
    ordered = await search.order()
    if quoted and not ordered and request.after is None:
        search, ignores_quotes = start_search(excluded), True
        ordered = await search.order()
    start = _page_start(ordered, request)
    hits, taken = await search.read_page(ordered[start:])
    await repository.forget_plans(conn)
    last = start + taken
    # Whoever is behind what was looked at fits no better than the worst of it. So a page that is not filled is the last one.
    is_cut = search.is_cut and taken >= request.limit
    has_more = taken > 0 and (last < len(ordered) or is_cut)
    position = None
    if has_more:
        end = ordered[last - 1]
        position = PagePosition(
            rank=end.rank(request.order),
            id=end.id,
            seen=last,
            statistics=search.statistics,
            searched_at=search.searched_at.timestamp(),
            ignores_quotes=ignores_quotes,
        )
    matching = search.matching_turns + (0 if search.statistics.are_turns else lexical.count_matching(search.statistics))
    return SearchPage(
        hits=hits,
        next=position,
        total=max(len(ordered), matching) if is_cut else len(ordered),
        is_estimate=is_cut,
        terms=search.terms(),
        confidence=search.confidence(),
        ignores_quotes=ignores_quotes and bool(hits),
    )


async def find_best(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    query: str,
    ranking: Ranking,
    vector: QueryVector | None,
    *,
    at: datetime | None = None,
) -> Observation | None:
    """The observation that fits best, of the project or of all of the team, now or of another time."""
    project_ids = None if project_id is None else [project_id]
    request = SearchRequest(query=query, project_ids=project_ids, filters=Filters(kinds=OBSERVATION_KINDS), limit=1, at=at)
    page = await find_page(conn, principal, request, ranking, vector)
    return page.hits[0].observation if page.hits else None


async def find_first_hits(
    conn: Conn, principal: Principal, project_id: UUID, queries: Sequence[tuple[str, int]], ranking: Ranking
) -> list[list[Hit]]:
    """Of each query the first hits in the project, as many as stand beside it, at most MAX_FIRST_HITS.

    They are those of `find_page` without a vector, by a few statements for all.

    A query with marked words ("quoted", -excluded) is searched by itself.
    """
    hits: list[list[Hit]] = [[] for _ in queries]
    parsed = [lexical.parse_query(query) for query, _ in queries]
    for place, (_, quoted, excluded) in enumerate(parsed):
        if quoted or excluded:
            query, limit = queries[place]
            request = SearchRequest(query=query, project_ids=[project_id], limit=limit)
            hits[place] = (await find_page(conn, principal, request, ranking)).hits
    plain = [place for place, (_, quoted, excluded) in enumerate(parsed) if not quoted and not excluded]
    for start in range(0, len(plain), _SEARCHED_AT_ONCE):
        places = plain[start : start + _SEARCHED_AT_ONCE]
        words = await lexical.read_words_of_many(conn, principal.team_id, [project_id], [parsed[place][0] for place in places])
        described = {place: it for place, it in zip(places, words, strict=True) if it[0]}
        if not described:
            continue
        index = await read_index(conn, [project_id], described.values(), ranking)
        searched_at = datetime.now(UTC)
        searches: list[tuple[int, _Search, list[Candidate]]] = []
        for place, (lexemes, statistics) in described.items():
            await asyncio.sleep(0)  # others are answered meanwhile
            query, limit = queries[place]
            request = SearchRequest(query=query, project_ids=[project_id], limit=limit)
            search = _Search(conn, principal.team_id, request, ranking, None, lexemes, searched_at, statistics, index=index)
            searches.append((place, search, await search.order()))
        first = [it for _, search, ordered in searches for it in ordered[: search.request.limit]]
        texts = await _read_texts(conn, principal.team_id, first)
        for place, search, ordered in searches:
            await asyncio.sleep(0)
            search.texts = texts
            hits[place], _ = await search.read_page(ordered)
    return hits


async def find_nearest(
    conn: Conn, team_id: UUID, request: SearchRequest, vector: QueryVector, limit: int, documents: int, *, turns: bool = False
) -> list[NearText]:
    """The observations, or the `turns`, nearest in meaning that the filters leave: exactly in a scope of usual size, by an index in
    a larger one.

    What filters leave of a single project, or a session has, is too little of the team's index: it would find less than there is,
    and later. Kinds leave most, so they are looked at in the nearest first. Where either does not find `limit`, all are compared.
    """
    filters = request.filters.of(turns=turns)
    if request.at is not None:  # a filter lets only vectors of rows count that were there
        filters = msgspec.structs.replace(filters, until=filters.until or datetime.max.replace(tzinfo=UTC))
    request = msgspec.structs.replace(request, filters=filters)
    is_wide = not filters.are_any or (request.project_ids is None and filters.session_id is None)
    most = MAX_EXACT if request.project_ids is None and not filters.are_any else MAX_FILTERED
    probes, ahead = 0, limit * OVERSAMPLING
    if documents > most and is_wide and (lists := await embeddings.lists(conn, team_id, vector.model_id)) is not None:
        probes, ahead = count_probes(lists), 0
    elif not filters.are_kinds_alone or not repository.SMALL_SCOPE < documents <= MAX_FILTERED or ahead >= documents:
        ahead = 0
    nearest = await repository.nearest(conn, team_id, request, vector, limit, turns=turns, probes=probes, ahead=ahead)
    if len(nearest) == limit or not (probes or ahead):
        return nearest
    return await repository.nearest(conn, team_id, request, vector, limit, turns=turns)


def count_probes(lists: int) -> int:
    """How many of an index's lists are read for a query."""
    return -(-lists // (_PROBED_SHARE if lists <= _MANY_LISTS else _PROBED_SHARE_OF_MANY))


class _Search(msgspec.Struct):
    """The state of one search."""

    conn: Conn
    team_id: UUID
    request: SearchRequest
    ranking: Ranking
    vector: QueryVector | None
    lexemes: Sequence[str]
    searched_at: datetime
    statistics: ScopeStatistics
    is_cut: bool = False
    matching_turns: int = 0
    """At least so many turns have a word of the query."""
    best_bm25: float = 0.0
    best_cosine: float = 0.0
    index: WordIndex | None = None
    """What it is read from, in place of a statement for each step."""
    texts: dict[UUID, Observation | SessionTurn] = {}
    """What was read before."""

    async def order(self) -> list[Candidate]:
        """The candidates, the best first, as far as the page may need."""
        filters, depth = self.request.filters, self._depth()
        candidates: list[Candidate] = []
        if not self.statistics.are_turns:
            candidates += await self._find(depth if filters.takes_observations else 0)
        if filters.takes_turns and self.statistics.turn_count:
            candidates += await self._find(depth, turns=True)
        for candidate in candidates:
            score_candidate(candidate, self.statistics, self.ranking)
        if cue := find_time_cue(self.request.query, self.searched_at):
            add_time_bonus([candidate for candidate in candidates if candidate.tier == 0], cue, self.searched_at)
        hits = [it for it in candidates if it.is_hit(self.statistics) and it.score >= self.request.min_score]
        order = self.request.order
        return sorted(hits, key=lambda it: (-it.tier, it.rank(order), it.id), reverse=True)

    def terms(self) -> dict[str, float]:
        """The idf of each word, 0 for one that no document has."""
        by_word = zip(self.lexemes, self.statistics.idfs, self.statistics.found_in, strict=True)
        return {word: idf if count else 0.0 for word, idf, count in by_word}

    def confidence(self) -> float | None:
        """How likely the query is about the scope; None without an embedder that is calibrated, or where there is little."""
        coefficients = find_coefficients(self.vector) if self.vector else None
        observation_count = 0 if self.statistics.are_turns else self.statistics.documents
        if coefficients is None or observation_count + self.statistics.turn_count < LEAST_DOCUMENTS:
            return None
        words = share_of_words(self.best_bm25, self.statistics.idfs)
        return estimate_confidence(coefficients, words=words, cosine=self.best_cosine, word_count=len(self.lexemes))

    def _depth(self) -> int:
        """How many documents of each arm are scored: the first tier, or the first wider one that the page lies in."""
        seen = self.request.after.seen if self.request.after else 0
        seen = min(seen, max(self.statistics.documents, _MAX_SEEN))  # the client sends it
        depth = repository.FIRST_TIER
        while depth < seen + self.request.limit + repository.PAGE_EXTRA:
            depth *= _TIER_GROWTH
        return depth

    async def read_page(self, ordered: Sequence[Candidate]) -> tuple[list[Hit], int]:
        """The hits of a page, and how many candidates they took. A candidate that repeats a hit above it is only named there.

        Summaries of one session repeat each other.
        """
        hits: list[Hit] = []
        summary_ids: dict[UUID, UUID] = {}
        shown_words: list[tuple[UUID, bool, frozenset[str]]] = []
        alike: dict[UUID, list[int]] = {}
        taken, limit = 0, self.request.limit
        while len(hits) < limit and taken < len(ordered):
            chunk = ordered[taken : taken + limit]
            texts = await self._read_texts(chunk)
            for candidate in chunk:
                if len(hits) == limit:
                    break
                taken += 1
                text = texts.get(candidate.id)
                if isinstance(text, Observation):
                    words, holds = text_words(text), text.state != "dropped"
                    # What no longer holds is never folded into what does, nor the other way round.
                    same = next((id_ for id_, held, other in shown_words if held == holds and is_same_text(words, other)), None)
                    if text.kind == "summary" and text.server_session_id:
                        first_id = summary_ids.setdefault(text.server_session_id, candidate.id)
                        same = same or (first_id if first_id != candidate.id else None)
                    if same is not None:
                        alike.setdefault(same, []).append(text.number)
                        continue
                    shown_words.append((candidate.id, holds, words))
                if text is not None:
                    match_type, parts = candidate.match_type, candidate.parts
                    hits.append(Hit(id=candidate.id, source=text, score=candidate.score, match_type=match_type, parts=parts))
        return [msgspec.structs.replace(hit, alike=alike.get(hit.id, ())) for hit in hits], taken

    async def _find(self, depth: int, *, turns: bool = False) -> list[Candidate]:
        """The first `depth` observations, or turns, by words and by meaning; each has both values where they exist."""
        filters = self.request.filters.of(turns=turns)
        scope = (self.conn, self.team_id, msgspec.structs.replace(self.request, filters=filters))
        source = self.index or repository
        near: list[NearText] = []
        if self.vector is not None and depth:
            documents = self.statistics.turn_count if turns else self.statistics.documents
            near = await find_nearest(*scope, self.vector, depth, documents, turns=turns)
        asked = (*scope, self.lexemes, self.statistics, self.ranking)
        matched = await source.matched(*asked, depth, turns=turns)
        if self.statistics.together and not turns and matched.matching <= depth != 0:
            # The others follow, whatever the page: the order must not depend on it. Nor do the figures.
            others = await source.matched(*asked, depth - matched.matching, apart=True)
            ids, matching = [*matched.ids, *others.ids], matched.matching + others.matching
            matched = msgspec.structs.replace(matched, ids=ids, matching=matching)
        words = Spread(mean=matched.mean, deviation=matched.deviation)
        self.best_bm25 = max(self.best_bm25, matched.best)
        self.best_cosine = max(self.best_cosine, near[0].cosine if near else 0.0)
        if turns:
            self.matching_turns = matched.matching
        elif self.request.after is None:
            self.statistics = msgspec.structs.replace(self.statistics, found_in=matched.found_in)
        self.is_cut = self.is_cut or matched.matching > depth or 0 < depth <= len(near)
        cosines = {it.id: it.cosine for it in near}
        rows: list[RankedRow] = []
        if cosines or matched.ids:
            asked = (*scope, self.lexemes, self.statistics, self.ranking)
            rows = await source.ranked(*asked, matched.ids, list(cosines), self.vector if near else None, turns=turns)
        if self.request.after is None:
            sample = next((row for row in rows if row.id is None), RankedRow(id=None, bm25=0))
            meaning = Spread(mean=sample.mean, deviation=sample.deviation)
            baseline = Baseline(words=words, meaning=meaning, background=sample.background)
            self.statistics = msgspec.structs.replace(self.statistics, **{"turns" if turns else "observations": baseline})
        return [
            Candidate(
                id=row.id,
                bm25=row.bm25,
                neighbours=row.neighbours,
                neighbour_count=row.neighbour_count,
                cosine=cosines.get(row.id, row.cosine),
                is_near=row.id in cosines,
                is_turn=turns,
                is_secondary=row.is_secondary,
                created_at=row.created_at,
                tier=_tier(row.place),
            )
            for row in rows
            if row.id
        ]

    async def _read_texts(self, candidates: Sequence[Candidate]) -> dict[UUID, Observation | SessionTurn]:
        missing = [candidate for candidate in candidates if candidate.id not in self.texts]
        return {**self.texts, **await _read_texts(self.conn, self.team_id, missing)} if missing else self.texts


async def _read_texts(conn: Conn, team_id: UUID, candidates: Sequence[Candidate]) -> dict[UUID, Observation | SessionTurn]:
    texts: dict[UUID, Observation | SessionTurn] = {}
    if ids := list({candidate.id for candidate in candidates if not candidate.is_turn}):
        rows = await observations.by_ids(conn, team_id, ids)
        texts |= {observation.id: observation for observation in rows}
    if ids := list({candidate.id for candidate in candidates if candidate.is_turn}):
        texts |= {turn.id: turn for turn in await turns.by_ids(conn, team_id, ids)}
    return texts


def _page_start(ordered: Sequence[Candidate], request: SearchRequest) -> int:
    """The index of the page's first hit: after the last hit of the page before, wherever that is by now, or else by its rank."""
    after = request.after
    if after is None:
        return 0
    behind = next((place for place, candidate in enumerate(ordered, 1) if candidate.id == after.id), None)
    if behind is not None:
        return behind
    last = (after.rank, after.id)
    return next((place for place, it in enumerate(ordered) if (it.rank(request.order), it.id) < last), len(ordered))


def _tier(place: int) -> int:
    """The tier of the document at that place of an arm, from 1."""
    tier, width = 0, repository.FIRST_TIER
    while place > width:
        tier, width = tier + 1, width * _TIER_GROWTH
    return tier
