"""`cmserver api`: any request."""

from __future__ import annotations

from cmserver.cli.exit_codes import ExitCode
from cmserver.ops.spending.wire import BudgetsOut, OneBudgetOut
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.table import try_rows


async def test_fields_are_a_body_or_a_query(cms: Cms, cast: Cast):
    key = cast.alice.key

    by_fields = await cms("api", "put", "/v1/budgets", "period=day", "maxTokens:=5000", "maxUsd=12.50", key=key)
    by_body = await cms("api", "PUT", "/v1/budgets", "--body", "-", stdin='{"period": "month", "maxUsd": "3"}', key=key)
    listed = await cms("api", "GET", "/v1/budgets", f"project={cast.alice.project.canonical_id}", key=key)
    removed = await cms("api", "DELETE", "/v1/budgets", "period=day", key=key)
    table = await cms("api", "GET", "/v1/usage", "format=csv", "days:=3", key=key)

    budget = by_fields.read(OneBudgetOut).budget
    assert (budget.period, budget.max_tokens, budget.max_usd) == ("day", 5000, "12.50")
    assert by_body.read(OneBudgetOut).budget.max_usd == "3.00"
    assert [found.period for found in listed.read(BudgetsOut).budgets] == ["day", "month"]
    assert removed.out == '{\n  "deleted": true\n}\n'
    assert table.out.startswith("calls,failed_calls,")


async def test_a_refusal_is_told_with_its_path(cms: Cms, cast: Cast):
    wrong = await cms("api", "PUT", "/v1/budgets", "period=year", key=cast.alice.key)
    missing = await cms("api", "GET", "/v1/nothing", key=cast.alice.key)

    assert (wrong.code, missing.code) == (ExitCode.FAILURE, ExitCode.FAILURE)
    assert "$.period: must be one of day, month." in wrong.err
    assert "Path not found." in missing.err


@try_rows(
    "words",
    [
        ("GET", "/v1/budgets", "project"),
        ("GET", "/v1/budgets", "=x"),
        ("GET", "/v1/budgets", "--body", "{}"),
        ("PUT", "/v1/budgets", "period=day", "--body", "{}"),
        ("TAKE", "/v1/budgets"),
    ],
)
async def test_what_is_no_request_is_not_sent(cms: Cms, cast: Cast, words: tuple[str, ...]):
    assert (await cms("api", *words, key=cast.alice.key)).code == ExitCode.USAGE
