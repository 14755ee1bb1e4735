"""A time that a query names in plain words weighs; it hides nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import httpx

from cmserver.recall.search.time_cues import DATED_BONUS, LATEST_BONUS, TimeCue, find_time_cue
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.tools import post_search, search_numbers
from tests.table import try_rows

NOW = datetime(2026, 11, 24, 8, 0, tzinfo=UTC)


@try_rows(
    ("query", "cue"),
    [
        ("what happened on 2026-07-03?", TimeCue(year=2026, month=7, day=3)),
        ("the outage of 3 July, 2026", TimeCue(year=2026, month=7, day=3)),
        ("who was on call on July 3rd", TimeCue(month=7, day=3)),
        ("was ging am 3. Juli 2026 schief", TimeCue(year=2026, month=7, day=3)),
        ("la panne du 1er août", TimeCue(month=8, day=1)),
        ("el despliegue del 3 de julio de 2026", TimeCue(year=2026, month=7, day=3)),
        ("what did we release in March 2025", TimeCue(year=2025, month=3)),
        ("what was released in May", TimeCue(month=5)),
        ("die Rundung vom Mai", TimeCue(month=5)),
        ("la facture de février", TimeCue(month=2)),
        ("los errores en marzo", TimeCue(month=3)),
        ("what broke yesterday", TimeCue(since=NOW - timedelta(days=1))),
        ("was wurde letzte Woche beschlossen", TimeCue(since=NOW - timedelta(days=13))),
        ("which pool size do we use now?", TimeCue()),
        ("does the flag still exist", TimeCue()),
        ("welche Version ist derzeit in Produktion", TimeCue()),
        ("quelle version est utilisée actuellement", TimeCue()),
        ("qué base de datos usa la app ahora", TimeCue()),
    ],
)
def test_plain_words_of_time_are_read(query: str, cue: TimeCue):
    assert find_time_cue(query, NOW) == cue


@try_rows(
    "query",
    [
        "may somebody open the file?",
        "march through the list of invoices",
        "when did we drop HS256",
        "KRB-2026 and ERR_40 12 decimals",
        "what was decided before the release",
        "what happened on 2026-13-41",
        "on 45 July",
        "",
    ],
)
def test_other_words_are_no_time(query: str):
    assert find_time_cue(query, NOW) is None


def test_a_day_is_the_same_in_every_time_zone_and_a_month_has_no_sharp_ends():
    day, month, any_year = TimeCue(year=2026, month=7, day=3), TimeCue(year=2026, month=7), TimeCue(month=7)
    honolulu, kiritimati = timezone(timedelta(hours=-10)), timezone(timedelta(hours=14))

    assert day.covers(datetime(2026, 7, 3, 23, 59, tzinfo=honolulu).astimezone(UTC))
    assert day.covers(datetime(2026, 7, 3, 0, 1, tzinfo=kiritimati).astimezone(UTC))
    assert not day.covers(datetime(2026, 7, 5, 0, 1, tzinfo=UTC))
    assert month.covers(datetime(2026, 8, 1, 9, tzinfo=UTC))
    assert not month.covers(datetime(2026, 8, 2, 9, tzinfo=UTC))
    assert not month.covers(datetime(2025, 7, 15, tzinfo=UTC))
    assert any_year.covers(datetime(2025, 7, 15, tzinfo=UTC))


async def test_what_was_observed_at_the_time_comes_first_and_the_rest_is_not_hidden(
    client: httpx.AsyncClient, cast: Cast, make: Make
):
    months = (3, 5, 7)
    made = {
        month: await make.observation(
            project=cast.alice.project, title="The pager rang twice", created_at=datetime(2026, month, 14, 9, tzinfo=UTC)
        )
        for month in months
    }

    for month, word in zip(months, ("March", "May", "July"), strict=True):
        answer = await post_search(client, cast.alice, f"why did the pager ring in {word}", explain=True)
        first, *_ = answer["observations"]
        numbers = {first["number"], *first["alike"], *(hit["number"] for hit in answer["observations"])}

        assert first["number"] == made[month].number
        assert first["parts"]["time"] == DATED_BONUS
        assert numbers == {observation.number for observation in made.values()}


async def test_where_the_latest_is_asked_for_the_newer_of_equals_comes_first(client: httpx.AsyncClient, cast: Cast, make: Make):
    sizes = [
        await make.observation(
            project=cast.alice.project, title=f"Pool size set to {size}", created_at=datetime(2026, month, 14, 9, tzinfo=UTC)
        )
        for month, size in ((7, 40), (9, 80), (3, 20))
    ]

    answer = await post_search(client, cast.alice, "what is the pool size now", explain=True)

    assert [hit["number"] for hit in answer["observations"]] == [sizes[1].number, sizes[0].number, sizes[2].number]
    assert [hit["parts"].get("time", 0) for hit in answer["observations"]] == [LATEST_BONUS, LATEST_BONUS / 2, 0]


async def test_a_cue_does_not_make_hits_of_what_has_no_word_of_the_query(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Sorted the imports", created_at=datetime(2026, 3, 14, tzinfo=UTC))

    assert await search_numbers(client, cast.alice, "wombats in March") == []
