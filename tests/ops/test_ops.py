"""Readiness, and the conservation sums."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops import repository
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, all_skipped, completion


async def test_the_sums_hold_in_every_state_a_job_can_be_in(db: Db, notifier: JobNotifier, cast: Cast):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.put(3, session="observed")
    await (await outbox.hand(Scripted())).work()
    await outbox.put(2, session="skipped")
    await (await outbox.hand(Scripted(lambda prompt: completion(all_skipped(prompt))))).work()
    cancelled = (await outbox.put(1, session="cancelled"))[0].job
    assert cancelled is not None
    await outbox.value("SELECT cancel_job(%s)", cancelled.id)
    await outbox.put(1, session="processing")
    await (await outbox.hand(Scripted())).claim()
    await outbox.put(4, session="queued")

    async with db.system() as conn:
        blue, red = await repository.CONSERVATION.all(conn)

    sums = (blue.events, blue.jobs, blue.observed, blue.skipped, blue.cancelled, blue.processing, blue.queued, blue.failed)
    assert sums == (11, 11, 3, 2, 1, 1, 4, 0)
    assert blue.holds
    assert (red.team, red.events, red.holds) == ("red", 0, True)


async def test_a_lost_job_breaks_the_sums(db: Db, notifier: JobNotifier, cast: Cast):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    recorded = await outbox.put(2)
    assert recorded[0].job is not None
    await outbox.rows("DELETE FROM observation_generation_jobs WHERE id = %s", recorded[0].job.id)

    async with db.system() as conn:
        blue, _ = await repository.CONSERVATION.all(conn)

    assert not blue.holds
    assert blue.events_without_job == 1


async def test_a_role_that_sees_no_team_gets_no_sums(db: Db, cast: Cast):
    async with db.tenant(cast.alice.team_id) as conn:
        assert [team.team for team in await repository.CONSERVATION.all(conn)] == ["blue"]
        await conn.execute("SELECT set_config('cmserver.team_id', '', true)")
        assert await repository.CONSERVATION.all(conn) == []


async def test_it_is_not_ready_with_another_schema_or_without_its_database(client: httpx.AsyncClient, db: Db):
    async with db.system() as conn:
        await conn.execute("UPDATE schema_migrations SET number = 9999 WHERE number = (SELECT max(number) FROM schema_migrations)")

    response = await client.get("/readyz")

    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "another schema" in response.json()["message"]
