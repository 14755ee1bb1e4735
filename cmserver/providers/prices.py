"""What a call costs, by the list price of its model: prices.toml says when and where each was read."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from cmserver.providers.model import Completion

_MILLION = Decimal(1_000_000)

# What may stand behind a model's name without meaning another model: the day of a snapshot, or its number.
_SNAPSHOT = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3})$")

_NOT_BY_THE_TOKEN = {"claude-cli", "ollama", "offline"}
"""Providers whose calls nobody is billed for one by one: subscriptions, and one's own machine."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens; None where that is not known."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class LongPrompt(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of a call whose prompt, with all that is cached, has more tokens than this."""

    prompt_tokens: int


class Price(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one model costs, from a day on."""

    vendor: Literal["anthropic", "openai", "google"]
    model: str
    since: date = date.min
    above: LongPrompt | None = None
    read_on: date
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: list[Price]


def charged(provider: str, completion: Completion) -> Decimal | None:
    """What a call is paid: what its provider says itself, else what its tokens cost at list price; None when that is not known."""
    if completion.cost_usd is not None:
        return completion.cost_usd
    return None if provider in _NOT_BY_THE_TOKEN else cost(completion.model, completion)


def cost(model: str, completion: Completion, *, on: date | None = None) -> Decimal | None:
    """What the completion costs in US dollars; None when that is not known: a model without a price here, or one of one's own."""
    price = price_of(model, on=on)
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


def price_of(model: str, *, on: date | None = None) -> Price | None:
    """The model's price on a day (today); None for one that is not in the table.

    A snapshot (`claude-haiku-4-5-20251001`) costs what its model does, and so does a model by the name that OpenRouter has for it
    (`anthropic/claude-haiku-4.5`). Any other name is another model's: `gpt-5-nano:free` is not `gpt-5-nano`.
    """
    day = on or datetime.now(UTC).date()
    entries = prices().get(_plain(model.removeprefix("models/"))) or prices().get(_plain(_SNAPSHOT.sub("", model))) or []
    return next((one for one in entries if one.since <= day), None)


@cache
def prices() -> dict[str, list[Price]]:
    """By each name that a model has, the youngest price first."""
    table = msgspec.toml.decode(files("cmserver.providers").joinpath("prices.toml").read_bytes(), type=_Table)
    found: dict[str, list[Price]] = {}
    for price in sorted(table.price, key=lambda one: one.since, reverse=True):
        for name in (price.model, f"{price.vendor}/{price.model}"):
            found.setdefault(_plain(name), []).append(price)
    return found


def _plain(model: str) -> str:
    return model.strip().lower().replace(".", "-")
