from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from cmserver.base.db import Db
from cmserver.embeddings import indexes, repository
from cmserver.embeddings.embedding_worker import embed_pending
from tests.conftest import Cast
from tests.embeddings.conftest import Room
from tests.embeddings.fake import Fake
from tests.make import Make
from tests.timeouts import until


async def has(db: Db, team_id: UUID, model_id: int) -> bool:
    async with db.tenant(team_id) as conn:
        return await repository.lists(conn, team_id, model_id) is not None


async def fill(room: Room, make: Make, cast: Cast) -> None:
    (model,) = await room.models()
    for _ in range(6):
        await make.observation(project=cast.alice.project)
    await make.observation(project=cast.charlie.project)
    await embed_pending(room.db, Fake(max_texts=10), model)


async def test_a_team_with_many_vectors_gets_an_index_and_others_do_not(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)

    for _ in range(2):
        await indexes.ensure_index(room.db, more_than=5)

    assert await has(room.db, cast.alice.team_id, model.id)
    assert not await has(room.db, cast.charlie.team_id, model.id)
    (definition,) = room.ask("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'embeddings_near%%'")
    assert "(embedding)::halfvec(16)" in str(definition)
    assert f"'{cast.alice.team_id}'" in str(definition)


async def test_by_default_it_takes_more_than_sixty_thousand(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)

    await indexes.ensure_index(room.db)

    assert not await has(room.db, cast.alice.team_id, model.id)


async def test_the_index_of_a_model_that_is_retired_goes(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)
    await indexes.ensure_index(room.db, more_than=5)
    room.ask("UPDATE embedding_models SET state = 'retired'")

    await indexes.ensure_index(room.db, more_than=5)

    assert not await has(room.db, cast.alice.team_id, model.id)
    assert room.ask("SELECT 1 FROM pg_indexes WHERE indexname LIKE 'embeddings_near%%'") == []


async def test_what_a_broken_creation_has_left_is_made_anew(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)

    async with room.db.system() as conn:
        await conn.execute("UPDATE observation_embeddings SET attempts = 1")  # it waits for this to end
        making = asyncio.create_task(indexes.ensure_index(room.db, more_than=5))
        await until("the index has begun", lambda: room.ask("SELECT 1 FROM pg_index WHERE NOT indisvalid"), making)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    broken = await has(room.db, cast.alice.team_id, model.id)
    left = room.ask("SELECT 1 FROM pg_index WHERE NOT indisvalid")
    await indexes.ensure_index(room.db, more_than=5)

    assert (broken, len(left), await has(room.db, cast.alice.team_id, model.id)) == (False, 1, True)


async def test_a_team_that_has_become_a_little_smaller_keeps_its_index(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)
    await indexes.ensure_index(room.db, more_than=5)

    await indexes.ensure_index(room.db, more_than=8)
    kept = await has(room.db, cast.alice.team_id, model.id)
    await indexes.ensure_index(room.db, more_than=20)

    assert (kept, await has(room.db, cast.alice.team_id, model.id)) == (True, False)


async def test_only_one_process_makes_indexes_at_a_time(room: Room, make: Make, cast: Cast):
    model = await room.choose()
    await fill(room, make, cast)

    async with room.db.system_statement() as conn:
        assert await indexes.repository.try_to_index(conn)
        await indexes.ensure_index(room.db, more_than=5)
        meanwhile = await has(room.db, cast.alice.team_id, model.id)
        await indexes.repository.end_indexing(conn)
    await indexes.ensure_index(room.db, more_than=5)

    assert (meanwhile, await has(room.db, cast.alice.team_id, model.id)) == (False, True)
