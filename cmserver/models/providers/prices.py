"""Costs of calls by list prices; prices.toml has their sources and dates."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files

import msgspec

from cmserver.models.providers.model import Completion
from cmserver.models.providers.table import PROVIDERS

_MILLION = Decimal(1_000_000)

# A snapshot's date or number after a model's name.
_SNAPSHOT = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3})$")


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens; None if unknown."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class LongPrompt(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of a call whose prompt, cache included, has more than `prompt_tokens`."""

    prompt_tokens: int


class Price(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a model from a day on."""

    vendor: str
    """The model's company, as OpenRouter writes it before the name."""
    model: str
    since: date = date.min
    above: LongPrompt | None = None
    read_on: date
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: list[Price]


def compute_cost(provider: str, completion: Completion) -> Decimal | None:
    """US dollars of a call, as the provider reports, else at list price; None if unknown."""
    if completion.cost_usd is not None:
        return completion.cost_usd
    known = PROVIDERS.get(provider)
    return None if known and known.bill else compute_list_price(completion.model, completion)


def compute_list_price(model: str, completion: Completion, *, on: date | None = None) -> Decimal | None:
    """US dollars of the completion at list price on a day (today); None for a model or token kind without a price."""
    price = find_price(model, on=on)
    if price is None:
        return None
    prompt_tokens = completion.input_tokens + completion.cache_read_tokens + completion.cache_write_tokens
    rates: Rates = price.above if price.above is not None and prompt_tokens > price.above.prompt_tokens else price
    total = completion.input_tokens * rates.input + completion.output_tokens * rates.output
    for tokens, rate in ((completion.cache_read_tokens, rates.cache_read), (completion.cache_write_tokens, rates.cache_write)):
        if tokens and rate is None:
            return None
        total += tokens * (rate or 0)
    return total / _MILLION


def find_price(model: str, *, on: date | None = None) -> Price | None:
    """The model's price on a day (today), or None.

    Snapshots (`claude-haiku-4-5-20251001`) and OpenRouter's names (`anthropic/claude-haiku-4.5`) have the model's price; any other
    name is another model: `gpt-5-nano:free` is not `gpt-5-nano`.
    """
    day = on or datetime.now(UTC).date()
    entries = prices().get(_plain(model.removeprefix("models/"))) or prices().get(_plain(_SNAPSHOT.sub("", model))) or []
    return next((price for price in entries if price.since <= day), None)


@cache
def prices() -> dict[str, list[Price]]:
    """Prices by each name of a model, the latest first."""
    table = msgspec.toml.decode(files("cmserver.models.providers").joinpath("prices.toml").read_bytes(), type=_Table)
    by_name: dict[str, list[Price]] = {}
    for price in sorted(table.price, key=lambda price: price.since, reverse=True):
        for name in (price.model, f"{price.vendor}/{price.model}"):
            by_name.setdefault(_plain(name), []).append(price)
    return by_name


def _plain(model: str) -> str:
    return model.strip().lower().replace(".", "-")
