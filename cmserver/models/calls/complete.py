"""Sends one prompt to a provider, for a limited time, and bounds what comes back."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal

import msgspec

from cmserver.base.metrics import metrics
from cmserver.base.text import storable
from cmserver.base.tracing import trace_work
from cmserver.models.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError

ANSWER_TOKENS = 500
"""Estimate, until the answer is there."""
_MAX_ANSWER_CHARS = 2_000_000
"""Several times the length of the longest possible answer."""
_MAX_TOKENS = 100_000_000
_MAX_USD = Decimal(100_000)


async def complete_in_time(provider: Provider, prompt: Prompt, seconds: float) -> Completion:
    """The provider's answer; ProviderError when it takes longer."""
    started, outcome = time.perf_counter(), "failed"
    names = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider.name, "gen_ai.request.model": provider.model}
    with trace_work(f"chat {provider.model}", names, is_call=True) as span:
        try:
            async with asyncio.timeout(seconds):
                completion = await provider.complete(prompt)
            outcome = "answered"
        except TimeoutError as error:
            message = f"{provider.name} did not answer within {seconds:g} seconds."
            raise ProviderError(FailureKind.TRANSIENT, message, perhaps_paid=True) from error
        finally:
            metrics().provider_seconds.labels(provider.name, outcome).observe(time.perf_counter() - started)
        if span is not None:
            tokens = {"gen_ai.usage.input_tokens": completion.input_tokens, "gen_ai.usage.output_tokens": completion.output_tokens}
            span.set_attributes(tokens)
    return completion


def clamp_completion(completion: Completion) -> Completion:
    """Limit text, tokens and cost to possible values: budgets depend on them, whatever server answered."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    tokens: dict[str, int] = {name: min(max(getattr(completion, name), 0), _MAX_TOKENS) for name in names}
    cost = completion.cost_usd
    return msgspec.structs.replace(
        completion,
        text=completion.text[:_MAX_ANSWER_CHARS],
        model=storable(completion.model),
        cost_usd=cost if cost is not None and cost.is_finite() and 0 <= cost <= _MAX_USD else None,
        **tokens,
    )


def truncated_error(completion: Completion) -> ProviderError:
    """The error of an answer that was cut."""
    return ProviderError(
        FailureKind.UNUSABLE_ANSWER,
        f"The answer reached the output-token limit ({completion.output_tokens:,}; CMSERVER_MODEL_CONTEXT_TOKENS).",
        completion=completion,
    )
