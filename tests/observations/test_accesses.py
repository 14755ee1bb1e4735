"""How often the texts of observations are read is counted from the audit log, once, whenever a row of it commits."""

from __future__ import annotations

from datetime import datetime

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.observations import repository as observations
from cmserver.observations.accesses import repository
from cmserver.observations.accesses.jobs import count_accesses
from cmserver.observations.accesses.model import VIAS
from cmserver.observations.model import Observation
from cmserver.observations.read import audit_read
from tests.conftest import Cast, Person
from tests.make import Make


async def count_up_to_now(db: Db) -> None:
    """The first run sees where the log ends, the next one counts up to there."""
    await count_accesses(db)
    await count_accesses(db)


async def stored(db: Db, observation: Observation) -> Observation:
    async with db.tenant(observation.team_id) as conn:
        found = await observations.by_id(conn, observation.team_id, observation.id)
    assert found is not None
    return found


async def read_by(db: Db, person: Person, via: str, *read: Observation) -> None:
    async with db.tenant(person.team_id) as conn:
        await audit_read(conn, person.principal, person.project.id, via, read)


async def moment_of_last_row(db: Db) -> datetime:
    async with db.system() as conn:
        row = await (await conn.execute("SELECT created_at FROM audit_log ORDER BY id DESC LIMIT 1")).fetchone()
    assert row
    return row[0]


async def test_what_is_read_is_counted_and_nothing_else_of_it_changes(client: AsyncClient, db: Db, cast: Cast, make: Make):
    observation, other = await make.observation(project=cast.alice.project), await make.observation(project=cast.alice.project)
    for path in ("/v1/observations/1", f"/v1/observations/{observation.id}"):
        await client.get(path, headers=cast.alice.headers)

    await count_up_to_now(db)

    counted = await stored(db, observation)
    assert (counted.access_count, counted.last_accessed_at) == (2, await moment_of_last_row(db))
    assert counted.updated_at == observation.updated_at
    assert await stored(db, other) == other
    answer = (await client.get("/v1/observations/1", headers=cast.alice.headers)).json()["observation"]
    assert answer["accessCount"] == 2
    assert answer["lastAccessedAtEpoch"] >= answer["createdAtEpoch"]


async def test_it_is_counted_once_however_often_the_job_runs(db: Db, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    await read_by(db, cast.alice, "get", observation)
    await count_up_to_now(db)
    await read_by(db, cast.bob, "batch", observation)

    for _ in range(5):
        await count_accesses(db)

    assert (await stored(db, observation)).access_count == 2


@pytest.mark.parametrize(
    ("via", "times"), [*((via, 1) for via in VIAS), ("list", 0), ("search", 0), ("startup", 0), ("context", 0)]
)
async def test_only_whoever_reads_a_text_whole_or_for_what_he_does_has_accessed_it(
    db: Db, cast: Cast, make: Make, via: str, times: int
):
    observation = await make.observation(project=cast.alice.project)
    await read_by(db, cast.alice, via, observation)

    await count_up_to_now(db)

    assert (await stored(db, observation)).access_count == times


async def test_teams_are_counted_apart_though_their_numbers_are_the_same(db: Db, cast: Cast, make: Make):
    hers, his = await make.observation(project=cast.alice.project), await make.observation(project=cast.charlie.project)
    await read_by(db, cast.charlie, "get", his)

    await count_up_to_now(db)

    assert hers.number == his.number
    assert ((await stored(db, hers)).access_count, (await stored(db, his)).access_count) == (0, 1)


async def test_a_row_that_commits_late_is_not_lost(db: Db, cast: Cast, make: Make):
    observation, other = await make.observation(project=cast.alice.project), await make.observation(project=cast.alice.project)
    async with db.tenant(cast.alice.team_id) as slow:
        await audit_read(slow, cast.alice.principal, cast.alice.project.id, "get", [observation])
        await read_by(db, cast.bob, "get", other)
        await count_up_to_now(db)
        waiting = (await stored(db, other)).access_count

    await count_up_to_now(db)

    assert waiting == 0
    assert ((await stored(db, observation)).access_count, (await stored(db, other)).access_count) == (1, 1)


async def test_a_row_that_commits_late_is_not_lost_when_its_transaction_began_after_the_one_that_overtook_it(
    db: Db, cast: Cast, make: Make
):
    late, early = await make.observation(project=cast.alice.project), await make.observation(project=cast.alice.project)
    async with db.tenant(cast.alice.team_id) as slow:
        async with db.tenant(cast.bob.team_id) as quick:
            await quick.execute("SELECT pg_current_xact_id()")  # the lower number, and the higher id
            await audit_read(slow, cast.alice.principal, cast.alice.project.id, "get", [late])
            await audit_read(quick, cast.bob.principal, cast.bob.project.id, "get", [early])
        await count_up_to_now(db)

    await count_up_to_now(db)

    assert ((await stored(db, late)).access_count, (await stored(db, early)).access_count) == (1, 1)


async def test_numbers_of_a_database_that_was_restored_elsewhere_hold_nothing_up(db: Db, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    await read_by(db, cast.alice, "get", observation)
    await count_accesses(db)
    async with db.system() as conn:
        await conn.execute("UPDATE read_positions SET fence_transaction = '123456789012' WHERE name = 'accesses'")

    await count_accesses(db)

    assert (await stored(db, observation)).access_count == 1


async def test_what_is_deleted_meanwhile_is_left_out(client: AsyncClient, db: Db, cast: Cast, make: Make):
    observation, gone = await make.observation(project=cast.alice.project), await make.observation(project=cast.alice.project)
    await read_by(db, cast.alice, "batch", observation, gone)
    await client.delete(f"/v1/observations/{gone.id}", headers=cast.alice.headers)

    await count_up_to_now(db)

    assert (await stored(db, observation)).access_count == 1


async def test_counting_touches_no_index_and_makes_no_search_vector_anew(db: Db, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    await read_by(db, cast.alice, "get", observation)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET content_search = ''")  # which no trigger sees

    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'observations'::regclass"
    async with db.system() as conn:
        ((updates_before, hot_before),) = await (await conn.execute(counted)).fetchall()
        done = await repository.count(conn, cast.alice.team_id, VIAS, after=0, until=2**62)
        ((updates, hot_updates),) = await (await conn.execute(counted)).fetchall()
        vectors = await conn.execute("SELECT content_search::text FROM observations")

        assert done == 1
        assert (updates - updates_before, hot_updates - hot_before) == (1, 1)
        assert await vectors.fetchall() == [("",)]
