"""What is new is compared with the rest of its project: suggested, or merged where the project says so."""

from __future__ import annotations

import asyncio
from typing import Any, LiteralString

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.follow import reading_alone
from cmserver.base.sql import Conn
from cmserver.consolidation.comparison import compare
from cmserver.consolidation.comparison.compare import COMPARED, compare_new
from cmserver.observations.model import Observation
from tests.conftest import Cast, bound_to
from tests.embeddings.conftest import has_vectors
from tests.make import Make
from tests.recall.search.tools import Vectors

TEXT = "The refund job retries three times with a doubling pause."


@pytest.fixture
def vectors(database: str) -> Vectors:
    if not has_vectors(database):
        pytest.skip("this PostgreSQL has no pgvector: nothing is compared by vectors")
    return Vectors(database)


async def ask(db: Db, statement: LiteralString) -> list[tuple[Any, ...]]:
    async with db.system() as conn:
        return await (await conn.execute(statement)).fetchall()


async def write(make: Make, vectors: Vectors, cast: Cast, vector: tuple[float, float], **fields: Any) -> Observation:
    usual: dict[str, Any] = {"project": cast.alice.project, "title": "Refunds", "narrative": TEXT}
    observation = await make.observation(**(usual | fields))
    vectors.give(observation, vector)
    return observation


async def pairs(db: Db) -> list[tuple[Any, ...]]:
    return await ask(
        db,
        "SELECT least(l.number, r.number), greatest(l.number, r.number), s.reason, s.status"
        " FROM consolidation_suggestions s JOIN observations l ON l.id = s.left_id JOIN observations r ON r.id = s.right_id"
        " ORDER BY 1, 2",
    )


async def set_mode(client: AsyncClient, cast: Cast, mode: str) -> None:
    path = f"/v1/projects/{cast.alice.project.id}"
    answer = await client.patch(path, json={"consolidation": mode}, headers=cast.alice.headers)
    assert answer.json()["project"]["consolidation"] == mode


async def test_a_pair_is_suggested_once_however_often_it_is_compared(make: Make, vectors: Vectors, cast: Cast, db: Db):
    for vector in ((1.0, 0.0), (0.99, 0.14), (0.0, 1.0)):
        await write(make, vectors, cast, vector)

    first, second = await compare_new(db), await compare_new(db)
    await ask(db, "UPDATE read_positions SET read_to = 0 WHERE name = 'comparison' RETURNING 1")
    await compare_new(db)

    assert (first, second) == (3, 0)
    assert await pairs(db) == [(1, 2, "same", "open")]


async def test_a_project_may_merge_or_compare_nothing(client: AsyncClient, make: Make, vectors: Vectors, cast: Cast, db: Db):
    await set_mode(client, cast, "off")
    for _ in range(2):
        await write(make, vectors, cast, (1.0, 0.0))
    await compare_new(db)
    off = await pairs(db)
    await set_mode(client, cast, "merge")
    await write(make, vectors, cast, (1.0, 0.01))
    await compare_new(db)

    assert off == []
    assert await ask(db, "SELECT number FROM observations WHERE superseded_at IS NULL ORDER BY number") == [(1,), (2,)]
    versions = await ask(db, "SELECT action, performed_by, measured_by IS NOT NULL FROM observation_versions")
    assert versions == [("merged", "system", True)]


async def test_what_differs_in_a_fact_is_never_merged(client: AsyncClient, make: Make, vectors: Vectors, cast: Cast, db: Db):
    await set_mode(client, cast, "merge")
    await write(make, vectors, cast, (1.0, 0.0))
    await write(make, vectors, cast, (1.0, 0.0), narrative=TEXT.replace("three", "five"))

    await compare_new(db)

    assert await pairs(db) == [(1, 2, "contradicts", "open")]
    assert await ask(db, "SELECT count(*) FROM observation_versions") == [(0,)]


@pytest.mark.parametrize("narrative", [TEXT, TEXT.replace("three", "five")])
async def test_what_changed_other_files_is_neither_the_same_nor_contradicts(
    make: Make, vectors: Vectors, cast: Cast, db: Db, narrative: str
):
    await write(make, vectors, cast, (1.0, 0.0), files_modified=["src/mail/client.py"])
    await write(make, vectors, cast, (1.0, 0.0), files_modified=["src/pay/client.py"], narrative=narrative)
    await write(make, vectors, cast, (0.9, 0.1), files_modified=["src/pay/client.py", "src/pay/tries.py"])

    await compare_new(db)

    assert [(left, right) for left, right, _, _ in await pairs(db)] == [(2, 3)]


async def test_only_what_may_say_the_same_is_compared(make: Make, vectors: Vectors, cast: Cast, db: Db):
    other = await bound_to(db, cast.alice, "elsewhere")
    await write(make, vectors, cast, (1.0, 0.0))
    await write(make, vectors, cast, (1.0, 0.0), type="decision")
    await write(make, vectors, cast, (1.0, 0.0), scope="team")
    await write(make, vectors, cast, (1.0, 0.0), project=other.project)
    await write(make, vectors, cast, (1.0, 0.0), kind="summary")
    gone = await write(make, vectors, cast, (1.0, 0.0))
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET ttl_seconds = 1, expires_at = now() WHERE id = %s", [gone.id])

    await compare_new(db)

    assert await pairs(db) == []


async def test_what_waits_for_its_vector_is_waited_for_but_not_for_ever(make: Make, vectors: Vectors, cast: Cast, db: Db):
    await write(make, vectors, cast, (1.0, 0.0))
    waiting = await make.observation(project=cast.alice.project, title="Refunds", narrative=TEXT)
    await write(make, vectors, cast, (1.0, 0.0))

    first = await compare_new(db)
    vectors.give(waiting, (1.0, 0.0))
    second = await compare_new(db)
    late = await make.observation(project=cast.alice.project)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET created_at = now() - interval '1 hour' WHERE id = %s", [late.id])
    third = await compare_new(db)

    assert (first, second, third) == (1, 2, 1)
    assert await pairs(db) == [(1, 2, "same", "open"), (1, 3, "same", "open"), (2, 3, "same", "open")]


async def test_each_gets_a_few_partners_and_rounds_and_blocks_find_the_same(
    make: Make, vectors: Vectors, cast: Cast, db: Db, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compare, "NEW_AT_ONCE", 3)
    monkeypatch.setattr(compare, "BLOCK", 2)
    for place in range(7):
        await write(make, vectors, cast, (1.0, place / 1000))

    assert await compare_new(db) == 7

    per_new: dict[int, int] = {}
    for _, newer, _, _ in await pairs(db):
        per_new[newer] = per_new.get(newer, 0) + 1
    assert per_new == {2: 1, 3: 2, 4: 3, 5: 3, 6: 3, 7: 3}


async def test_what_another_process_compares_is_left_to_it(make: Make, vectors: Vectors, cast: Cast, db: Db):
    for vector in ((1.0, 0.0), (0.99, 0.14)):
        await write(make, vectors, cast, vector)

    async with reading_alone(db, COMPARED, cast.alice.team_id) as is_alone:
        beside = await compare_new(db)
    after = await compare_new(db)

    assert is_alone
    assert (beside, after) == (0, 2)


async def test_a_position_is_never_set_back_by_who_was_slower(
    make: Make, vectors: Vectors, cast: Cast, db: Db, monkeypatch: pytest.MonkeyPatch
):
    await write(make, vectors, cast, (1.0, 0.0))
    keep = compare.keep_position

    async def late(conn: Conn, *words: Any, **more: Any) -> None:
        await ask(db, "UPDATE read_positions SET read_to = 7 WHERE name = 'comparison' RETURNING 1")
        await keep(conn, *words, **more)

    await compare_new(db)
    await write(make, vectors, cast, (0.0, 1.0))
    monkeypatch.setattr(compare, "keep_position", late)
    await compare_new(db)

    assert await ask(db, "SELECT read_to FROM read_positions WHERE name = 'comparison'") == [(7,)]


async def test_two_processes_at_once_find_each_pair_once(client: AsyncClient, make: Make, vectors: Vectors, cast: Cast, db: Db):
    await set_mode(client, cast, "merge")
    for place in range(6):
        await write(make, vectors, cast, (1.0, place / 1000))

    await asyncio.gather(*(compare_new(db) for _ in range(4)))

    assert await ask(db, "SELECT number FROM observations WHERE superseded_at IS NULL") == [(1,)]
    assert await ask(db, "SELECT count(*) FROM observations WHERE superseded_by IS NOT NULL") == [(5,)]


async def test_who_undid_a_merge_is_not_merged_again(client: AsyncClient, make: Make, vectors: Vectors, cast: Cast, db: Db):
    await set_mode(client, cast, "merge")
    for _ in range(2):
        await write(make, vectors, cast, (1.0, 0.0))
    await compare_new(db)
    undone = await client.post("/v1/observations/1/undo", headers=cast.alice.headers)
    await ask(db, "UPDATE read_positions SET read_to = 0 WHERE name = 'comparison' RETURNING 1")
    await ask(db, "UPDATE observation_embeddings SET embedding = '[1,0]' RETURNING 1")
    await compare_new(db)

    assert undone.json()["restored"] == [2]
    assert await ask(db, "SELECT count(*) FROM observations WHERE superseded_at IS NOT NULL") == [(0,)]
    assert await pairs(db) == [(1, 2, "same", "dismissed")]


async def test_a_pair_that_is_too_long_together_is_suggested_and_stops_nothing(
    client: AsyncClient, make: Make, vectors: Vectors, cast: Cast, db: Db
):
    await set_mode(client, cast, "merge")
    for part in ("a", "b"):
        files = ["src/both.py", *(f"src/{part}{place}.py" for place in range(40))]
        await write(make, vectors, cast, (1.0, 0.0), files_modified=files)

    assert await compare_new(db) == 2
    assert await compare_new(db) == 0
    assert await pairs(db) == [(1, 2, "same", "open")]
