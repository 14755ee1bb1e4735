"""How embedding looks on the wire."""

from __future__ import annotations

from typing import Literal

import msgspec

from cmserver.observations.embedding.look import Look, Progress


class BuildingOut(msgspec.Struct, frozen=True, kw_only=True):
    """The model that takes the place of the other when it has embedded all that is known."""

    embedder: str
    model: str
    dimensions: int | None
    waiting: int
    failing: int


class EmbeddingsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What search by meaning goes by. The counts are of the key's team, or of its project when it is bound to one.

    `off` has no model, and search goes by words; `filling` has not embedded everything yet. Of those `waiting`, `failing` could not
    be embedded when it was last tried. `hint` is a sentence when there is something to do.
    """

    state: Literal["off", "filling", "complete"]
    embedder: str | None
    model: str | None
    dimensions: int | None
    waiting: int
    failing: int
    building: BuildingOut | None
    hint: str | None


def embeddings_out(seen: Look) -> EmbeddingsOut:
    current = seen.current
    return EmbeddingsOut(
        state=seen.state,
        embedder=current.model.provider if current else None,
        model=current.model.model if current else None,
        dimensions=current.model.dimensions if current else None,
        waiting=current.waiting if current else 0,
        failing=current.failing if current else 0,
        building=_building_out(seen.building) if seen.building else None,
        hint=seen.hint,
    )


def _building_out(progress: Progress) -> BuildingOut:
    return BuildingOut(
        embedder=progress.model.provider,
        model=progress.model.model,
        dimensions=progress.model.dimensions,
        waiting=progress.waiting,
        failing=progress.failing,
    )
