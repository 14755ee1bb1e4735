"""Search: any word of the query may match, meaning finds what is said in other words, and one score puts all in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.recall.search import lexical, repository
from cmserver.recall.search.lexical import Found, Words
from cmserver.recall.search.marks import MOST_WORDS, marks
from cmserver.recall.search.model import Asked, Hit, Page, Place, Ranking, Sought
from cmserver.recall.search.nearest import nearest
from cmserver.recall.search.score import Candidate, Measure, fits, least_beside, place, same, says, score
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import ListedPrompt

# The order must not depend on the page that is asked for. So there are tiers: what is among the first of either arm, what is among
# four times as many, and so on; and within a tier blocks, in which neighbours and age may bring one forward.
_CANDIDATES = 60
"""So many of each arm are judged at the least, and three for each hit that is asked for or was given before."""
_PER_HIT = 3
_WIDER = 4
_PLACED = 20
"""A block has so many more than a page."""
_SPARE = 20
"""So many more than a page are placed at the least: some say the same as others."""
_MOST_SEEN = 10_000
"""So many hits a page may lie behind at least, and as many as the scope has documents."""
_PROMPT_CHARS = 16_000


async def find(conn: Conn, principal: Principal, asked: Asked, ranking: Ranking, sought: Sought | None = None) -> Page:
    """What fits the query, the best first; leaves no trace, so what is shown of it has to be `served`.

    A key that is bound to a project searches that one, whatever is asked. Without `sought` only words count. A query of only stop
    words, or of only excluded ones, finds nothing. When not even the best reaches `min_score`, nothing is found.
    """
    text, must = marks(asked.query)
    asked = msgspec.structs.replace(
        asked,
        filters=msgspec.structs.replace(asked.filters, must=must),
        project_ids=asked.project_ids if principal.project_id is None else [principal.project_id],
    )
    lexemes = await repository.lexemes(conn, principal.team_id, asked.project_ids, text, MOST_WORDS)
    if not lexemes:
        return Page(hits=[], next=None, total=0, is_estimate=False, terms={})
    words = await lexical.look_up(conn, principal.team_id, asked.project_ids, lexemes)
    search = _Search(conn, principal.team_id, asked, ranking, sought, words)
    ordered = await search.ordered()
    start = _start(ordered, asked.after)
    hits, taken = await search.page(ordered[start:])
    last = start + taken
    # Whoever is behind what was looked at fits no better than the worst of it. So a page that is not filled is the last one, though
    # of what is only near there is always more.
    is_all = search.placed_all and taken < asked.limit
    is_cut = search.is_cut and not is_all
    is_more = taken > 0 and (last < len(ordered) or is_cut or not search.placed_all)
    return Page(
        hits=hits,
        next=Place(score=ordered[last - 1].score, id=ordered[last - 1].id, seen=last) if is_more else None,
        total=max(search.total, round(words.hits)) if is_cut else search.total,
        is_estimate=is_cut,
        terms=search.terms,
    )


async def best(
    conn: Conn, principal: Principal, project_id: UUID | None, query: str, ranking: Ranking, sought: Sought | None
) -> Observation | None:
    """The observation that fits best, of the project or of all of the team."""
    asked = Asked(query=query, project_ids=None if project_id is None else [project_id], limit=1)
    page = await find(conn, principal, asked, ranking, sought)
    return page.hits[0].observation if page.hits else None


class _Search:
    """One search, while it goes on."""

    def __init__(self, conn: Conn, team_id: UUID, asked: Asked, ranking: Ranking, sought: Sought | None, words: Words) -> None:
        self._conn = conn
        self._team_id = team_id
        self._asked = asked
        self._ranking = ranking
        self._sought = sought
        self._words = words
        self.is_cut = False
        self.placed_all = True
        self.total = 0
        self.terms: dict[str, float] = {}

    async def ordered(self) -> list[Candidate]:
        """The best first, as far as the page may need. None when not even the best fits well enough."""
        depth = self._depth()
        filters = self._asked.filters
        candidates = await self._observations(depth) if filters.takes_observations else []
        candidates += await self._prompts(depth) if filters.takes_prompts else []
        candidates = sorted((one for one in candidates if one.score > 0), key=lambda one: (-one.tier, *_rank(one)), reverse=True)
        gate = self._asked.min_score is None
        if not candidates or (gate and not fits(candidates[0], len(self._words.lexemes), self._ranking)):
            self.is_cut = False
            return []
        return await self._placed(candidates)

    def _depth(self) -> int:
        """How many of each arm are looked at: the first tier, or what is so many times wider that the page is within it."""
        seen = self._asked.after.seen if self._asked.after else 0
        seen = min(seen, max(self._words.documents, _MOST_SEEN))  # it is the client's word
        depth = max(_CANDIDATES, _PER_HIT * self._asked.limit)
        while depth < _PER_HIT * (seen + self._asked.limit):
            depth *= _WIDER
        return depth

    def _tier(self, at: int) -> int:
        """Of what stands at that place of an arm, from 0 on."""
        tier, width = 0, max(_CANDIDATES, _PER_HIT * self._asked.limit)
        while at >= width:
            tier, width = tier + 1, width * _WIDER
        return tier

    async def _placed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Block by block, until there is a page."""
        now, after = datetime.now(UTC), self._asked.after
        least = self._asked.min_score
        if least is None:
            least = least_beside(candidates[0], self._words.documents, self._ranking)
        ordered: list[Candidate] = []
        beside: dict[UUID, Candidate] = {}
        tier, placed, is_reached = -1, 0, after is None
        for block in _blocks(candidates, self._asked.limit + _PLACED):
            if block[0].tier > tier:
                tier = block[0].tier
                beside = {one.id: one for one in candidates if one.tier <= tier}
            told = await repository.briefs(self._conn, self._team_id, [one.id for one in block])
            place(beside, told, now, self._ranking)
            shown = sorted((one for one in block if one.score >= least), key=_rank, reverse=True)
            ordered += shown
            placed += len(block)
            is_reached = is_reached or any(after is not None and one.id == after.id for one in shown)
            if is_reached and len(ordered) - _start(ordered, after) >= self._asked.limit + _SPARE:
                break
        self.placed_all = placed == len(candidates)
        self.total = len(ordered) + sum(1 for one in candidates[placed:] if one.score >= least)
        return ordered

    async def page(self, ordered: Sequence[Candidate]) -> tuple[list[Hit], int]:
        """The first hits, and how many candidates they took: what says no more than a hit above it is only named there."""
        hits: list[Hit] = []
        words: dict[UUID, frozenset[str]] = {}
        alike: dict[UUID, list[int]] = {}
        taken = 0
        while len(hits) < self._asked.limit and taken < len(ordered):
            chunk = ordered[taken : taken + self._asked.limit]
            texts = await self._texts(chunk)
            for one in chunk:
                if len(hits) == self._asked.limit:
                    break
                taken += 1
                found = texts.get(one.id)
                if isinstance(found, Observation):
                    said = says(found)
                    double = next((id_ for id_, other in words.items() if same(said, other)), None)
                    if double is not None:
                        alike.setdefault(double, []).append(found.number)
                        continue
                    words[one.id] = said
                if found is not None:
                    hits.append(_hit(one, found))
        return [msgspec.structs.replace(hit, alike=alike.get(hit.id, ())) for hit in hits], taken

    async def _observations(self, depth: int) -> list[Candidate]:
        found = await lexical.fitting(self._conn, self._asked, self._words, self._ranking, depth)
        candidates = {
            row.id: Candidate(id=row.id, words=row.score, tier=self._tier(at)) for at, row in enumerate(found.ranked) if row.id
        }
        near: set[UUID] = set()
        background = 0.0
        if self._sought:
            background = await repository.background(self._conn, self._team_id, self._asked.project_ids, self._sought)
            found_near = await nearest(self._conn, self._team_id, self._asked, self._sought, depth, self._words.documents)
            for at, one in enumerate(found_near):
                near.add(one.id)
                candidate = candidates.setdefault(one.id, Candidate(id=one.id, tier=self._tier(at)))
                candidate.cosine = one.cosine
                candidate.tier = min(candidate.tier, self._tier(at))
            unplaced = [each for each, one in candidates.items() if one.cosine is None]
            for one in await repository.nearness(self._conn, self._team_id, unplaced, self._sought):
                candidates[one.id].cosine = one.cosine
            unread = [each for each, one in candidates.items() if one.words == 0]
            for row in await lexical.these(self._conn, unread, self._words, found, self._ranking):
                if row.id:
                    candidates[row.id].words = row.score
        for one in candidates.values():
            one.is_near = one.id in near
        self.is_cut = self.is_cut or len(found.ranked) >= depth or len(near) >= depth
        return self._judged(candidates.values(), found, background, has_meaning=bool(near))

    async def _prompts(self, depth: int) -> list[Candidate]:
        found = await lexical.prompts(self._conn, self._asked, self._words, self._ranking, depth)
        self.is_cut = self.is_cut or len(found.ranked) >= depth
        candidates = [
            Candidate(id=row.id, words=row.score, is_prompt=True, tier=self._tier(at))
            for at, row in enumerate(found.ranked)
            if row.id
        ]
        return self._judged(candidates, found, 0.0, has_meaning=False)

    def _judged(self, candidates: Iterable[Candidate], found: Found, background: float, *, has_meaning: bool) -> list[Candidate]:
        by = Measure(most=found.most, known=found.known, background=background, has_meaning=has_meaning, ranking=self._ranking)
        judged = list(candidates)
        for one in judged:
            score(one, by)
        self.terms |= dict(zip(self._words.lexemes, found.idfs, strict=True))
        return judged

    async def _texts(self, candidates: Sequence[Candidate]) -> dict[UUID, Observation | ListedPrompt]:
        texts: dict[UUID, Observation | ListedPrompt] = {}
        if ids := [one.id for one in candidates if not one.is_prompt]:
            texts |= {one.id: one for one in await observations.by_ids(self._conn, self._team_id, ids)}
        if ids := [one.id for one in candidates if one.is_prompt]:
            texts |= await sessions.prompts_by_ids(self._conn, self._team_id, ids, max_chars=_PROMPT_CHARS)
        return texts


def _start(ordered: Sequence[Candidate], after: Place | None) -> int:
    """Where the page begins: behind the hit that the last one ended with, wherever that stands by now, or else by its score."""
    if after is None:
        return 0
    behind = next((at for at, one in enumerate(ordered, 1) if one.id == after.id), None)
    if behind is not None:
        return behind
    return next((at for at, one in enumerate(ordered) if _rank(one) < (after.score, after.id)), len(ordered))


def _blocks(candidates: Sequence[Candidate], size: int) -> Iterator[list[Candidate]]:
    """None has candidates of two tiers."""
    for _, of_tier in groupby(candidates, lambda one: one.tier):
        members = list(of_tier)
        yield from (members[first : first + size] for first in range(0, len(members), size))


def _rank(one: Candidate) -> tuple[float, UUID]:
    return one.score, one.id


def _hit(one: Candidate, found: Observation | ListedPrompt) -> Hit:
    return Hit(
        id=one.id,
        observation=found if isinstance(found, Observation) else None,
        prompt=found if isinstance(found, ListedPrompt) else None,
        score=one.score,
        match_type=one.match_type,
        parts=one.parts,
    )
