from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from httpx import AsyncClient, Response

from cmserver.base.db import Db
from cmserver.recall import repository
from cmserver.recall.search import marks, search
from tests.conftest import Cast, Person, bound_to
from tests.make import Make

NOON = datetime(2026, 3, 5, 12, 0, tzinfo=UTC)
# Words that stemming leaves alone, so that plain counting in Python is a fair reference.
WORDS: list[str] = [
    "zorb",
    "mulk",
    "tarp",
    "vint",
    "gorm",
    "pelk",
    "drum",
    "fisk",
    "lomp",
    "nuvok",
    "brack",
    "stilt",
    "klim",
    "worp",
    "dask",
    "yont",
    "hurd",
    "plom",
    "vask",
    "trund",
    "quom",
    "birk",
    "folt",
    "gland",
    "jask",
    "kroft",
    "lund",
    "mord",
    "nisk",
    "orlop",
    "prat",
    "rusk",
    "sorp",
    "tulk",
    "urk",
    "vorn",
    "wisp",
    "xant",
    "yulk",
    "zind",
]


async def post(client: AsyncClient, who: Person, path: str, **fields: object) -> Response:
    return await client.post(path, json={"projectId": who.project.canonical_id, **fields}, headers=who.headers)


async def found(client: AsyncClient, who: Person, query: str, **fields: object) -> list[int]:
    response = await post(client, who, "/v1/search", query=query, **fields)
    assert response.status_code == 200, response.text
    return [one["number"] for one in response.json()["observations"]]


def bm25(documents: dict[int, list[str]], query: list[str]) -> dict[int, float]:
    """The textbook formula: k1 = 0.9, b = 0.4, and the idf that is never negative."""
    mean = sum(len(words) for words in documents.values()) / len(documents)
    counts = {number: Counter(words) for number, words in documents.items()}
    scores: dict[int, float] = {}
    for number, words in documents.items():
        for term in set(query):
            if tf := counts[number][term]:
                df = sum(1 for each in counts.values() if each[term])
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                part = idf * tf * (0.9 + 1) / (tf + 0.9 * (1 - 0.4 + 0.4 * len(words) / mean))
                scores[number] = scores.get(number, 0.0) + part
    return scores


async def test_scores_and_order_are_those_of_bm25(db: Db, cast: Cast, make: Make):
    rng = random.Random(20260305)
    documents: dict[int, list[str]] = {}
    for _ in range(200):
        title, narrative, fact = ([*rng.choices(WORDS, weights=range(1, len(WORDS) + 1), k=k)] for k in (3, rng.randint(2, 40), 4))
        files = rng.sample(WORDS, 2)
        made = await make.observation(
            project=cast.alice.project,
            title=" ".join(title),
            narrative=" ".join(narrative),
            facts=[" ".join(fact)],
            files_modified=files,
            created_at=NOON + timedelta(seconds=len(documents) // 2),
        )
        # A file is there as its path, as its parts, and as the words in these.
        documents[made.number] = title + narrative + fact + files * 3
    await make.observation(project=cast.charlie.project, title=" ".join(WORDS))

    for length in (1, 2, 5, 20):
        query = rng.sample(WORDS, length)
        expected = bm25(documents, query)
        async with db.tenant(cast.alice.team_id) as conn:
            hits = await search(conn, cast.alice.principal, cast.alice.project, " ".join(query), 200)

        assert {hit.observation.number: hit.score for hit in hits} == pytest.approx(expected, abs=1e-9, rel=0)
        best_first = sorted(hits, key=lambda hit: (hit.score, hit.observation.created_at, hit.observation.id), reverse=True)
        assert [hit.observation.number for hit in hits] == [hit.observation.number for hit in best_first]


async def test_one_word_of_a_whole_question_is_enough(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Added retry to the orders client")
    await make.observation(project=cast.alice.project, title="Renamed a table")

    assert await found(client, cast.alice, "Why do we retry requests when the upstream says 503?") == [1]


async def test_more_matching_words_and_rarer_ones_come_first(client: AsyncClient, cast: Cast, make: Make):
    for title in ("orders page", "orders list", "orders retry", "orders retry backoff", "invoices"):
        await make.observation(project=cast.alice.project, title=title)

    assert (await found(client, cast.alice, "orders retry backoff"))[:2] == [4, 3]


async def test_of_equal_documents_the_newest_comes_first(client: AsyncClient, cast: Cast, make: Make):
    for hour in (2, 3, 1):
        await make.observation(project=cast.alice.project, title="orders retry", created_at=NOON + timedelta(hours=hour))

    assert await found(client, cast.alice, "retry orders") == [2, 1, 3]


async def test_titles_narratives_facts_concepts_files_and_plain_content_are_all_searched(
    client: AsyncClient, cast: Cast, make: Make
):
    project = cast.alice.project
    await make.observation(project=project, title="wombat")
    await make.observation(project=project, subtitle="wombat")
    await make.observation(project=project, narrative="wombat")
    await make.observation(project=project, facts=["a wombat"])
    await make.observation(project=project, concepts=["wombat"])
    await make.observation(project=project, files_read=["wombat"])
    await make.observation(project=project, files_modified=["wombat"])
    await make.observation(project=project, kind="manual", title=None, content="remember the wombats")
    await make.observation(project=project)

    assert sorted(await found(client, cast.alice, "wombats")) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_quotes_bind_and_a_minus_excludes(client: AsyncClient, cast: Cast, make: Make):
    for title in ("orders client retry", "retry in the client of orders", "retry", "orders client"):
        await make.observation(project=cast.alice.project, title=title)

    async def numbers(query: str) -> list[int]:
        return sorted(await found(client, cast.alice, query))

    assert await numbers("retry orders client") == [1, 2, 3, 4]
    assert await numbers('retry "orders client"') == [1, 4]
    assert await numbers('"orders client" "retry"') == [1]
    assert await numbers("client -retry") == [4]
    assert await numbers('retry -"orders client"') == [2, 3]
    assert await numbers("retry --client re-try") == [1, 2, 3, 4]  # neither is a minus in front of a word
    assert await numbers('retry "the"') == [1, 2, 3]  # a stop word binds nothing
    assert await numbers('retry "orders client') == [1, 2, 3, 4]  # nor does a quote that is never closed


async def test_a_bound_phrase_hides_but_does_not_change_scores(client: AsyncClient, cast: Cast, make: Make):
    for title in ("orders client retry", "client of orders", "retry"):
        await make.observation(project=cast.alice.project, title=title)

    async def scores(query: str) -> dict[int, float]:
        response = await post(client, cast.alice, "/v1/search", query=query)
        return {one["number"]: one["score"] for one in response.json()["observations"]}

    assert (await scores('"orders client"'))[1] == (await scores("orders client"))[1]


async def test_only_stop_words_or_only_excluded_words_find_nothing(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)

    for query in ("the of and", "   ", "-retry", '-"orders client"', '""', "?!", "😀"):
        assert await found(client, cast.alice, query) == [], query


@pytest.mark.parametrize(
    "query",
    [
        "a" * 10_000,
        "retry " * 1_700,
        " ".join(f"word{n}" for n in range(5_000)),
        "-" + "a" * 9_000 + " retry",
        '"' + "a" * 3_000 + ' retry" retry',
        " ".join(f"-x{n}" for n in range(5_000)) + " retry",
        " ".join(f'"x{n} y"' for n in range(3_000)) + " retry",
        '"' * 5_000,
        "(" * 5_000 + "retry",
        "retry & | ! <-> <2> :* ( ) ' \\ ''",
        "'retry' | '",
        "retry:*A",
        "\\'; DROP TABLE observations; --",
        "retry 😀 \u202e ﷽ 漢字 e\u0301",
        "%s %(any)s {} retry",
        "http://example.com/a?b=c&d=e retry",
        "C:\\temp\\new 'quoted' \"",
    ],
)
async def test_no_query_is_an_error_of_the_server(client: AsyncClient, cast: Cast, make: Make, query: str):
    await make.observation(project=cast.alice.project)

    for path in ("/v1/search", "/v1/context"):
        response = await post(client, cast.alice, path, query=query)

        assert response.status_code == 200, response.text
        assert len(response.json()["observations"]) <= 1


@pytest.mark.parametrize(
    "body",
    [b'{"query": "\\ud800"}', b'{"query": "re\\u0000try"}', b'{"query": "\xff"}', b"[]", b"{", b'{"query": 1}', b'{"query": ""}'],
)
async def test_a_body_that_is_no_query_is_refused(client: AsyncClient, cast: Cast, body: bytes):
    response = await client.post("/v1/search", content=body, headers=cast.alice.headers)

    assert response.status_code == 400


async def test_the_first_64_words_of_a_query_count(db: Db, cast: Cast):
    async with db.tenant(cast.alice.team_id) as conn:
        lexemes = await repository.lexemes(conn, " ".join(f"zed{n}" for n in range(100)), 64)

    assert lexemes == [f"zed{n}" for n in range(64)]


def test_marks_are_read_where_words_begin():
    assert marks('fix "the retry" -old -"very old" a-b --flag x"y"') == (
        'fix the retry     a-b --flag x"y"',
        '"the retry" -"old" -"very old"',
    )


async def test_the_limit_keeps_the_best(client: AsyncClient, cast: Cast, make: Make):
    for title in ("retry of something with many more words than the other", "retry", "retry in between two"):
        await make.observation(project=cast.alice.project, title=title)

    assert await found(client, cast.alice, "retry", limit=1) == [2]
    for limit in (0, 101, "all"):
        response = await post(client, cast.alice, "/v1/search", query="retry", limit=limit)
        assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "$.limit")


async def test_search_stays_in_its_project_and_team(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project, title="retry")
    headers = (await bound_to(db, cast.alice, "billing", scopes=["observations:read"])).headers

    # Charlie's project has the same canonical id, in another team
    assert await found(client, cast.charlie, "retry") == []
    assert await found(client, cast.bob, "retry") == [1]
    assert await found(client, cast.alice, "retry", projectId="billing") == []
    assert await found(client, cast.alice, "retry", projectId=str(cast.alice.project.id)) == [1]

    own = await client.post("/v1/search", json={"query": "retry"}, headers=headers)
    assert own.json() == {"observations": []}
    for named in (str(cast.alice.project.id), "github.com/acme/orders", "no such", str(cast.charlie.project.id)):
        response = await client.post("/v1/search", json={"projectId": named, "query": "retry"}, headers=headers)
        assert (response.status_code, response.json()["message"]) == (404, "There is no such project.")


async def test_a_key_of_the_whole_team_must_name_the_project(client: AsyncClient, cast: Cast):
    response = await client.post("/v1/search", json={"query": "retry"}, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"] == [{"path": "$.projectId", "message": "required"}]


async def test_keys_of_other_clients_are_ignored(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)

    assert await found(client, cast.alice, "retry", platformSource="claude-code", whatever=1) == [1]


async def test_a_context_for_a_question_joins_the_contents_by_blank_lines(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="retry", narrative="Three times.")
    await make.observation(project=cast.alice.project, title="retry retry")
    await make.observation(project=cast.alice.project, title="unrelated")

    response = await post(client, cast.alice, "/v1/context", query="retry")

    told = response.json()
    assert [one["number"] for one in told["observations"]] == [2, 1]
    assert told["context"] == "retry retry\n\nretry\n\nThree times."


async def test_searching_leaves_the_numbers_in_the_audit_log_and_never_the_words(
    client: AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project, title="retry")
    await post(client, cast.alice, "/v1/search", query="retry confidential", limit=5)
    await post(client, cast.alice, "/v1/context", query="retry confidential")
    await post(client, cast.alice, "/v1/search", query="confidential")

    async with db.system() as conn:
        cursor = await conn.execute("SELECT details FROM audit_log WHERE action = 'observations.served' ORDER BY id")
        details: list[dict[str, Any]] = [row[0] for row in await cursor.fetchall()]
    assert details == [{"via": "search", "numbers": [1]}, {"via": "context", "numbers": [1]}]


@pytest.mark.parametrize("query", ["retry", "retry.py", "src/orders/retry.py", "retry backoff.md"])
async def test_a_file_is_found_by_its_path_its_name_and_the_words_in_it(db: Db, cast: Cast, make: Make, query: str):
    wanted = await make.observation(project=cast.alice.project, title="Limits", files_modified=["src/orders/retry.py"])
    await make.observation(project=cast.alice.project, title="Something else", files_modified=["src/orders/api.py"])

    async with db.tenant(cast.alice.team_id) as conn:
        hits = await search(conn, cast.alice.principal, cast.alice.project, query, 10)

    assert hits[0].observation.id == wanted.id
