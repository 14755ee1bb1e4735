"""Tries a provider: one real call with two made-up events, whose answer is read as a job reads it."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal

import msgspec

from cmserver.answers.parse import parse
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.money import usd
from cmserver.generation.record import NOTHING_FOUND
from cmserver.models.providers.failures import FAILURE_HELP, find_error_in_prose, find_help, mask_key
from cmserver.models.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError, Rules, event_tag
from cmserver.models.providers.prices import compute_cost
from cmserver.models.providers.table import PROVIDERS
from cmserver.observations.normalise import NOT_SAID_WHY, normalise_answer
from cmserver.reading.read import read_event
from cmserver.rules.batch import observe
from cmserver.rules.model import SessionRecord

_ROOT = "/home/dev/shop"
_SIGN_IN = {"claude-cli": "that the program is signed in: start it, and say /login"}

PROMPT = Prompt(
    kind="observations",
    project="shop",
    root=_ROOT,
    requests=["Orders are charged twice when the payment service is slow. Please fix that."],
    events=[
        read_event("tool_use", payload, _ROOT, occurred_at_epoch=1_767_225_600_000 + 30_000 * place)
        for place, payload in enumerate(
            (
                {
                    "tool_name": "Edit",
                    "tool_input": {
                        "file_path": f"{_ROOT}/payments/client.py",
                        "old_string": "return await post(url, order)",
                        "new_string": 'return await post(url, order, headers={"Idempotency-Key": order.id})',
                    },
                    "tool_response": {"filePath": f"{_ROOT}/payments/client.py", "success": True},
                },
                {
                    "tool_name": "Bash",
                    "tool_input": {"command": "pytest tests/test_payments.py", "description": "Run the tests of payments"},
                    "tool_response": {"stdout": "12 passed in 0.80s", "stderr": "", "interrupted": False},
                },
            )
        )
    ],
)
"""Two made-up events, so that nobody's data is sent."""


class ProviderTrialOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What came of one call. `provider` is whom it was made to; `model` is the name of the model; `usable` is whether its
    answer could be used: one that cannot be read, or says nothing of events in which rules find something, could not.

    `message` is the sentence about it, with what helps where it could not; `seconds` is how long it took; `observations` is
    how many were read.
    """

    provider: str
    model: str
    usable: bool
    message: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: str | None = None
    observations: int = 0


def try_rules() -> ProviderTrialOut:
    """What the rules make of the events: no call."""
    started, rules = time.monotonic(), Rules()
    count = len(observe(PROMPT.events, SessionRecord(requests=PROMPT.requests)).observations)
    seconds = time.monotonic() - started
    return ProviderTrialOut(
        provider=rules.name,
        model=rules.model,
        usable=True,
        message=f"{rules.name} ({rules.model}) answered in {seconds:.1f} s; {_count_observations(count)}",
        seconds=round(seconds, 2),
        cost_usd=usd(Decimal(0)),
        observations=count,
    )


async def try_provider(provider: Provider, timeout_seconds: float, api_key: str | None) -> ProviderTrialOut:
    """The result of one call; of no sentence is the key a part, should the provider repeat it."""
    started, completion, count = time.monotonic(), None, None
    try:
        async with asyncio.timeout(timeout_seconds):
            completion = await provider.complete(PROMPT)
        said = _describe_call(provider.name, time.monotonic() - started, completion)
        try:
            count = _count_kept(completion.text)
            said = f"{said}; {_count_observations(count)}"
        except ProviderError as error:
            failure = find_error_in_prose(provider.name, completion.text) or error
            said = f"{said}; but it {explain_failure(provider.name, failure)}"
    except TimeoutError:
        help_text = "raise CMSERVER_PROVIDER_TIMEOUT_SECONDS for a slow model, or look at CMSERVER_BASE_URL and the network"
        said = f"did not answer within {timeout_seconds:g} s. What helps: {help_text}."
    except ProviderError as error:
        completion, said = error.completion, explain_failure(provider.name, error)
    cost = completion and compute_cost(provider.name, completion)
    return ProviderTrialOut(
        provider=provider.name,
        model=provider.model,
        usable=count is not None,
        message=sanitize_line(mask_key(f"{provider.name} ({provider.model}) {said}", api_key)),
        seconds=round(time.monotonic() - started, 2),
        input_tokens=_count_input(completion) if completion else 0,
        output_tokens=completion.output_tokens if completion else 0,
        cost_usd=None if cost is None else usd(cost),
        observations=count or 0,
    )


def _count_kept(text: str) -> int:
    """How many observations an answer holds; ProviderError where a job would take what rules find in its place."""
    answer = normalise_answer(parse(text, len(PROMPT.events)), {})
    reasoned = {mark.event for mark in answer.skipped if mark.reason != NOT_SAID_WHY}
    if not answer.observations and not reasoned.issuperset(map(event_tag, range(len(PROMPT.events)))):
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, NOTHING_FOUND)
    return len(answer.observations)


def _count_observations(count: int) -> str:
    return f"the answer was read: {count} observation{'' if count == 1 else 's'}."


def _count_input(completion: Completion) -> int:
    return completion.input_tokens + completion.cache_read_tokens + completion.cache_write_tokens


def _describe_call(provider: str, seconds: float, completion: Completion) -> str:
    input_tokens = _count_input(completion)
    text = f"answered in {seconds:.1f} s"
    if not input_tokens + completion.output_tokens:
        return text
    cut = ", cut at the limit (CMSERVER_MODEL_CONTEXT_TOKENS)" if completion.truncated else ""
    price = _format_price(compute_cost(provider, completion))
    return f"{text}: {input_tokens:,} tokens in, {completion.output_tokens:,} out{cut}, {price}"


def _format_price(price: Decimal | None) -> str:
    if price is None:
        return "price unknown"
    return "free" if price == 0 else f"about ${max(price, Decimal('0.0001')):.4f}"


def explain_failure(name: str, error: ProviderError) -> str:
    """The failure and its remedy as the predicate of a sentence about the provider."""
    entry = find_help(error.kind.value, str(error)) or FAILURE_HELP[error.kind]
    setting = PROVIDERS[name].key_setting if name in PROVIDERS else None
    ways = setting and f"its key: {setting}, the field Key of the page Model, or --key-file of `cmserver model set`"
    key = ways or _SIGN_IN.get(name, "its key")
    return f"{entry.predicate} ({str(error).rstrip('.')}). What helps: {entry.remedy.format(key=key)}."
