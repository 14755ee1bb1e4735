"""All pages together are the whole, in order, without repeats."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import Frame
from cmserver.observations.model import Observation
from tests.compat.worker import prompt, session
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.test_filters import Near
from tests.recall.search.tools import NOON, Vectors, answered, post

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
    found: list[Any] = []
    cursor: str | None = None
    while not found or cursor:
        found.append(await answered(client, cast.alice, query, cursor=cursor, **fields))
        cursor = found[-1]["nextCursor"]
        assert len(found) < 200
    return found


def hits(found: Sequence[Any]) -> list[Any]:
    return [one for page in found for one in page["observations"] + page["prompts"]]


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_all_pages_are_the_whole_in_order(client: httpx.AsyncClient, cast: Cast, make: Make, limit: int):
    made = await filled(make, cast, 50)

    found = await pages(client, cast, limit=limit)

    numbers = [one["number"] for one in hits(found)]
    assert sorted(numbers) == [one.number for one in made]
    assert [len(page["observations"]) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert [one["score"] for one in hits(found)] == sorted((one["score"] for one in hits(found)), reverse=True)
    whole = await answered(client, cast.alice, "wombat", limit=100)
    assert numbers == [one["number"] for one in whole["observations"]]
    assert whole["nextCursor"] is None
    assert {(page["total"], page["totalIsEstimate"]) for page in found} == {(50, False)}


async def test_there_is_no_last_page_before_all_is_told(client: httpx.AsyncClient, cast: Cast, make: Make):
    made = await filled(make, cast, 330)

    found = await pages(client, cast, limit=20)

    numbers = [one["number"] for one in hits(found)]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {one.number for one in made}
    assert found[0]["totalIsEstimate"]
    assert 200 < found[0]["total"] <= 400
    assert (found[-1]["total"], found[-1]["totalIsEstimate"]) == (330, False)


async def test_pages_of_words_and_meaning_are_the_whole_too(
    client: httpx.AsyncClient, app: Frame, cast: Cast, make: Make, vectors: Vectors
):
    made = await filled(make, cast, 240)
    for one in made:
        vectors.give(one, [1, (one.number * 37 % 240) / 60])
    app.state.searcher.meaning = Near(vectors.near(1, 0))

    found = await pages(client, cast, limit=20, neighbours=False, recency=0)

    numbers = [one["number"] for one in hits(found)]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {one.number for one in made}


async def test_a_page_that_few_fit_is_the_last_though_everything_is_near_to_some_degree(
    client: httpx.AsyncClient, app: Frame, cast: Cast, make: Make, vectors: Vectors
):
    made = await filled(make, cast, 80)
    for one in made:
        vectors.give(one, [1, 50 + one.number])
    asked_for = await make.observation(project=cast.alice.project, title="Why the gateway drops connections")
    vectors.give(asked_for, [1, 0])
    app.state.searcher.meaning = Near(vectors.near(1, 0))

    page = await answered(client, cast.alice, "gateway", limit=20)

    assert [one["number"] for one in page["observations"]] == [asked_for.number]
    assert (page["nextCursor"], page["total"], page["totalIsEstimate"]) == (None, 1, False)


async def test_what_comes_in_meanwhile_repeats_nothing_and_hides_nothing(client: httpx.AsyncClient, cast: Cast, make: Make):
    made = await filled(make, cast, 60)
    seen: list[int] = []
    cursor: str | None = None
    while cursor or not seen:
        page = await answered(client, cast.alice, "wombat", limit=10, cursor=cursor)
        seen += [one["number"] for one in page["observations"]]
        cursor = page["nextCursor"]
        await make.observation(project=cast.alice.project, title="something else", narrative="and nothing of it at all")

    assert seen == list(dict.fromkeys(seen))
    assert set(seen) == {one.number for one in made}


async def test_many_that_say_the_same_do_not_hide_what_comes_after_them(client: httpx.AsyncClient, cast: Cast, make: Make):
    for _ in range(120):
        await make.observation(project=cast.alice.project, title="wombat is fed", narrative="The keeper feeds it at nine.")
    other = await make.observation(
        project=cast.alice.project,
        title="Something else",
        narrative="A long text in which a wombat is named, and that is all.",
    )

    found = hits(await pages(client, cast, limit=5))

    assert other.number in [one["number"] for one in found]
    assert len(found) < 10
    assert len(found[0]["alike"]) > 15


async def test_prompts_and_observations_share_their_pages(client: httpx.AsyncClient, cast: Cast, make: Make):
    await filled(make, cast, 12)
    in_session = await session(client, cast.alice, "s-1")
    for n in range(12):
        await prompt(client, cast.alice, in_session, f"feed the wombat t{n}")

    found = await pages(client, cast, limit=5, kinds=["observation", "prompt"])

    assert len({one.get("number") or one["eventId"] for one in hits(found)}) == len(hits(found)) == 24
    assert {len(page["observations"]) + len(page["prompts"]) for page in found[:-1]} == {5}


async def test_a_page_beyond_the_last_is_empty(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await filled(make, cast, 6)
    first = await answered(client, cast.alice, "wombat", limit=5)
    async with db.system() as conn:
        await conn.execute("DELETE FROM observations")

    rest = await answered(client, cast.alice, "wombat", limit=5, cursor=first["nextCursor"])

    assert (rest["observations"], rest["nextCursor"], rest["total"]) == ([], None, 0)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


@pytest.mark.parametrize(
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
