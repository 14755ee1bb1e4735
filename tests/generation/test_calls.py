"""What a provider's answers and failures come to: who is asked next, what is split, waits or ends, and what stays on record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from cmserver.generation.calls import pauses
from cmserver.generation.calls import repository as calls
from cmserver.generation.leases import repository as leases
from cmserver.ingest import session as sessions
from cmserver.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, completion, each_observed


def failing(kind: FailureKind, *, retry_after: float | None = None, out_of_reach: bool = False) -> Callable[[Prompt], Completion]:
    def reply(_: Prompt) -> Completion:
        raise ProviderError(kind, "Not now.", retry_after, out_of_reach=out_of_reach)

    return reply


async def end_session(outbox: Outbox, cast: Cast, session_id: object) -> None:
    rows = await outbox.rows("SELECT id FROM server_sessions WHERE id = %s", session_id)
    await outbox.db.in_tenant(
        cast.alice.team_id,
        lambda conn: sessions.end(conn, cast.alice.principal, rows[0]["id"], source_adapter="api", max_attempts=3),  # type: ignore[arg-type]
    )


# -- the chain


@pytest.mark.parametrize("kind", [FailureKind.QUOTA_EXHAUSTED, FailureKind.AUTH_INVALID, FailureKind.SETUP_REQUIRED])
async def test_when_the_first_provider_is_paused_the_next_one_answers_at_once(outbox: Outbox, kind: FailureKind):
    await outbox.put(3)
    first, second = Scripted(failing(kind), name="first"), Scripted(name="second")
    hand = await outbox.hand(first, second)

    await hand.work()
    await outbox.put(1, session="another", first=10)
    await hand.work()

    assert await outbox.statuses() == {"completed": 4}
    assert (len(first.prompts), len(second.prompts)) == (1, 2)
    assert await outbox.rows("SELECT provider, reason FROM provider_pauses") == [{"provider": "first", "reason": kind.value}]
    runs = await outbox.rows("SELECT provider, status FROM generation_runs ORDER BY created_at")
    assert [tuple(run.values()) for run in runs] == [("first", "failed"), ("second", "applied"), ("second", "applied")]
    assert await outbox.value("SELECT DISTINCT metadata ->> 'provider' FROM observations") == "second"


async def test_when_all_are_paused_the_lane_waits_for_the_one_that_comes_back_first(outbox: Outbox):
    await outbox.put(2)
    quota = failing(FailureKind.QUOTA_EXHAUSTED, retry_after=3600)
    key = failing(FailureKind.AUTH_INVALID, retry_after=90)
    hand = await outbox.hand(Scripted(quota, name="first"), Scripted(key, name="second"))

    await hand.work()

    lane = (await outbox.rows("SELECT held_for, held_reason, held_until - now() < interval '91 s' AS soon FROM generation_lanes"))[
        0
    ]
    assert lane == {"held_for": "second", "held_reason": "paused: auth_invalid", "soon": True}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0

    await outbox.db.in_system(lambda conn: pauses.resume(conn, "first"))

    assert await outbox.value("SELECT due_at <= now() FROM generation_lanes") is True, "the first may be asked, so it goes on"


async def test_a_provider_whose_pause_is_over_is_asked_and_its_success_ends_the_pause(outbox: Outbox):
    await outbox.put(1)
    await outbox.rows("INSERT INTO provider_pauses (provider, reason, message, until_at) VALUES ('first', 'quota', 'x', now())")
    first, second = Scripted(name="first"), Scripted(name="second")
    hand = await outbox.hand(first, second)

    await hand.work()

    assert (len(first.prompts), len(second.prompts)) == (1, 0)
    assert await outbox.value("SELECT count(*) FROM provider_pauses") == 0


# -- what time can heal


@pytest.mark.parametrize("kind", [FailureKind.TRANSIENT, FailureKind.RATE_LIMITED])
async def test_a_provider_that_cannot_be_reached_uses_up_no_attempt_however_often(outbox: Outbox, kind: FailureKind):
    await outbox.put(2)
    hand = await outbox.hand(Scripted(failing(kind, out_of_reach=True)))

    for _ in range(5):
        await hand.work()
        await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")

    assert await outbox.statuses() == {"queued": 2}
    jobs = await outbox.rows(
        "SELECT DISTINCT attempts, last_error ->> 'reason' AS reason, last_error -> 'times' AS times"
        " FROM observation_generation_jobs"
    )
    assert jobs == [{"attempts": 0, "reason": kind.value, "times": 5}]
    assert await outbox.value("SELECT count(*) FROM generation_runs WHERE status = 'failed'") == 5


async def test_a_failure_that_an_event_may_have_caused_uses_up_its_attempts(outbox: Outbox):
    recorded = await outbox.put(1)
    hand = await outbox.hand(Scripted(failing(FailureKind.TRANSIENT)))

    for _ in range(3):
        await hand.work()
        await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")

    assert await outbox.statuses() == {"failed": 1}
    assert recorded[0].job is not None
    failed_by = await outbox.value(
        "SELECT r.status FROM observation_generation_jobs j JOIN generation_runs r ON r.id = j.generation_run_id"
    )
    assert failed_by == "failed", "the job names the call that failed it"


# -- answers that cannot be used


@pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG])
async def test_what_one_event_causes_fails_that_event_alone_and_the_answer_is_kept(outbox: Outbox, kind: FailureKind):
    await outbox.put(2)
    await outbox.put(1, first=2, payload={"tool_name": "poison"})
    await outbox.put(2, first=3)

    def reply(prompt: Prompt) -> Completion:
        if any(event.tool_name == "poison" for event in prompt.events):
            said = Completion(text="I must not.", model="script-1", input_tokens=7, output_tokens=3)
            raise ProviderError(kind, "It was refused.", completion=said)
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert await outbox.statuses() == {"completed": 4, "failed": 1}
    failed = await outbox.rows(
        "SELECT j.last_error ->> 'reason' AS reason, r.status, r.answer, r.input_tokens, r.error_class"
        "  FROM observation_generation_jobs j JOIN generation_runs r ON r.id = j.generation_run_id WHERE j.status = 'failed'"
    )
    assert failed == [
        {"reason": kind.value, "status": "unusable", "answer": "I must not.", "input_tokens": 7, "error_class": kind.value}
    ]


async def test_an_answer_cut_at_its_most_tokens_is_asked_for_in_two_parts_and_that_of_one_event_is_used(outbox: Outbox):
    await outbox.put(2)

    def reply(prompt: Prompt) -> Completion:
        whole = completion(each_observed(prompt))
        return Completion(text=whole.text, model=whole.model, output_tokens=5, truncated=True)

    provider = Scripted(reply)
    hand = await outbox.hand(provider)
    await hand.work()

    assert [len(prompt.events) for prompt in provider.prompts] == [2, 1, 1]
    assert await outbox.statuses() == {"completed": 2}
    assert await outbox.value("SELECT count(*) FROM observations") == 2
    kept = await outbox.rows("SELECT status, error_class, answer IS NOT NULL AS kept FROM generation_runs ORDER BY created_at")
    assert kept[0] == {"status": "unusable", "error_class": "unusable_answer", "kept": True}
    assert [run["status"] for run in kept[1:]] == ["applied", "applied"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("You've reached your usage limit for this month.", "quota_exhausted"),
        ("Invalid API key · Please run /login", "auth_invalid"),
    ],
)
async def test_a_provider_that_says_in_prose_that_it_may_not_is_paused_and_nothing_is_lost(outbox: Outbox, said: str, reason: str):
    await outbox.put(3)
    provider = Scripted(lambda _: Completion(text=said, model="script-1", input_tokens=3))
    hand = await outbox.hand(provider)

    await hand.work()

    assert len(provider.prompts) == 1
    assert await outbox.statuses() == {"queued": 3}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0
    assert await outbox.value("SELECT reason FROM provider_pauses") == reason
    assert await outbox.rows("SELECT status, answer FROM generation_runs") == [{"status": "unusable", "answer": said}]


# -- summaries


@pytest.mark.parametrize("how", ["refused", "prose", "empty"])
async def test_a_session_gets_at_least_a_minimal_summary(outbox: Outbox, cast: Cast, how: str):
    recorded = await outbox.put(2)

    def reply(prompt: Prompt) -> Completion:
        if prompt.kind == "observations":
            return completion(each_observed(prompt))
        if how == "refused":
            raise ProviderError(FailureKind.REFUSED, "It was refused.")
        return Completion(text="I have nothing to say." if how == "prose" else '{"observations": []}', model="script-1")

    hand = await outbox.hand(Scripted(reply))
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)
    await hand.work()

    summary = (await outbox.rows("SELECT summary, content FROM observations WHERE kind = 'summary'"))[0]
    assert "saw e1" in str(summary["content"])
    job = (
        await outbox.rows(
            "SELECT status, outcome, outcome_reason FROM observation_generation_jobs WHERE source_type = 'session_summary'"
        )
    )[0]
    assert (job["status"], job["outcome"]) == ("completed", "observed")
    assert str(job["outcome_reason"]).startswith("a minimal one: ")


async def test_a_summary_is_asked_for_with_the_session_s_requests_record_and_size(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(2)
    provider = Scripted()
    hand = await outbox.hand(provider)
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)
    await hand.work()

    asked = provider.prompts[-1]
    assert asked.kind == "summary"
    assert asked.events == []
    assert asked.events_in_session == 2
    assert [one.title for one in asked.recorded] == ["saw e1", "saw e2"]


# -- on record


async def test_a_call_is_on_record_before_it_is_made(outbox: Outbox):
    await outbox.put(2)
    seen: list[dict[str, object]] = []

    async def reply(prompt: Prompt) -> Completion:
        seen.extend(
            await outbox.rows("SELECT status, provider, model, input_tokens, cardinality(job_ids) AS jobs FROM generation_runs")
        )
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert len(seen) == 1
    estimate = seen[0].pop("input_tokens")
    assert seen == [{"status": "asked", "provider": "scripted", "model": "script-1", "jobs": 2}]
    assert isinstance(estimate, int)
    assert estimate > 50
    assert await outbox.rows("SELECT status, input_tokens FROM generation_runs") == [{"status": "applied", "input_tokens": 10}]


async def test_the_call_of_a_dead_worker_is_lost_and_its_estimate_stays(outbox: Outbox):
    await outbox.put(1)

    async def reply(_: Prompt) -> Completion:
        raise KeyboardInterrupt  # as if the process ended here

    hand = await outbox.hand(Scripted(reply))
    (claim,) = await hand.claim()
    with pytest.raises(KeyboardInterrupt):
        await hand.generator.run(claim)
    assert await outbox.db.in_system(calls.lose_runs) == 0, "its batch may be at work still"

    await outbox.rows("DELETE FROM procrastinate_workers")
    await outbox.db.in_system(lambda conn: leases.reap(conn, hard_limit_seconds=300))

    assert await outbox.db.in_system(calls.lose_runs) == 1
    run = (await outbox.rows("SELECT status, input_tokens > 50 AS estimated FROM generation_runs"))[0]
    assert run == {"status": "lost", "estimated": True}


async def test_what_a_provider_says_of_its_costs_is_believed(outbox: Outbox):
    await outbox.put(1)
    said = Completion(text='{"observations": []}', model="x/y", input_tokens=1, cost_usd=Decimal("0.000125"))
    hand = await outbox.hand(Scripted(lambda _: said))

    await hand.work()

    assert await outbox.value("SELECT cost_usd FROM generation_runs") == Decimal("0.000125")


async def test_an_answer_with_observations_and_a_summary_loses_neither(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(1)

    def reply(prompt: Prompt) -> Completion:
        said = each_observed(prompt)
        both = each_observed(Prompt(kind="summary", project="x"))
        if prompt.kind == "summary":
            return completion(Answer(observations=[DraftObservation(title="late insight")], summary=both.summary))
        return completion(Answer(observations=said.observations, summary=both.summary))

    hand = await outbox.hand(Scripted(reply))
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)
    await hand.work()

    rows = await outbox.rows("SELECT kind, title FROM observations ORDER BY number")
    assert [tuple(row.values()) for row in rows] == [
        ("observation", "saw e1"),
        ("summary", "what was asked"),
        ("observation", "late insight"),
        ("summary", "what was asked"),
    ]
