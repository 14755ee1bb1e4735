"""The provider for those without a model: observations and summaries by rules. No network, no key, the same answer every time."""

from __future__ import annotations

import asyncio

import msgspec

from cmserver.providers.model import Answer, Completion, Prompt, ProviderSettings
from cmserver.rules.batch import observe
from cmserver.rules.summaries import summarise

_LARGE = 50_000
"""Bytes of JSON from which a prompt is read in a thread, so that the worker's heartbeats go on meanwhile."""


class Offline:
    """Words observations by rules: what was edited, what failed, what passed, what was committed."""

    name = "offline"
    model = "rules"

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer any prompt; never raises ProviderError, and costs nothing."""
        rules = summarise if prompt.kind == "summary" else observe
        is_large = len(msgspec.json.encode(prompt)) > _LARGE
        answer = await asyncio.to_thread(rules, prompt) if is_large else rules(prompt)
        return _complete(answer)


def _complete(answer: Answer) -> Completion:
    return Completion(text=msgspec.json.encode(answer).decode(), model=Offline.model)


def make(_settings: ProviderSettings) -> Offline:
    return Offline()
