"""All pages together are the whole, in order, without repeats."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.observations.model import Observation
from cmserver.recall.search.model import SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import NOON, PLAIN, Vectors, post, post_search
from tests.table import try_rows

WORDS = ("quokka", "numbat", "bilby", "potoroo", "dunnart")


async def filled(make: Make, cast: Cast, count: int) -> list[Observation]:
    """All have the word; by fives they fit equally well, in other words each, so that none says the same as another."""
    return [
        await make.observation(
            project=cast.alice.project,
            title=f"wombat t{n}a t{n}b",
            narrative="wombat " * (n // 5 % 7) + WORDS[n % 5],
            created_at=NOON + timedelta(minutes=n),
        )
        for n in range(count)
    ]


async def pages(client: httpx.AsyncClient, cast: Cast, query: str = "wombat", **fields: object) -> list[Any]:
    """Every page."""
    result_pages: list[Any] = []
    cursor: str | None = None
    while not result_pages or cursor:
        result_pages.append(await post_search(client, cast.alice, query, cursor=cursor, **fields))
        cursor = result_pages[-1]["nextCursor"]
        assert len(result_pages) < 200
    return result_pages


def hits(result_pages: Sequence[Any]) -> list[Any]:
    return [hit for page in result_pages for hit in page["observations"] + page["prompts"]]


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_all_pages_are_the_whole_in_order(client: httpx.AsyncClient, cast: Cast, make: Make, limit: int):
    made = await filled(make, cast, 40)

    result_pages = await pages(client, cast, limit=limit)

    numbers = [hit["number"] for hit in hits(result_pages)]
    assert sorted(numbers) == [observation.number for observation in made]
    assert [len(page["observations"]) for page in result_pages[:-1]] == [limit] * (len(result_pages) - 1)
    assert [hit["score"] for hit in hits(result_pages)] == sorted((hit["score"] for hit in hits(result_pages)), reverse=True)
    whole = await post_search(client, cast.alice, "wombat", limit=100)
    assert numbers == [hit["number"] for hit in whole["observations"]]
    assert whole["nextCursor"] is None
    assert {(page["total"], page["totalIsEstimate"]) for page in result_pages} == {(40, False)}


async def test_the_newest_come_first_on_request(client: httpx.AsyncClient, cast: Cast, make: Make):
    made = await filled(make, cast, 40)

    for limit in (7, 100):
        numbers = [hit["number"] for hit in hits(await pages(client, cast, limit=limit, sort="recent"))]
        assert numbers == [row.number for row in sorted(made, key=lambda row: (row.created_at, row.id), reverse=True)]


async def test_there_is_no_last_page_before_all_is_told(client: httpx.AsyncClient, cast: Cast, make: Make):
    made = await filled(make, cast, 330)

    result_pages = await pages(client, cast, limit=20)

    numbers = [hit["number"] for hit in hits(result_pages)]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {observation.number for observation in made}
    assert result_pages[0]["totalIsEstimate"]
    assert 200 < result_pages[0]["total"] <= 400
    assert (result_pages[-1]["total"], result_pages[-1]["totalIsEstimate"]) == (330, False)


async def test_pages_of_words_and_meaning_are_the_whole_too(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    made = await filled(make, cast, 240)
    for observation in made:
        vectors.give(observation, [1, (observation.number * 37 % 240) / 60])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))

    result_pages = await pages(client, cast, limit=20, neighbours=False)

    numbers = [hit["number"] for hit in hits(result_pages)]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {observation.number for observation in made}


async def test_a_page_that_few_fit_is_the_last_though_everything_is_near_to_some_degree(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    made = await filled(make, cast, 80)
    for observation in made:
        vectors.give(observation, [1, 50 + observation.number])
    asked_for = await make.observation(project=cast.alice.project, title="Why the gateway drops connections")
    vectors.give(asked_for, [1, 0])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))

    page = await post_search(client, cast.alice, "gateway", limit=20)

    assert [hit["number"] for hit in page["observations"]] == [asked_for.number]
    assert (page["nextCursor"], page["total"], page["totalIsEstimate"]) == (None, 1, False)


async def test_what_comes_in_meanwhile_repeats_nothing_and_hides_nothing(client: httpx.AsyncClient, cast: Cast, make: Make):
    made = await filled(make, cast, 60)
    seen: list[int] = []
    cursor: str | None = None
    while cursor or not seen:
        page = await post_search(client, cast.alice, "wombat", limit=10, cursor=cursor)
        seen += [hit["number"] for hit in page["observations"]]
        cursor = page["nextCursor"]
        await make.observation(project=cast.alice.project, title="something else", narrative="and nothing of it at all")

    assert seen == list(dict.fromkeys(seen))
    assert set(seen) == {observation.number for observation in made}


async def test_pages_keep_their_scores_while_rows_with_the_words_of_the_query_come_in(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    made = await filled(make, cast, 30)
    whole = {hit["number"]: hit["score"] for hit in (await post_search(client, cast.alice, "wombat", limit=100))["observations"]}
    seen = await post_search(client, cast.alice, "wombat", limit=10)
    shown = list(seen["observations"])

    for n in range(30):
        await make.observation(project=cast.alice.project, title=f"long {n}", narrative=f"a wombat at last {n} " + "and on " * 40)
    while seen["nextCursor"]:
        seen = await post_search(client, cast.alice, "wombat", limit=10, cursor=seen["nextCursor"])
        shown += seen["observations"]
    changed = await post_search(client, cast.alice, "wombat", limit=100)

    of_before = [hit for hit in shown if hit["number"] in whole]
    assert len(of_before) == len(made)
    assert {hit["number"]: hit["score"] for hit in of_before} == whole
    assert any(hit["score"] != whole.get(hit["number"], hit["score"]) for hit in changed["observations"])


async def test_many_that_say_the_same_do_not_hide_what_comes_after_them(client: httpx.AsyncClient, cast: Cast, make: Make):
    for _ in range(120):
        await make.observation(project=cast.alice.project, title="wombat is fed", narrative="The keeper feeds it at nine.")
    other = await make.observation(
        project=cast.alice.project,
        title="Something else",
        narrative="A long text in which a wombat is named, and that is all.",
    )

    shown_hits = hits(await pages(client, cast, limit=5))

    assert other.number in [hit["number"] for hit in shown_hits]
    assert len(shown_hits) < 10
    assert len(shown_hits[0]["alike"]) > 15


async def test_prompts_and_observations_share_their_pages(client: httpx.AsyncClient, cast: Cast, make: Make):
    await filled(make, cast, 12)
    in_session = await session(client, cast.alice, "s-1")
    for n in range(12):
        await prompt(client, cast.alice, in_session, f"feed the wombat t{n}")

    result_pages = await pages(client, cast, limit=5, kinds=["observation", "prompt"])

    assert len({hit.get("number") or hit["eventId"] for hit in hits(result_pages)}) == len(hits(result_pages)) == 24
    assert {len(page["observations"]) + len(page["prompts"]) for page in result_pages[:-1]} == {5}


async def test_a_page_beyond_the_last_is_empty(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await filled(make, cast, 6)
    first = await post_search(client, cast.alice, "wombat", limit=5)
    async with db.system() as conn:
        await conn.execute("DELETE FROM observations")

    rest = await post_search(client, cast.alice, "wombat", limit=5, cursor=first["nextCursor"])

    assert (rest["observations"], rest["nextCursor"], rest["total"]) == ([], None, 0)


async def test_all_pages_mean_the_same_last_week(db: Db, cast: Cast, make: Make):
    for n in range(4):
        await make.observation(project=cast.alice.project, title=f"wombat {n}x", created_at=NOON - timedelta(days=90 - 30 * n))
    request = SearchRequest(query="wombat last week", project_ids=[cast.alice.project.id], limit=1)
    async with db.tenant(cast.alice.team_id) as conn:
        first = await find_page(conn, cast.alice.principal, request, PLAIN)
        assert first.next
        long_ago = msgspec.structs.replace(first.next, searched_at=(NOON - timedelta(days=30)).timestamp())
        later = msgspec.structs.replace(request, after=long_ago, limit=10)
        second = await find_page(conn, cast.alice.principal, later, PLAIN)

    assert not any("time" in hit.parts for hit in first.hits)
    assert [hit.source.created_at for hit in second.hits if "time" in hit.parts] == [NOON - timedelta(days=30)]
    assert second.next is None
    assert first.next.searched_at > NOON.timestamp()


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


@try_rows(
    "cursor",
    ["x", "", "é", _encoded(b"short"), _encoded(b"\x00" * 27), _encoded(b"\x00" * 29), _encoded(b"\x7f\xf8" + b"\x00" * 26)],
    ids=["letter", "empty", "not ASCII", "short", "a byte less", "a byte more", "not a number"],
)
async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, cast: Cast, make: Make, cursor: str):
    response = await post(client, cast.alice, "/v1/search", query="wombat", cursor=cursor)

    assert response.status_code == 400, response.text


async def test_a_cursor_from_far_away_is_cheap(client: httpx.AsyncClient, cast: Cast, make: Make):
    """How many were seen is said by whoever sends it."""
    await filled(make, cast, 6)
    cursor = _encoded(b"\x3f\xe0" + b"\x00" * 6 + b"\xff\xff\xff\xff" + b"\x00" * 16)

    response = await post(client, cast.alice, "/v1/search", query="wombat", cursor=cursor)

    assert response.status_code in {200, 400}, response.text


async def test_a_cursor_that_names_a_word_again_and_again_is_refused(db: Db, client: httpx.AsyncClient, cast: Cast, make: Make):
    """Its sender could make a query of any length of it."""
    for n in range(3):
        await make.observation(project=cast.alice.project, title=f"wombat {n}x")
    request = SearchRequest(query="wombat", project_ids=[cast.alice.project.id], limit=1)
    async with db.tenant(cast.alice.team_id) as conn:
        position = (await find_page(conn, cast.alice.principal, request, PLAIN)).next
    assert position
    for places in ({"leading": [0] * 500}, {"together": [0] * 500}, {"together": [1]}):
        statistics = msgspec.structs.replace(position.statistics, **places)
        cursor = _encoded(msgspec.msgpack.encode(msgspec.structs.replace(position, statistics=statistics)))

        response = await post(client, cast.alice, "/v1/search", query="wombat", cursor=cursor)

        assert response.status_code == 400, response.text
