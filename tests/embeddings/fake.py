"""An embedder whose vectors are made of the words of a text, and that fails when it is told to."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Sequence

from cmserver.models.providers.embedding.model import EmbedderSettings, Purpose
from cmserver.models.providers.model import FailureKind, ProviderError

DIMENSIONS = 16


class Fake:
    """`error` is raised by every call; a text with a word of `refuses` in it is refused with all that came along. With a `gate`
    a call waits until it is open, and `asked` is set when one does.
    """

    def __init__(
        self, name: str = "one", *, dimensions: int | None = DIMENSIONS, max_texts: int = 4, provider: str = "ollama"
    ) -> None:
        self.provider = provider
        self.model = name
        self.dimensions = dimensions
        self.max_texts = max_texts
        self.texts: list[str] = []
        self.calls = 0
        self.error: ProviderError | None = None
        self.refuses: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.closed = False

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        self.calls += 1
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        if any(word in text for text in texts for word in self.refuses):
            raise ProviderError(FailureKind.REFUSED, "No: secret words")
        self.texts += texts
        return [vector_of(text, self.model) for text in texts]

    async def close(self) -> None:
        self.closed = True


def vector_of(text: str, model: str = "one") -> list[float]:
    """Of length 1; texts that share words are near to each other."""
    numbers = [0.001] * DIMENSIONS
    for word in text.lower().split():
        numbers[hashlib.sha256(f"{model} {word}".encode()).digest()[0] % DIMENSIONS] += 1.0
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


class Makers:
    """Stands in for the registry: one fake for each model's name."""

    def __init__(self) -> None:
        self.made: dict[str, Fake] = {}

    def named(self, name: str) -> Fake:
        return self.made.setdefault(name, Fake(name))

    def __call__(self, given: EmbedderSettings) -> Fake:
        return self.named(given.model or "")
