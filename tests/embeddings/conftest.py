from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.embeddings import model_choice, repository
from cmserver.embeddings.model import EmbeddingModel
from tests.conftest import Server
from tests.embeddings.fake import Fake, Makers


def has_vectors(url: str) -> bool:
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is not None


@pytest.fixture
def vectors(database: str) -> None:
    """What needs vectors asks for this."""
    if not has_vectors(database):
        pytest.skip("this PostgreSQL has no pgvector: nothing is embedded, see test_without_vectors.py")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of observation_embeddings as psql sees it."""

    observation_id: UUID
    model: str
    is_embedded: bool
    attempts: int
    due: bool
    given_up: bool
    last_error: str | None


class Room:
    """The embeddings of a database, from outside."""

    def __init__(self, db: Db, database: str, settings: Settings) -> None:
        self.db = db
        self.database = database
        self.settings = settings
        self.fake = Fake()
        self.makers = Makers()

    def chosen(self, name: str) -> Settings:
        return msgspec.structs.replace(self.settings, embedder="ollama", embedder_model=name)

    async def choose(self, name: str = "one") -> EmbeddingModel:
        """The operator names a model, and a worker starts; the model that is wanted last."""
        await model_choice.apply_choice(self.db, self.chosen(name))
        return (await self.models())[-1]

    async def models(self) -> list[EmbeddingModel]:
        async with self.db.system() as conn:
            return [one for one in await repository.MODELS.all(conn) if one.state != "retired"]

    async def rows(self) -> list[Row]:
        found = self.ask(
            "SELECT observation_id, m.model, embedding IS NOT NULL AND NOT is_outdated AS is_embedded, attempts,"
            " next_at <= now() AS due, next_at = 'infinity' AS given_up, last_error"
            " FROM observation_embeddings e JOIN embedding_models m ON m.id = e.model_id"
            " JOIN observations o ON o.id = e.observation_id ORDER BY m.id, o.number"
        )
        return [msgspec.convert(one, Row) for one in found]

    def ask(self, question: str, values: Sequence[object] = ()) -> list[dict[str, object]]:
        with psycopg.connect(self.database, autocommit=True) as conn, conn.cursor(row_factory=dict_row) as cursor:
            cursor.execute(question.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def vector(self, observation_id: UUID, model: EmbeddingModel) -> list[float]:
        (row,) = self.ask(
            "SELECT embedding::real[] AS vector FROM observation_embeddings WHERE observation_id = %s AND model_id = %s",
            [observation_id, model.id],
        )
        found = row["vector"]
        assert isinstance(found, list)
        return found  # pyright: ignore[reportUnknownVariableType]

    def make_due(self) -> None:
        """As if the time had come."""
        self.ask("UPDATE observation_embeddings SET next_at = now() WHERE embedding IS NULL AND next_at < 'infinity'")


@pytest.fixture
def room(vectors: None, db: Db, database: str, settings: Settings) -> Room:
    return Room(db, database, settings)


__all__ = ["Server"]
