"""The reads of a search use their indexes: as the tenant's role, among several teams, with two projects each."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from cmserver.base.db import Db
from cmserver.base.sql import Conn, Query
from cmserver.recall import repository as prompts
from cmserver.recall.prompt_context import find_near
from cmserver.recall.search import repository as search
from cmserver.sessions.turns.sentences import repository as sentences
from cmserver.sessions.turns.sentences.repository import count_turns
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


def asking(cast: Cast, **values: object) -> dict[str, object]:
    """What the statements of a search are given."""
    of_words = {"text": "wombat word7", "known_languages": ["english"], "language_chars": 1_000, "min_stop_words": 3, "min_lead": 2}
    sizes = {"sample": search.SAMPLE, "max_count": search.MAX_COUNTED, "documents": None, "turns": None}
    found = {
        "ids": [cast.alice.team_id] * 60,
        "places": [1] * 60,
        "with_neighbours": [True] * 60,
        "near": [cast.alice.team_id] * 60,
    }
    return searching(cast) | of_words | sizes | found | {"limit": 40, "ahead": 160} | values


def found_in(database: str, cast: Cast) -> dict[str, object]:
    """Sixty of Alice's observations, all of one session."""
    session_id = uuid4()
    where = {"session_id": session_id, "team_id": cast.alice.team_id, "project_id": cast.alice.project.id}
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO server_sessions (id, team_id, project_id) VALUES (%(session_id)s, %(team_id)s, %(project_id)s)", where
        )
        rows = conn.execute(
            "UPDATE observations SET server_session_id = %(session_id)s WHERE project_id = %(project_id)s AND number <= 60"
            " RETURNING id",
            where,
        ).fetchall()
    return {"ids": [row[0] for row in rows], "places": list(range(1, 61)), "near": [rows[0][0]]}


async def kept_plan(db: Db, team_id: UUID, query: Query[Any], params: dict[str, object]) -> str:
    """The plan for all values, as search has it made, with what is run of it for these."""
    names = list(dict.fromkeys(PARAMETER.findall(query.text)))
    text = PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")
    async with db.tenant(team_id) as conn:
        await search.keep_plans(conn, filtered=False)
        await conn.execute(f"PREPARE kept AS {text}".encode(), prepare=False)
        values = ", ".join(sql.Literal(params[name]).as_string(conn) for name in names)
        cursor = await conn.execute(f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) EXECUTE kept ({values})".encode(), prepare=False)
        told = "\n".join(row[0] for row in await cursor.fetchall())
        await conn.execute("DEALLOCATE kept", prepare=False)
    return told


def run_of(told: str) -> list[str]:
    """The scans of the plan that were run."""
    return [line.strip() for line in told.splitlines() if " Scan " in line and "never executed" not in line]


def scans_of(told: str, table: str) -> list[str]:
    return [line for line in run_of(told) if re.search(rf" on {table}\b| using {table}_", line)]


TABLES = ("observations", "observation_embeddings", "turns")


async def test_a_kept_plan_reads_what_its_indexes_name(db: Db, database: str, crowd: Cast, embedded: int, million: None):
    """Of a project and of a team, where the tables seem to have a million rows: as search sets PostgreSQL."""
    await fill_turns(db, crowd)
    found = found_in(database, crowd)
    kept = {name: query for name, query in queries_of(search).items() if query.prepare is not False}
    queries = {name: query for name, query in kept.items() if "FILTERED" not in name and "BY_INDEX" not in name}
    wrong: list[str] = []
    for scope, project_ids in {"project": [crowd.alice.project.id], "team": None}.items():
        asked = asking(crowd, project_ids=project_ids, model_id=embedded, vector="[1,0]", documents=100_000)
        asked |= found | {"mode": "auto", "scans": "on"}
        for name, query in queries.items():
            told = await kept_plan(db, crowd.alice.team_id, query, asked)
            wrong += [f"{scope} {name}: {line}" for table in TABLES for line in scans_of(told, table) if line.startswith("Seq")]
            if scope == "project":
                wrong += [
                    f"{name} reads the team: {line}" for line in run_of(told) if re.search(r"observations_team(_id)?\b ", line)
                ]
            if name == "MATCHED":
                wrong += [] if any("observations_content_search" in line for line in run_of(told)) else [f"{scope} {name}\n{told}"]
            if name.startswith("RANKED") and "TURNS" not in name:
                by_session = [line for line in run_of(told) if "observations_project_session" in line]
                wrong += [] if len(by_session) == 2 else [f"{scope} {name}\n{told}"]

    assert not wrong, "\n".join(wrong)


async def test_a_small_scope_is_read_whole_by_its_index(db: Db, crowd: Cast):
    told = await kept_plan(db, crowd.alice.team_id, search.MATCHED, asking(crowd, whole=True))

    assert not [line for line in run_of(told) if "observations_content_search" in line], told
    assert scans_of(told, "observations"), told


async def test_the_newest_are_sampled_from_the_end_of_an_index(db: Db, crowd: Cast):
    for project_ids in ([crowd.alice.project.id], None):
        told = await kept_plan(db, crowd.alice.team_id, search.WORDS, asking(crowd, project_ids=project_ids))

        assert re.search(r"Index (Only )?Scan Backward using observations_(project|team) ", "\n".join(run_of(told))), told
        assert not re.search(r"Sort  \(.*\n.*Sort Key: [^\n]*created_at[^\n]*\n.*Seq Scan", told), told


async def test_a_search_of_a_team_does_not_read_what_is_shared_once_more(db: Db, database: str, crowd: Cast, embedded: int):
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("UPDATE observations SET scope = 'team' WHERE team_id = %s", [crowd.alice.team_id])
        conn.execute("VACUUM ANALYZE observations")
    asked = asking(crowd, project_ids=None, model_id=embedded, vector="[1,0]", documents=10_000)

    for query in (search.WORDS, search.MATCHED, search.NEAREST):
        told = await kept_plan(db, crowd.alice.team_id, query, asked)

        assert not re.search(r"Rows Removed by Filter: \d{4}", told), told


async def fill_turns(db: Db, cast: Cast) -> None:
    """Many turns of each person, five of them about a quokka."""
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(PROMPTS, {"team_id": person.team_id, "project_id": person.project.id})
        await conn.execute("UPDATE turns SET prompt = 'a quokka' WHERE id IN (SELECT id FROM turns LIMIT 5)")
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE turns")


async def test_after_the_words_of_a_prompt_its_turns_are_counted_by_an_index(db: Db, crowd: Cast, monkeypatch: pytest.MonkeyPatch):
    await fill_turns(db, crowd)
    told: list[str] = []

    async def explain(conn: Conn, team_id: UUID, project_id: UUID, most: int) -> int:
        values = {"team_id": team_id, "project_id": project_id, "most": most}
        cursor = await conn.execute("EXPLAIN " + count_turns.query.text, values, prepare=False)
        told.extend(str(row[0]) for row in await cursor.fetchall())
        return 0

    monkeypatch.setattr(sentences, "count_turns", explain)
    async with db.tenant(crowd.alice.team_id) as conn:
        await find_near(conn, crowd.alice.team_id, crowd.alice.project.id, None, "feed a wombat", None)

    assert any("using turns_" in line or "on turns_" in line for line in told), told
    assert not [line for line in told if "Seq Scan on turns" in line], told


@pytest.mark.parametrize(("filtered", "settings"), [(False, ("force_generic_plan", "off")), (True, ("force_custom_plan", "on"))])
async def test_with_filters_each_call_is_planned(db: Db, crowd: Cast, filtered: bool, settings: tuple[str, str]):
    async with db.tenant(crowd.alice.team_id) as conn:
        await search.keep_plans(conn, filtered=filtered)
        cursor = await conn.execute("SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan')", prepare=False)

        assert await cursor.fetchone() == settings


@pytest.mark.usefixtures("million")
async def test_each_word_of_a_prompt_is_found_by_the_index_of_words(db: Db, crowd: Cast):
    values = {"project_id": crowd.alice.project.id, "session_id": None, "quoted": ["'wombat'"], "weights": [1.0]}
    values |= {"near_ids": list[UUID](), "cosines": list[float](), "most": 4, "limit": 50}
    async with db.tenant(crowd.alice.team_id) as conn:
        await prompts.look_up_words.query.run(conn)
        cursor = await conn.execute("EXPLAIN " + prompts.NEAR_OBSERVATIONS.text, values, prepare=False)
        text = "\n".join(str(row[0]) for row in await cursor.fetchall())

    assert "Bitmap Index Scan on observations_content_search" in text, text


async def test_turns_are_found_by_their_index(db: Db, cast: Cast):
    await fill_turns(db, cast)
    asked = asking(cast, any="'quokka'", quoted=["'quokka'"], known=[None], idfs=[1.0], documents=100_000)

    told = await kept_plan(db, cast.alice.team_id, search.MATCHED_TURNS, asked)

    assert "Bitmap Index Scan on turns_search" in "\n".join(run_of(told)), told


async def test_the_nearest_of_a_project_are_compared_without_reading_those_of_others(db: Db, crowd: Cast, embedded: int):
    asked = asking(crowd, model_id=embedded, vector="[1,0]")

    for query in (search.NEAREST, search.RANKED_BY_MEANING):
        told = await kept_plan(db, crowd.alice.team_id, query, asked)

        assert any("observation_embeddings_scope" in line for line in run_of(told)), told
        assert not [line for line in run_of(told) if line.startswith("Seq Scan on observation")], told


@pytest.mark.usefixtures("million")
@pytest.mark.parametrize("scope", ["large project", "small project", "team"])
async def test_among_a_million_a_search_with_filters_reads_what_its_indexes_name(db: Db, crowd: Cast, scope: str):
    projects = {"large project": [crowd.alice.project.id], "small project": [uuid4()], "team": None}[scope]
    asked = asking(crowd, project_ids=projects, documents=1_000_000, whole=scope == "small project", types=["sensitive"])

    told = await plan(db, crowd.alice.team_id, search.MATCHED_FILTERED.text, asked)

    assert "Seq Scan on observations" not in told, told
    assert ("Bitmap Index Scan on observations_content_search" in told) is (scope != "small project"), told

    told = await plan(db, crowd.alice.team_id, search.RANKED_FILTERED.text, asked)

    assert "Seq Scan on observations" not in told, told
    assert len(re.findall(r"Index (?:Only )?Scan (?:Backward )?using observations_project_session ", told)) >= 2, told


async def test_in_a_project_of_20_and_in_one_of_10_000_a_search_reads_what_its_indexes_name(
    db: Db, crowd: Cast, sized: dict[int, UUID]
):
    wrong: list[str] = []
    for size, project_id in sized.items():
        asked = asking(crowd, project_ids=[project_id], model_id=1, vector="[1,0]", ids=[project_id] * 40, places=[1] * 40)
        asked |= {"with_neighbours": [True] * 40, "documents": size, "whole": size <= search.SMALL_SCOPE}
        for query in (search.NEAREST, search.MATCHED, search.RANKED_BY_MEANING, search.WORDS):
            told = await kept_plan(db, crowd.alice.team_id, query, asked)
            wrong += [f"{size}: {line}" for table in TABLES for line in scans_of(told, table) if line.startswith("Seq")]

        asked |= {"dimensions": 2, "types": ["sensitive"]}
        for name, query in queries_of(search).items():
            if "FILTERED" not in name or "BY_INDEX" in name:
                continue
            told = await plan(db, crowd.alice.team_id, query.text, asked)
            # Of the large one, which is half of the table, a scan may be the shortest way.
            if size <= search.SMALL_SCOPE and re.search(rf"Seq Scan on ({'|'.join(TABLES)})\b", told):
                wrong.append(f"{size} {name}\n{told}")
            if name == "MATCHED_FILTERED":
                by_word = "Bitmap Index Scan on observations_content_search" in told
                wrong += [] if by_word is (size > search.SMALL_SCOPE) else [f"{size} {name} by word: {by_word}\n{told}"]
            if name.endswith("BY_MEANING"):
                wrong += [] if "observation_embeddings_scope" in told else [f"{size} {name}\n{told}"]

    assert not wrong, "\n".join(wrong)
