"""The law of a job's life holds for whoever writes, psql included, and every step leaves its trace."""

from __future__ import annotations

from uuid import UUID

import pytest
from psycopg import errors

from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted


async def _job(outbox: Outbox) -> UUID:
    recorded = await outbox.put(1)
    assert recorded[0].job is not None
    return recorded[0].job.id


@pytest.mark.parametrize("to", ["completed", "failed"])
async def test_a_queued_job_cannot_end_without_being_worked_on(outbox: Outbox, to: str):
    job = await _job(outbox)

    with pytest.raises(errors.CheckViolation, match=f"cannot go from queued to {to}"):
        await outbox.rows("UPDATE observation_generation_jobs SET status = %s WHERE id = %s", to, job)

    assert await outbox.statuses() == {"queued": 1}


async def test_a_completed_job_stays_completed(outbox: Outbox):
    job = await _job(outbox)
    await (await outbox.hand(Scripted())).work()

    for to in ("queued", "processing", "failed", "cancelled"):
        with pytest.raises(errors.CheckViolation):
            await outbox.rows("UPDATE observation_generation_jobs SET status = %s WHERE id = %s", to, job)


async def test_a_job_cannot_go_back_to_the_queue_when_its_attempts_are_used_up(outbox: Outbox):
    job = await _job(outbox)
    await (await outbox.hand(Scripted())).claim()

    with pytest.raises(errors.CheckViolation):
        await outbox.rows("UPDATE observation_generation_jobs SET status = 'queued', attempts = max_attempts WHERE id = %s", job)


async def test_an_update_typed_in_psql_writes_the_timestamp_and_the_trace_that_belong_to_the_step(outbox: Outbox):
    job = await _job(outbox)

    await outbox.rows("UPDATE observation_generation_jobs SET status = 'cancelled' WHERE id = %s", job)

    assert await outbox.lifecycle(job) == ["queued", "cancelled"]
    assert await outbox.value("SELECT cancelled_at IS NOT NULL AND completed_at IS NULL FROM observation_generation_jobs") is True


async def test_an_operator_s_retry_gives_three_more_attempts_and_wakes_the_lane(outbox: Outbox):
    job = await _job(outbox)
    hand = await outbox.hand(Scripted())
    assert await outbox.value("SELECT cancel_job(%s)", job) == "cancelled"
    await outbox.rows("DELETE FROM generation_lanes")

    assert await outbox.value("SELECT retry_job(%s)", job) == "queued"

    assert await outbox.value("SELECT max_attempts - attempts FROM observation_generation_jobs") == 3
    await hand.work()
    assert await outbox.statuses() == {"completed": 1}
    assert await outbox.lifecycle(job) == ["queued", "cancelled", "queued", "processing", "completed"]


async def test_retry_and_cancel_say_so_when_there_is_nothing_to_do(outbox: Outbox):
    job = await _job(outbox)

    assert await outbox.value("SELECT retry_job(%s)", job) == "nothing to do: the job is queued"
    await (await outbox.hand(Scripted())).work()
    assert await outbox.value("SELECT cancel_job(%s)", job) == "nothing to do: the job is completed"
    assert await outbox.value("SELECT cancel_job(gen_random_uuid())") == "no such job"


async def test_the_failed_jobs_of_a_team_go_back_together(outbox: Outbox, cast: Cast):
    for n in range(3):
        await outbox.put(1, session=f"s{n}")
    await (await outbox.hand(Scripted())).claim()
    await outbox.rows("UPDATE observation_generation_jobs SET status = 'failed', last_error = '{\"reason\": \"test\"}'")
    await outbox.rows("UPDATE generation_lanes SET worker_id = NULL, claim = NULL")

    assert await outbox.value("SELECT retry_failed(%s, now() - interval '1 hour')", cast.charlie.team_id) == 0
    assert await outbox.value("SELECT retry_failed(%s, now() - interval '1 hour')", cast.alice.team_id) == 3
    await (await outbox.hand(Scripted())).work()

    assert await outbox.statuses() == {"completed": 3}
