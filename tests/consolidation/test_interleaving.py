"""Whatever happens to observations at once, they end in one consistent tree, no fact is lost, and nobody waits in a circle.

Waves of requests are sent together: stores, merges of overlapping sets, undoing, deleting, correcting, ends of lives, and what
generation writes. After each wave the tables are compared with what must hold.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, LiteralString

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.access.tools import until_it_waits_for_a_lock
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

WAVES, AT_ONCE, OBSERVATIONS = 6, 8, 7
REFUSALS = {404, 409, 410}
"""What a request may be answered that came too late."""
STATE = """
    SELECT id, number, project_id, facts, superseded_by, merged_from, coalesce(expires_at <= now(), false) AS is_expired
      FROM observations ORDER BY number
"""
RELATED = "SELECT from_id, to_id FROM observation_relationships WHERE relationship = 'SUPERSEDES'"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


class Waves:
    """One project, and what can be done in it."""

    def __init__(self, client: AsyncClient, cast: Cast, db: Db, make: Make, seed: int) -> None:
        self.client = client
        self.cast = cast
        self.db = db
        self.make = make
        self.random = random.Random(seed)
        self.stored = 0
        self.statuses: list[int] = []

    async def send(self, method: str, path: str, body: object = None) -> None:
        response = await self.client.request(method, path, json=body, headers=self.cast.alice.headers)
        self.statuses.append(response.status_code)
        assert response.status_code < 300 or response.status_code in REFUSALS, f"{method} {path}: {response.text}"

    def pick(self) -> int:
        return self.random.randint(1, OBSERVATIONS + self.stored)

    async def store(self) -> None:
        self.stored += 1
        fact = f"Fact {self.random.randint(1, 3)} is told by several at once."
        body = {"projectId": self.cast.alice.project.canonical_id, "title": "Told", "facts": [fact], "onDuplicate": "merge"}
        await self.send("POST", "/v1/observations", body)

    async def merge(self) -> None:
        sources = [self.pick() for _ in range(3)]
        await self.send("POST", f"/v1/observations/{self.pick()}/merge", {"sources": sources})

    async def undo(self) -> None:
        await self.send("POST", f"/v1/observations/{self.pick()}/undo")

    async def correct(self) -> None:
        await self.send("PATCH", f"/v1/observations/{self.pick()}", {"importance": self.random.choice([0.1, 0.6])})

    async def delete(self) -> None:
        await self.send("DELETE", f"/v1/observations/{self.pick()}")

    async def expire(self) -> None:
        await rows(self.db, "UPDATE observations SET ttl_seconds = 60, expires_at = now() WHERE number = %s", self.pick())

    async def generate(self) -> None:
        self.stored += 1
        await self.make.observation(
            project=self.cast.alice.project, title=f"Generated {self.stored}", facts=[f"Made {self.stored}."]
        )

    async def run_wave(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [self.merge, self.merge, self.merge, self.undo, self.undo, self.store]
        acts += [self.store, self.correct, self.delete, self.expire, self.generate]
        await asyncio.gather(*(act() for act in self.random.choices(acts, k=AT_ONCE)))


def check_tree(state: list[dict[str, Any]], related: set[tuple[Any, Any]]) -> None:
    """Every superseded row leads to one that is not, which says all its facts; and both sides of a merge know of it."""
    by_id = {row["id"]: row for row in state}
    for row in state:
        seen, end = {row["id"]}, row
        while end["superseded_by"] is not None:
            assert (end["superseded_by"], end["id"]) in related
            assert end["id"] in by_id[end["superseded_by"]]["merged_from"]
            assert by_id[end["superseded_by"]]["project_id"] == end["project_id"]
            end = by_id[end["superseded_by"]]
            assert end["id"] not in seen, "a circle"
            seen.add(end["id"])
        missing = set(row["facts"] or []) - set(end["facts"] or [])
        assert not missing, f"#{row['number']} went into #{end['number']}, which does not say {missing}"
    for target, source in related:
        assert by_id[source]["superseded_by"] == target


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_at_once_the_tree_is_whole(client: AsyncClient, cast: Cast, db: Db, make: Make, seed: int):
    for number in range(OBSERVATIONS):
        await make.observation(project=cast.alice.project, title=f"Topic {number}", facts=[f"Only {number} says this."])
    waves = Waves(client, cast, db, make, seed)
    (before,) = await rows(db, DEADLOCKS)

    for _ in range(WAVES):
        await waves.run_wave()
        state = await rows(db, STATE)
        related = {(row["from_id"], row["to_id"]) for row in await rows(db, RELATED)}
        check_tree(state, related)

    assert await rows(db, DEADLOCKS) == [before]
    assert any(status < 300 for status in waves.statuses)


async def test_what_is_merged_in_is_locked_after_what_it_went_into(client: AsyncClient, cast: Cast, db: Db, make: Make):
    """As a deletion and a purge take them, so that none of them waits for the other."""
    source, target, other = [await make.observation(project=cast.alice.project, title=f"Topic {n}") for n in range(3)]
    waves = Waves(client, cast, db, make, 0)
    await waves.send("POST", f"/v1/observations/{target.number}/merge", {"sources": [source.number]})
    hold: LiteralString = "SELECT number FROM observations WHERE id = %s FOR UPDATE SKIP LOCKED"

    async with db.system() as conn:
        await conn.execute(hold, [source.id])
        await waves.send("POST", f"/v1/observations/{other.number}/merge", {"sources": [source.number]})  # skipped: it is merged
        undoing = asyncio.create_task(waves.send("POST", f"/v1/observations/{target.number}/undo"))
        await until_it_waits_for_a_lock(db, undoing)
        held = await rows(db, hold, target.id) == []
        deleting = asyncio.create_task(waves.send("DELETE", f"/v1/observations/{target.number}"))
    await asyncio.gather(undoing, deleting)

    assert held
    assert waves.statuses == [200] * 4


@try_rows(
    ("target", "source", "related"),
    [
        ({"superseded_by": 1}, {}, {(2, 1), (1, 2)}),
        ({"facts": []}, {}, {(2, 1)}),
        ({}, {"superseded_by": None}, {(2, 1)}),
        ({"merged_from": []}, {}, {(2, 1)}),
        ({}, {}, set[tuple[int, int]]()),
    ],
    ids=["a circle", "a lost fact", "a relation that leads nowhere", "a target that does not know", "no relation"],
)
def test_the_check_sees_what_it_should(target: dict[str, Any], source: dict[str, Any], related: set[tuple[int, int]]):
    first: dict[str, Any] = {"id": 1, "number": 1, "project_id": 0, "facts": ["a"], "superseded_by": 2, "merged_from": [2]}
    second: dict[str, Any] = {"id": 2, "number": 2, "project_id": 0, "facts": ["a"], "superseded_by": None, "merged_from": [1]}
    check_tree([first, second], {(2, 1)})

    with pytest.raises(AssertionError):
        check_tree([first | source, second | target], related)
