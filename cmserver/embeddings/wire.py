"""How embedding looks on the wire."""

from __future__ import annotations

from typing import Literal

import msgspec


class NextModelOut(msgspec.Struct, frozen=True, kw_only=True):
    """The model that takes the place of the other when it has embedded all that is known."""

    embedder: str
    model: str
    dimensions: int | None
    waiting: int
    failing: int
    pulled_percent: int | None


class EmbeddingsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What search by meaning goes by. The counts are of the key's team, or of its project when it is bound to one.

    `state` is `off` without a model, when search goes by words, `filling` until everything is embedded, and then `complete`. Of
    those `waiting`, `failing` could not be embedded when it was last tried. `pulled_percent` is how much of a missing model the
    embedder has downloaded, or null. `building` is the model that will take this one's place, or null. `hint` is a sentence when
    there is something to do, or null.
    """

    state: Literal["off", "filling", "complete"]
    embedder: str | None
    model: str | None
    dimensions: int | None
    waiting: int
    failing: int
    pulled_percent: int | None
    building: NextModelOut | None
    hint: str | None


class ReasonOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why observations, turns and entities could not be embedded: `observations` is how many of the three the reason holds for;
    `givenUp` is how many of them are not tried again by themselves.
    """

    reason: str
    observations: int
    given_up: int


class EmbeddingStateOut(msgspec.Struct, frozen=True, kw_only=True):
    """How embedding goes, and what keeps it from going on."""

    embeddings: EmbeddingsOut
    reasons: list[ReasonOut]


class RetriedEmbeddingsOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many embeddings that failed are tried again now."""

    retried: int
