"""The reads of a search use their indexes: as the tenant's role, among several teams, with two projects each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.sql import Query
from cmserver.recall import repository as prompts
from cmserver.recall.search import repository as search
from cmserver.recall.search.model import RankedRow
from tests.conftest import Cast
from tests.house.house import has_vectors, queries_of
from tests.house.test_plans import PROMPTS, SEED, cast, crowd, crowded, database, plan, searching
from tests.house.test_queries import PARAMETER

__all__ = ["cast", "crowd", "crowded", "database"]

# The planner multiplies the rows per page by the pages that are there: so the same pages seem to have a million rows. Real pages
# would be more, and a scan of the whole table would cost more: what is read by an index here is read by it there, too.
MILLION = """
SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', relname::text, 'reltuples', 1000000::real)
  FROM pg_class
 WHERE oid = 'observations'::regclass OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'observations'::regclass)
"""
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


@pytest.fixture
def million(database: str, crowd: Cast) -> None:
    """The crowd's observations seem to be a million, where PostgreSQL lets the owner say so: from 18 on."""
    with psycopg.connect(database, autocommit=True) as conn:
        if conn.info.server_version < 18_00_00:
            pytest.skip("this PostgreSQL cannot be told how many rows there are")
        conn.execute(MILLION)


@pytest.fixture
async def sized(db: Db, database: str, crowd: Cast) -> dict[int, UUID]:
    """A project of 20 and one of 10,000 beside the crowd, with vectors; by their sizes."""
    projects = {20: uuid4(), 10_000: crowd.alice.project.id}
    team_id = crowd.alice.team_id
    with psycopg.connect(database, autocommit=True) as conn:
        if not has_vectors(conn):
            pytest.skip("this PostgreSQL has no pgvector: nothing is embedded")
        conn.execute("INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 's', 's')", [projects[20], team_id])
        for size, first, last in ((20, 20_001, 20_020), (10_000, 20_021, 25_020)):
            conn.execute(SEED, {"project_id": projects[size], "team_id": team_id, "first": first, "last": last})
        row = conn.execute(
            "INSERT INTO embedding_models (provider, model, dimensions, state) VALUES ('ollama', 'm', 2, 'current') RETURNING id"
        ).fetchone()
        assert row
        conn.execute(VECTORS, {"model_id": row[0]})
        conn.execute("VACUUM ANALYZE observations, observation_embeddings")
    return projects


def sampling(cast: Cast) -> dict[str, object]:
    return (
        searching(cast)
        | {"quoted": ["'wombat'", "'word7'"], "sample": search.SAMPLE, "max_count": search.MAX_COUNTED}
        | {"documents": None, "turns": None}
    )


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


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
async def test_what_is_near_and_the_neighbours_of_hits_are_read_by_indexes(db: Db, crowd: Cast, whole: bool):
    asked = searching(crowd) | {
        "near": [crowd.alice.team_id] * 60,
        "unmatched": [crowd.alice.team_id] * 60,
        "limit": 120,
        "whole": whole,
    }

    told = await plan(db, crowd.alice.team_id, search.RANK.text, asked)

    assert re.search(r"Index (Only )?Scan Backward using observations_project_session ", told), told
    assert len(re.findall(r"Index (?:Only )?Scan (?:Backward )?using observations_project_session ", told)) == 2, told
    assert re.search("observations_(pkey|of_project)", told), told
    assert "Seq Scan on observations" not in told, told


async def fill_turns(db: Db, cast: Cast) -> None:
    """Many turns of each person, five of them about a quokka."""
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(PROMPTS, {"team_id": person.team_id, "project_id": person.project.id})
        await conn.execute("UPDATE turns SET prompt = 'a quokka' WHERE id IN (SELECT id FROM turns LIMIT 5)")
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE turns")


async def plan_of_all_values(db: Db, team_id: UUID, query: Query[Any]) -> str:
    """The plan that is made once, as search sets PostgreSQL for it."""
    names = list(dict.fromkeys(PARAMETER.findall(query.text)))
    text = PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")
    async with db.tenant(team_id) as conn:
        if conn.info.server_version < 16_00_00:
            pytest.skip("this PostgreSQL explains no plan without values")
        await conn.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")
        cursor = await conn.execute(f"EXPLAIN (GENERIC_PLAN) {text}".encode(), prepare=False)
        rows: Sequence[tuple[str]] = await cursor.fetchall()
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("is_team", [True, False], ids=["team", "project"])
async def test_what_is_planned_once_reads_no_more_than_its_scope(db: Db, crowd: Cast, embedded: int, million: None, is_team: bool):
    team_id = crowd.alice.team_id
    await fill_turns(db, crowd)
    sampled = search.SAMPLED_TEAM if is_team else search.SAMPLED
    queries = [sampled, search.RANK, search.RANK_BY_MEANING, search.TURNS, search.TURNS_BY_MEANING, search.SAMPLED_TURNS]
    vectors = [search.NEAREST, search.NEAREST_TURNS]

    plans = [
        await plan_of_all_values(db, team_id, search.plan_once(query, team_id, is_team=is_team)) for query in queries + vectors
    ]

    for text in plans:
        assert not re.search(r"(Seq|Bitmap Heap) Scan on (observation|turn)", text), text
        assert is_team or not re.search("using observations_team(_id| )", text), text
    for text in plans[1:3]:
        assert len(re.findall(r"Index (?:Only )?Scan (?:Backward )?using observations_project_session ", text)) >= 2, text
        assert re.search("observations_(pkey|of_project)", text), text
    assert "observation_embeddings_scope" in plans[-2], plans[-2]


def test_each_team_has_plans_of_its_own():
    texts = {search.plan_once(search.RANK, uuid4(), is_team=False).text for _ in range(2)}

    assert len(texts) == 2


@pytest.mark.usefixtures("million")
async def test_each_word_of_a_prompt_is_found_by_the_index_of_words(db: Db, crowd: Cast):
    values = {"project_id": crowd.alice.project.id, "session_id": None, "quoted": ["'wombat'"], "weights": [1.0]}
    values |= {"near_ids": list[UUID](), "cosines": list[float](), "most": 4, "limit": 50}
    async with db.tenant(crowd.alice.team_id) as conn:
        await prompts.look_up_words.query.run(conn)
        cursor = await conn.execute("EXPLAIN " + prompts.NEAR_OBSERVATIONS.text, values, prepare=False)
        text = "\n".join(str(row[0]) for row in await cursor.fetchall())

    assert "Bitmap Index Scan on observations_content_search" in text, text


async def test_prompts_are_found_by_their_index(db: Db, cast: Cast):
    await fill_turns(db, cast)
    limits = {"sample": search.SAMPLE, "max_count": search.MAX_COUNTED, "max_turns": search.MAX_TURNS}
    asked = searching(cast) | {"any": "'quokka'", "quoted": ["'quokka'"], "near": [cast.alice.team_id]} | limits

    told = await plan(db, cast.alice.team_id, search.TURNS.text, asked)

    assert "Bitmap Index Scan on turns_search" in told, told


async def test_the_nearest_of_a_project_are_compared_without_reading_those_of_others(db: Db, crowd: Cast, embedded: int):
    asked = searching(crowd) | {
        "model_id": embedded,
        "vector": "[1,0]",
        "sample": 10_000,
    }

    nearest = await plan(db, crowd.alice.team_id, search.NEAREST.text, asked)
    ranked = await plan(db, crowd.alice.team_id, search.RANK_BY_MEANING.text, asked)

    assert "observation_embeddings_scope" in nearest, nearest
    assert "Seq Scan on observation" not in nearest, nearest
    assert "observation_embeddings_of_observation" in ranked, ranked
    assert "observation_embeddings_scope" in ranked, ranked
    assert "Seq Scan on observation" not in ranked, ranked


async def test_in_a_project_of_20_and_in_one_of_10_000_a_search_reads_what_its_indexes_name(
    db: Db, crowd: Cast, sized: dict[int, UUID]
):
    queries: dict[str, LiteralString] = {name: query.text for name, query in queries_of(search).items() if name != "LEXEMES"}
    scans = re.compile(r"Seq Scan on (?:observations|observation_embeddings|turns)\b")
    wrong: list[str] = []
    for size, project_id in sized.items():
        asked = searching(crowd) | sampling(crowd) | {"project_ids": [project_id], "documents": size, "limit": 40, "ahead": 160}
        asked |= {
            "near": [project_id] * 40,
            "whole": size <= search.SMALL_SCOPE,
            "turns": size,
            "projects": 1,
            "max_turns": search.MAX_TURNS,
        }
        asked |= {"model_id": 1, "vector": "[1,0]", "dimensions": 2, "probes": "1", "sorts": "on"}
        for name, text in queries.items():
            told = await plan(db, crowd.alice.team_id, text, asked)
            # Of the large one, which is half of the table, and for 200 rows of a table this small, a scan may be the shortest way.
            if scans.search(told) and size <= search.SMALL_SCOPE and name != "SAMPLED" and "BY_INDEX" not in name:
                wrong.append(f"{size} {name}\n{told}")
            if name.startswith("RANK"):
                by_word = "Bitmap Index Scan on observations_content_search" in told
                wrong += [] if by_word is (size > search.SMALL_SCOPE) else [f"{size} {name} by word: {by_word}\n{told}"]
            if name.endswith("BY_MEANING"):
                wrong += [] if re.search("observation_embeddings_(turn_)?scope", told) else [f"{size} {name}\n{told}"]

    assert not wrong, [w.splitlines()[0] for w in wrong]


@pytest.mark.usefixtures("million")
@pytest.mark.parametrize("query", [search.RANK, search.RANK_WANTED], ids=["all", "with filters"])
@pytest.mark.parametrize("scope", ["large project", "small project", "team"])
async def test_among_a_million_a_search_reads_what_its_indexes_name(db: Db, crowd: Cast, query: Query[RankedRow], scope: str):
    projects = {"large project": [crowd.alice.project.id], "small project": [uuid4()], "team": None}[scope]
    asked = searching(crowd) | {"project_ids": projects, "near": [crowd.alice.team_id] * 40, "limit": 40, "documents": 1_000_000}
    asked |= {"whole": scope == "small project", "types": ["sensitive"]}

    told = await plan(db, crowd.alice.team_id, query.text, asked)

    assert "Seq Scan on observations" not in told, told
    assert len(re.findall(r"Index (?:Only )?Scan (?:Backward )?using observations_project_session ", told)) >= 2, told
    assert ("Bitmap Index Scan on observations_content_search" in told) is (scope != "small project"), told


@pytest.mark.usefixtures("million")
async def test_among_a_million_the_newest_are_sampled_from_the_end_of_an_index(db: Db, crowd: Cast):
    for query in (search.SAMPLED, search.SAMPLED_TEAM):
        told = await plan(db, crowd.alice.team_id, query.text, sampling(crowd) | {"documents": 1_000_000})

        assert re.search(r"Index (Only )?Scan Backward using observations_(project|team) ", told), told
        assert "Seq Scan on observations" not in told, told
