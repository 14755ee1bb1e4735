"""One score from what words and meaning say, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest
from psycopg import AsyncCursor

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.sql import Query
from cmserver.embeddings.model import QueryVector
from cmserver.observations.model import Observation
from cmserver.recall.search import repository
from cmserver.recall.search.model import Baseline, Filters, MatchType, Ranking, ScopeStatistics, SearchPage, SearchRequest, Spread
from cmserver.recall.search.score import Candidate, score_candidate, score_of
from cmserver.recall.search.search import find_page
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.worker import session
from tests.doors.mcp.tools import call
from tests.house.house import queries_of
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import MEANT, PLAIN, Vectors, hit_of, numbers, post_search, run_search, search_numbers
from tests.table import try_rows

STATISTICS = ScopeStatistics(
    documents=100,
    mean_words=10,
    found_in=[5],
    leading=[0],
    observations=Baseline(words=Spread(mean=1.0, deviation=2.0), meaning=Spread(mean=0.1, deviation=0.1)),
    turns=Baseline(words=Spread(mean=1.0, deviation=4.0), meaning=Spread(mean=0.3, deviation=0.1)),
)
RANKING = Ranking()


def by_formula(parts: Mapping[str, float], weight: float) -> float:
    """Words and meaning by their weights, in standard deviations, times what it is if it stands out at all."""
    deviations = 2 * ((1 - weight) * parts["words"] + weight * parts.get("meaning", 0))
    deviations *= parts.get("factor", 1) if deviations > 0 else 1
    assert parts["deviations"] == pytest.approx(deviations, abs=0.001)
    odds = 1 + deviations if deviations > 0 else 1 / (1 - deviations)
    return odds / (odds + 9)


async def diary(client: httpx.AsyncClient, cast: Cast, make: Make) -> list[Observation]:
    """A session's observations in a row, a summary at the end, over a year."""
    session_id = await session(client, cast.alice, "s-1")
    titles = ["wombat quokka", "wombat", "numbat", "quokka wombat hay", "wombat sums"]
    now = datetime.now(UTC)
    return [
        await make.observation(
            project=cast.alice.project,
            title=title,
            kind="summary" if "sums" in title else "observation",
            server_session_id=session_id,
            created_at=now - timedelta(days=90 * (len(titles) - n)),
        )
        for n, title in enumerate(titles)
    ]


async def test_the_parts_that_are_told_make_the_score(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    made = await diary(client, cast, make)
    for n, observation in enumerate(made[:4]):  # the last waits for its vector
        vectors.give(observation, [1, n])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0.5))

    judged: list[dict[str, Any]] = [{}, {"neighbours": False}, {"meaningWeight": 1}, {"meaningWeight": 0}]
    for fields in judged:
        answer = await post_search(client, cast.alice, "wombat quokka zebra", explain=True, limit=100, **fields)
        weight = fields.get("meaningWeight", app.dependencies.get(Ranking).meaning_weight)
        hits = answer["observations"]
        assert {hit["score"] for hit in hits} != {0}
        assert len(hits) >= 2
        for hit in hits:
            assert hit["score"] == pytest.approx(by_formula(hit["parts"], weight), abs=0.001)
        assert answer["terms"]["zebra"] == 0 < answer["terms"]["wombat"] < answer["terms"]["quokka"]
        assert any(hit["parts"]["neighbours"] for hit in hits) == bool(fields.get("neighbours", True))

    first = (await post_search(client, cast.alice, "wombat quokka zebra", explain=True))["observations"][0]
    query = {"query": "wombat quokka zebra", "projectId": cast.alice.project.canonical_id, "explain": True}
    lines = await client.post("/v1/search", json=query, headers={**cast.alice.headers, "Accept": "text/plain"})
    for text in (lines.text, (await call(client, cast.alice, "observation_search", **query))[0]):
        (line,) = [line for line in text.splitlines() if line.startswith(f"#{first['number']} ")]
        assert f"words {first['parts']['words']:.2f}, " in line
    assert "parts" not in (await post_search(client, cast.alice, "wombat"))["observations"][0]
    assert "terms" not in await post_search(client, cast.alice, "wombat")


async def test_a_hit_says_whether_words_or_meaning_have_found_it(db: Db, cast: Cast, make: Make, vectors: Vectors):
    project = cast.alice.project
    lexical, semantic, both, waiting = [
        await make.observation(project=project, title=title)
        for title in ("wombat here", "a marsupial of Tasmania", "wombat and marsupial", "wombat waits")
    ]
    far = [await make.observation(project=project, title=f"invoice {word}") for word in ("paid", "lost")]
    for observation, vector in ((lexical, [-1, 0]), (semantic, [1, 0]), (both, [1, 0.1]), (far[0], [-1, 0]), (far[1], [-1, 0.1])):
        vectors.give(observation, vector)

    page = await run_search(db, cast.alice, "wombat", ranking=MEANT, sought=vectors.near(1, 0))

    expected: dict[int, MatchType] = {semantic.number: "semantic", both.number: "both", waiting.number: "lexical"}
    assert {
        number: hit_of(page, observation).match_type for observation in (semantic, both, waiting) for number in [observation.number]
    } == expected
    assert "meaning" not in hit_of(page, waiting).parts
    assert not {observation.number for observation in far} & set(numbers(page))


@pytest.mark.parametrize(("weight", "first"), [(0.0, "words"), (1.0, "meaning")])
async def test_all_the_weight_on_one_side_lets_that_side_decide(
    db: Db, cast: Cast, make: Make, vectors: Vectors, weight: float, first: str
):
    words = await make.observation(project=cast.alice.project, title="wombat quokka")
    meaning = await make.observation(project=cast.alice.project, title="a long text in which the wombat is named at its very end")
    vectors.give(words, [0, 1])
    vectors.give(meaning, [1, 0])
    ranking = msgspec.structs.replace(MEANT, meaning_weight=weight)

    page = await run_search(db, cast.alice, "wombat quokka", ranking=ranking, sought=vectors.near(1, 0))

    assert numbers(page)[0] == (words if first == "words" else meaning).number


async def test_what_is_not_embedded_yet_is_found_by_its_words(db: Db, cast: Cast, make: Make, vectors: Vectors):
    observation = await make.observation(project=cast.alice.project, title="The wombat is fed")

    page = await run_search(db, cast.alice, "wombat", ranking=MEANT, sought=vectors.near(1, 0))

    assert numbers(page) == [observation.number]
    assert page.hits[0].match_type == "lexical"


async def test_a_query_about_nothing_known_finds_what_is_nearest_and_nothing_with_a_high_minimum_score(
    db: Db, cast: Cast, make: Make
):
    for n in range(40):
        await make.observation(project=cast.alice.project, title=f"The wombat {n} is fed", narrative="The keeper checks the fence.")
    wanted = await make.observation(project=cast.alice.project, title="A quokka escaped", narrative="The fence was open.")

    async def search(query: str, min_score: float) -> list[int]:
        return numbers(await run_search(db, cast.alice, query, ranking=Ranking(), min_score=min_score))

    nonsense = "how does the quantum flux capacitor of the keeper align tachyon harmonics before teleportation"
    assert len(await search(nonsense, 0)) > 0
    assert await search(nonsense, 0.3) == []
    assert await search("has the quokka escaped", 0.3) == [wanted.number]


async def test_what_says_the_same_is_told_once_and_named_beside_it(client: httpx.AsyncClient, cast: Cast, make: Make):
    text = "The keeper of the zoo feeds every wombat at nine, after the fence was checked, and writes it down in the book."
    for narrative in (text, text, f"{text} Again.", "A wombat escaped."):
        await make.observation(project=cast.alice.project, title="The wombat is fed", narrative=narrative)

    hits = (await post_search(client, cast.alice, "wombat fed"))["observations"]

    (grouped,) = [hit for hit in hits if hit["alike"]]
    assert {grouped["number"], *grouped["alike"]} == {1, 2, 3}
    assert sorted(hit["number"] for hit in hits) == sorted([grouped["number"], 4])


@pytest.mark.parametrize(
    ("first_title", "second_title"), [("9", "10"), ("v1.2", "v1.3"), ("room A1", "room A2"), ("2026-01-05", "2026-01-06")]
)
async def test_where_a_number_differs_both_are_told(
    client: httpx.AsyncClient, cast: Cast, make: Make, first_title: str, second_title: str
):
    for which in (first_title, second_title):
        text = f"The keeper of the zoo feeds every wombat at {which}, after the fence was checked, and writes it down in the book."
        await make.observation(project=cast.alice.project, title="The wombat is fed", narrative=text)

    assert sorted(await search_numbers(client, cast.alice, "wombat fed")) == [1, 2]


async def test_a_neighbour_in_the_session_speaks_for_a_hit(db: Db, client: httpx.AsyncClient, cast: Cast, make: Make):
    session_id, elsewhere = await session(client, cast.alice, "s-1"), await session(client, cast.alice, "s-2")
    made = [
        await make.observation(project=cast.alice.project, title=title, server_session_id=where)
        for title, where in [("wombat quokka one", session_id), ("wombat two", session_id), ("wombat three", elsewhere)]
    ]
    alone = await run_search(db, cast.alice, "wombat quokka", ranking=PLAIN)
    together = await run_search(db, cast.alice, "wombat quokka", ranking=msgspec.structs.replace(PLAIN, neighbours=True))

    assert hit_of(alone, made[1]).score == pytest.approx(hit_of(alone, made[2]).score)
    assert hit_of(together, made[1]).score > hit_of(together, made[2]).score
    assert hit_of(together, made[2]).parts["neighbours"] == 0


def judge(statistics: ScopeStatistics = STATISTICS, ranking: Ranking = RANKING, **fields: Any) -> Candidate:
    """A scored candidate with these fields."""
    candidate = Candidate(id=uuid4(), bm25=fields.pop("bm25", 0.0), **fields)
    score_candidate(candidate, statistics, ranking)
    return candidate


def test_each_arm_counts_in_units_of_its_own_spread():
    far_apart, close_together = (
        msgspec.structs.replace(STATISTICS, observations=msgspec.structs.replace(STATISTICS.observations, meaning=meaning))
        for meaning in (Spread(mean=0.0, deviation=0.2), Spread(mean=0.7, deviation=0.02))
    )

    assert judge(far_apart, cosine=0.4).deviations == pytest.approx(judge(close_together, cosine=0.74).deviations)
    assert judge(cosine=0.3).parts["meaning"] == pytest.approx(2)
    assert judge(bm25=5.0, ranking=PLAIN).parts["words"] == pytest.approx(2)


def test_an_arm_that_is_missing_counts_as_the_average():
    assert judge(bm25=3.0).deviations == pytest.approx(judge(bm25=3.0, cosine=0.1).deviations)


def test_neighbours_lend_their_words_and_a_missing_one_is_an_average_one():
    alone, beside_average = judge(bm25=3.0), judge(bm25=3.0, neighbours=2 * STATISTICS.observations.words.mean, neighbour_count=2)

    assert alone.deviations == pytest.approx(beside_average.deviations)
    assert judge(bm25=3.0, neighbours=6.0, neighbour_count=2).deviations > alone.deviations
    assert judge(bm25=3.0, neighbours=0.0, neighbour_count=2).deviations < alone.deviations


def test_what_is_secondary_keeps_a_part_of_what_it_stands_out_by_and_gains_nothing_by_being_below_the_average():
    assert judge(bm25=5.0, is_secondary=True).deviations == pytest.approx(0.3 * judge(bm25=5.0).deviations)
    # Among turns it is one deviation of words, and one of meaning.
    assert judge(bm25=5.0, cosine=0.4, is_turn=True).deviations == pytest.approx(1 + 1)
    assert judge(bm25=0.0, is_secondary=True).deviations == judge(bm25=0.0).deviations < 0


async def test_of_a_session_s_summaries_the_best_is_listed_and_names_the_others(client: httpx.AsyncClient, cast: Cast, make: Make):
    first, second = await session(client, cast.alice, "s-1"), await session(client, cast.alice, "s-2")
    for n, in_session in enumerate((first, first, second)):
        await make.observation(project=cast.alice.project, title=f"wombat {n}x", kind="summary", server_session_id=in_session)

    hits = (await post_search(client, cast.alice, "wombat 0x"))["observations"]

    assert [(hit["number"], hit["alike"]) for hit in hits] == [(1, [2]), (3, [])]


@try_rows(
    ("dropped", "expected"),
    [([], [(1, [2, 3, 4])]), ([1], [(1, []), (2, [3, 4])]), ([2, 4], [(1, [3]), (2, [4])]), ([1, 2, 3, 4], [(1, [2, 3, 4])])],
)
async def test_what_no_longer_holds_and_what_does_never_stand_for_each_other(
    client: httpx.AsyncClient, cast: Cast, make: Make, dropped: list[int], expected: list[tuple[int, list[int]]]
):
    word = "wombat" + "".join(map(str, dropped))
    rows = [await make.observation(project=cast.alice.project, title=f"{word} 0x") for _ in range(4)]
    for place in dropped:
        await client.patch(f"/v1/observations/{rows[place - 1].number}", json={"state": "dropped"}, headers=cast.alice.headers)

    hits = (await post_search(client, cast.alice, f"{word} 0x"))["observations"]

    places = {row.number: place for place, row in enumerate(rows, 1)}
    listed = [[places[number] for number in (hit["number"], *hit["alike"])] for hit in hits if hit["number"] in places]
    assert sorted(map(sorted, listed)) == [[first, *others] for first, others in expected]


@pytest.mark.parametrize("spread", [Spread(), Spread(mean=3.0), Spread(mean=3.0, deviation=1e-12)])
def test_where_all_are_the_same_none_stands_out(spread: Spread):
    candidate = judge(
        msgspec.structs.replace(STATISTICS, observations=Baseline(words=spread, meaning=spread)), bm25=3.0, cosine=3.0
    )

    assert (candidate.deviations, candidate.score) == (0, pytest.approx(0.1))


def test_the_score_grows_with_the_deviations_and_lies_between_0_and_1():
    scores = [score_of(deviations) for deviations in (-1e9, -100, -3, -0.1, 0, 0.1, 3, 8, 20, 100, 1e9)]

    assert scores == sorted(set(scores))
    assert 0 < scores[0] < scores[-1] < 1
    assert score_of(8) == 0.5


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("same", [True, False], ids=["all the same", "different"])
async def test_a_scope_of_few_documents_has_finite_scores(db: Db, cast: Cast, make: Make, vectors: Vectors, count: int, same: bool):
    for n in range(count):
        made = await make.observation(project=cast.alice.project, title="wombat" if same else f"wombat v{n}")
        vectors.give(made, [1, 0 if same else n])

    page = await run_search(db, cast.alice, "wombat", ranking=Ranking(), sought=vectors.near(1, 0))

    assert sum(1 + len(hit.alike) for hit in page.hits) == count
    assert all(0 < hit.score < 1 and isfinite(hit.parts["deviations"]) for hit in page.hits)


async def test_several_projects_are_one_scope(db: Db, cast: Cast, make: Make):
    billing = await bound_to(db, cast.alice, "billing")
    for n in range(20):
        await make.observation(project=billing.project, title=f"wombat {n}")
    rare_here = await make.observation(project=cast.alice.project, title="wombat hay")
    for n in range(20):
        await make.observation(project=cast.alice.project, title=f"quokka {n}")

    async def search(*project_ids: UUID) -> SearchPage:
        request = SearchRequest(query="wombat", project_ids=project_ids, limit=50)
        async with db.tenant(cast.alice.team_id) as conn:
            return await find_page(conn, cast.alice.principal, request, PLAIN)

    here, both = await search(cast.alice.project.id), await search(cast.alice.project.id, billing.project.id)

    assert hit_of(here, rare_here).parts["words"] > 3 > hit_of(both, rare_here).parts["words"]
    assert both.terms["wombat"] < here.terms["wombat"]
    assert len(both.hits) == 21


async def test_the_sample_of_cosines_has_as_many_of_each_project(
    db: Db, cast: Cast, make: Make, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repository, "SAMPLE", 10)
    billing = await bound_to(db, cast.alice, "billing")
    for person, vector in ((cast.alice, [1, 0]), (billing, [0, 1])):
        for n in range(20):
            vectors.give(await make.observation(project=person.project, title=f"wombat {n}"), vector)
            vectors.give(await make.turn(project=person.project, prompt=f"wombat {n}", reply="Fed."), vector)

    for project_ids in (None, [cast.alice.project.id, billing.project.id]):
        request = SearchRequest(query="wombat", project_ids=project_ids, limit=1)
        async with db.tenant(cast.alice.team_id) as conn:
            page = await find_page(conn, cast.alice.principal, request, MEANT, vectors.near(1, 0))
        assert page.next
        for baseline in (page.next.statistics.observations, page.next.statistics.turns):
            assert baseline.meaning == Spread(mean=0.5, deviation=0.5)


async def test_a_search_asks_once_for_each_of_its_steps(
    db: Db, cast: Cast, make: Make, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
):
    """Neighbours, statistics and cosines come with the ranking: each statement more is a round trip."""
    for n in range(3):
        vectors.give(await make.observation(project=cast.alice.project, title=f"wombat {n}x"), [1, n])
        vectors.give(await make.turn(project=cast.alice.project, prompt=f"wombat {n}x", reply="Fed."), [1, n])
    queries: dict[str, Query[Any]] = queries_of(repository)
    names = {query.text: name for name, query in queries.items()}
    statements: list[str] = []
    execute = AsyncCursor[Any].execute

    async def execute_counted(self: AsyncCursor[Any], query: Any, *args: Any, **options: Any) -> AsyncCursor[Any]:
        statements.append(names.get(query, "texts"))
        return await execute(self, query, *args, **options)

    async def count(ranking: Ranking, vector: QueryVector | None, **filters: Any) -> list[str]:
        request = SearchRequest(query="wombat", project_ids=[cast.alice.project.id], filters=Filters(**filters))
        async with db.tenant(cast.alice.team_id) as conn:
            monkeypatch.setattr(AsyncCursor, "execute", execute_counted)
            await find_page(conn, cast.alice.principal, request, ranking, vector)
            monkeypatch.setattr(AsyncCursor, "execute", execute)
        done = statements.copy()
        statements.clear()
        return done

    by_words = ["PLANS", "WORDS", "MATCHED", "RANKED", "MATCHED_TURNS", "RANKED_TURNS", "texts", "texts", "PLANS"]
    assert await count(PLAIN, None) == by_words
    of_turns = ["NEAREST_TURNS", "MATCHED_TURNS", "RANKED_TURNS_BY_MEANING"]
    by_meaning = ["PLANS", "WORDS", "NEAREST", "MATCHED", "RANKED_BY_MEANING", *of_turns, "texts", "texts", "PLANS"]
    assert await count(Ranking(), vectors.near(1, 0)) == by_meaning
    wanted = await count(Ranking(), vectors.near(1, 0), kinds=["observation"])
    assert wanted == ["PLANS", "WORDS", "NEAREST_FILTERED", "MATCHED_FILTERED", "RANKED_FILTERED_BY_MEANING", "texts", "PLANS"]
    all_kinds = await count(Ranking(), vectors.near(1, 0), kinds=["observation", "summary", "manual"])
    assert all_kinds == [*by_meaning[:5], "texts", "PLANS"]


async def test_plans_are_kept_during_a_search_where_the_connection_keeps_any(db: Db, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="wombat")
    request = SearchRequest(query="wombat", project_ids=[cast.alice.project.id])

    async with db.tenant(cast.alice.team_id) as conn:

        async def ask(of: str) -> tuple[Any, ...] | None:
            cursor = await conn.execute(f"SELECT {of}".encode(), prepare=False)
            return await cursor.fetchone()

        used: list[tuple[Any, ...] | None] = []
        for threshold in (5, None):
            conn.prepare_threshold = threshold
            for _ in range(2):
                assert len((await find_page(conn, cast.alice.principal, request, PLAIN)).hits) == 1
                used.append(await ask("sum(generic_plans) FROM pg_prepared_statements WHERE statement LIKE '%terms AS%'"))
        settings = await ask("current_setting('plan_cache_mode'), current_setting('enable_seqscan')")

    assert used[0]
    assert used[1]
    assert used[1][0] > used[0][0]
    assert used[1] == used[2] == used[3]
    assert settings == ("auto", "on")
