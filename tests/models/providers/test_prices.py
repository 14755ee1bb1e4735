"""What a call costs, worked out by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from cmserver.models.providers.model import Completion
from cmserver.models.providers.prices import compute_cost, compute_list_price, find_price, prices
from tests.table import try_rows

DAY = date(2026, 11, 22)


def took(input_tokens: int = 0, output_tokens: int = 0, cache_read_tokens: int = 0, cache_write_tokens: int = 0) -> Completion:
    return Completion(
        text="",
        model="",
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cache_read_tokens,
        cache_write_tokens=cache_write_tokens,
    )


@try_rows(
    ("model", "tokens", "usd"),
    [
        # What the claude program itself reckons for this call.
        ("claude-haiku-5-5", {"input_tokens": 609, "output_tokens": 12}, "0.0000669"),
        # 1,000 at 0.10, 3,000 from the cache at 0.01, 2,000 into it at 0.125, 400 at 0.50, all by the million.
        (
            "claude-haiku-5-5",
            {"input_tokens": 1_000, "cache_read_tokens": 3_000, "cache_write_tokens": 2_000, "output_tokens": 400},
            "0.00058",
        ),
        ("claude-opus-5-5", {"input_tokens": 37_205, "output_tokens": 36}, "0.14954"),
        ("claude-sonnet-5-5", {"input_tokens": 1_000_000, "output_tokens": 100_000}, "3"),
        ("claude-haiku-4-5", {"cache_write_tokens": 1_000_000, "cache_read_tokens": 1_000_000}, "1.35"),
        ("gpt-6-luna", {"input_tokens": 10_000, "cache_read_tokens": 10_000, "output_tokens": 2_000}, "0.0021"),
        ("gemini-3.8-flash", {"input_tokens": 4_000, "output_tokens": 1_000}, "0.00675"),
        ("claude-haiku-5-5", {}, "0"),
    ],
)
def test_a_call_costs_what_its_tokens_do(model: str, tokens: dict[str, int], usd: str):
    assert compute_list_price(model, took(**tokens), on=DAY) == Decimal(usd)


def test_a_long_prompt_has_its_own_rates_for_the_whole_call():
    longest = took(input_tokens=60_000, cache_read_tokens=40_000, output_tokens=1_000)
    one_more = took(input_tokens=60_001, cache_read_tokens=40_000, output_tokens=1_000)

    assert compute_list_price("claude-haiku-5-5", longest, on=DAY) == Decimal("0.0069")
    assert compute_list_price("claude-haiku-5-5", one_more, on=DAY) == Decimal("0.0345005")


def test_a_price_holds_from_its_day_on():
    read = took(cache_read_tokens=1_000_000)

    assert compute_list_price("claude-sonnet-5-5", read, on=date(2026, 10, 6)) == Decimal("0.20")
    assert compute_list_price("claude-sonnet-5-5", read, on=date(2026, 10, 7)) == Decimal("0.10")
    assert compute_list_price("gemini-3.8-flash", took(output_tokens=1_000_000), on=date(2027, 1, 1)) == Decimal("7.50")


def test_tokens_of_a_kind_that_has_no_price_make_the_cost_unknown():
    assert compute_list_price("claude-fable-5-1", took(input_tokens=1_000), on=DAY) == Decimal("0.01")
    assert compute_list_price("claude-fable-5-1", took(input_tokens=1_000, cache_read_tokens=1), on=DAY) is None


@try_rows(
    ("name", "meant"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("anthropic/claude-haiku-5.5", "claude-haiku-5-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("gpt-5-nano-2025-08-07", "gpt-5-nano"),
        ("openai/gpt-5.6-luna", "gpt-5.6-luna"),
        ("models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("gemini-3.8-flash-001", "gemini-3.8-flash"),
        ("GPT-6-Luna", "gpt-6-luna"),
    ],
)
def test_a_model_is_known_by_its_snapshots_and_its_other_names(name: str, meant: str):
    price = find_price(name, on=DAY)

    assert price is not None
    assert price.model == meant


@try_rows(
    "model",
    [
        "",
        "rules",
        "llama3.2:3b",
        "gpt-5",
        "gpt-6-luna-fast",
        "gpt-5-nano:free",
        "claude-haiku",
        "claude-fable-5-2",
        "claude-haiku-5-5-turbo",
        "azure/gpt-6-luna",
        "google/gpt-6-luna",
        "gemini-3.8-flash-preview-09-2026",
    ],
)
def test_what_is_not_in_the_table_is_not_guessed(model: str):
    assert find_price(model, on=DAY) is None
    assert compute_list_price(model, took(input_tokens=1_000), on=DAY) is None


def test_a_call_is_paid_what_its_provider_says_else_the_list_price():
    completion = Completion(text="", model="claude-haiku-4-5", input_tokens=1_000_000, cost_usd=Decimal("0.9"))
    unsaid = Completion(text="", model="claude-haiku-4-5", input_tokens=1_000_000)

    assert compute_cost("openrouter", completion) == Decimal("0.9")
    assert compute_cost("anthropic", unsaid) == Decimal(1)
    assert compute_cost("claude-cli", unsaid) is None


def test_every_price_says_when_and_where_it_was_read():
    table = {price for entries in prices().values() for price in entries}

    assert len(table) > 10
    for price in table:
        assert price.source.startswith("https://"), price
        assert price.read_on <= datetime.now(UTC).date() + timedelta(days=1), price
        rates = [price.input, price.output, price.cache_read or 0, price.cache_write or 0]
        assert all(0 <= rate < 100 for rate in rates), price
        assert price.input <= price.output, price
        assert price.above is None or price.above.input > price.input, price
