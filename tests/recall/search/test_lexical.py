"""BM25 in SQL is BM25 as it stands in the textbook."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import fmean, pstdev
from uuid import UUID, uuid4

import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.recall.search import lexical, repository
from cmserver.recall.search.model import Filters, MatchedWords, RankedRow, Ranking, SearchPage, SearchRequest
from cmserver.recall.search.search import find_page
from tests.conftest import Cast, Person, bound_to
from tests.make import Make
from tests.recall.search.tools import NOON, PLAIN, numbers, run_search

WORDS = [
    "zorb",
    "mulk",
    "tarp",
    "vint",
    "gorm",
    "pelk",
    "drum",
    "fisk",
    "lomp",
    "nuvok",
    "brack",
    "stilt",
    "klim",
    "worp",
    "dask",
    "yont",
    "hurd",
    "plom",
    "vask",
    "trund",
    "quom",
    "birk",
    "folt",
    "gland",
    "jask",
    "kroft",
    "lund",
    "mord",
    "nisk",
    "orlop",
    "prat",
    "rusk",
    "sorp",
    "tulk",
    "urk",
    "vorn",
    "wisp",
    "xant",
    "yulk",
    "zind",
]
"""Stemming leaves them alone, so that plain counting is a fair reference."""
WEIGHT = {"A": 1.0, "B": 0.77, "C": 0.69, "D": 0.46}

Document = Sequence[tuple[str, str]]
"""Its words in order, each with the letter of the field that it stands in."""


def textbook(documents: Mapping[int, Document], query: Sequence[str], k1: float, b: float) -> dict[int, float]:
    """BM25 with the idf that is never negative, times how high up each word stands."""
    mean = sum(map(len, documents.values())) / len(documents)
    scores: dict[int, float] = {}
    for number, document in documents.items():
        for term in set(query):
            fields = [field for word, field in document if word == term]
            if fields:
                df = sum(1 for document in documents.values() if any(word == term for word, _ in document))
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                tf = len(fields)
                part = idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(document) / mean))
                scores[number] = scores.get(number, 0.0) + part * standing(fields)
    return scores


def standing(fields: Sequence[str]) -> float:
    """The mean weight of its places, relative to a B: the best counts whole, and each other by the square of its place less."""
    weights = [WEIGHT[field] for field in fields]
    shares = [1 / place**2 for place in range(1, len(fields) + 1)]
    best = max(range(len(fields)), key=lambda place: weights[place])  # the first of the best
    with_best_whole = sum(map(math.prod, zip(weights, shares, strict=True))) + weights[best] * (1 - shares[best])
    return with_best_whole / sum(shares) / WEIGHT["B"]


async def filled(make: Make, person: Person, count: int, *, seed: int = 20260305) -> dict[int, Document]:
    rng = random.Random(seed)
    documents: dict[int, Document] = {}
    for n in range(count):
        title, narrative, fact = (rng.choices(WORDS, weights=range(1, len(WORDS) + 1), k=k) for k in (3, rng.randint(2, 40), 4))
        files = rng.sample(WORDS, 2)
        made = await make.observation(
            project=person.project,
            title=" ".join(title),
            narrative=" ".join(narrative),
            facts=[" ".join(fact)],
            files_modified=files,
            created_at=NOON + timedelta(seconds=n // 2),
        )
        # Paths are searched as they are, and again in their parts.
        fields = {"A": title, "B": fact, "C": narrative, "D": files * 2}
        documents[made.number] = [(word, field) for field, words in fields.items() for word in words]
    return documents


async def ranked(
    db: Db, person: Person, query: str, ranking: Ranking, *, near: Sequence[UUID] = (), limit: int = 1_000
) -> tuple[list[RankedRow], MatchedWords]:
    """The rows by their BM25, the best first, and what it is in all."""
    request = SearchRequest(query=query, project_ids=[person.project.id])
    async with db.tenant(person.team_id) as conn:
        lexemes, statistics = await lexical.read_words(conn, person.team_id, request.project_ids, query)
        asked = (conn, person.team_id, request, lexemes, statistics, ranking)
        words = await repository.matched(*asked, limit)
        statistics = msgspec.structs.replace(statistics, found_in=words.found_in)
        asked = (conn, person.team_id, request, lexemes, statistics, ranking)
        rows = await repository.ranked(*asked, words.ids, near, None)
    return sorted((row for row in rows if row.id), key=lambda row: row.place), words


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.6, 0.75), (0.0, 0.0), (2.0, 1.0)])
async def test_scores_and_order_are_those_of_the_textbook(db: Db, cast: Cast, make: Make, k1: float, b: float):
    documents = await filled(make, cast.alice, 120)
    await make.observation(project=cast.charlie.project, title=" ".join(WORDS))
    of_number = await _numbers(db, cast.alice)
    rng = random.Random(7)

    for length in (1, 2, 5, 20):
        query = rng.sample(WORDS, length)
        rows, words = await ranked(db, cast.alice, " ".join(query), Ranking(k1=k1, b=b))

        scores = {of_number[row.id]: row.bm25 for row in rows}
        assert scores == pytest.approx(textbook(documents, query, k1, b), rel=1e-4)
        assert words.best == pytest.approx(max(scores.values()), rel=1e-6)
        ordered = [(-row.bm25, -of_number[row.id]) for row in rows]
        assert ordered == sorted(ordered)


async def _numbers(db: Db, person: Person) -> dict[object, int]:
    async with db.tenant(person.team_id) as conn:
        cursor = await conn.execute("SELECT id, number FROM observations_in_team")
        return dict(await cursor.fetchall())


async def test_what_the_team_shares_counts_among_the_documents(db: Db, cast: Cast, make: Make):
    billing = await bound_to(db, cast.alice, "billing")
    documents = await filled(make, cast.alice, 30)
    shared = await make.observation(project=billing.project, title="zorb mulk", scope="team")
    await make.observation(project=billing.project, title="zorb mulk")
    documents[shared.number] = [("zorb", "A"), ("mulk", "A")]
    of_number = await _numbers(db, cast.alice)

    rows, _ = await ranked(db, cast.alice, "zorb mulk", Ranking())

    scores = {of_number[row.id]: row.bm25 for row in rows}
    assert scores == pytest.approx(textbook(documents, ["zorb", "mulk"], 0.9, 0.75), rel=1e-4)


async def test_what_was_found_otherwise_is_judged_by_the_same_formula(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    await filled(make, cast.alice, 60)
    ranking, query = Ranking(k1=1.2, b=0.6), "zorb mulk tarp wisp xant"
    rows, _ = await ranked(db, cast.alice, query, ranking)
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)

    again, _ = await ranked(db, cast.alice, query, ranking, near=[row.id for row in rows if row.id], limit=1)

    assert len(rows) > 20
    assert {row.id: row.bm25 for row in again} == pytest.approx({row.id: row.bm25 for row in rows}, rel=1e-6)


async def test_the_mean_and_the_deviation_are_about_those_of_all_documents(db: Db, cast: Cast, make: Make):
    documents = await filled(make, cast.alice, 300)

    for query in (WORDS[:3], WORDS[20:28], WORDS[-2:]):
        scores = textbook(documents, query, 0.9, 0.75)
        _, words = await ranked(db, cast.alice, " ".join(query), Ranking())

        of_all = [scores.get(number, 0.0) for number in documents]
        assert words.mean == pytest.approx(fmean(of_all), rel=0.02)
        assert words.deviation == pytest.approx(pstdev(of_all), rel=0.1)


async def test_a_word_is_counted_exactly_from_its_rank_in_any_mix_of_fields(db: Db):
    """PostgreSQL keeps 256 places of a word in a document; what comes again after that is not counted."""
    rng = random.Random(1)
    async with db.system() as conn:
        for times in [*range(1, 257), 300, 1_000]:
            letters = sorted(rng.choices("ABCD", k=times))
            vector = "'wombat':" + ",".join(f"{place}{letter}" for place, letter in enumerate(letters, 1))
            cursor = await conn.execute(
                f"SELECT {repository.TIMES} "
                "FROM (SELECT ts_rank('{1,1,1,1}', %s::tsvector, 'wombat'::tsquery)::float8 AS flat) r",
                [vector],
            )
            assert await cursor.fetchone() == (min(times, 256),), times


async def test_how_often_a_word_is_there_is_counted_over_all_fields(db: Db, cast: Cast, make: Make):
    often = {
        (
            await make.observation(project=cast.alice.project, title="wombat " * a, narrative="wombat " * c, facts=["wombat " * b])
        ).id: a + b + c
        for a, b, c in [(1, 0, 0), (0, 0, 7), (3, 5, 40), (50, 50, 100), (200, 200, 200)]
    }

    # Then a score is how often the word is there, times how high up it stands, times what its rarity says: see the formula.
    rows, words = await ranked(db, cast.alice, "wombat", Ranking(k1=10, b=0))

    (found_in,) = words.found_in
    idf = math.log(1 + max(4 - found_in + 0.5, 0.5) / (found_in + 0.5))
    for row in rows:
        assert row.id
        tf = min(often[row.id], 255)
        assert WEIGHT["D"] <= row.bm25 / (idf * tf * 11 / (tf + 10)) * WEIGHT["B"] <= WEIGHT["A"]


async def test_in_a_large_scope_the_rarer_words_lead_to_what_all_of_them_find_first(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    for n in range(120):
        rare = " quokka" if n % 30 == 0 else ""
        await make.observation(project=cast.alice.project, title=f"wombat word{n}{rare}", narrative="numbat" if n % 2 else None)
    whole = await run_search(db, cast.alice, "quokka wombat numbat")

    monkeypatch.setattr(repository, "SAMPLE", 50)
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)
    monkeypatch.setattr(lexical, "_MAX_ROWS", 10)
    pruned = await run_search(db, cast.alice, "quokka wombat numbat")

    assert len(whole.hits) == 100
    assert numbers(pruned) == numbers(whole)[:4]
    assert pruned.terms.keys() == whole.terms.keys()


_SEED = """
    INSERT INTO observations (id, number, project_id, team_id, origin, type, title, narrative, content)
    SELECT gen_random_uuid(), n, %(project_id)s, %(team_id)s, 'model', 'change', concat_ws(' ', 'word' || n, 'wombat'),
           concat_ws(' ', CASE WHEN n %% 4 <> 0 THEN 'numbat' END, CASE WHEN n %% 599 = 0 THEN 'quokka' END,
                          CASE WHEN n %% 701 = 0 THEN 'bilby' END), ''
      FROM generate_series(1, %(count)s) n
"""


async def test_in_a_large_scope_what_is_found_has_the_scores_of_one_that_is_read_whole(
    db: Db, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    count = repository.SMALL_SCOPE + 400
    async with db.system() as conn:
        seeded = {"project_id": cast.alice.project.id, "team_id": cast.alice.team_id, "count": count}
        await conn.execute(_SEED, seeded)
        await conn.execute("INSERT INTO observation_counters (team_id, last_number) VALUES (%(team_id)s, %(count)s)", seeded)
    query = "quokka bilby wombat numbat"
    large_rows, large = await ranked(db, cast.alice, query, Ranking())
    monkeypatch.setattr(repository, "SMALL_SCOPE", count)
    whole_rows, whole = await ranked(db, cast.alice, query, Ranking())

    whole_bm25 = {row.id: row.bm25 for row in whole_rows}
    assert (len(large_rows), len(whole_rows)) == (7, 1_000), "the rare words lead"
    assert [row.id for row in large_rows] == [row.id for row in whole_rows[:7]]
    for row in large_rows:
        assert row.bm25 == pytest.approx(whole_bm25[row.id], rel=0.05)
    assert large.found_in == pytest.approx(whole.found_in, rel=0.15)
    assert large.mean == pytest.approx(whole.mean, abs=0.3)
    assert large.deviation == pytest.approx(whole.deviation, rel=0.4)


async def test_of_common_words_those_come_first_that_have_them_together_and_none_is_lost_where_these_are_few(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    """Words that exclude each other find what has one of them, and what passes a filter is looked for before any cut."""
    for n in range(150):
        narrative = ("wombat", "numbat", "wombat numbat", "bilby")[n % 4]
        await make.observation(
            project=cast.alice.project, title=f"word{n}", narrative=narrative, type="bugfix" if n == 4 else "change"
        )
    whole = {query: numbers(await run_search(db, cast.alice, query)) for query in ("wombat numbat", "numbat bilby", "wombat")}
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)
    monkeypatch.setattr(repository, "SAMPLE", 100)
    monkeypatch.setattr(lexical, "_MAX_ROWS", 1)
    monkeypatch.setattr(lexical, "_MIN_TOGETHER", 10)
    monkeypatch.setattr(repository, "FIRST_TIER", 30)
    monkeypatch.setattr(repository, "PAGE_EXTRA", 0)

    both = await run_search(db, cast.alice, "wombat numbat", limit=20)
    filtered = await run_search(db, cast.alice, "wombat numbat", filters=Filters(types=["bugfix"]), limit=20)
    apart = await run_search(db, cast.alice, "numbat bilby", limit=20)

    assert numbers(both) == whole["wombat numbat"][:20]
    assert {number % 4 for number in numbers(both)} == {3}
    assert numbers(filtered) == [5], "it has one of the words"
    assert len(apart.hits) == 20
    assert set(numbers(apart)) <= set(whole["numbat bilby"])


async def test_of_common_words_pages_of_any_size_have_the_same_hits_in_the_same_order(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    """Those with all words together first, however long, and then each that has the rarest."""
    filling = " ".join(f"filler{n}" for n in range(150))
    for n in range(160):
        title = f"wombat w{n}" if n % 4 == 0 else f"word{n}"
        narrative = ("wombat wombat wombat", "numbat", f"wombat numbat {filling}", "numbat bilby")[n % 4]
        await make.observation(project=cast.alice.project, title=title, narrative=narrative)
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)
    monkeypatch.setattr(repository, "SAMPLE", 100)
    monkeypatch.setattr(repository, "FIRST_TIER", 30)
    monkeypatch.setattr(repository, "PAGE_EXTRA", 5)
    monkeypatch.setattr(lexical, "_MAX_ROWS", 1)
    monkeypatch.setattr(lexical, "_MIN_TOGETHER", 10)

    small, large = [await _pages(db, cast.alice, "wombat numbat", limit) for limit in (10, 100)]

    found = [numbers(page) for page in small]
    assert [number for page in found for number in page] == numbers(large[0])
    assert {number % 4 for page in found[:3] for number in page} == {3}, "the first tier has both words"
    assert sorted(numbers(large[0])) == [n for n in range(1, 161) if n % 4 in {1, 3}]
    assert (small[-1].total, small[-1].is_estimate) == (80, False)


async def _pages(db: Db, person: Person, query: str, limit: int) -> list[SearchPage]:
    pages: list[SearchPage] = []
    while not pages or pages[-1].next:
        after = pages[-1].next if pages else None
        request = SearchRequest(query=query, project_ids=[person.project.id], limit=limit, after=after)
        async with db.tenant(person.team_id) as conn:
            pages.append(await find_page(conn, person.principal, request, PLAIN))
        assert len(pages) < 20
    return pages


async def test_of_many_turns_that_have_a_word_the_newest_are_looked_at(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    made = [await make.turn(project=cast.alice.project, prompt=f"wombat {n}x", reply="Fed.") for n in range(8)]
    monkeypatch.setattr(repository, "MAX_TURNS", 5)
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)

    for filters in (Filters(), Filters(since=NOON)):
        page = await run_search(db, cast.alice, "wombat", filters=filters)

        assert {hit.id for hit in page.hits} == {turn.id for turn in made[3:]}


async def test_a_project_that_is_named_twice_is_searched_once(db: Db, cast: Cast, make: Make):
    for n in range(3):
        await make.observation(project=cast.alice.project, title=f"wombat {n}x")
    once, twice = [[cast.alice.project.id] * times for times in (1, 2)]

    async with db.tenant(cast.alice.team_id) as conn:
        read = [await lexical.read_words(conn, cast.alice.team_id, ids, "wombat") for ids in (once, twice)]

    assert read[0] == read[1]


async def test_a_scope_that_is_too_large_to_be_counted_is_as_large_as_its_numbers_say(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    other = await bound_to(db, cast.alice, "billing")
    for n in range(120):
        project = other.project if n % 3 == 2 else cast.alice.project
        await make.observation(project=project, title=f"wombat word{n}{' quokka' if n % 12 == 0 else ''}")
    exact = await run_search(db, cast.alice, "quokka wombat")

    monkeypatch.setattr(repository, "SAMPLE", 20)
    monkeypatch.setattr(repository, "MAX_COUNTED", 10)
    estimated = await run_search(db, cast.alice, "quokka wombat")

    assert estimated.terms == pytest.approx(exact.terms, abs=0.1)
    assert numbers(estimated)[:10] == numbers(exact)[:10]


def test_the_size_of_a_large_scope_is_remembered_for_a_minute_and_that_of_a_small_one_is_counted():
    now = 0.0
    sizes = lexical.ScopeSizes(clock=lambda: now)
    large, small = (uuid4(), frozenset({uuid4()})), (uuid4(), frozenset({uuid4()}))

    sizes.keep(large, repository.SMALL_SCOPE + 1)
    sizes.keep(small, repository.SMALL_SCOPE)
    now = 59.0
    sizes.keep(large, 5 * repository.SMALL_SCOPE)  # what was remembered was not counted anew

    assert sizes.find(large) == repository.SMALL_SCOPE + 1
    assert sizes.find(small) is None
    now = 61.0
    assert sizes.find(large) is None
    sizes.keep(large, 5 * repository.SMALL_SCOPE)
    assert sizes.find(large) == 5 * repository.SMALL_SCOPE


def test_scopes_are_told_apart_by_their_team():
    sizes = lexical.ScopeSizes(clock=lambda: 0.0)
    project = frozenset({uuid4()})

    sizes.keep((uuid4(), project), 10_000)

    assert sizes.find((uuid4(), project)) is None
