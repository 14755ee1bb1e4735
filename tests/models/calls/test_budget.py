"""A cap holds whoever works, nothing is lost meanwhile, and generation goes on when there is money again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import pytest
from httpx import AsyncClient
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.generation.intake import repository as intake
from cmserver.models.budgets import manage
from cmserver.models.budgets.model import Period
from cmserver.models.calls import repository as calls
from cmserver.models.calls.budget import BudgetRefusal, admit
from cmserver.models.providers.model import Completion, Prompt, Rules
from tests.conftest import Cast, Person, bound_to
from tests.generation.tools import Hand, Outbox, Scripted, completion, each_observed
from tests.make import Make
from tests.rows import rows


async def budget(
    db: Db,
    person: Person,
    *,
    tokens: int | None = None,
    usd: str | None = None,
    period: Period = "month",
    project: str | None = None,
) -> None:
    async with db.tenant(person.team_id) as conn:
        await manage.put(conn, person.principal, project, period, max_tokens=tokens, max_usd=None if usd is None else Decimal(usd))


async def ask(db: Db, person: Person) -> BudgetRefusal | None:
    async with db.system() as conn:
        return await admit(conn, team_id=person.team_id, project_id=person.project.id)


async def audited(db: Db) -> list[str]:
    return [row["action"] for row in await rows(db, "SELECT action FROM audit_log WHERE action LIKE 'budget.%%' ORDER BY id")]


# ---- letting in


async def test_without_a_budget_everything_is_let_in(db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=1_000_000_000, cost_usd="1000")

    assert await ask(db, cast.alice) is None


async def test_all_kinds_of_tokens_count(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=10)
    await make.run(project=cast.alice.project, input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=3)
    let_in = await ask(db, cast.alice)
    await make.run(project=cast.alice.project, output_tokens=1)
    refused = await ask(db, cast.alice)

    assert let_in is None
    assert refused is not None
    assert "The team's budget of this month is spent" in refused.reason
    assert 0 < refused.seconds_left <= 31 * 86_400


async def test_calls_under_way_and_lost_ones_count_by_their_estimates(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, usd="0.03", period="day")
    await make.run(project=cast.alice.project, status="asked", cost_usd="0.02")
    await make.run(project=cast.alice.project, status="lost", cost_usd="0.01")

    refused = await ask(db, cast.alice)

    assert refused is not None
    assert 0 < refused.seconds_left <= 86_400


async def test_a_project_s_budget_counts_its_own_calls_and_the_team_s_those_of_all(db: Db, cast: Cast, make: Make):
    other = await bound_to(db, cast.alice, "billing")
    await budget(db, cast.alice, tokens=100, project=cast.alice.project.canonical_id)
    await make.run(project=other.project, input_tokens=100)
    others_are_not_counted = await ask(db, cast.alice)
    await make.run(project=cast.alice.project, input_tokens=100)
    of_the_project = await ask(db, cast.alice)
    of_the_other = await ask(db, other)
    await budget(db, cast.alice, tokens=200)
    of_the_team = await ask(db, other)

    assert others_are_not_counted is None
    assert of_the_project is not None
    assert "The project's budget" in of_the_project.reason
    assert of_the_other is None
    assert of_the_team is not None
    assert "The team's budget" in of_the_team.reason


async def test_another_team_s_spending_is_its_own(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=10)
    await make.run(project=cast.charlie.project, input_tokens=100)

    assert await ask(db, cast.alice) is None


async def test_what_was_spent_in_an_earlier_period_does_not_count(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=10, period="day")
    await budget(db, cast.alice, tokens=10, period="month")
    await make.run(project=cast.alice.project, input_tokens=100, days_ago=32)

    assert await ask(db, cast.alice) is None


async def test_of_several_budgets_the_one_that_lasts_longest_says_until_when(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=10, period="day", project=cast.alice.project.canonical_id)
    await budget(db, cast.alice, tokens=10, period="month")
    await make.run(project=cast.alice.project, input_tokens=100)

    refused = await ask(db, cast.alice)

    assert refused is not None
    assert "this month" in refused.reason


async def test_calls_under_way_may_leave_something_and_are_waited_for_only_a_moment(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=1_000)
    run_id = await make.run(project=cast.alice.project, status="asked", input_tokens=900, output_tokens=100)
    meanwhile = await ask(db, cast.alice)
    async with db.system() as conn:
        took = Completion(text="", model="", input_tokens=700)
        await calls.finish_run(conn, run_id, "answered", latency_ms=1, completion=took)
    afterwards = await ask(db, cast.alice)

    assert meanwhile is not None
    assert meanwhile.seconds_left <= 60
    assert "use up" in meanwhile.reason
    assert afterwards is None
    assert await audited(db) == ["budget.set"]


# ---- saying so


async def test_calls_under_way_count_as_those_before_them_where_these_took_more_than_was_thought(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=100)
    await budget(db, cast.alice, usd="10", period="day")
    await make.run(project=cast.alice.project, input_tokens=40, cost_usd="1")
    await make.run(project=cast.alice.project, status="failed")
    await make.run(project=cast.alice.project, status="asked", input_tokens=5)
    let_in = await ask(db, cast.alice)
    await make.run(project=cast.alice.project, status="asked", input_tokens=5)
    refused = await ask(db, cast.alice)

    assert let_in is None
    assert refused is not None
    assert refused.seconds_left <= 15, "only 40 are spent for sure"
    assert "use up" in refused.reason


async def test_it_is_said_once_that_most_is_spent_and_once_that_all_is(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=100)
    await make.run(project=cast.alice.project, input_tokens=79)
    with capture_logs() as logs:
        await ask(db, cast.alice)
        await make.run(project=cast.alice.project, input_tokens=1)
        for _ in range(3):
            await ask(db, cast.alice)
        await make.run(project=cast.alice.project, input_tokens=20)
        for _ in range(3):
            await ask(db, cast.alice)

    assert [log["event"] for log in logs if log["event"].startswith("budget.")] == ["budget.warned", "budget.exhausted"]
    assert await audited(db) == ["budget.set", "budget.warned", "budget.exhausted"]


async def test_it_is_said_again_in_a_new_period_and_of_a_new_cap(db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=100)
    await make.run(project=cast.alice.project, input_tokens=100)
    await ask(db, cast.alice)
    await rows(db, "UPDATE budgets SET exhausted_at = exhausted_at - interval '32 days'")
    await ask(db, cast.alice)
    await budget(db, cast.alice, tokens=110)
    await ask(db, cast.alice)

    actions = [action for action in await audited(db) if action != "budget.set"]
    assert actions == ["budget.exhausted", "budget.exhausted", "budget.warned"]


# ---- at work


def costing(tokens: int, provider: Scripted | None = None) -> Scripted:
    """Each call takes so many tokens, and lets the others have their turn before it is answered."""

    async def reply(prompt: Prompt) -> Completion:
        await asyncio.sleep(0)
        completed = completion(each_observed(prompt))
        return Completion(text=completed.text, model=completed.model, input_tokens=tokens - 5, output_tokens=5)

    provider = provider or Scripted()
    provider.reply = reply
    return provider


async def everybody_works(hands: Sequence[Hand]) -> None:
    await asyncio.gather(*(hand.work(max_events=1) for hand in hands))


async def until_all_is_spent(outbox: Outbox, hands: Sequence[Hand]) -> None:
    """Also what was only to wait a moment, for calls that were under way, is tried again."""
    await everybody_works(hands)
    while await outbox.rows(
        "UPDATE generation_lanes SET held_until = NULL, due_at = now()"
        " WHERE held_until < now() + interval '1 minute' RETURNING lane"
    ):
        await everybody_works(hands)


async def spent(outbox: Outbox) -> int:
    return int(str(await outbox.value("SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM generation_runs")))


WORKERS, EVENTS, EACH, CAP = 4, 40, 1_000, 10_500


async def test_the_cap_holds_with_four_workers_nothing_is_lost_and_it_goes_on_when_the_cap_is_raised(
    outbox: Outbox, db: Db, cast: Cast, client: AsyncClient
):
    await budget(db, cast.alice, tokens=CAP)
    for n in range(EVENTS):
        await outbox.put(1, session=f"s{n}")
    provider = costing(EACH)
    hands = [await outbox.hand(provider) for _ in range(WORKERS)]

    await until_all_is_spent(outbox, hands)

    made = len(provider.prompts)
    assert CAP <= await spent(outbox) <= CAP + WORKERS * EACH
    assert await spent(outbox) == made * EACH
    assert await outbox.statuses() == {"completed": made, "queued": EVENTS - made}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs WHERE status = 'queued'") == 0
    held = await outbox.rows(
        "SELECT held_for, (held_until + interval '1 hour')::date = date_trunc('month', now() + interval '1 month')::date AS then"
        " FROM generation_lanes WHERE held_until IS NOT NULL"
    )
    assert [tuple(lane.values()) for lane in held] == [("budget", True)] * (EVENTS - made)

    stored = await outbox.put(1, session="meanwhile")
    await everybody_works(hands)

    assert stored[0].job is not None
    assert len(provider.prompts) == made
    assert await audited(db) == ["budget.set", "budget.warned", "budget.exhausted"]

    raised = await client.put("/v1/budgets", json={"period": "month", "maxTokens": 1_000_000}, headers=cast.alice.headers)
    await everybody_works(hands)

    assert raised.status_code == 200, raised.text
    assert await outbox.statuses() == {"completed": EVENTS + 1}
    assert await outbox.value("SELECT count(*) FROM observations") == EVENTS + 1
    assert await spent(outbox) == (EVENTS + 1) * EACH


async def test_what_is_free_needs_no_budget(outbox: Outbox, db: Db, cast: Cast, make: Make):
    await budget(db, cast.alice, tokens=10)
    await make.run(project=cast.alice.project, input_tokens=100)
    await outbox.put(2)

    await (await outbox.hand(Rules())).work()

    assert await outbox.statuses() == {"completed": 2}


@pytest.mark.parametrize("how", ["raised", "removed"])
async def test_what_was_put_to_rest_just_as_the_budget_was_changed_is_found_by_the_sweep(
    outbox: Outbox, db: Db, cast: Cast, client: AsyncClient, how: str
):
    await budget(db, cast.alice, tokens=1_000)
    await outbox.put(1)
    provider = costing(1_000)
    hand = await outbox.hand(provider)
    await hand.work()
    await outbox.put(1, first=1)
    # Its worker has been refused, and has not written so yet.
    (claim,) = await hand.claim()
    apply = hand.runner._apply  # pyright: ignore[reportPrivateUsage]

    async def late(batch: object) -> None:
        if how == "raised":
            await client.put("/v1/budgets", json={"period": "month", "maxTokens": 9_000}, headers=cast.alice.headers)
        else:
            await client.delete("/v1/budgets?period=month", headers=cast.alice.headers)
        await apply(batch)  # pyright: ignore[reportArgumentType]

    hand.runner._apply = late  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    await hand.runner.run(claim)
    hand.runner._apply = apply  # pyright: ignore[reportPrivateUsage]
    await hand.work()
    waits = await outbox.statuses()

    found = await db.in_system(intake.make_affordable_lanes_due)
    await hand.work()

    assert waits == {"completed": 1, "queued": 1}
    assert found == 1
    assert await outbox.statuses() == {"completed": 2}


async def test_the_sweep_leaves_what_still_has_to_wait(outbox: Outbox, db: Db, cast: Cast):
    await budget(db, cast.alice, tokens=1_000)
    provider = costing(1_000)
    hand = await outbox.hand(provider)
    await outbox.put(1)
    await hand.work()
    await outbox.put(1, first=1)
    await hand.work()

    assert await db.in_system(intake.make_affordable_lanes_due) == 0
    assert await hand.claim() == []
