from __future__ import annotations

import pytest

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.embedding_worker import embed_pending
from cmserver.embeddings.model import EmbeddingModel
from cmserver.models.providers.embedding.model import Embedder
from tests.bench.recall.corpora import history
from tests.bench.recall.corpus import Document
from tests.embeddings.conftest import Room, room, vectors
from tests.make import Make

__all__ = ["room", "vectors"]


def list_documents(count: int) -> list[Document]:
    """The first observations of the history."""
    return [document for document in history.load().documents if not document.is_summary][:count]


class Calibrated:
    """Documents of the history of coding in a project, embedded by a model."""

    def __init__(self, room: Room, make: Make) -> None:
        self.room = room
        self.make = make

    @property
    def db(self) -> Db:
        return self.room.db

    @property
    def settings(self) -> Settings:
        return self.room.settings

    def use(self, provider: str, model: str, dimensions: int) -> EmbeddingModel:
        """Let it be the current model, as the operator's choice would."""
        self.room.ask(
            "INSERT INTO embedding_models (provider, model, dimensions, asked_dimensions, state, is_backfilled)"
            " VALUES (%s, %s, %s, %s, 'current', true)",
            [provider, model, dimensions, dimensions],
        )
        (row,) = self.room.ask("SELECT id FROM embedding_models WHERE state = 'current'")
        return EmbeddingModel(
            id=int(str(row["id"])),
            provider=provider,
            model=model,
            base_url=None,
            asked_dimensions=dimensions,
            dimensions=dimensions,
            state="current",
            is_backfilled=True,
            document_prefix="",
            pulled_percent=None,
        )

    async def fill(self, project: Project, count: int, model: EmbeddingModel, embedder: Embedder) -> None:
        for document in list_documents(count):
            await self.make.observation(
                project=project,
                title=document.title,
                subtitle=document.subtitle,
                narrative=document.narrative,
                facts=document.facts,
            )
        while await embed_pending(self.db, embedder, model):
            pass

    async def current(self) -> EmbeddingModel | None:
        async with self.db.system() as conn:
            return await embeddings.CURRENT.first(conn)


@pytest.fixture
def calibrated(room: Room, make: Make) -> Calibrated:
    return Calibrated(room, make)
