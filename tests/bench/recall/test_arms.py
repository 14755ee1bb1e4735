"""What search is compared with ranks as it says, on a real database."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

from cmserver.observations.model import Observation
from tests.bench.recall.arms import ARMS, PLAIN
from tests.bench.recall.asking import SearchAnswer
from tests.conftest import Cast
from tests.make import Make
from tests.table import try_rows


async def _made(make: Make, cast: Cast) -> list[Observation]:
    texts = [
        ("Fuel levy raised", "The levy on fuel went from 4 to 6 percent.", ["billing/levy.ts"]),
        ("Invoices rounded wrongly", "The levy was rounded before the discount of fuel and toll.", ["billing/rounding.ts"]),
        ("Console redrawn", "Nothing of money.", ["apps/console.tsx"]),
        ("Diesel costs more", "Petrol prices are passed on.", ["billing/tariff.ts"]),
    ]
    return [
        await make.observation(project=cast.alice.project, title=title, narrative=narrative, files_modified=files)
        for title, narrative, files in texts
    ]


def _embed(database: str, made: list[Observation], vectors: list[str | None]) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        if conn.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            pytest.skip("this PostgreSQL has no pgvector, so nothing is ranked by nearness")
        conn.execute(
            "INSERT INTO embedding_models (provider, model, dimensions, state)"
            " VALUES ('x', 'old', 2, 'retired'), ('x', 'new', 2, 'current')"
        )
        for one, vector in zip(made, vectors, strict=True):
            for model, given in (("new", vector), ("old", "[0,1]")):
                conn.execute(
                    "INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, embedding)"
                    " SELECT %s, id, %s, %s, %s::halfvec FROM embedding_models WHERE model = %s",
                    [one.id, one.team_id, one.project_id, given, model],
                )


def _ranked(database: str, arm: str, made: list[Observation], query: str, vector: str | None = None, limit: int = 20) -> list[str]:
    sql = ARMS[arm].sql
    assert sql is not None
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(PLAIN)
        given = {"project_id": made[0].project_id, "query": query, "vector": vector, "limit": limit}
        rows = conn.execute(sql, given).fetchall()
    title = {one.id: str(one.title) for one in made}
    return [title[row[0]] for row in rows]


async def test_ts_rank_or_finds_what_has_any_of_the_words_also_in_its_files(make: Make, cast: Cast, database: str):
    made = await _made(make, cast)

    found = _ranked(database, "ts_rank_or", made, "who raised the levies?")

    assert found == ["Fuel levy raised", "Invoices rounded wrongly"]
    assert _ranked(database, "ts_rank_or", made, "apps/console.tsx")[0] == "Console redrawn"
    assert _ranked(database, "ts_rank_or", made, "the of and") == []


async def test_vectors_ranks_by_the_cosine_of_the_model_in_use(make: Make, cast: Cast, database: str):
    made = await _made(make, cast)
    _embed(database, made, ["[0.6,0.8]", "[0,1]", None, "[1,0]"])

    assert _ranked(database, "vectors", made, "", "[1,0]") == ["Diesel costs more", "Fuel levy raised", "Invoices rounded wrongly"]
    assert _ranked(database, "vectors", made, "", "[1,0]", limit=1) == ["Diesel costs more"]


async def test_contextify_adds_a_little_for_having_all_words(make: Make, cast: Cast, database: str):
    made = await _made(make, cast)
    _embed(database, made, ["[0.6,0.8]", "[0.59,0.81]", "[0.5,0.86]", "[1,0]"])

    near = _ranked(database, "contextify", made, "levy rounded", "[1,0]")
    far = _ranked(database, "contextify", made, "levy pandemonium", "[1,0]")

    # one has both words, and hardly less nearness; with a word that nothing has, words say nothing
    assert near == ["Diesel costs more", "Invoices rounded wrongly", "Fuel levy raised", "Console redrawn"]
    assert far == ["Diesel costs more", "Fuel levy raised", "Invoices rounded wrongly", "Console redrawn"]


@try_rows("name", ARMS)
def test_an_arm_is_asked_over_http_or_by_sql_and_says_what_it_is(name: str):
    arm = ARMS[name]

    assert (arm.request is None) is (arm.sql is not None)
    assert arm.what
    assert arm.needs_vectors is ((arm.request or {}).get("meaningWeight") == 1 or "%(vector)s" in (arm.sql or ""))
    assert arm.is_search is (name == "search")


def test_hits_are_observations_and_prompts_in_one_order():
    hits = b'[{"number": 7, "score": 0.9}, {"number": 5, "score": 0.4}]'
    answer = msgspec.json.decode(b'{"observations": ' + hits + b', "prompts": [{"score": 0.6}]}', type=SearchAnswer)

    assert answer.numbers == [7, 0, 5]
    assert answer.confidence is None
