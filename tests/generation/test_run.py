"""A batch from claim to effects."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from cmserver.generation.leases import repository as leases
from cmserver.generation.operate.manage import resume_provider
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.providers.model import (
    Answer,
    Completion,
    DraftObservation,
    FailureKind,
    Prompt,
    ProviderError,
)
from cmserver.reading.model import EventReading
from cmserver.reading.read import read_event
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, all_skipped, completion, each_observed, tool_name


async def test_events_become_observations_with_their_sources_and_the_jobs_end_as_observed(outbox: Outbox):
    recorded = await outbox.put(3)
    provider = Scripted()
    hand = await outbox.hand(provider)

    assert await hand.work() == 1

    assert await outbox.statuses() == {"completed": 3}
    rows = await outbox.rows(
        "SELECT o.number, o.title, o.generation_key, s.agent_event_id FROM observations o"
        " JOIN observation_sources s ON s.observation_id = o.id ORDER BY o.number"
    )
    assert [(row["number"], row["title"]) for row in rows] == [(1, "saw e1"), (2, "saw e2"), (3, "saw e3")]
    assert [row["agent_event_id"] for row in rows] == [event.event.id for event in recorded]
    job = recorded[0].job
    assert job is not None
    assert str(rows[0]["generation_key"]).startswith(f"generation:v1:{job.id}:0:")
    assert await outbox.lifecycle(job.id) == ["queued", "processing", "completed"]
    assert len(provider.prompts) == 1
    assert await outbox.value("SELECT status FROM generation_runs") == "applied"
    assert await outbox.value("SELECT answer FROM generation_runs") is None


async def test_a_batch_that_made_something_is_one_line_of_the_log(outbox: Outbox):
    await outbox.put(2)
    hand = await outbox.hand(Scripted())

    with capture_logs() as records:
        await hand.work()

    (record,) = [record for record in records if record["event"] == "batch.completed"]
    assert (record["log_level"], record["events"], record["observations"]) == ("info", 2, [1, 2])
    assert record.keys() >= {"provider", "tokens", "seconds"}


async def test_events_that_no_observation_names_end_as_skipped_with_the_reason(outbox: Outbox):
    await outbox.put(2)
    hand = await outbox.hand(Scripted(lambda prompt: completion(all_skipped(prompt))))

    await hand.work()

    rows = await outbox.rows("SELECT outcome, outcome_reason FROM observation_generation_jobs")
    assert [tuple(row.values()) for row in rows] == [("skipped", "not worth it")] * 2
    assert await outbox.value("SELECT count(*) FROM observations") == 0


async def test_an_observation_of_several_events_gets_a_source_row_for_each_and_the_key_of_the_first(outbox: Outbox):
    recorded = await outbox.put(3)
    answer = Answer(observations=[DraftObservation(title="both", events=["e3", "e2"])])
    hand = await outbox.hand(Scripted(lambda _: completion(answer)))

    await hand.work()

    sources = await outbox.rows("SELECT agent_event_id FROM observation_sources ORDER BY agent_event_id")
    assert [row["agent_event_id"] for row in sources] == [event.event.id for event in recorded[1:]]
    first = recorded[1].job
    assert first is not None
    assert await outbox.value("SELECT created_by_job_id FROM observations") == first.id
    outcomes = await outbox.rows("SELECT outcome FROM observation_generation_jobs ORDER BY seq")
    assert [row["outcome"] for row in outcomes] == ["skipped", "observed", "observed"]


async def test_a_session_s_end_makes_one_summary_after_the_waiting_events_and_the_same_when_ended_again(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(2)
    session_id = recorded[0].event.server_session_id
    assert session_id is not None

    async def end() -> object:
        _, job, is_new = await outbox.db.in_tenant(
            cast.alice.team_id,
            lambda conn: sessions.end(conn, cast.alice.principal, session_id, source_adapter="api"),
        )
        return (job.id if job else None, is_new)

    first = await end()
    again = await end()
    provider = Scripted()
    hand = await outbox.hand(provider)
    await hand.work()
    after = await end()

    assert isinstance(first, tuple)
    assert isinstance(again, tuple)
    assert first[1] is True
    assert again == (first[0], False) == after
    assert [prompt.kind for prompt in provider.prompts] == ["observations", "summary"]
    assert [observation.title for observation in provider.prompts[1].recorded] == ["saw e1", "saw e2"]
    rows = await outbox.rows("SELECT kind, title, summary FROM observations ORDER BY number")
    assert [row["kind"] for row in rows] == ["observation", "observation", "summary"]
    assert rows[2]["title"] == "what was asked"

    await outbox.put(1, first=10)
    resumed = await end()
    await hand.work()

    assert isinstance(resumed, tuple)
    assert resumed[1] is True
    assert await outbox.value("SELECT count(*) FROM observations WHERE kind = 'summary'") == 2


async def test_an_unusable_answer_is_split_and_only_the_poisonous_event_fails(outbox: Outbox):
    await outbox.put(4)

    def reply(prompt: Prompt) -> Completion:
        poisonous = any("poison" in (event.payload, tool_name(event)) for event in prompt.events)
        return Completion(text="I would rather not", model="m") if poisonous else completion(each_observed(prompt))

    await outbox.put(1, first=4, payload={"text": "x", "tool_name": "poison"})
    await outbox.put(2, first=5)
    hand = await outbox.hand(Scripted(reply))

    await hand.work()

    rows = await outbox.rows(
        "SELECT status, attempts, last_error ->> 'reason' AS reason FROM observation_generation_jobs ORDER BY seq"
    )
    assert [row["status"] for row in rows] == ["completed"] * 4 + ["failed"] + ["completed"] * 2
    assert rows[4]["reason"] == "unusable_answer"
    assert {row["attempts"] for row in rows} == {1}
    kept = await outbox.value(
        "SELECT r.answer FROM generation_runs r JOIN observation_generation_jobs j ON j.generation_run_id = r.id"
        " WHERE j.status = 'failed'"
    )
    assert kept == "I would rather not"


async def test_an_event_that_cannot_be_read_fails_alone(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    def read(event_type: str, payload: object, root: str | None, **known: Any) -> EventReading:
        assert "poison" not in str(payload), "poison"
        return read_event(event_type, payload, root, **known)

    monkeypatch.setattr("cmserver.generation.prompt.read_event", read)
    await outbox.put(2)
    await outbox.put(1, first=2, payload={"tool_name": "poison"})
    hand = await outbox.hand(Scripted())

    with capture_logs() as records:
        await hand.work()

    assert await outbox.statuses() == {"completed": 2, "failed": 1}
    assert await outbox.value("SELECT last_error ->> 'reason' FROM observation_generation_jobs WHERE status = 'failed'") == (
        "payload_unusable"
    )
    assert [record["log_level"] for record in records if record["event"] == "event.unreadable"] == ["error"]


async def test_what_time_can_heal_is_tried_again_after_a_back_off_that_honours_retry_after(outbox: Outbox):
    await outbox.put(2)
    failures = [ProviderError(FailureKind.RATE_LIMITED, "Slow down.", retry_after_seconds=120)]

    def reply(prompt: Prompt) -> Completion:
        if failures:
            raise failures.pop()
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert await outbox.statuses() == {"queued": 2}
    held = await outbox.rows(
        "SELECT held_until > now() + interval '100 seconds' AS far, due_at = held_until AS due FROM generation_lanes"
    )
    assert held == [{"far": True, "due": True}]
    assert await hand.claim() == []

    await outbox.rows("UPDATE generation_lanes SET held_until = NULL, due_at = now()")
    another = await outbox.hand(Scripted(reply))  # the first one remembers, by its own clock
    await another.work()

    assert await outbox.statuses() == {"completed": 2}


async def test_a_job_that_time_does_not_heal_fails_for_good_after_its_attempts(outbox: Outbox):
    recorded = await outbox.put(1)

    def reply(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.TRANSIENT, "The provider is overloaded.")

    hand = await outbox.hand(Scripted(reply))
    for _ in range(5):
        await hand.work()
        await outbox.rows("UPDATE generation_lanes SET held_until = NULL, due_at = now()")

    assert await outbox.statuses() == {"failed": 1}
    assert recorded[0].job is not None
    assert await outbox.lifecycle(recorded[0].job.id) == ["queued", *["processing", "retry_scheduled"] * 2, "processing", "failed"]
    assert await outbox.value("SELECT last_error ->> 'message' FROM observation_generation_jobs") == "The provider is overloaded."


async def test_a_bad_key_pauses_the_provider_for_everybody_and_uses_up_no_attempt(outbox: Outbox):
    await outbox.put(2)
    await outbox.put(2, session="s2")

    def reply(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.AUTH_INVALID, "The key is wrong.")

    provider = Scripted(reply)
    hand = await outbox.hand(provider)
    await hand.work()

    assert len(provider.prompts) == 1
    assert await outbox.statuses() == {"queued": 4}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE held_until > now()") == 2

    provider.reply = None
    assert await outbox.db.in_system(lambda conn: resume_provider(conn, "scripted"))
    await hand.work()

    assert await outbox.statuses() == {"completed": 4}


async def test_a_stored_answer_is_applied_and_not_bought_again(outbox: Outbox):
    await outbox.put(3)
    provider = Scripted()
    crashed = await outbox.hand(provider)
    crashed_claims = await crashed.claim()
    # The answer is kept, then the process dies before the effects.
    hold = asyncio.Event()
    original = crashed.runner._apply  # pyright: ignore[reportPrivateUsage]

    async def never(batch: object) -> None:
        hold.set()
        await asyncio.Event().wait()

    crashed.runner._apply = never  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    running = asyncio.create_task(crashed.runner.run(crashed_claims[0]))
    await hold.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert original is not never
    await outbox.put(1, first=10)
    await outbox.rows("DELETE FROM procrastinate_workers")
    async with outbox.db.system() as conn:
        assert len((await leases.reap(conn, hard_limit_seconds=300)).jobs) == 3

    second = await outbox.hand(provider)
    claims = await second.claim()
    assert [len(claim.job_ids) for claim in claims] == [3]
    await second.runner.run(claims[0])

    assert len(provider.prompts) == 1
    assert await outbox.statuses() == {"completed": 3, "queued": 1}
    await second.work()
    assert await outbox.statuses() == {"completed": 4}
    assert await outbox.value("SELECT count(*) FROM observations") == 4


async def test_a_worker_that_lost_its_lease_writes_nothing(outbox: Outbox):
    await outbox.put(2)
    slow = await outbox.hand(Scripted())
    (claim,) = await slow.claim()
    await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", slow.worker_id)
    async with outbox.db.system() as conn:
        await leases.reap(conn, hard_limit_seconds=300)
    quick = await outbox.hand(Scripted())
    await quick.work()
    before = await outbox.rows("SELECT * FROM observation_generation_jobs ORDER BY seq")

    await slow.runner.run(claim)

    assert await outbox.rows("SELECT * FROM observation_generation_jobs ORDER BY seq") == before
    assert await outbox.value("SELECT count(*) FROM observations") == 2
    assert await outbox.value("SELECT last_number FROM observation_counters") == 2


async def test_a_key_revoked_since_fails_its_jobs_without_a_provider_call(outbox: Outbox, cast: Cast):
    await outbox.put(2)
    await outbox.rows("UPDATE api_keys SET revoked_at = now() WHERE id = %s", cast.alice.principal.key_id)
    provider = Scripted()
    hand = await outbox.hand(provider)

    await hand.work()

    assert provider.prompts == []
    assert await outbox.statuses() == {"failed": 2}
    assert await outbox.value("SELECT last_error ->> 'reason' FROM observation_generation_jobs LIMIT 1") == "key_revoked"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("expires_at = now() - interval '1 second'", "expired"),
        ("scopes = '[\"observations:read\"]'", "scopes"),
        ("project_id = (SELECT id FROM projects WHERE name = 'other')", "another project"),
    ],
)
async def test_a_key_that_may_no_longer_ask_fails_its_jobs_until_an_operator_retries_them(
    outbox: Outbox, cast: Cast, change: str, word: str
):
    (recorded,) = await outbox.put(1)
    assert recorded.job is not None
    other = "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (gen_random_uuid(), %s, 'other', 'other')"
    await outbox.rows(other, cast.alice.team_id)
    await outbox.rows(f"UPDATE api_keys SET {change} WHERE id = %s", cast.alice.principal.key_id)
    provider = Scripted()
    hand = await outbox.hand(provider)

    await hand.work()
    (failed,) = await outbox.rows("SELECT status, last_error FROM observation_generation_jobs")
    assert await outbox.value("SELECT retry_job(%s)", recorded.job.id) == "queued"
    await hand.work()

    assert failed["status"] == "failed"
    error = msgspec.convert(failed["last_error"], dict[str, str])
    assert error["reason"] == "key_revoked"
    assert word in error["message"]
    assert len(provider.prompts) == 1
    assert await outbox.statuses() == {"completed": 1}


async def test_a_key_that_was_rotated_before_it_expired_keeps_its_jobs(outbox: Outbox, cast: Cast):
    await outbox.put(1)
    key_id = cast.alice.principal.key_id
    await outbox.rows(
        "UPDATE api_keys SET expires_at = now() - interval '1 second', replaced_by = %s WHERE id = %s", key_id, key_id
    )

    await (await outbox.hand(Scripted())).work()

    assert await outbox.statuses() == {"completed": 1}


async def test_a_session_is_processing_while_its_batch_runs(outbox: Outbox):
    status = "SELECT generation_status FROM server_sessions"
    seen: list[object] = []

    async def reply(prompt: Prompt) -> Completion:
        seen.append(await outbox.value(status))
        return completion(each_observed(prompt))

    await outbox.put(1)
    before = await outbox.value(status)
    await (await outbox.hand(Scripted(reply))).work()

    assert [before, *seen, await outbox.value(status)] == ["idle", "processing", "completed"]


async def test_log_records_of_a_batch_name_its_lane_claim_jobs_and_requests(outbox: Outbox):
    seen: list[dict[str, object]] = []

    def reply(prompt: Prompt) -> Completion:
        seen.append(structlog.contextvars.get_contextvars())
        return completion(each_observed(prompt))

    recorded = await outbox.put(2)
    jobs = [event.job for event in recorded if event.job]
    hand = await outbox.hand(Scripted(reply))
    await outbox.rows("UPDATE observation_generation_jobs SET request_id = 'r1'")
    await hand.work()
    await outbox.put(2, session="s2")
    await outbox.rows("UPDATE observation_generation_jobs SET request_id = 'r' || seq WHERE status = 'queued'")
    await hand.work()

    first, second = seen
    assert (first["lane"], first["job_ids"], first["request_id"]) == (str(jobs[0].lane), [str(job.id) for job in jobs], "r1")
    assert isinstance(first["claim"], int)
    assert "request_id" not in second
    assert len(msgspec.convert(second["request_ids"], list[str])) == 2
    assert not {"lane", "claim", "job_ids", "request_id", "request_ids"} & structlog.contextvars.get_contextvars().keys()


async def test_a_job_cancelled_while_it_runs_ends_as_cancelled_and_what_cites_it_is_dropped(outbox: Outbox):
    recorded = await outbox.put(3)
    cancelled = recorded[1].job
    assert cancelled is not None

    async def reply(prompt: Prompt) -> Completion:
        assert await outbox.value("SELECT cancel_job(%s)", cancelled.id) == "cancelling"
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert await outbox.statuses() == {"completed": 2, "cancelled": 1}
    titles = await outbox.rows("SELECT title FROM observations ORDER BY number")
    assert [row["title"] for row in titles] == ["saw e1", "saw e3"]


async def test_an_error_nobody_expected_sends_the_batch_back_with_a_back_off(outbox: Outbox):
    await outbox.put(2)

    def reply(_: Prompt) -> Completion:
        raise ZeroDivisionError

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert await outbox.statuses() == {"queued": 2}
    assert await outbox.value("SELECT last_error ->> 'reason' FROM observation_generation_jobs LIMIT 1") == "internal"
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE held_until > now() AND worker_id IS NULL") == 1
