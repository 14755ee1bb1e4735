"""A PostgreSQL without pgvector, and what happens when it comes."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.db import Db
from cmserver.base.migrate import migrate
from cmserver.base.settings import Settings
from cmserver.embeddings import repository
from cmserver.embeddings.embedding_worker import EmbeddingWorker
from cmserver.embeddings.indexes import ensure_index
from tests.conftest import Cast, Server
from tests.embeddings.conftest import Room
from tests.embeddings.fake import Makers
from tests.make import Make


def superuser(server: Server, database: str) -> psycopg.Connection:
    """Who may make and drop the extension."""
    name = str(conninfo_to_dict(database)["dbname"])
    return psycopg.connect(server.embedded.url_for(name, role="postgres") if server.embedded else database, autocommit=True)


@pytest.fixture
def plain(server: Server, database: str) -> str:
    """The database without the extension, as the migration makes it there."""
    with superuser(server, database) as conn:
        conn.execute("DROP EXTENSION IF EXISTS vector CASCADE")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("ALTER TABLE observation_embeddings ADD COLUMN IF NOT EXISTS embedding real[]")
        conn.execute(
            "CREATE INDEX IF NOT EXISTS observation_embeddings_waiting ON observation_embeddings (model_id, next_at)"
            " WHERE embedding IS NULL"
        )
    return database


async def test_without_pgvector_storing_works_and_nothing_waits(plain: str, db: Db, settings: Settings, make: Make, cast: Cast):
    wanting = msgspec.structs.replace(settings, embedder="ollama", embedder_model="one")
    keeper = EmbeddingWorker(db, wanting, Makers())

    more = await keeper.round()
    stored = await make.observation(project=cast.alice.project)
    await ensure_index(db, more_than=0)

    with psycopg.connect(plain) as conn:
        rows = conn.execute("SELECT 1 FROM observation_embeddings UNION ALL SELECT 1 FROM embedding_models").fetchall()
    assert (more, rows, stored.number) == (False, [], 1)


async def test_without_pgvector_there_is_nothing_to_make_vectors_of(plain: str, db: Db):
    async with db.system() as conn:
        assert not await repository.ensure_vectors(conn)
        assert not await repository.IS_POSSIBLE.one(conn)


async def test_when_pgvector_comes_later_the_next_start_embeds_what_is_there(
    vectors: None, server: Server, plain: str, db: Db, settings: Settings, make: Make, cast: Cast
):
    old = await make.observation(project=cast.alice.project)
    with superuser(server, plain) as conn:
        conn.execute("CREATE EXTENSION vector")

    async def start() -> bool:
        async with db.system() as conn:
            return await repository.ensure_vectors(conn)

    found = await asyncio.gather(start(), start(), start())
    room = Room(db, plain, settings)
    keeper = EmbeddingWorker(db, room.chosen("one"), room.makers)
    while await keeper.round():
        pass

    assert found == [True, True, True]
    assert [(row.observation_id, row.is_embedded) for row in await room.rows()] == [(old.id, True)]


async def test_the_migration_itself_makes_vectors_where_it_finds_the_extension(empty_database: str):
    with psycopg.connect(empty_database, autocommit=True) as conn:
        there = conn.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()
    await migrate(empty_database)

    with psycopg.connect(empty_database) as conn:
        (type_,) = conn.execute(
            "SELECT format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = 'observation_embeddings'::regclass AND attname = 'embedding'"
        ).fetchone() or ("none",)
    assert type_ == ("halfvec" if there else "real[]")


async def test_without_pgvector_people_are_told_so(plain: str, client: httpx.AsyncClient, cast: Cast):
    shown = (await client.get("/v1/info", headers=cast.alice.headers)).json()["embeddings"]

    assert (shown["state"], shown["waiting"]) == ("off", 0)
    assert "pgvector" in shown["hint"]
