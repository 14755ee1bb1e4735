"""What a provider's answers and failures come to: who is asked next, what is split, waits or ends, and what stays on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest

from cmserver.generation import batch
from cmserver.generation.leases import repository as leases
from cmserver.generation.operate.manage import resume_provider
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.calls import repository as calls
from cmserver.models.calls.provider_health import pause_provider
from cmserver.models.providers.failures import classify_status, incomplete_answer_error
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Rules, Skip
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, completion, each_observed, tool_name
from tests.make import Make
from tests.timeouts import until

WAITING_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"
)


def failing(kind: FailureKind, *, retry_after: float | None = None, out_of_reach: bool = False) -> Callable[[Prompt], Completion]:
    def reply(_: Prompt) -> Completion:
        raise ProviderError(kind, "Not now.", retry_after, out_of_reach=out_of_reach)

    return reply


async def end_session(outbox: Outbox, cast: Cast, session_id: UUID | None) -> None:
    assert session_id is not None
    await outbox.db.in_tenant(
        cast.alice.team_id,
        lambda conn: sessions.end(conn, cast.alice.principal, session_id, source_adapter="api"),
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

    await outbox.db.in_system(lambda conn: resume_provider(conn, "first"))

    assert await outbox.value("SELECT due_at <= now() FROM generation_lanes") is True, "the first may be asked, so it goes on"


async def test_a_provider_whose_pause_is_over_is_asked_and_its_success_ends_the_pause(outbox: Outbox):
    await outbox.put(1)
    await outbox.rows("INSERT INTO provider_pauses (provider, reason, message, until_at) VALUES ('first', 'quota', 'x', now())")
    first, second = Scripted(name="first"), Scripted(name="second")
    hand = await outbox.hand(first, second)

    await hand.work()

    assert (len(first.prompts), len(second.prompts)) == (1, 0)
    assert await outbox.value("SELECT count(*) FROM provider_pauses") == 0


async def test_workers_that_are_refused_at_the_same_time_pause_a_provider_once(outbox: Outbox):
    refused = ProviderError(FailureKind.AUTH_INVALID, "No.")
    async with outbox.db.system() as conn:
        first = await pause_provider(conn, "first", refused)
        second = asyncio.create_task(outbox.db.in_system(lambda conn: pause_provider(conn, "first", refused)))
        await until("it waits for a lock", lambda: outbox.value(WAITING_FOR_A_LOCK), second)

    known, is_new = await second

    assert first[1] is True
    assert (is_new, known.until_at) == (False, first[0].until_at)
    assert await outbox.value("SELECT times FROM provider_pauses") == 1


async def test_what_a_gateway_says_of_one_request_pauses_once_and_then_fails_that_event_alone(outbox: Outbox):
    """A 400 that nobody understands may mean the key's rights, or a word in an event."""
    await outbox.put(1, session="others")
    await outbox.put(2)
    await outbox.put(1, first=2, payload={"tool_name": "poison"})

    def reply(prompt: Prompt) -> Completion:
        if any(tool_name(event) == "poison" for event in prompt.events):
            raise ProviderError(FailureKind.SETUP_REQUIRED, "gateway answered 400: no", doubtful=True)
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    for _ in range(3):
        await hand.work()
        await outbox.rows("UPDATE provider_pauses SET until_at = now()")
        await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")

    assert await outbox.statuses() == {"completed": 3, "failed": 1}
    failed = await outbox.rows("SELECT last_error ->> 'reason' AS reason FROM observation_generation_jobs WHERE status = 'failed'")
    assert failed == [{"reason": "refused"}]
    assert await outbox.value("SELECT count(*) FROM provider_pauses") == 0


async def test_what_fails_everybody_goes_on_pausing_and_fails_no_event(outbox: Outbox):
    await outbox.put(4)
    await outbox.put(1, session="another")

    def reply(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.AUTH_INVALID, "403", doubtful=True)

    provider = Scripted(reply)
    hand = await outbox.hand(provider)
    for _ in range(4):
        await hand.work()
        await outbox.rows("UPDATE provider_pauses SET until_at = now()")
        await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")

    assert await outbox.statuses() == {"queued": 5}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0
    assert len(provider.prompts) < 20


# -- what time can heal


async def test_a_provider_that_takes_no_more_requests_uses_up_no_attempt_however_often(outbox: Outbox):
    await outbox.put(2)
    kind = FailureKind.RATE_LIMITED
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


def wait_a_minute(_attempts: int) -> float:
    """Instead of a random back-off, so that nothing is attempted again within a test."""
    return 60.0


async def test_a_provider_that_is_out_of_reach_again_and_again_is_paused_and_the_next_one_stands_in(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch, "full_jitter", wait_a_minute)
    first = Scripted(failing(FailureKind.TRANSIENT, out_of_reach=True), name="first")
    second = Scripted(name="second")
    hand = await outbox.hand(first, second)
    for session in ("a", "b"):
        await outbox.put(1, session=session)
        await hand.work()
    assert await outbox.statuses() == {"queued": 2}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0

    await outbox.put(1, session="c")
    await hand.work()

    assert await outbox.rows("SELECT provider, reason FROM provider_pauses") == [{"provider": "first", "reason": "transient"}]
    assert await outbox.value("SELECT until_at - now() < interval '16 s' FROM provider_pauses") is True
    assert await outbox.statuses() == {"queued": 2, "completed": 1}
    assert (len(first.prompts), len(second.prompts)) == (3, 1)


async def test_an_answer_in_between_forgets_that_a_provider_was_out_of_reach(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "full_jitter", wait_a_minute)
    away = ["a", "b", "d", "e"]

    def reply(prompt: Prompt) -> Completion:
        if any(tool_name(event) in away for event in prompt.events):
            raise ProviderError(FailureKind.TRANSIENT, "not there", out_of_reach=True)
        return completion(each_observed(prompt))

    hand = await outbox.hand(Scripted(reply))
    for session in "abcde":
        await outbox.put(1, session=session, payload={"tool_name": session})
        await hand.work()

    assert await outbox.value("SELECT count(*) FROM provider_pauses") == 0


async def test_when_one_session_is_told_to_wait_the_others_do_not_ask(outbox: Outbox):
    provider = Scripted(failing(FailureKind.RATE_LIMITED, retry_after=30, out_of_reach=True))
    hand = await outbox.hand(provider)
    for session in ("a", "b", "c"):
        await outbox.put(1, session=session)
        await hand.work()

    assert len(provider.prompts) == 1
    assert await outbox.value("SELECT bool_and(held_until > now() + interval '25 s') FROM generation_lanes") is True
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0


async def test_one_call_finds_out_whether_a_provider_answers_again_and_its_answer_wakes_the_others(outbox: Outbox):
    await outbox.rows("INSERT INTO provider_pauses (provider, reason, message, until_at) VALUES ('scripted', 'quota', 'x', now())")
    for session in ("a", "b", "c"):
        await outbox.put(1, session=session)
    called, go_on = asyncio.Event(), asyncio.Event()

    async def reply(prompt: Prompt) -> Completion:
        called.set()
        await go_on.wait()
        return completion(each_observed(prompt))

    provider = Scripted(reply)
    hand = await outbox.hand(provider)
    running = {asyncio.create_task(hand.runner.run(claim)) for claim in await hand.claim()}
    await called.wait()
    while len(running) > 1:
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    assert len(provider.prompts) == 1
    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE held_for = 'scripted' AND held_until > now()") == 2

    go_on.set()
    await asyncio.wait(running)
    await hand.work()

    assert await outbox.statuses() == {"completed": 3}


async def test_a_job_that_waits_says_why(outbox: Outbox):
    await outbox.put(1)
    hand = await outbox.hand(Scripted(failing(FailureKind.QUOTA_EXHAUSTED)))

    await hand.work()

    assert await outbox.value("SELECT last_error FROM observation_generation_jobs") == {
        "reason": "paused",
        "message": "The provider scripted is paused (quota_exhausted).",
    }


async def test_what_was_not_asked_for_after_a_failure_is_given_back_unused(outbox: Outbox):
    await outbox.put(2)

    def reply(prompt: Prompt) -> Completion:
        if len(prompt.events) == 2:
            return Completion(text="I would rather not.", model="script-1")
        raise ProviderError(FailureKind.TRANSIENT, "not now")

    provider = Scripted(reply)
    hand = await outbox.hand(provider)
    await hand.work()

    assert len(provider.prompts) == 2
    jobs = await outbox.rows("SELECT attempts, last_error ->> 'reason' AS reason FROM observation_generation_jobs ORDER BY seq")
    assert jobs == [{"attempts": 1, "reason": "transient"}, {"attempts": 0, "reason": None}]
    runs = await outbox.rows(
        "SELECT details ->> 'reason' AS reason FROM observation_generation_job_events"
        " WHERE event_type = 'retry_scheduled' ORDER BY id"
    )
    assert [row["reason"] for row in runs] == ["transient", "given back"]


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
        if any(tool_name(event) == "poison" for event in prompt.events):
            answer = Completion(text="I must not.", model="script-1", input_tokens=7, output_tokens=3)
            raise ProviderError(kind, "It was refused.", completion=answer)
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
    "text",
    [
        "You've hit your limit · resets Dec 31, 9999, 3pm",
        "Invalid API key · Please run /login",
        "API Error: 529 Overloaded.",
        '{"error": {"code": 429, "message": "Rate limit exceeded. Please try again in 900h."}}',
    ],
)
async def test_what_a_model_says_of_its_provider_pauses_nothing_and_is_tried_again(outbox: Outbox, text: str):
    await outbox.put(3)
    provider = Scripted(lambda _: Completion(text=text, model="script-1", input_tokens=3))
    hand = await outbox.hand(provider)

    await hand.work()

    assert await outbox.statuses() == {"queued": 3}
    assert await outbox.rows("SELECT * FROM provider_pauses") == []
    assert await outbox.rows("SELECT DISTINCT status, answer FROM generation_runs") == [{"status": "unusable", "answer": text}]


async def test_a_pause_ends_within_a_day_whatever_is_asked_for(outbox: Outbox):
    await outbox.put(1)

    def reply(_: Prompt) -> Completion:
        raise classify_status("OpenAI", 402, "Your credit is used up.", {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"})

    await (await outbox.hand(Scripted(reply))).work()

    assert await outbox.value("SELECT until_at - paused_at <= interval '24 hours' FROM provider_pauses") is True


# -- summaries


@pytest.mark.parametrize("how", ["refused", "prose", "empty", "the example"])
async def test_a_session_gets_at_least_a_minimal_summary(outbox: Outbox, cast: Cast, how: str):
    recorded = await outbox.put(2)

    def reply(prompt: Prompt) -> Completion:
        if prompt.kind == "observations":
            return completion(each_observed(prompt))
        if how == "refused":
            raise ProviderError(FailureKind.REFUSED, "It was refused.")
        example = '{"summary":{"request":"","investigated":"","learned":"","completed":"","next_steps":"","notes":""}}'
        texts = {"prose": "I have nothing to say.", "empty": '{"observations": []}', "the example": example}
        return Completion(text=texts[how], model="script-1")

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
    assert await outbox.value("SELECT status FROM generation_runs WHERE kind = 'summary'") in {"unusable", "failed"}


async def test_a_summary_is_asked_for_with_the_session_s_requests_record_and_size(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(2)
    provider = Scripted()
    hand = await outbox.hand(provider)
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)
    await hand.work()

    prompt = provider.prompts[-1]
    assert prompt.kind == "summary"
    assert prompt.events == []
    assert prompt.events_in_session == 2
    assert [observation.title for observation in prompt.recorded] == ["saw e1", "saw e2"]


async def test_a_second_summary_of_a_session_is_asked_for_with_the_first(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(1)
    provider = Scripted()
    hand = await outbox.hand(provider)
    for more in (1, 2):
        await hand.work()
        await end_session(outbox, cast, recorded[0].event.server_session_id)
        await hand.work()
        await outbox.put(1, first=more)

    first, second = [prompt for prompt in provider.prompts if prompt.kind == "summary"]
    assert first.earlier_summary is None
    assert second.earlier_summary == "Request: what was asked\n\nCompleted: what was done"


async def test_a_summary_whose_calls_failed_as_often_as_they_may_is_a_minimal_one(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(1)
    hand = await outbox.hand(Scripted())
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)

    hand = await outbox.hand(Scripted(failing(FailureKind.TRANSIENT)))
    for _ in range(3):
        assert await outbox.value("SELECT count(*) FROM observations WHERE kind = 'summary'") == 0
        await hand.work()
        await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")

    assert await outbox.statuses() == {"completed": 2}
    assert await outbox.value("SELECT count(*) FROM observations WHERE kind = 'summary'") == 1


async def test_no_model_is_asked_for_the_summary_of_a_session_that_recorded_nothing(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(1)
    looked = Answer(skipped=[Skip(event="e1", reason="only looked")])
    provider = Scripted(lambda _: completion(looked))
    hand = await outbox.hand(provider)
    await hand.work()
    await end_session(outbox, cast, recorded[0].event.server_session_id)

    await hand.work()

    assert (len(provider.prompts), await outbox.statuses()) == (1, {"completed": 2})
    assert await outbox.value("SELECT count(*) FROM observations") == 0


async def test_rules_sum_up_a_session_whose_record_was_merged_or_written_by_hand(outbox: Outbox, cast: Cast, make: Make):
    note = {"text": "We decided to use Postgres because it is one process less to look after."}
    (merged,) = await outbox.put(1, session="merged", payload=note)
    (by_hand,) = await outbox.put(1, session="by hand", payload={"text": "ok"})
    hand = await outbox.hand(Rules())
    await hand.work()
    middle, older = [await make.observation(project=outbox.project, title=title) for title in ("Merged, too", "Postgres is used")]
    supersede = "UPDATE observations SET superseded_at = now(), superseded_by = %s WHERE id <> ALL(%s)"
    await outbox.rows(supersede, middle.id, [middle.id, older.id])
    await outbox.rows(f"{supersede} AND superseded_by IS NULL", older.id, [older.id])
    await make.observation(
        project=outbox.project, title="By a person", kind="manual", server_session_id=by_hand.event.server_session_id
    )

    for recorded in (merged, by_hand):
        await end_session(outbox, cast, recorded.event.server_session_id)
    await hand.work()

    completed = await outbox.rows(
        "SELECT summary ->> 'completed' AS completed FROM observations WHERE kind = 'summary' ORDER BY number"
    )
    assert [row["completed"] for row in completed] == [f"#{older.number} Postgres is used", f"#{older.number + 1} By a person"]


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
        await hand.runner.run(claim)
    assert await outbox.db.in_system(calls.LOSE_RUNS.run) == 0, "its batch may be at work still"

    await outbox.rows("DELETE FROM procrastinate_workers")
    await outbox.db.in_system(lambda conn: leases.reap(conn, hard_limit_seconds=300))

    assert await outbox.db.in_system(calls.LOSE_RUNS.run) == 1
    run = (await outbox.rows("SELECT status, input_tokens > 50 AS estimated FROM generation_runs"))[0]
    assert run == {"status": "lost", "estimated": True}


@pytest.mark.parametrize("perhaps", [True, False])
async def test_an_answer_that_nobody_heard_to_its_end_may_have_been_paid_and_its_estimate_stays(outbox: Outbox, perhaps: bool):
    await outbox.put(1)

    def reply(_: Prompt) -> Completion:
        raise incomplete_answer_error("It", "it broke off") if perhaps else ProviderError(FailureKind.TRANSIENT, "It answered 500.")

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    run = (await outbox.rows("SELECT status, input_tokens > 50 AS is_estimated, output_tokens FROM generation_runs"))[0]
    assert run == {"status": "failed", "is_estimated": perhaps, "output_tokens": 500 if perhaps else 0}
    assert await outbox.value("SELECT sum(output_tokens) FROM generation_spending") == run["output_tokens"]


async def test_what_a_provider_says_of_its_costs_is_believed(outbox: Outbox):
    await outbox.put(1)
    answer = Completion(text='{"observations": []}', model="x/y", input_tokens=1, cost_usd=Decimal("0.000125"))
    hand = await outbox.hand(Scripted(lambda _: answer))

    await hand.work()

    assert await outbox.value("SELECT cost_usd FROM generation_runs") == Decimal("0.000125")


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": -5},
        {"output_tokens": 2**70},
        {"cost_usd": Decimal("NaN")},
        {"cost_usd": Decimal(-4)},
        {"cost_usd": Decimal("1e9")},
        {"model": "a\x00b"},
    ],
)
async def test_figures_that_no_call_can_have_neither_lose_the_answer_nor_spoil_the_sums(outbox: Outbox, usage: dict[str, object]):
    await outbox.put(1)
    provider = Scripted(lambda prompt: msgspec.structs.replace(completion(each_observed(prompt)), **usage))
    hand = await outbox.hand(provider)

    await hand.work()

    assert await outbox.statuses() == {"completed": 1}
    assert len(provider.prompts) == 1
    sums = await outbox.rows(
        "SELECT least(sum(input_tokens), 0) AS least, sum(output_tokens) < 1e9 AS bounded, sum(cost_usd) AS cost"
        "  FROM generation_spending"
    )
    assert sums == [{"least": 0, "bounded": True, "cost": 0}]


@pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.QUOTA_EXHAUSTED, FailureKind.RATE_LIMITED])
async def test_what_a_failure_says_is_kept_without_what_cannot_be_stored(outbox: Outbox, kind: FailureKind):
    await outbox.put(1)

    def reply(_: Prompt) -> Completion:
        raise ProviderError(kind, "Not \x00now\ud800.", out_of_reach=True)

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    runs = await outbox.rows("SELECT status, error_class, error_message FROM generation_runs")
    assert runs == [{"status": "failed", "error_class": kind.value, "error_message": "Not \ufffdnow\ufffd."}]


async def test_an_answer_without_end_is_cut_and_what_it_said_first_is_kept(outbox: Outbox):
    await outbox.put(1)

    def reply(prompt: Prompt) -> Completion:
        return Completion(text=completion(each_observed(prompt)).text + " word" * 1_000_000, model="script-1")

    hand = await outbox.hand(Scripted(reply))
    await hand.work()

    assert await outbox.statuses() == {"completed": 1}
    assert await outbox.value("SELECT title FROM observations") == "saw e1"


async def test_an_answer_with_observations_and_a_summary_loses_neither(outbox: Outbox, cast: Cast):
    recorded = await outbox.put(1)

    def reply(prompt: Prompt) -> Completion:
        answer = each_observed(prompt)
        both = each_observed(Prompt(kind="summary", project="x"))
        if prompt.kind == "summary":
            return completion(Answer(observations=[DraftObservation(type="decision", title="late insight")], summary=both.summary))
        return completion(Answer(observations=answer.observations, summary=both.summary))

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
