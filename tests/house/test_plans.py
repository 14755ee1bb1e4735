"""The hot reads use their index: as the tenant's role, among several teams, on tables large enough that it matters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.sql import Jsonb, Query
from cmserver.embeddings import indexes
from cmserver.embeddings.repository import CLAIM
from cmserver.events.repository import tool_uses_with
from cmserver.generation.intake.repository import INSERT_STEWARD_JOBS
from cmserver.generation.model import End
from cmserver.generation.operate.repository import COUNT, PAGE, queue_counts
from cmserver.generation.operate.repository import RUNS as CALLS
from cmserver.generation.repository import END_JOBS
from cmserver.git import repository as history
from cmserver.graph import repository as graph
from cmserver.models.calls.repository import budget_statuses
from cmserver.observations.repository import NEWEST, SUMMARIES_OF_SESSIONS, by_numbers
from cmserver.ops.doctor.repository import FACTS
from cmserver.ops.metrics.repository import JOB_COUNTS
from cmserver.recall import repository as index
from cmserver.recall.receipts.repository import SHOWN_NUMBERS, TOLD_MARKS, last_index_at
from cmserver.recall.search import repository as search
from cmserver.recall.search.model import Filters
from cmserver.recall.timeline import repository as timeline
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.repository import session_and_last_prompt
from cmserver.sessions.turns import repository as turns
from tests.conftest import Cast, Server, make_cast

# Every 500th row has the word that is looked for; the others are of 400 words, like what agents write.
SEED = """
INSERT INTO observations (id, number, project_id, team_id, origin, scope, type, kind, title, narrative, content, created_at)
SELECT gen_random_uuid(), n, %(project_id)s, %(team_id)s, 'model', CASE WHEN n %% 1000 = 0 THEN 'team' ELSE 'project' END,
       CASE WHEN n %% 2500 = 0 THEN 'sensitive' ELSE 'change' END, CASE WHEN n %% 1250 = 0 THEN 'manual' ELSE 'observation' END,
       concat_ws(' ', 'word' || n %% 400, CASE WHEN n %% 500 = 0 THEN 'wombat' END),
       concat_ws(' ', 'word' || n %% 397, 'word' || n %% 389, 'word' || n %% 383), '', now() - n * interval '1 minute'
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) n
"""

WHOLE_SORT = re.compile(r"(?<!Incremental )Sort  \(")
"""An incremental one only puts rows of the same moment in order."""


class Crowded(msgspec.Struct, frozen=True, kw_only=True):
    """A database to clone, and who is in it."""

    database: str
    cast: Cast


@pytest.fixture(scope="module")
def crowded(server: Server, template: str) -> Generator[Crowded]:
    """20,000 observations: 5,000 in Alice's project, 5,000 in another of her team, and as many in Charlie's team.

    Seeded once a module: each test gets a clone.
    """
    name = f"{template}_crowded_{uuid4().hex[:8]}"
    server.create(name, template)
    yield Crowded(database=name, cast=asyncio.run(seed(server, name)))
    server.drop(name)


async def seed(server: Server, database: str) -> Cast:
    async with Db(server.urls(database), size=2) as db:
        cast = await make_cast(db)
        async with db.system() as conn:
            for person in (cast.alice, cast.charlie):
                team_id, other = person.team_id, uuid4()
                await conn.execute(
                    "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 'other', 'other')", [other, team_id]
                )
                for project_id, first in ((person.project.id, 1), (other, 5_001)):
                    rows = {"project_id": project_id, "team_id": team_id, "first": first, "last": first + 4_999}
                    await conn.execute(SEED, rows)
    async with await psycopg.AsyncConnection.connect(server.url(database), autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE observations")
    return cast


@pytest.fixture
def database(server: Server, crowded: Crowded) -> Generator[str]:
    """The URL of a clone of the crowded database."""
    name = f"cmserver_test_{uuid4().hex[:12]}"
    yield server.create(name, crowded.database)
    server.drop(name)


@pytest.fixture
def cast(crowded: Crowded) -> Cast:
    return crowded.cast


@pytest.fixture
def crowd(crowded: Crowded) -> Cast:
    return crowded.cast


async def plan(db: Db, team_id: UUID, query: LiteralString, params: dict[str, object]) -> str:
    async with db.tenant(team_id) as conn:
        cursor = await conn.execute("EXPLAIN " + query, params, prepare=False)
        rows: Sequence[tuple[str]] = await cursor.fetchall()
    return "\n".join(row[0] for row in rows)


def searching(cast: Cast) -> dict[str, object]:
    return {
        "team_id": cast.alice.team_id,
        "project_ids": [cast.alice.project.id],
        "any": "'wombat' | 'word7'",
        "quoted": ["'wombat'", "'word7'"],
        "known": [None, None],
        "weights": list(search.WEIGHTS),
        "k1": 0.9,
        "b": 0.75,
        "documents": 5_000,
        "projects": 1,
        "mean_words": 4.0,
        "near": [],
        "ids": [],
        "places": [],
        "with_neighbours": [],
        "first_tier": 60,
        "idfs": [1.0, 1.0],
        "whole": False,
        "limit": 20,
        "max_turns": search.MAX_TURNS,
        **msgspec.structs.asdict(Filters()),
        **dict.fromkeys(("files_in", "file_prefixes_in", "file_parts_in")),
    }


async def test_search_finds_by_its_index(db: Db, crowd: Cast):
    told = await plan(db, crowd.alice.team_id, search.MATCHED.text, searching(crowd))

    assert "Bitmap Index Scan on observations_content_search" in told


async def test_the_plan_test_bites_where_the_policy_stands_before_the_index(db: Db, crowd: Cast):
    past_the_view = Query(
        int, "SELECT count(*) FROM observations WHERE project_id = ANY(%(project_ids)s) AND content_search @@ %(any)s::tsquery"
    )

    told = await plan(db, crowd.alice.team_id, past_the_view.text, searching(crowd))

    assert "observations_content_search" not in told


def paging(cast: Cast, **filters: object) -> dict[str, object]:
    return {
        "team_id": cast.alice.team_id,
        "project_id": cast.alice.project.id,
        "session_id": None,
        "kind": None,
        "type": None,
        "scope": None,
        "state": None,
        "without_summaries": False,
        "without_history": False,
        "platform": None,
        "before": None,
        "before_id": None,
        "limit": 50,
        "offset": 0,
        **filters,
    }


@pytest.mark.parametrize("before", [None, datetime.now(UTC)])
async def test_a_page_is_read_from_the_index_in_its_order(db: Db, crowd: Cast, before: datetime | None):
    told = await plan(db, crowd.alice.team_id, NEWEST.text, paging(crowd, before=before, before_id=before and uuid4()))

    # The team's index serves as well where a project is most of its team.
    assert re.search("Index Scan Backward using observations_(project|team) ", told)
    assert not WHOLE_SORT.search(told)


async def test_the_newest_summary_is_found_without_reading_the_project(db: Db, crowd: Cast):
    told = await plan(db, crowd.alice.team_id, NEWEST.text, paging(crowd, kind="summary", limit=1))

    assert "observations_summaries" in told


async def test_the_summaries_of_sessions_are_found_session_by_session(db: Db, crowd: Cast):
    sessions = {"session_ids": [uuid4(), uuid4()], "project_ids": [crowd.alice.project.id] * 2}

    told = await plan(db, crowd.alice.team_id, SUMMARIES_OF_SESSIONS.text, {"team_id": crowd.alice.team_id, **sessions})

    assert "Index Scan Backward using observations_project_session" in told


async def test_a_page_of_a_whole_team_is_read_from_the_index_in_its_order(db: Db, crowd: Cast):
    told = await plan(db, crowd.alice.team_id, NEWEST.text, paging(crowd, project_id=None))

    assert "Index Scan Backward using observations_team" in told
    assert not WHOLE_SORT.search(told)


@pytest.mark.parametrize("of_team", [False, True])
@pytest.mark.parametrize("side", [timeline.EARLIER, timeline.LATER], ids=["earlier", "later"])
async def test_what_stands_beside_a_place_is_read_from_the_index_in_its_order(
    db: Db, crowd: Cast, side: Query[object], of_team: bool
):
    asked: dict[str, object] = {
        "team_id": crowd.alice.team_id,
        "project_id": None if of_team else crowd.alice.project.id,
        "session_id": None,
        "summaries": None,
        "at": datetime.now(UTC),
        "id": uuid4(),
        "limit": 50,
    }

    told = await plan(db, crowd.alice.team_id, side.text, asked)
    summaries = await plan(db, crowd.alice.team_id, side.text, asked | {"summaries": True})

    assert re.search("Index Scan (Backward )?using observations_(project|team) ", told), told
    assert not WHOLE_SORT.search(told)
    assert of_team or "observations_summaries" in summaries


async def test_a_page_by_offset_is_read_from_the_index_in_its_order(db: Db, crowd: Cast):
    team_id, page = crowd.alice.team_id, {"limit": 21, "offset": 100}
    own = await plan(db, team_id, NEWEST.text, paging(crowd, without_summaries=True, **page))
    teams = await plan(db, team_id, NEWEST.text, paging(crowd, without_summaries=True, project_id=None, **page))
    summaries = await plan(db, team_id, NEWEST.text, paging(crowd, kind="summary", **page))

    for told in (own, teams):
        assert re.search("Index Scan Backward using observations_(project|team) ", told), told
        assert not WHOLE_SORT.search(told)
    assert "observations_summaries" in summaries


async def test_observations_are_found_by_their_numbers_without_reading_the_others(db: Db, crowd: Cast):
    asked: dict[str, object] = {"team_id": crowd.alice.team_id, "project_id": None, "numbers": [1, 2, 3]}

    told = await plan(db, crowd.alice.team_id, by_numbers.query.text, asked)

    assert "Seq Scan" not in told
    assert "number = ANY" in told.partition("Index Cond")[2], told


async def test_a_search_of_a_whole_team_finds_by_its_index_too(db: Db, crowd: Cast):
    told = await plan(db, crowd.alice.team_id, search.MATCHED.text, searching(crowd) | {"project_ids": None})

    assert "Bitmap Index Scan on observations_content_search" in told


WAITING = """
INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id)
SELECT o.id, m.id, o.team_id, o.project_id FROM observations o, embedding_models m
"""
EMBED = """
UPDATE observation_embeddings e
   SET embedding = (SELECT array_agg(random() - 0.5)::real[]::halfvec
                      FROM generate_series(1, 16) WHERE e.observation_id IS NOT NULL)
"""


@pytest.fixture
async def model(db: Db) -> None:
    """One is in use, so observations wait for vectors from now on."""
    async with db.system() as conn:
        cursor = await conn.execute("SELECT FROM pg_extension WHERE extname = 'vector'")
        if await cursor.fetchone() is None:
            pytest.skip("this PostgreSQL has no pgvector: there are no vectors to be found")
        await conn.execute(
            "INSERT INTO embedding_models (provider, model, dimensions, state, is_backfilled)"
            " VALUES ('x', 'y', 16, 'current', true)"
        )


@pytest.fixture
async def embedded(db: Db, model: None, crowd: Cast) -> Cast:
    """The crowd with vectors, and an approximate index for either team."""
    async with db.system() as conn:
        await conn.execute(WAITING)
        await conn.execute(EMBED)
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE observation_embeddings")
    await indexes.ensure_index(db, more_than=9_000)
    return crowd


def near(cast: Cast, **filters: object) -> dict[str, object]:
    return {
        "team_id": cast.alice.team_id,
        "project_ids": None,
        "model_id": 1,
        "dimensions": 16,
        "vector": str([0.25] * 16),
        "limit": 100,
        **msgspec.structs.asdict(Filters()),
        **dict.fromkeys(("files_in", "file_prefixes_in", "file_parts_in")),
        **filters,
    }


@pytest.mark.slow
@pytest.mark.parametrize("of_team", [True, False], ids=["team", "project"])
async def test_what_is_near_in_a_large_scope_is_found_by_the_index_of_the_team(db: Db, embedded: Cast, of_team: bool):
    team_id = embedded.alice.team_id
    scope = {"project_ids": None if of_team else [embedded.alice.project.id]}
    tuned: dict[str, object] = {"probes": "10", "sorts": "off", "mode": "force_custom_plan"}

    for query, filters in ((search.NEAREST_BY_INDEX, {}), (search.NEAREST_FILTERED_BY_INDEX, {"types": ["sensitive"]})):
        async with db.tenant(team_id) as conn:
            await search.BY_INDEX.run(conn, **tuned)
            cursor = await conn.execute("EXPLAIN " + query.text, near(embedded, **scope, **filters), prepare=False)
            told = "\n".join(str(row[0]) for row in await cursor.fetchall())

        assert f"Index Scan using embeddings_near_{team_id.hex}_1" in told, told
        assert "Order By: " in told, told


@pytest.mark.slow
async def test_what_is_near_in_a_project_is_compared_without_reading_the_others(db: Db, embedded: Cast):
    told = await plan(db, embedded.alice.team_id, search.NEAREST.text, near(embedded, project_ids=[embedded.alice.project.id]))

    assert re.search(r"Index Scan (on|using) observation_embeddings_scope", told), told
    assert "embeddings_near" not in told, told
    assert "Seq Scan on observation_embeddings" not in told, told


@pytest.mark.usefixtures("model", "crowd")
async def test_texts_are_claimed_for_embedding_without_reading_those_that_have_vectors(db: Db):
    values = {"model_id": 1, "most": 32, "lease_seconds": 60.0}
    async with db.system() as conn:
        await conn.execute(WAITING)
        await conn.execute(EMBED)
        cursor = await conn.execute("EXPLAIN " + CLAIM.text, values, prepare=False)
        text = "\n".join(str(row[0]) for row in await cursor.fetchall())

    assert "Tid Scan on observation_embeddings" in text, text
    assert "Seq Scan on observation_embeddings" not in text, text


PROMPTS = """
WITH s AS (
    INSERT INTO server_sessions (id, team_id, project_id) SELECT gen_random_uuid(), %(team_id)s, %(project_id)s
    RETURNING id
), e AS (
    INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate, size_chars,
                              payload, occurred_at, server_session_id)
    SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, 'api', %(project_id)s || '-' || n, 'user_prompt', 'api', false, 2, '{}',
           now(), s.id
      FROM s, generate_series(1, 5000) n
    RETURNING id, server_session_id
)
INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt, created_at)
SELECT gen_random_uuid(), n, %(team_id)s, %(project_id)s, server_session_id, id, n, 'feed a wombat ' || n,
       now() - n * '1m'::interval
  FROM (SELECT *, row_number() OVER () AS n FROM e) numbered
"""


async def test_prompts_are_read_from_the_end_of_the_index_of_each_project(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(PROMPTS, {"team_id": person.team_id, "project_id": person.project.id})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE turns")
    middle = datetime.now(UTC) - timedelta(minutes=2_500)
    place: dict[str, object] = {"at": middle, "id": uuid4(), "session_id": None, "max_chars": 100, "limit": 20}
    asked = {"team_id": cast.alice.team_id, "project_ids": [cast.alice.project.id], "limit": 21}

    page = await plan(db, cast.alice.team_id, turns.listed.query.text, {**asked, "platform": None, "offset": 0})
    assert "Index Scan Backward using turns_project" in page, page
    for side in (timeline.TURNS_EARLIER, timeline.TURNS_LATER):
        for project_id in (cast.alice.project.id, None):
            beside = place | {"team_id": cast.alice.team_id, "project_id": project_id}
            told = await plan(db, cast.alice.team_id, side.text, beside)
            assert re.search("Index Scan (Backward )?using turns_(project|team) ", told), told
            assert not WHOLE_SORT.search(told)


TRACES = """
INSERT INTO turn_traces (team_id, project_id, turn_id, kind, name, commit)
SELECT team_id, project_id, id, kind,
       CASE kind WHEN 'edit' THEN 'src/' || number %% 500 || '.py' ELSE left(md5(number::text), 7) END, md5(number::text)
  FROM turns, unnest(ARRAY['edit', 'commit']) AS kind
 WHERE project_id = %(project_id)s
"""


async def test_why_a_line_is_as_it_is_is_found_by_its_file_its_commit_and_the_calls_of_few_turns(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            ids = {"team_id": person.team_id, "project_id": person.project.id}
            await conn.execute(PROMPTS, ids)
            await conn.execute(TRACES, ids)
        rows = await (await conn.execute("SELECT id FROM turns WHERE number < 20 AND team_id = %(team_id)s", ids)).fetchall()
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE turns, turn_traces, agent_events")
    asked: dict[str, object] = {"team_id": cast.charlie.team_id, "project_id": cast.charlie.project.id, "limit": 20}
    now = datetime.now(UTC)

    for query, params in (
        (ledger.of_file, {"names": ["src/7.py", "/src/src/7.py"], "until": now, "most": 5_000}),
        (ledger.commits, {"name": "c4ca423"}),
        (tool_uses_with, {"turn_ids": [row[0] for row in rows], "text": "wombat", "until": now, "most": 500}),
        (history.known_commit, {"key": "git:" + "a" * 40}),
    ):
        told = await plan(db, cast.charlie.team_id, query.query.text, {**asked, **params})
        assert not re.search("Seq Scan on (turns|turn_traces|agent_events|observations)", told), told


SESSIONS = """
INSERT INTO server_sessions (id, project_id, team_id, external_session_id, content_session_id, platform_source)
SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, 's' || n, 's' || n, 'claude' FROM generate_series(1, 5000) n
"""


async def test_a_session_is_found_by_what_its_agent_calls_it_in_whichever_project(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(SESSIONS, {"team_id": person.team_id, "project_id": person.project.id})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE server_sessions")
    asked = {"team_id": cast.alice.team_id, "external_id": "s4711", "platform_source": "claude", "only": None}

    told = await plan(db, cast.alice.team_id, session_and_last_prompt.query.text, {**asked, "prompt": None, "within_seconds": 10.0})

    assert "Index Scan using server_sessions_said" in told, told


def indexing(cast: Cast) -> dict[str, object]:
    return {
        "team_id": cast.alice.team_id,
        "project_id": cast.alice.project.id,
        "session_id": uuid4(),
        "with_files": True,
        "names": ["wombat.py", "word7.py"],
        "limit": 400,
    }


@pytest.mark.parametrize(
    ("query", "by"),
    [
        pytest.param(index.NEWEST, "observations_(told|team) ", id="newest"),
        pytest.param(index.SHARED, "observations_team_scope ", id="shared"),
        pytest.param(index.SUMMARIES, "observations_summaries ", id="summaries"),
    ],
)
async def test_what_an_index_may_show_is_read_from_an_index_in_its_order(db: Db, crowd: Cast, query: Query[object], by: str):
    told = await plan(db, crowd.alice.team_id, query.text, indexing(crowd))

    assert re.search(f"Index Scan Backward using {by}", told), told
    assert not WHOLE_SORT.search(told)


async def test_newer_history_is_not_read_for_what_an_index_may_show(db: Db, crowd: Cast):
    async with db.system() as conn:
        await conn.execute("DELETE FROM observations WHERE project_id = %s AND number > 50", [crowd.alice.project.id])
        await conn.execute("UPDATE observations SET created_at = created_at - interval '1 year'")
        rows = {"project_id": crowd.alice.project.id, "team_id": crowd.alice.team_id, "first": 20_001, "last": 30_000}
        await conn.execute(SEED.replace("'model'", "'git'"), rows)
        await conn.execute("ANALYZE observations")

    told = await plan(db, crowd.alice.team_id, index.NEWEST.text, indexing(crowd))

    assert re.search(r"using observations_told |on observations_told\b", told), told


async def test_the_rules_beside_one_that_is_found_are_looked_for_in_the_newest_of_its_project(db: Db, crowd: Cast):
    asked: dict[str, object] = {
        "team_id": crowd.alice.team_id,
        "project_ids": [crowd.alice.project.id],
        "ids": [uuid4() for _ in range(20)],
        "looked_at": 400,
        "importance": 5,
    }

    told = await plan(db, crowd.alice.team_id, index.RULES.text, asked)

    assert len(re.findall(r" on observations\b", told)) == 2, told
    assert "Seq Scan" not in told, told
    assert re.search(r"Index Scan Backward using observations_(told|team) ", told), told


async def test_of_an_entity_only_the_newest_mentions_are_read(db: Db, crowd: Cast):
    team_id, project_id = crowd.alice.team_id, crowd.alice.project.id
    entity_ids = [uuid4() for _ in range(20)]
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by)"
            " SELECT id, %s, %s, 'symbol', 'name_' || n, 'name_' || n, 'rules'"
            "   FROM unnest(%s::uuid[]) WITH ORDINALITY AS e (id, n)",
            [team_id, project_id, entity_ids],
        )
        await conn.execute(
            "INSERT INTO entity_mentions (observation_id, named_id, entity_id, team_id, project_id, found_by, seen_at)"
            " SELECT o.id, e.id, e.id, o.team_id, o.project_id, 'rules', o.created_at"
            "   FROM observations o, unnest(%s::uuid[]) WITH ORDINALITY AS e (id, n)"
            "  WHERE o.project_id = %s AND (e.n = 1 OR o.number %% 20 = e.n)",
            [entity_ids, project_id],
        )
        await conn.execute("ANALYZE entity_mentions")
        await conn.execute("ANALYZE entities")
    params: dict[str, object] = {"team_id": team_id, "entity_id": entity_ids[0], "before": None, "before_id": None, "limit": 51}
    near: dict[str, object] = {"team_id": team_id, "id": entity_ids[0], "mentions": 300, "limit": 20}

    mentions = await plan(db, team_id, graph.list_mentions.query.text, params)
    neighbours = await plan(db, team_id, graph.LIST_NEIGHBOURS.text, near)

    assert "Scan Backward using entity_mentions_newest" in mentions, mentions
    assert "Scan Backward using entity_mentions_newest" in neighbours, neighbours


async def test_what_an_index_looks_for_is_found_without_reading_the_project(db: Db, crowd: Cast):
    of_session = await plan(db, crowd.alice.team_id, index.OF_SESSION.text, indexing(crowd))
    touching = await plan(db, crowd.alice.team_id, index.TOUCHING.text, indexing(crowd))

    assert re.search(r"Index Scan Backward using observations_project_session ", of_session), of_session
    assert "Bitmap Index Scan on observations_content_search" in touching, touching


# One session with many, as a long one that prompts were answered in.
RECEIPTS = """
INSERT INTO context_injections (id, team_id, project_id, server_session_id, reason, numbers, summary_numbers, left_out,
                                left_out_count, tokens, budget_tokens, chars, created_at)
SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, CASE WHEN n %% 100 = 0 THEN %(session_id)s::uuid END, 'prompt', '{1}', '{}',
       '{}', 0, 1, 1, 4, now() - n * interval '1 minute'
  FROM generate_series(1, 10000) n
"""


async def test_what_a_session_was_shown_is_read_from_its_receipts_alone(db: Db, cast: Cast):
    whose: dict[str, object] = {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, "session_id": uuid4()}
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO server_sessions (id, team_id, project_id) VALUES (%(session_id)s, %(team_id)s, %(project_id)s)", whose
        )
        await conn.execute(RECEIPTS, whose)
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE context_injections")

    for query in (SHOWN_NUMBERS, TOLD_MARKS, last_index_at.query):
        told = await plan(db, cast.alice.team_id, query.text, {**whose, "inline": True, "numbers": [1]})

        assert "context_injections_session" in told, told
        assert "Seq Scan" not in told, told


# As after months: nearly all is done; every 20th job is a summary. Without the events that they are of.
JOBS = """
INSERT INTO observation_generation_jobs
       (id, project_id, team_id, lane, source_type, source_id, job_type, idempotency_key, status, attempts, completed_at, failed_at,
        outcome, created_at)
SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, gen_random_uuid(),
       CASE n %% 20 WHEN 0 THEN 'session_summary' ELSE 'agent_event' END, gen_random_uuid(), 'x', gen_random_uuid()::text,
       CASE n %% 100 WHEN 1 THEN 'failed' ELSE 'completed' END, 1, CASE n %% 100 WHEN 1 THEN NULL ELSE now() END,
       CASE n %% 100 WHEN 1 THEN now() END, CASE n %% 100 WHEN 1 THEN NULL ELSE 'skipped' END, now() - n * interval '1 minute'
  FROM generate_series(1, %(jobs)s::int) n
"""


@pytest.fixture
async def queue(db: Db, cast: Cast) -> Cast:
    """36,000 jobs of Alice's project, 1,500 of another of her team, and 1,500 of Charlie's."""
    other = uuid4()
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 'third', 'third')", [other, cast.alice.team_id]
        )
        await conn.execute("ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_check")
        for team_id, project_id, jobs in (
            (cast.alice.team_id, cast.alice.project.id, 36_000),
            (cast.alice.team_id, other, 1_500),
            (cast.charlie.team_id, cast.charlie.project.id, 1_500),
        ):
            await conn.execute(JOBS, {"team_id": team_id, "project_id": project_id, "jobs": jobs})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE observation_generation_jobs")
    return cast


def listing(cast: Cast, **filters: object) -> dict[str, object]:
    return {
        "team_id": cast.alice.team_id,
        "project_id": None,
        "session_id": None,
        "phases": ["open", "completed", "failed", "cancelled"],
        "open_status": None,
        "ids": None,
        "source_type": None,
        "job_type": None,
        "with_steward": True,
        "since": None,
        "before": None,
        "before_id": None,
        "limit": 51,
        "offset": 0,
        "max_count": 10_001,
        **filters,
    }


async def test_a_page_of_a_team_s_jobs_is_read_from_the_index_in_its_order(db: Db, queue: Cast):
    for filters in ({}, {"since": datetime.now(UTC)}, {"before": datetime.now(UTC), "before_id": uuid4()}, {"offset": 500}):
        told = await plan(db, queue.alice.team_id, PAGE.text, listing(queue, **filters))

        assert "Index Only Scan Backward using observation_jobs_team" in told
        assert "Seq Scan" not in told


async def test_a_page_of_a_small_project_s_jobs_does_not_read_the_large_one(db: Db, queue: Cast):
    async with db.tenant(queue.alice.team_id) as conn:
        cursor = await conn.execute("SELECT id FROM projects WHERE name = 'other'")
        row = await cursor.fetchone()
        assert row is not None

    for query in (PAGE, COUNT, queue_counts.query):
        told = await plan(db, queue.alice.team_id, query.text, listing(queue, project_id=row[0]))

        assert "observation_jobs_project" in told
        assert "Seq Scan on observation_generation_jobs" not in told


async def test_summaries_are_listed_without_reading_the_events(db: Db, queue: Cast):
    told = await plan(db, queue.alice.team_id, PAGE.text, listing(queue, source_type="session_summary"))

    assert "observation_jobs_others" in told


async def test_jobs_are_counted_from_an_index_alone(db: Db, queue: Cast):
    # Of a team that has nearly all rows, the planner counts in the table as long as that is small.
    for query, person in ((COUNT, queue.alice), (COUNT, queue.charlie), (queue_counts.query, queue.charlie)):
        told = await plan(db, person.team_id, query.text, listing(queue, team_id=person.team_id))

        assert "Index Only Scan" in told, told
        assert "Seq Scan on observation_generation_jobs" not in told


STEWARD = """
INSERT INTO observation_generation_jobs
       (id, project_id, team_id, lane, source_type, source_id, job_type, status, attempts, completed_at, failed_at, last_error,
        outcome)
SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, %(project_id)s, 'steward', gen_random_uuid(), 'derive',
       CASE WHEN n <= 20 THEN 'queued' WHEN n <= 40 THEN 'failed' ELSE 'completed' END, 1, CASE WHEN n > 40 THEN now() END,
       CASE WHEN n BETWEEN 21 AND 40 THEN now() END, CASE WHEN n BETWEEN 21 AND 40 THEN '{"reason": "timeout"}'::jsonb END,
       CASE WHEN n > 40 THEN 'skipped' END
  FROM generate_series(1, 3000) n
"""


async def test_open_and_failed_jobs_are_found_without_reading_the_others(db: Db, queue: Cast):
    alice = queue.alice
    async with db.system() as conn:
        await conn.execute(STEWARD, {"team_id": alice.team_id, "project_id": alice.project.id})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE observation_generation_jobs")
    job = {"id": uuid4(), "team_id": alice.team_id, "project_id": alice.project.id, "job_type": "derive", "source_id": uuid4()}
    rows = Jsonb([{**job, "payload": {}, "place": place} for place in range(20)])
    bounds = {"rows": rows, "max_open": 200, "max_open_of_project": 50}

    for query, params, expected in (
        (INSERT_STEWARD_JOBS, bounds, "observation_jobs_steward_ready"),
        (JOB_COUNTS, {}, "observation_jobs_team"),
        (FACTS, {}, "observation_jobs_team"),
    ):
        async with db.system() as conn:
            cursor = await conn.execute(f"EXPLAIN {query.text}".encode(), params, prepare=False)
            told = "\n".join(row[0] for row in await cursor.fetchall())

        assert expected in told, told
        assert "Seq Scan on observation_generation_jobs" not in told, told


async def test_jobs_are_ended_by_their_ids_in_a_queue_that_is_not_analyzed_yet(db: Db, cast: Cast):
    ends = [End(job_id=uuid4(), status="completed", outcome="skipped") for _ in range(10)]
    by_id = {str(end.job_id): end for end in ends}
    values = {"claims": [5], "job_ids": [end.job_id for end in ends], "ends": Jsonb(by_id)}
    async with db.system() as conn:
        await conn.execute("ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_check")
        await conn.execute(JOBS, {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, "jobs": 5_000})
        cursor = await conn.execute(f"EXPLAIN {END_JOBS.text}".encode(), values, prepare=False)
        told = "\n".join(row[0] for row in await cursor.fetchall())

    assert "Seq Scan on observation_generation_jobs" not in told, told


RUNS = """
INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status, created_at)
SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, gen_random_uuid(), n, 'observations', 'x', 'y', ARRAY[gen_random_uuid()],
       'applied', now() - n * interval '1 minute'
  FROM generate_series(1, 5000) n
"""


async def test_the_newest_call_of_a_job_is_looked_for_only_in_the_time_the_job_has_lived(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(RUNS, {"team_id": person.team_id, "project_id": person.project.id})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE generation_runs")
    now = datetime.now(UTC)
    asked: dict[str, object] = {"job_id": uuid4(), "since": now, "until": None, "with_answer": False, "limit": 1}

    told = await plan(
        db, cast.alice.team_id, CALLS.text, {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, **asked}
    )

    assert re.search(r"Index Scan (Backward )?using generation_runs_(project|team)", told), told
    assert re.search(r"Index Cond: .*created_at >= ", told), told


SPENDING = """
INSERT INTO generation_spending
SELECT %(team_id)s, (now() AT TIME ZONE 'UTC')::date - n %% 366, gen_random_uuid(), 'anthropic', 'm', 1, 0, 0, 9, 9, 0, 0, 0.1
  FROM generate_series(1, 20000) n
"""


async def test_what_is_left_of_a_budget_is_read_from_the_days_of_its_period(db: Db, cast: Cast):
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(SPENDING, {"team_id": person.team_id})
            await conn.execute(
                "INSERT INTO budgets (id, team_id, period, max_tokens) VALUES (gen_random_uuid(), %s, 'day', 5)", [person.team_id]
            )
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute("VACUUM ANALYZE generation_spending, budgets")

    told = await plan(
        db, cast.alice.team_id, budget_statuses.query.text, {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id}
    )

    assert "generation_spending_pkey" in told
    assert "Seq Scan on generation_spending" not in told
