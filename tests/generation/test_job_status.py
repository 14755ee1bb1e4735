"""How far a job is, as an agent reads it."""

from __future__ import annotations

from uuid import UUID

import pytest

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.generation.operate.manage import find_job_status, render_job_status
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Skip
from tests.conftest import Cast, bound_to
from tests.generation.tools import Outbox, Scripted, completion


async def read_status(db: Db, principal: Principal, job_id: UUID | str) -> list[str]:
    async with db.tenant(principal.team_id) as conn:
        return render_job_status(await find_job_status(conn, principal, str(job_id))).splitlines()


async def jobs(outbox: Outbox, count: int = 1) -> list[UUID]:
    return [event.job.id for event in await outbox.put(count) if event.job]


async def test_a_job_that_waits_says_so(db: Db, cast: Cast, outbox: Outbox):
    (job_id,) = await jobs(outbox)

    lines = await read_status(db, cast.alice.principal, job_id)

    assert lines == [f"Job {job_id}: queued, 0 of 3 attempts used"]


async def test_each_job_names_what_came_of_it_and_not_what_came_of_others(db: Db, cast: Cast, outbox: Outbox):
    def about(prompt: Prompt) -> Completion:
        first, second, third = prompt.tags
        observations = [
            DraftObservation(title="a", events=[first]),
            DraftObservation(title="b", events=[first, second]),
        ]
        return completion(Answer(observations=observations, skipped=[Skip(event=third, reason="not\nworth it")]))

    principal = cast.alice.principal
    first, second, third = await jobs(outbox, 3)
    await (await outbox.hand(Scripted(about))).work()

    assert await read_status(db, principal, first) == [f"Job {first}: completed, 1 of 3 attempts used", "Observations: #1, #2"]
    assert await read_status(db, principal, second) == [f"Job {second}: completed, 1 of 3 attempts used", "Observations: #2"]
    assert await read_status(db, principal, third) == [f"Job {third}: completed, 1 of 3 attempts used", "Reason: not worth it"]


async def test_the_summary_of_a_session_came_of_its_job(db: Db, cast: Cast, outbox: Outbox):
    principal = cast.alice.principal
    (event,) = await outbox.put(1)
    session_id = event.event.server_session_id
    assert session_id is not None
    _, job, _ = await db.in_tenant(principal.team_id, lambda conn: sessions.end(conn, principal, session_id, source_adapter="api"))
    assert job is not None

    await (await outbox.hand(Scripted())).work()

    assert await read_status(db, principal, job.id) == [f"Job {job.id}: completed, 1 of 3 attempts used", "Observations: #2"]


async def test_what_was_deleted_is_not_named(db: Db, cast: Cast, outbox: Outbox):
    (job_id,) = await jobs(outbox)
    await (await outbox.hand(Scripted())).work()
    await outbox.rows("DELETE FROM observations")

    lines = await read_status(db, cast.alice.principal, job_id)

    assert lines[1:] == ["Observations: none is left, they were deleted"]


async def test_a_job_that_failed_says_why_in_one_line(db: Db, cast: Cast, outbox: Outbox):
    def refusing(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.REFUSED, "The model refused.\n#7 decision <cmserver-context>")

    (job_id,) = await jobs(outbox)
    await (await outbox.hand(Scripted(refusing))).work()

    lines = await read_status(db, cast.alice.principal, job_id)

    assert lines == [
        f"Job {job_id}: failed, 1 of 3 attempts used",
        "Error: The model refused. #7 decision [cmserver-context>",
    ]


async def test_a_job_that_is_tried_again_says_when(db: Db, cast: Cast, outbox: Outbox):
    def overloaded(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.TRANSIENT, "The provider is overloaded.", retry_after_seconds=60)

    (job_id,) = await jobs(outbox)
    await (await outbox.hand(Scripted(overloaded))).work()
    await outbox.rows("UPDATE observation_generation_jobs SET next_attempt_at = '2026-11-22 09:00:05+01'")

    lines = await read_status(db, cast.alice.principal, job_id)

    assert lines == [
        f"Job {job_id}: queued, 1 of 3 attempts used",
        "Next attempt: not before 2026-11-22 08:00:05 UTC",
        "Error: The provider is overloaded.",
    ]


async def test_who_worked_on_it_stays_untold(db: Db, cast: Cast, outbox: Outbox):
    (job_id,) = await jobs(outbox)
    await (await outbox.hand(Scripted())).claim()
    lost = '{"reason": "worker lost", "worker": "host-1", "claim": 12}'
    await outbox.rows("UPDATE observation_generation_jobs SET cancel_requested_at = now(), last_error = %s RETURNING id", lost)

    lines = await read_status(db, cast.alice.principal, job_id)

    assert lines == [f"Job {job_id}: processing (to be cancelled), 1 of 3 attempts used", "Error: worker lost"]


@pytest.mark.parametrize("caller", ["stranger", "other project"])
async def test_a_job_is_told_only_to_who_may_see_it(db: Db, cast: Cast, outbox: Outbox, caller: str):
    (job_id,) = await jobs(outbox)
    person = cast.charlie if caller == "stranger" else await bound_to(db, cast.alice, "billing")

    with pytest.raises(NotFound, match="no such job"):
        await read_status(db, person.principal, job_id)
