"""The provider for those without a model: observations and summaries by rules. No network, no key, the same answer every time."""

from __future__ import annotations

import asyncio

import msgspec

from cmserver.providers.model import Completion, Given, Prompt
from cmserver.providers.rules.story import tell
from cmserver.providers.rules.summaries import summarise

_LARGE = 50_000
"""Bytes of JSON from which a prompt is read in a thread, so that the worker's heartbeats go on meanwhile."""


class Offline:
    """Words observations by rules: what was edited, what failed, what passed, what was committed."""

    @property
    def name(self) -> str:
        return "offline"

    @property
    def model(self) -> str:
        return "rules"

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer any prompt; never raises ProviderError, and costs nothing."""
        rules = summarise if prompt.kind == "summary" else tell
        large = len(msgspec.json.encode(prompt)) > _LARGE
        answer = await asyncio.to_thread(rules, prompt) if large else rules(prompt)
        return Completion(text=msgspec.json.encode(answer).decode(), model=self.model)


def make(_given: Given) -> Offline:
    """It needs nothing."""
    return Offline()
