"""What became of each number is counted; a merge that nobody could undo, and a number with two meanings, are seen."""

from __future__ import annotations

from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.graph.read_observations import read_new_observations
from cmserver.ops.repository import ENTITY_SUMS, NUMBER_SUMS, NumberSums
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows


async def sums_of(db: Db, team: str) -> NumberSums:
    async with db.system() as conn:
        return next(sums for sums in await NUMBER_SUMS.all(conn) if sums.team == team)


async def test_each_number_is_shown_merged_expired_or_deleted(client: AsyncClient, cast: Cast, make: Make, db: Db):
    headers = cast.alice.headers
    for number in range(5):
        await make.observation(project=cast.alice.project, title=f"Number {number + 1}")
    await make.turn(project=cast.alice.project)
    await make.observation(project=cast.charlie.project)
    assert (await client.post("/v1/observations/1/merge", json={"sources": [2]}, headers=headers)).status_code == 200
    assert (await client.delete("/v1/observations/3", headers=headers)).status_code == 200
    await rows(db, "UPDATE observations SET ttl_seconds = 60, expires_at = now() WHERE title = 'Number 4'")

    blue, red = await sums_of(db, "blue"), await sums_of(db, "red")

    assert (blue.numbered, blue.turns, blue.shown, blue.merged, blue.expired, blue.deleted, blue.holds) == (6, 1, 2, 1, 1, 1, True)
    assert (red.numbered, red.turns, red.shown, red.merged, red.expired, red.deleted, red.holds) == (1, 0, 1, 0, 0, 0, True)


async def test_a_merge_without_a_record_does_not_hold(cast: Cast, make: Make, db: Db):
    target = await make.observation(project=cast.alice.project)
    source = await make.observation(project=cast.alice.project)
    await rows(db, "UPDATE observations SET superseded_at = now(), superseded_by = %s WHERE id = %s", target.id, source.id)

    blue = await sums_of(db, "blue")

    assert (blue.merged, blue.merged_without_record, blue.holds) == (1, 1, False)


async def test_a_number_of_an_observation_and_a_turn_does_not_hold(cast: Cast, make: Make, db: Db):
    observation = await make.observation(project=cast.alice.project)
    turn = await make.turn(project=cast.alice.project)
    await rows(db, "UPDATE turns SET number = %s WHERE id = %s", observation.number, turn.id)

    blue = await sums_of(db, "blue")

    assert (blue.numbered_twice, blue.deleted, blue.holds) == (1, 1, False)


async def test_an_entity_counts_what_mentions_it(client: AsyncClient, cast: Cast, make: Make, db: Db):
    for title in ("`a_name` and `b_name`", "`a_name` again"):
        await make.observation(project=cast.alice.project, title=title)
    await read_new_observations(db)
    ids = {row["name"]: row["id"] for row in await rows(db, "SELECT id::text, name FROM entities")}
    merge = await client.post(f"/v1/entities/{ids['b_name']}/merge", json={"intoId": ids["a_name"]}, headers=cast.alice.headers)
    assert merge.status_code == 200, merge.text

    async with db.system() as conn:
        (good,) = await ENTITY_SUMS.all(conn)
    await rows(db, "UPDATE entities SET mention_count = 7 WHERE name = 'a_name'")
    await rows(db, "UPDATE entity_mentions SET entity_id = named_id")
    async with db.system() as conn:
        (bad,) = await ENTITY_SUMS.all(conn)

    assert (good.entities, good.aliases, good.mentions, good.holds) == (1, 1, 3, True)
    assert (bad.miscounted, bad.astray, bad.holds) == (2, 1, False)
