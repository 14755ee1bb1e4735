"""How embedding goes, for whoever looks after it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.choose import given_of
from cmserver.observations.embedding.model import EmbeddingModel, Waiting
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import EmbedderGiven


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and what of a team, or of its project, it has not embedded yet."""

    model: EmbeddingModel
    waiting: int
    failing: int

    @property
    def is_complete(self) -> bool:
        return self.model.is_backfilled and self.waiting == 0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The model in use and the one that is built; `hint` is a sentence when texts are not embedded, or not from here."""

    current: Progress | None
    building: Progress | None
    hint: str | None

    @property
    def state(self) -> Literal["off", "filling", "complete"]:
        if self.current is None:
            return "off"
        return "complete" if self.current.is_complete else "filling"


async def look(conn: Conn, team_id: UUID, project_id: UUID | None, settings: Settings) -> Look:
    """As this process sees it: another one may have what is missing here."""
    waiting = await repository.waiting(conn, team_id, project_id)
    models = {one.state: one for one in await repository.models(conn)}
    current, building = models.get("current"), models.get("building")
    return Look(
        current=_progress(current, waiting),
        building=_progress(building, waiting),
        hint=_hint(settings, [*filter(None, (building, current))], is_possible=await repository.is_possible(conn)),
    )


def _progress(model: EmbeddingModel | None, waiting: dict[int, Waiting]) -> Progress | None:
    if model is None:
        return None
    counted = waiting.get(model.id)
    return Progress(model=model, waiting=counted.waiting if counted else 0, failing=counted.failing if counted else 0)


def _hint(settings: Settings, models: Sequence[EmbeddingModel], *, is_possible: bool) -> str | None:
    if not is_possible:
        return "The database has no pgvector: search goes by words."
    chosen = registry.chosen(settings)
    if chosen is None and not models:
        if settings.embedder == "none":
            return "CMSERVER_EMBEDDER is none: search goes by words."
        return "No embedder is set, and local is not installed (pip install 'cmserver[local]'): search goes by words."
    asked = [*filter(None, [chosen]), *(given_of(settings, one) for one in models)]
    why = next((why for one in asked if (why := why_not(one))), None)
    return why if why or models else "No worker has run since the embedder was set."


@lru_cache(maxsize=8)
def why_not(given: EmbedderGiven) -> str | None:
    """A sentence, when this process cannot ask that embedder."""
    try:
        registry.make(given)
    except Invalid as error:
        return str(error)
    return None
