"""What search asks of an embedder: a vector for each text, so that texts of like meaning lie in like directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Purpose = Literal["query", "document"]
"""What is looked for, and what is found: many models embed the two differently."""

MOST_DIMENSIONS = 4_000
"""pgvector's index takes no longer vectors of half precision."""


class Embedder(Protocol):
    """A model that makes vectors of texts. One file each; knows nothing of the database."""

    @property
    def provider(self) -> str:
        """As in CMSERVER_EMBEDDER."""
        ...

    @property
    def model(self) -> str:
        """Which model is asked. Vectors of one model are never compared with another's."""
        ...

    @property
    def dimensions(self) -> int | None:
        """How long its vectors are; None until the first has come, where only the server knows."""
        ...

    @property
    def most_texts(self) -> int:
        """How many texts one call may have."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """A vector for each text, in their order, all of the same length, finite and of length 1; or ProviderError.

        Any text has one, also the empty one. What is longer than the model takes is cut.
        """
        ...

    async def close(self) -> None:
        """Lets go of its connections."""
        ...


class EmbedderGiven(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one embedder, by the operator's settings or by the record of a model that is in use."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    dimensions: int | None = None
    """None leaves it to the model."""
    api_key: str | None = None
    timeout_seconds: float = 120.0
    """For one call with everything in it."""

    def __repr__(self) -> str:
        return f"EmbedderGiven({self.provider!r}, model={self.model!r}, dimensions={self.dimensions!r})"  # never the key
