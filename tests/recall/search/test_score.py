"""One score from what words and meaning say, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest

from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.observations.model import Observation
from cmserver.recall.search.model import MatchType, Ranking, SessionNeighbours
from cmserver.recall.search.score import Candidate, adjust_scores, is_good_enough, known_share, unseen_weight
from cmserver.recall.search.searcher import Searcher
from tests.compat.worker import session
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import MEANT, NOON, PLAIN, Vectors, hit_of, numbers, post_search, run_search, search_numbers


def by_formula(parts: Mapping[str, float], weight: float) -> float:
    """The shared words, and by their weight the meaning, times what it is, with its neighbours' share, times its age."""
    score = parts["words"] * parts["known"]
    if "meaning" in parts:
        score = (1 - weight) * score + weight * parts["meaning"] * (0.5 + 0.5 * parts["known"])
    score = min(score * parts.get("waits", 1) * parts.get("kind", 1) + parts.get("neighbours", 0), 1.0)
    return score * parts.get("recency", 1)


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

    judged: list[dict[str, Any]] = [{}, {"neighbours": False}, {"recency": 0.8}, {"meaningWeight": 1}, {"meaningWeight": 0}]
    for fields in judged:
        answer = await post_search(client, cast.alice, "wombat quokka zebra", explain=True, limit=100, **fields)
        weight = fields.get("meaningWeight", app.dependencies.get(Ranking).meaning_weight)
        hits = answer["observations"]
        assert {hit["score"] for hit in hits} != {0}
        assert len(hits) >= 2
        for hit in hits:
            assert hit["score"] == pytest.approx(by_formula(hit["parts"], weight), abs=0.001)
        assert answer["terms"]["zebra"] == 0 < answer["terms"]["wombat"] < answer["terms"]["quokka"]
        assert [hit["parts"]["kind"] < 1 for hit in hits if hit["observationKind"] == "summary"] == [True]
        assert all("neighbours" in hit["parts"] for hit in hits) == bool(fields.get("neighbours", True))

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
    assert 0 < hit_of(page, waiting).parts["waits"] < 1
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


STRICT = Ranking(min_score=0.23)


async def test_a_query_about_nothing_known_finds_what_is_nearest_and_nothing_with_a_minimum_score(db: Db, cast: Cast, make: Make):
    for n in range(40):
        await make.observation(project=cast.alice.project, title=f"The wombat {n} is fed", narrative="The keeper checks the fence.")

    async def count(query: str, ranking: Ranking) -> int:
        return len(numbers(await run_search(db, cast.alice, query, ranking=ranking)))

    nonsense = "how does the quantum flux capacitor of the keeper align tachyon harmonics before teleportation"
    assert await count(nonsense, Ranking()) > 0
    assert await count(nonsense, STRICT) == 0
    assert await count("is the wombat fed by the keeper", STRICT) > 0
    assert await count("wombat", STRICT) > 0


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
    assert hit_of(together, made[2]).score == pytest.approx(hit_of(alone, made[2]).score)


async def test_of_equal_ones_the_newer_comes_first_when_age_counts_and_the_better_does_when_not(db: Db, cast: Cast, make: Make):
    now = datetime.now(UTC)
    old = await make.observation(project=cast.alice.project, title="wombat hay", created_at=now - timedelta(days=900))
    new = await make.observation(project=cast.alice.project, title="wombat and other animals of the zoo", created_at=now)

    by_words = await run_search(db, cast.alice, "wombat hay", ranking=PLAIN)
    by_age = await run_search(db, cast.alice, "wombat hay", ranking=msgspec.structs.replace(PLAIN, recency=1.0))

    assert numbers(by_words) == [old.number, new.number]
    assert numbers(by_age) == [new.number, old.number]
    assert hit_of(by_age, old).parts["recency"] == pytest.approx(0.5**10, rel=0.01)


async def test_what_the_settings_say_is_how_hits_are_judged(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier
):
    changed_settings = msgspec.structs.replace(
        settings, search_k1=1.5, search_b=0.7, search_meaning_weight=0.2, search_min_score=0.1
    )

    by_default, as_said = [
        create_app(choice, db, hub, notifier, secret=b"x" * 32).dependencies.get(Ranking) for choice in (settings, changed_settings)
    ]

    assert by_default == Ranking()
    assert as_said == Ranking(k1=1.5, b=0.7, meaning_weight=0.2, min_score=0.1)


def test_a_query_of_few_words_has_to_fit_less_well():
    ranking = msgspec.structs.replace(PLAIN, min_score=0.2)
    candidate = Candidate(id=uuid4(), bm25=2.0, score=0.15)

    assert is_good_enough(candidate, 2, ranking)
    assert not is_good_enough(candidate, 10, ranking)


def test_what_is_much_nearer_than_anything_else_fits_whatever_the_words():
    ranking = msgspec.structs.replace(PLAIN, min_score=0.9)

    assert is_good_enough(Candidate(id=uuid4(), score=0.1, parts={"meaning": 0.9}), 10, ranking)
    assert not is_good_enough(Candidate(id=uuid4(), score=0.1, parts={"meaning": 0.1}), 10, ranking)


def test_what_shares_no_word_has_to_be_a_good_deal_nearer_than_the_rest():
    ranking = msgspec.structs.replace(PLAIN, min_score=0.2)

    assert not is_good_enough(Candidate(id=uuid4(), score=0.1, parts={"meaning": 0.2}), 1, ranking)
    assert is_good_enough(Candidate(id=uuid4(), score=0.1, parts={"meaning": 0.3}), 1, ranking)
    assert is_good_enough(Candidate(id=uuid4(), bm25=1.0, score=0.1, parts={"meaning": 0.2}), 1, ranking)


async def test_with_a_minimum_score_what_hardly_fits_is_not_told_behind_what_does(db: Db, cast: Cast, make: Make):
    for n in range(250):
        await make.observation(project=cast.alice.project, title=f"The keeper was here {n}")
    best = await make.observation(project=cast.alice.project, title="wombat quokka numbat keeper")

    strict, everything = [
        await run_search(db, cast.alice, "wombat quokka numbat keeper", ranking=ranking) for ranking in (STRICT, Ranking())
    ]

    assert numbers(strict) == [best.number]
    assert strict.total == 1
    assert numbers(everything)[0] == best.number
    assert everything.total > 60


def test_a_word_that_is_nowhere_tells_the_more_the_more_is_there():
    assert known_share(0, 4, 10_000) == 1
    assert known_share(1, 4, 10_000) == 0.75 < known_share(1, 4, 10) < 1
    assert unseen_weight(10_000) > unseen_weight(10) > 1


def test_what_will_be_is_not_newer_than_now():
    candidate = Candidate(id=uuid4(), bm25=1.0, score=0.5, parts={})
    brief = SessionNeighbours(id=candidate.id, kind="observation", created_at=NOON + timedelta(days=1), before=None, after=None)

    adjust_scores({candidate.id: candidate}, [brief], NOON, msgspec.structs.replace(PLAIN, recency=0.5))

    assert candidate.score == 0.5


def test_only_what_is_placed_and_its_neighbours_are_looked_at():
    """Block by block all are placed: were all looked at for each of them, a page far behind would take minutes."""

    class Looked(dict[UUID, Candidate]):
        def __iter__(self) -> Iterator[UUID]:
            raise AssertionError("all were looked at")

        keys = values = items = __iter__  # pyright: ignore[reportAssignmentType]

    candidate, before, other = (Candidate(id=uuid4(), score=0.4, parts={}) for _ in range(3))
    brief = SessionNeighbours(id=candidate.id, kind="observation", created_at=NOON, before=before.id, after=uuid4())

    adjust_scores(
        Looked({candidate.id: candidate for candidate in (candidate, before, other)}),
        [brief],
        NOON,
        msgspec.structs.replace(PLAIN, neighbours=True),
    )

    assert (candidate.score, before.score, other.score) == (pytest.approx(0.5), 0.4, 0.4)
