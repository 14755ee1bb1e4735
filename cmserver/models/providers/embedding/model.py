"""The interface of embedders: texts of similar meaning get vectors of similar direction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

Purpose = Literal["query", "document"]
"""Search queries or stored texts; many models embed the two differently."""

MAX_DIMENSIONS = 4_000
"""The limit of pgvector's index for half precision."""


class Embedder(Protocol):
    """A model that makes vectors of texts, without access to the database."""

    @property
    def provider(self) -> str:
        """As in CMSERVER_EMBEDDER."""
        ...

    @property
    def model(self) -> str:
        """The model's name. Vectors of different models are never compared."""
        ...

    @property
    def dimensions(self) -> int | None:
        """The length of its vectors; None until the first answer if only the server knows."""
        ...

    @property
    def max_texts(self) -> int:
        """The most texts of one call."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """A finite unit vector for each text, also an empty one, in order. Raises ProviderError. Long texts are cut."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@runtime_checkable
class PullingEmbedder(Embedder, Protocol):
    """An embedder whose server downloads the model when it is told to."""

    async def has_model(self) -> bool:
        """Whether the server has the model. Raises ProviderError."""
        ...

    def pull_model(self) -> AsyncGenerator[int]:
        """Make the server download the model; how much of it is there, in percent, never less than before. Raises ProviderError."""
        ...


class EmbedderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An embedder's settings, from the operator or from the record of a model in use."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    dimensions: int | None = None
    """None leaves it to the model."""
    document_prefix: str | None = None
    """What was put before the texts of a model in use; None leaves it to the model."""
    api_key: str | None = None
    timeout_seconds: float = 120.0
    """For one whole call."""

    def __repr__(self) -> str:
        return f"EmbedderSettings({self.provider!r}, model={self.model!r}, dimensions={self.dimensions!r})"  # never the key
