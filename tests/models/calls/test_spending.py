"""What is spent is summed up as it is written down."""

from __future__ import annotations

from decimal import Decimal

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows

SUMS = (
    "SELECT model, calls, failed_calls, unpriced_calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,"
    " cost_usd FROM generation_spending WHERE calls > 0 ORDER BY day, model"
)


async def sums(db: Db) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in await rows(db, SUMS)]


async def recount(db: Db) -> list[tuple[object, ...]]:
    """The same from the calls themselves."""
    found = await rows(
        db,
        "SELECT model, count(*) AS a, count(*) FILTER (WHERE status IN ('failed', 'unusable', 'lost')) AS b,"
        " count(*) FILTER (WHERE cost_usd IS NULL"
        " AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens > 0) AS c,"
        " sum(input_tokens) AS d, sum(output_tokens) AS e, sum(cache_read_tokens) AS f, sum(cache_write_tokens) AS g,"
        " coalesce(sum(cost_usd), 0) AS h"
        " FROM generation_runs GROUP BY (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model"
        " ORDER BY (created_at AT TIME ZONE 'UTC')::date, model",
    )
    return [tuple(row.values()) for row in found]


async def test_a_call_counts_with_its_estimate_until_its_answer_says_what_it_took(db: Db, cast: Cast):
    run_id = new_id()
    estimate = Completion(text="", model="claude-haiku-5-5", input_tokens=4_000, output_tokens=500)
    async with db.system() as conn:
        await calls.begin_run(
            conn,
            run_id=run_id,
            team_id=cast.alice.team_id,
            project_id=cast.alice.project.id,
            lane=new_id(),
            claim=1,
            kind="observations",
            provider="anthropic",
            job_ids=[],
            estimate=estimate,
            cost_usd=Decimal("0.00065"),
        )

    assert await sums(db) == [("claude-haiku-5-5", 1, 0, 0, 4_000, 500, 0, 0, Decimal("0.00065"))]

    completion = Completion(
        text="{}", model="claude-haiku-5-5-20261007", input_tokens=1_000, output_tokens=200, cache_read_tokens=3_000
    )
    async with db.system() as conn:
        await calls.finish_run(conn, run_id, "answered", latency_ms=1, completion=completion, cost_usd=Decimal("0.00023"))

    assert await sums(db) == [("claude-haiku-5-5-20261007", 1, 0, 0, 1_000, 200, 3_000, 0, Decimal("0.00023"))] == await recount(db)


async def test_a_call_that_failed_before_it_was_answered_costs_nothing_and_a_lost_one_its_estimate(db: Db, cast: Cast, make: Make):
    failed = await make.run(project=cast.alice.project, status="asked", input_tokens=900, cost_usd="0.01")
    await make.run(project=cast.alice.project, status="asked", input_tokens=70, cost_usd="0.02")
    async with db.system() as conn:
        await calls.finish_run(conn, failed, "failed", latency_ms=1)
        await calls.LOSE_RUNS.run(conn)

    assert await sums(db) == [("claude-haiku-5-5", 2, 2, 0, 70, 0, 0, 0, Decimal("0.02"))] == await recount(db)


async def test_a_call_without_a_price_is_counted_as_such_and_one_that_took_nothing_is_not(db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, model="qwen3:8b", input_tokens=10)
    await make.run(project=cast.alice.project, model="rules")

    assert [row[:4] for row in await sums(db)] == [("qwen3:8b", 1, 0, 1), ("rules", 1, 0, 0)]


async def test_what_is_erased_stays_spent(db: Db, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=10, cost_usd="0.5")
    before = await sums(db)

    await rows(db, "DELETE FROM generation_runs")

    assert await sums(db) == before
    assert before[0][1:5] == (1, 0, 0, 10)


async def test_many_calls_in_one_statement_are_all_counted(db: Db, cast: Cast):
    await rows(
        db,
        "INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status, input_tokens,"
        " cost_usd, created_at) SELECT gen_random_uuid(), %s, %s, gen_random_uuid(), 1, 'summary', 'p', 'm' || n %% 3, '{}',"
        " 'asked', n, n / 1000.0, now() - n * interval '1 hour' FROM generate_series(1, 100) n",
        cast.alice.team_id,
        cast.alice.project.id,
    )
    await rows(db, "UPDATE generation_runs SET status = 'lost', output_tokens = 7 WHERE input_tokens %% 2 = 0")

    assert await sums(db) == await recount(db)
    assert len(await sums(db)) > 9
