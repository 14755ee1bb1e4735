"""What became of each observation is counted, and a merge that nobody could undo is seen."""

from __future__ import annotations

from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.ops.repository import ObservationSums, observation_sums
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows


async def sums_of(db: Db, team: str) -> ObservationSums:
    async with db.system() as conn:
        return next(sums for sums in await observation_sums(conn) if sums.team == team)


async def test_each_number_is_shown_merged_expired_or_deleted(client: AsyncClient, cast: Cast, make: Make, db: Db):
    headers = cast.alice.headers
    for number in range(5):
        await make.observation(project=cast.alice.project, title=f"Number {number + 1}")
    await make.observation(project=cast.charlie.project)
    assert (await client.post("/v1/observations/1/merge", json={"sources": [2]}, headers=headers)).status_code == 200
    assert (await client.delete("/v1/observations/3", headers=headers)).status_code == 200
    await rows(db, "UPDATE observations SET ttl_seconds = 60, expires_at = now() WHERE title = 'Number 4'")

    blue, red = await sums_of(db, "blue"), await sums_of(db, "red")

    assert (blue.numbered, blue.shown, blue.merged, blue.expired, blue.deleted, blue.holds) == (5, 2, 1, 1, 1, True)
    assert (red.numbered, red.shown, red.merged, red.expired, red.deleted, red.holds) == (1, 1, 0, 0, 0, True)


async def test_a_merge_without_a_record_does_not_hold(cast: Cast, make: Make, db: Db):
    target = await make.observation(project=cast.alice.project)
    source = await make.observation(project=cast.alice.project)
    await rows(db, "UPDATE observations SET superseded_at = now(), superseded_by = %s WHERE id = %s", target.id, source.id)

    blue = await sums_of(db, "blue")

    assert (blue.merged, blue.merged_without_record, blue.holds) == (1, 1, False)
