"""Pointers from a sentence to the nearest later one, as they are computed and as they are read."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import LiteralString
from uuid import UUID

import pytest

from cmserver.base.db import Db
from cmserver.embeddings import turn_sentences
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.sessions.turns.sentences import pointers, repository
from cmserver.sessions.turns.sentences.model import LaterWords, PlacedTurn, Pointer
from cmserver.sessions.turns.sentences.pointers import point
from tests.conftest import Cast
from tests.make import Make

OLD = "The cache keeps invoices for 30 minutes."
NEW = "From now on the cache keeps invoices for 5 minutes."
NEWEST = "From now on the cache keeps invoices for 7 minutes."
OTHER = "Deploys wait until the night."
TALK = [
    "Nobody knows why it rains.",
    "We had soup with bread.",
    "Trains were late again.",
    "A lamp is broken.",
    "Bees sleep in winter.",
]


def placed(number: int, *texts: str) -> PlacedTurn:
    created_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number % 100)
    nothing: list[None] = [None for _ in texts]
    return PlacedTurn(
        turn_id=UUID(int=number),
        created_at=created_at,
        number=number,
        texts=list(texts),
        vectors=None,
        later_ids=[*nothing],
        later_places=[*nothing],
        nearness=[*nothing],
    )


def talk() -> list[PlacedTurn]:
    """Of other matters, before."""
    return [placed(100 + place, text) for place, text in enumerate(TALK)]


def known(turn: PlacedTurn, words: LaterWords) -> PlacedTurn:
    return PlacedTurn(
        turn_id=turn.turn_id,
        created_at=turn.created_at,
        number=turn.number,
        texts=turn.texts,
        vectors=None,
        later_ids=words.later_ids,
        later_places=words.later_places,
        nearness=words.nearness,
    )


def test_the_same_matter_said_later_is_pointed_to_and_never_backwards():
    turns = [*talk(), placed(1, OLD, OTHER), placed(2, "It rains a lot."), placed(3, OTHER.upper(), NEW)]

    found = point(turns, {UUID(int=3)})

    assert [(it.turn_id.int, it.later_ids, it.later_places) for it in found] == [(1, [UUID(int=3), None], [1, None])]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_in_whatever_order_turns_become_known_pointers_only_lead_forward(order: tuple[int, ...]):
    turns = {1: placed(1, OLD, OTHER), 2: placed(2, NEW, "Nights are long."), 3: placed(3, NEWEST)}

    seen: dict[int, PlacedTurn] = {}
    for number in order:
        seen[number] = turns[number]
        for it in point([*talk(), *seen.values()], {UUID(int=number)}):
            seen[it.turn_id.int] = known(seen[it.turn_id.int], it)

    assert seen[1].later_ids[0] in {UUID(int=2), UUID(int=3)}
    assert seen[2].later_ids[0] == UUID(int=3)
    assert seen[3].later_ids == [None]


def test_pointers_are_the_same_in_whatever_order_and_number_turns_become_known():
    """One row an order: forwards one by one, all at once, backwards, and mixed."""
    things = ["invoices", "labels", "tickets", "probes"]
    ways = ["keeps {} for {} minutes", "drops {} after {} tries", "sends {} to {} hosts"]
    turns = {
        place: placed(place, f"The cache {ways[place % 3].format(things[place % 4], place)}.", f"{TALK[place % 5]} At {place}.")
        for place in range(1, 25)
    }

    def play(order: list[int], at_once: int) -> dict[int, list[tuple[UUID | None, float | None]]]:
        seen: dict[int, PlacedTurn] = {}
        for start in range(0, len(order), at_once):
            new = order[start : start + at_once]
            seen |= {number: turns[number] for number in new}
            for it in point([*seen.values()], {UUID(int=number) for number in new}):
                seen[it.turn_id.int] = known(seen[it.turn_id.int], it)
        return {number: list(zip(turn.later_ids, turn.nearness, strict=True)) for number, turn in seen.items()}

    order = list(turns)
    mixed = random.Random(1).sample(order, len(order))
    live = play(order, 1)

    assert sum(later_id is not None for pairs in live.values() for later_id, _ in pairs) > len(turns) / 2
    assert [play(*how) == live for how in ((order, 24), (order[::-1], 1), (order[::-1], 10), (mixed, 1), (mixed, 5))] == [True] * 5


async def test_a_chain_points_to_its_end_and_nothing_to_what_is_gone(db: Db, cast: Cast, make: Make):
    project = cast.alice.project
    turns = [
        await make.turn(project=project, prompt=prompt, reply="I see.", session=f"s{place}")
        for place, prompt in enumerate((OLD, NEW, NEWEST))
    ]
    for text in TALK:
        await make.turn(project=project, prompt=text, reply="Indeed.", session="talk")
    await write_due_sentences(db, None, 0)

    async def read() -> list[Pointer]:
        async with db.tenant(cast.alice.team_id) as conn:
            return await repository.pointers(conn, cast.alice.team_id, [turn.number for turn in turns])

    first, second, last = (turn.number for turn in turns)
    assert [(it.number, it.text, it.later_number) for it in await read()] == [(first, OLD, last), (second, NEW, last)]
    async with db.tenant(cast.alice.team_id) as conn:
        await conn.execute("DELETE FROM turns WHERE id = %s", [turns[2].id])
    assert [(it.number, it.later_number) for it in await read()] in ([(first, second)], [])
    async with db.tenant(cast.charlie.team_id) as conn:
        assert await repository.pointers(conn, cast.charlie.team_id, [turn.number for turn in turns]) == []


def test_a_turn_that_comes_late_costs_few_calls_for_a_pair_of_sentences():
    turns = [placed(place, *(f"The cache keeps item {place * 4 + other} warm." for other in range(4))) for place in range(1, 41)]
    pairs = (160 * 160 - 40 * 4 * 4) / 2
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        point(turns, {UUID(int=1)})
    finally:
        sys.setprofile(before)

    assert calls < 3 * pairs


@pytest.mark.parametrize(
    "change", ["due_at = now()", "due_at = now(), texts = '{}', later_ids = '{}', later_places = '{}', nearness = '{}'"]
)
async def test_old_turns_that_are_written_anew_point_to_what_they_did(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch, change: LiteralString
):
    """One row each: with the same sentences, and as if they had none. The newest come first, two at a time."""
    for module in (pointers, turn_sentences):
        monkeypatch.setattr(module, "MOST_BEHIND", 4)
    monkeypatch.setattr(turn_sentences, "_AT_A_TIME", 2)
    for place, prompt in enumerate((*TALK[:2], OLD, NEW, *TALK[2:], OTHER, NEWEST)):
        await make.turn(project=cast.alice.project, prompt=prompt, reply="Indeed.", session=f"s{place}")
        await write_due_sentences(db, None, 0)

    async def read() -> list[tuple[list[UUID | None]]]:
        async with db.system() as conn:
            cursor = await conn.execute("SELECT later_ids FROM turn_sentences ORDER BY turn_id")
            return await cursor.fetchall()

    live = await read()
    async with db.system() as conn:
        await conn.execute("UPDATE turn_sentences SET " + change)
    while await write_due_sentences(db, None, 0):
        pass

    assert sum(any(later_ids) for (later_ids,) in live) == 1
    assert await read() == live
