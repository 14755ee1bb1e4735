"""What is near in meaning: exactly where that is quick, by an index where it is not, and never less than there is."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.embeddings import indexes
from cmserver.embeddings.model import QueryVector
from cmserver.recall.search import repository, search
from cmserver.recall.search.model import Filters, NearText, Ranking, SearchRequest
from tests.conftest import Cast
from tests.make import Make

DIMENSIONS = 16
LIMIT = 40
MANY = 100_000
"""As if the scope had so many documents."""

_MODEL = """
    INSERT INTO embedding_models (provider, model, dimensions, state, is_backfilled)
    VALUES ('ollama', 'one', 16, 'current', true) RETURNING id
"""
# Every tenth is a bugfix, every 500th a decision; every 400th is shared with the team.
_SEED = """
    INSERT INTO observations (id, number, project_id, team_id, origin, scope, type, title, content)
    SELECT gen_random_uuid(), n, %(project_id)s, %(team_id)s, 'model', CASE WHEN n %% 400 = 0 THEN 'team' ELSE 'project' END,
           CASE WHEN n %% 500 = 0 THEN 'decision' WHEN n %% 10 = 0 THEN 'bugfix' ELSE 'change' END, 'word' || n, ''
      FROM generate_series(%(first)s::int, %(first)s::int + 1499) n
"""
# In 23 groups that are near to each other: in mere noise, what is nearest would be anywhere.
_EMBED = """
    UPDATE observation_embeddings e
       SET embedding = (SELECT array_agg(sin(hashtext(o.number % 23 || '-' || i)) + 0.3 * random() ORDER BY i)::real[]::halfvec
                          FROM generate_series(1, 16) i WHERE e.observation_id IS NOT NULL)
      FROM observations o WHERE o.id = e.observation_id
"""


class Room:
    """Two projects of Alice's team and one of Charlie's, with 1,500 vectors each and an index for Alice's."""

    def __init__(self, db: Db, cast: Cast, model_id: int) -> None:
        self.db = db
        self.cast = cast
        self.sought = QueryVector(
            provider="local",
            model_id=model_id,
            dimensions=DIMENSIONS,
            vector=str([1.0, *[0.1] * (DIMENSIONS - 1)]).replace(" ", ""),
        )

    @property
    def project(self) -> list[UUID]:
        return [self.cast.alice.project.id]

    async def nearest(
        self, projects: Sequence[UUID] | None, *, documents: int = MANY, turns: bool = False, **filters: object
    ) -> list[NearText]:
        request = SearchRequest(query="", project_ids=projects, filters=Filters(**filters))  # pyright: ignore[reportArgumentType]
        async with self.db.tenant(self.cast.alice.team_id) as conn:
            return await search.find_nearest(conn, self.cast.alice.team_id, request, self.sought, LIMIT, documents, turns=turns)

    async def exactly(self, projects: Sequence[UUID] | None, **filters: object) -> list[NearText]:
        return await self.nearest(projects, documents=0, **filters)  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def room(db: Db, database: str, cast: Cast) -> Room:
    with psycopg.connect(database, autocommit=True) as conn:
        if conn.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            pytest.skip("this PostgreSQL has no pgvector: nothing is near in meaning")
        row = conn.execute(_MODEL).fetchone()
        assert row
        other = uuid4()
        conn.execute(
            "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 'other', 'other')", [other, cast.alice.team_id]
        )
        conn.execute("SELECT setseed(0.25)")
        for project_id, team_id, first in (
            (cast.alice.project.id, cast.alice.team_id, 1),
            (other, cast.alice.team_id, 1501),
            (cast.charlie.project.id, cast.charlie.team_id, 1),
        ):
            conn.execute(_SEED, {"project_id": project_id, "team_id": team_id, "first": first})
        conn.execute(_EMBED)
        conn.execute("ANALYZE")
    await indexes.ensure_index(db, more_than=2000)
    return Room(db, cast, row[0])


@pytest.fixture
def asked_of_the_index(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many it found, each time it was asked."""
    hit_counts: list[int] = []
    nearest = repository.nearest

    async def counted(*args: object, probes: int = 0, **how: int) -> list[NearText]:
        near = await nearest(*args, probes=probes, **how)  # pyright: ignore[reportArgumentType]
        if probes:
            hit_counts.append(len(near))
        return near

    monkeypatch.setattr(repository, "nearest", counted)
    return hit_counts


def shared(near: Sequence[NearText], exact: Sequence[NearText]) -> float:
    return len({observation.id for observation in near} & {observation.id for observation in exact}) / len(exact)


async def test_a_scope_of_usual_size_is_compared_one_by_one(room: Room, asked_of_the_index: list[int]):
    near = await room.nearest(None, documents=search.MAX_EXACT)

    assert len(near) == LIMIT
    assert asked_of_the_index == []


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "project"])
@pytest.mark.parametrize(("kind", "full_comparisons"), [("observation", 0), ("manual", 1)], ids=["most", "few"])
async def test_kinds_are_looked_at_in_the_nearest_first_and_leave_the_same_as_of_all(
    room: Room, monkeypatch: pytest.MonkeyPatch, kind: str, full_comparisons: int, of_team: bool
):
    scope = None if of_team else room.project
    async with room.db.system() as conn:
        await conn.execute("UPDATE observations SET kind = 'manual' WHERE number % 20 = 0")
        # As near as each other, so that their ids decide.
        await conn.execute(
            "UPDATE observation_embeddings e SET embedding = %s::halfvec FROM observations o"
            " WHERE o.id = e.observation_id AND o.number %% 75 = 0",
            [room.sought.vector],
        )
    exact = await room.exactly(scope, kinds=[kind])
    compared: list[object] = []
    nearest = repository.nearest

    async def counted(*args: object, ahead: int = 0, **how: int) -> list[NearText]:
        if not ahead:
            compared.append(args)
        return await nearest(*args, ahead=ahead, **how)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(repository, "nearest", counted)

    assert await room.nearest(scope, documents=search.MAX_EXACT, kinds=[kind]) == exact
    assert len(compared) == full_comparisons


@pytest.mark.slow  # the index is approximate: beside other tests it once found other neighbours than the comparison
@pytest.mark.parametrize("of_team", [True, False], ids=["team", "project"])
async def test_a_large_scope_is_searched_by_the_index_and_finds_the_same(room: Room, asked_of_the_index: list[int], of_team: bool):
    scope = None if of_team else room.project

    near = await room.nearest(scope)

    exact = await room.exactly(scope)
    assert asked_of_the_index == [LIMIT]
    assert shared(near, exact) >= 0.95
    assert near == sorted(near, key=lambda observation: (observation.cosine, observation.id), reverse=True)


async def test_what_another_project_shares_is_found_beside_the_index(room: Room):
    exact = await room.exactly(room.project)
    async with room.db.tenant(room.cast.alice.team_id) as conn:
        cursor = await conn.execute("SELECT id FROM observations WHERE scope = 'team' AND project_id <> %s", room.project)
        elsewhere = {row[0] for row in await cursor.fetchall()}
        await conn.execute(
            "UPDATE observation_embeddings SET embedding = %s::halfvec WHERE observation_id = ANY(%s)",
            [room.sought.vector, list(elsewhere)],
        )

    near = await room.nearest(room.project)

    assert elsewhere
    assert elsewhere == {observation.id for observation in near[: len(elsewhere)]}
    assert not elsewhere & {observation.id for observation in exact[: len(elsewhere)]}


async def test_filters_are_looked_at_on_the_way_through_the_index(room: Room, asked_of_the_index: list[int]):
    near = await room.nearest(None, types=["bugfix"])

    exact = await room.exactly(None, types=["bugfix"])
    assert asked_of_the_index == [LIMIT]
    assert near[:10] == exact[:10]


@pytest.mark.parametrize("of_team", [True, False], ids=["team", "project"])
async def test_where_filters_leave_less_than_is_asked_for_all_of_it_is_found(
    room: Room, asked_of_the_index: list[int], of_team: bool
):
    scope = None if of_team else room.project

    near = await room.nearest(scope, types=["decision"])

    assert near == await room.exactly(scope, types=["decision"])
    assert len(near) == (6 if of_team else 3 + 1)  # one of the other project is shared
    assert len(asked_of_the_index) == (1 if of_team else 0)


async def test_turns_are_found_by_the_index_too_and_never_among_observations(room: Room, make: Make, asked_of_the_index: list[int]):
    observations = await room.nearest(None)
    turns = [await make.turn(project=room.cast.alice.project, reply=f"Answer {n}") for n in range(LIMIT)]
    async with room.db.system() as conn:
        await conn.execute(
            "UPDATE observation_embeddings SET embedding = %s::halfvec WHERE turn_id IS NOT NULL", [room.sought.vector]
        )

    assert {near.id for near in await room.nearest(None, turns=True)} == {turn.id for turn in turns}
    assert {near.id for near in await room.nearest(room.project, turns=True, session_id=turns[0].server_session_id)} == {
        turn.id for turn in turns
    }
    assert await room.nearest(None) == observations
    assert await room.nearest(None, turns=True, until=turns[0].created_at) == []
    assert len(asked_of_the_index) == 4


async def test_many_turns_are_found_by_the_index_where_there_are_few_observations(
    room: Room, make: Make, asked_of_the_index: list[int], monkeypatch: pytest.MonkeyPatch
):
    alice = room.cast.alice
    turns = [await make.turn(project=alice.project, reply=f"Answer {n}") for n in range(LIMIT)]
    monkeypatch.setattr(search, "MAX_EXACT", LIMIT - 1)
    monkeypatch.setattr(search, "MAX_FILTERED", LIMIT - 1)
    monkeypatch.setattr(repository, "MAX_COUNTED", LIMIT)
    monkeypatch.setattr(repository, "SMALL_SCOPE", 0)
    async with room.db.system() as conn:
        await conn.execute(
            "UPDATE observation_embeddings SET embedding = %s::halfvec WHERE turn_id IS NOT NULL", [room.sought.vector]
        )
        await conn.execute("DELETE FROM observations")
        await conn.execute("UPDATE observation_counters SET last_number = turns")

    for scope in (None, room.project):
        request = SearchRequest(query="latency", project_ids=scope, filters=Filters(), limit=LIMIT)
        async with room.db.tenant(alice.team_id) as conn:
            page = await search.find_page(conn, alice.principal, request, Ranking(), room.sought)
        assert {hit.id for hit in page.hits} <= {turn.id for turn in turns}
        assert page.hits
    assert asked_of_the_index == [LIMIT, LIMIT]


async def test_in_a_team_of_usual_size_the_index_is_asked_for_what_has_no_filters_alone(room: Room, asked_of_the_index: list[int]):
    for scope, filters in ((None, {}), (room.project, {}), (None, {"types": ["bugfix"]})):
        await room.nearest(scope, documents=search.MAX_EXACT + 1, **filters)  # pyright: ignore[reportArgumentType]

    assert asked_of_the_index == [LIMIT]


async def test_without_an_index_all_are_compared(room: Room, asked_of_the_index: list[int]):
    await indexes.ensure_index(room.db, more_than=10_000)

    assert await room.nearest(None) == await room.exactly(None)
    assert asked_of_the_index == []


async def test_what_comes_after_it_is_planned_as_ever(room: Room):
    request = SearchRequest(query="", project_ids=None)

    async with room.db.tenant(room.cast.alice.team_id) as conn:
        await search.find_nearest(conn, room.cast.alice.team_id, request, room.sought, LIMIT, MANY)
        cursor = await conn.execute("SELECT current_setting('enable_sort')")
        assert await cursor.fetchone() == ("on",)
