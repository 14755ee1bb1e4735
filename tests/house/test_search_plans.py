"""The reads of a search use their indexes: as the tenant's role, among several teams, with two projects each."""

from __future__ import annotations

import re

import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.recall.search import repository as search
from tests.conftest import Cast
from tests.house.house import has_vectors
from tests.house.test_plans import PROMPTS, cast, crowd, crowded, database, plan, searching

__all__ = ["cast", "crowd", "crowded", "database"]

VECTORS = """
INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, embedding, embedded_at)
SELECT id, %(model_id)s, team_id, project_id, ('[' || number || ',1]')::halfvec, now() FROM observations
"""


@pytest.fixture
async def embedded(db: Db, database: str, crowd: Cast) -> int:
    """Each of the crowd's observations has a vector of the model."""
    with psycopg.connect(database, autocommit=True) as conn:
        if not has_vectors(conn):
            pytest.skip("this PostgreSQL has no pgvector: nothing is embedded")
        row = conn.execute(
            "INSERT INTO embedding_models (provider, model, dimensions, state) VALUES ('ollama', 'm', 2, 'current') RETURNING id"
        ).fetchone()
        assert row
        conn.execute(VECTORS, {"model_id": row[0]})
        conn.execute("VACUUM ANALYZE observation_embeddings")
        return int(row[0])


def sampling(cast: Cast) -> dict[str, object]:
    return searching(cast) | {"quoted": ["'wombat'", "'word7'"], "sample": search.SAMPLE, "max_count": search.MAX_COUNTED}


async def test_the_newest_are_sampled_from_the_end_of_an_index(db: Db, crowd: Cast):
    of_project = await plan(db, crowd.alice.team_id, search.SAMPLED.text, sampling(crowd))
    of_team = await plan(db, crowd.alice.team_id, search.SAMPLED_TEAM.text, sampling(crowd))

    assert re.search(r"Index (Only )?Scan Backward using observations_(project|team) ", of_project), of_project
    assert "Index Scan Backward using observations_team " in of_team, of_team
    # Where a scope is a large part of the table its size is counted by reading that: for the newest it is never sorted.
    for told in (of_project, of_team):
        assert not re.search(r"Sort  \(.*\n.*Sort Key: [^\n]*created_at[^\n]*\n.*Seq Scan", told), told


async def test_a_scope_that_is_read_whole_is_read_by_its_index(db: Db, crowd: Cast):
    told = await plan(db, crowd.alice.team_id, search.RANK.text, searching(crowd) | {"whole": True})

    assert "observations_content_search" not in told, told
    assert "Seq Scan on observations" not in told, told


async def test_hits_that_were_found_otherwise_are_read_by_their_ids(db: Db, crowd: Cast):
    asked = searching(crowd) | {"ids": [crowd.alice.team_id] * 100, "idfs": [1.0, 1.0]}

    told = await plan(db, crowd.alice.team_id, search.RANK_THESE.text, asked)

    assert re.search("observations_(pkey|of_project)", told), told
    assert "Seq Scan on observations" not in told, told


async def test_the_neighbours_of_hits_are_found_by_indexes(db: Db, crowd: Cast):
    asked: dict[str, object] = {"team_id": crowd.alice.team_id, "ids": [crowd.alice.team_id] * 60}

    told = await plan(db, crowd.alice.team_id, search.BRIEFS.text, asked)

    assert re.search(r"Index (Only )?Scan Backward using observations_project_session ", told), told
    assert "Seq Scan on observations" not in told, told


async def test_prompts_are_found_by_their_index(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(PROMPTS, {"team_id": person.team_id, "project_id": person.project.id})
        await conn.execute("UPDATE session_prompts SET text = 'a quokka' WHERE id IN (SELECT id FROM session_prompts LIMIT 5)")
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE session_prompts")
    limits = {"sample": search.SAMPLE, "max_count": search.MAX_COUNTED, "max_prompts": search.MAX_PROMPTS}
    asked = searching(cast) | {"any": "'quokka'", "quoted": ["'quokka'"]} | limits

    told = await plan(db, cast.alice.team_id, search.PROMPTS.text, asked)

    assert "Bitmap Index Scan on session_prompts_search" in told, told


async def test_the_nearest_of_a_project_are_compared_without_reading_those_of_others(db: Db, crowd: Cast, embedded: int):
    asked = searching(crowd) | {
        "model_id": embedded,
        "vector": "[1,0]",
        "sample": search.SAMPLE,
        "ids": [crowd.alice.team_id] * 100,
    }

    nearest = await plan(db, crowd.alice.team_id, search.NEAREST.text, asked)
    nearness = await plan(db, crowd.alice.team_id, search.NEARNESS.text, asked)
    background = await plan(db, crowd.alice.team_id, search.BACKGROUND.text, asked | {"sample": 10_000})

    assert "observation_embeddings_scope" in nearest, nearest
    assert "Seq Scan on observation" not in nearest, nearest
    assert "observation_embeddings_pkey" in nearness, nearness
    assert "observation_embeddings_scope" in background, background
