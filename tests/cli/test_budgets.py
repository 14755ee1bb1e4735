"""`cmserver budgets`, and what it costs in `cmserver usage`."""

from __future__ import annotations

from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make


async def test_a_budget_is_set_listed_and_removed(cms: Cms, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=800, cost_usd="2")

    empty = await cms("budgets", "list", key=cast.alice.key)
    made = await cms("budgets", "set", "--usd", "2.50", "--tokens", "1000000", key=cast.alice.key)
    of_project = await cms(
        "budgets", "set", "--period", "day", "--project", str(cast.alice.project.id), "--tokens", "800", key=cast.alice.key
    )
    listed = await cms("budgets", "list", key=cast.alice.key)
    used = await cms("usage", key=cast.alice.key)
    removed = await cms("budgets", "remove", "--period", "day", "--project", str(cast.alice.project.id), key=cast.alice.key)
    left = await cms("budgets", "list", key=cast.alice.key)

    assert "nothing is capped" in empty.out
    assert made.code == 0, made.err
    assert of_project.code == 0, of_project.err
    assert listed.column("state") == ["warned", "exhausted"]
    assert listed.column("USD") == ["2.00", "2.00"]
    assert "80%" in listed.out
    assert "exhausted" in used.out
    assert removed.code == 0, removed.err
    assert left.column("state") == ["warned"]


async def test_what_is_no_amount_is_refused_in_a_sentence(cms: Cms, cast: Cast):
    said = await cms("budgets", "set", "--usd", "much", key=cast.alice.key)
    nothing = await cms("budgets", "set", key=cast.alice.key)

    assert said.code != 0
    assert "Expected an amount of US dollars like 12.50" in said.err
    assert "maxUsd" in said.err
    assert "regex" not in said.err
    assert "maxTokens, maxUsd, or both" in nothing.err


async def test_usage_is_told_apart_in_a_table_with_money(cms: Cms, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=800, cost_usd="2")
    await make.run(project=cast.alice.project, provider="ollama", model="qwen3:8b", input_tokens=5)

    by_model = await cms("usage", "--by", "model,day", "--days", "7", key=cast.alice.key)
    by_project = await cms("usage", "--by", "project", key=cast.alice.key)
    of_nobody = await cms("usage", "--by", "project", key=cast.charlie.key)

    assert by_model.column("USD") == ["2.00", "0.00"]
    assert by_model.out.splitlines()[0].split()[:2] == ["day", "model"]
    assert "ollama: qwen3:8b" in by_model.out
    assert by_project.column("project") == [cast.alice.project.canonical_id]
    assert of_nobody.out == "No provider was called.\n"
