"""What the user marks is binding: a "phrase" must be there, a -word must not, whether words or meaning have found it.

Only a phrase that nothing has does not bind: a search hides nothing.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.text import PROMPT_MOST
from cmserver.recall.search import repository
from cmserver.recall.search.lexical import MAX_BINDING_WORDS, parse_query
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast
from tests.house.house import queries_of
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import MEANT, Vectors, numbers, post, post_search, run_search
from tests.table import try_rows

TITLES = ("orders client retry", "retry in the client of orders", "retry", "orders client")
CASES: list[tuple[str, list[int]]] = [
    ("retry orders client", [1, 2, 3, 4]),
    ('retry "orders client"', [1, 4]),
    ('"orders client" "retry"', [1]),
    ("client -retry", [4]),
    ('retry -"orders client"', [2, 3]),
    ("retry -RETRIES", []),
    ("retry --client re-try", [1, 2, 3, 4]),  # neither is a minus in front of a word
    ('retry "the"', [1, 2, 3]),  # a stop word binds nothing
    ('retry "orders client', [1, 2, 3, 4]),  # nor does a quote that is never closed
    ('"orders client" or "retry"', [1]),
]


@pytest.fixture
async def titled(cast: Cast, make: Make) -> None:
    """Alice has an observation of each title, numbered from 1."""
    for title in TITLES:
        await make.observation(project=cast.alice.project, title=title)


@pytest.mark.usefixtures("titled")
@try_rows(("query", "expected"), CASES)
async def test_quotes_bind_and_a_minus_excludes(db: Db, cast: Cast, query: str, expected: list[int]):
    assert sorted(numbers(await run_search(db, cast.alice, query))) == expected


async def test_what_is_near_in_meaning_is_bound_as_well(db: Db, cast: Cast, make: Make, vectors: Vectors):
    for title in TITLES:
        vectors.give(await make.observation(project=cast.alice.project, title=title), [1, 0])
    vectors.give(await make.observation(project=cast.alice.project, title="a payment of yesterday"), [0, 1])

    async def search_numbers(query: str) -> list[int]:
        return sorted(numbers(await run_search(db, cast.alice, query, ranking=MEANT, sought=vectors.near(1, 0))))

    assert await search_numbers("attempt") == [1, 2, 3, 4]
    assert await search_numbers('attempt "orders client"') == [1, 4]
    assert await search_numbers("attempt -retry") == [4]
    assert await search_numbers('attempt -"orders client"') == [2, 3]


async def test_a_bound_phrase_hides_but_does_not_change_scores(db: Db, cast: Cast, make: Make):
    made = [await make.observation(project=cast.alice.project, title=title) for title in TITLES]

    bound = await run_search(db, cast.alice, '"orders client"')
    free = await run_search(db, cast.alice, "orders client")

    assert {hit.id: hit.score for hit in bound.hits}[made[3].id] == {hit.id: hit.score for hit in free.hits}[made[3].id]


async def test_a_phrase_that_nothing_has_does_not_bind(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    for title in (*TITLES, *(f"client {n}x" for n in range(30))):
        vectors.give(await make.observation(project=cast.alice.project, title=title), [1, 0])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))
    seen: list[int] = []
    page: Any = {"nextCursor": None}
    while not seen or page["nextCursor"]:
        page = await post_search(client, cast.alice, 'client "clients of orders" -retry', limit=10, cursor=page["nextCursor"])
        assert page["ignoresQuotes"]
        seen += [hit["number"] for hit in page["observations"]]

    lines = await post(client, cast.alice, "/v1/search", query='client "clients of orders" -retry', format="index")
    bound = await post_search(client, cast.alice, '"orders client" -retry')
    nothing = await post_search(client, cast.alice, '"the"')

    assert sorted(seen) == [4, *range(5, 35)], "what is excluded stays so, on every page"
    assert lines.json()["ignoresQuotes"]
    assert (bound["ignoresQuotes"], [hit["number"] for hit in bound["observations"]]) == (False, [4])
    assert (nothing["ignoresQuotes"], nothing["observations"]) == (False, [])


@pytest.mark.parametrize("query", ["the of and", "   ", "-retry", '-"orders client"', '""', "?!", "😀", '"the"', "-the", "' | & !"])
async def test_only_stop_words_or_only_excluded_words_find_nothing(db: Db, cast: Cast, make: Make, vectors: Vectors, query: str):
    vectors.give(await make.observation(project=cast.alice.project), [1, 0])

    page = await run_search(db, cast.alice, query, ranking=MEANT, sought=vectors.near(1, 0))

    assert (page.hits, page.next, page.total, page.is_estimate) == ([], None, 0, False)


def test_marks_are_read_where_words_begin():
    words, quoted, excluded = parse_query('fix "the retry" -old -"very old" a-b --flag x"y"')

    assert words.split() == ["fix", "the", "retry", "a-b", "--flag", 'x"y"']
    assert (quoted, excluded) == ('"the retry"', '-"old" -"very old"')


def test_of_a_long_query_the_beginning_counts():
    words, quoted, excluded = parse_query("x " * PROMPT_MOST + "-y")

    assert len(words) == PROMPT_MOST
    assert (quoted, excluded) == ("", "")


@pytest.mark.parametrize(
    ("query", "binds"),
    [
        (" ".join(f"-xx{n}" for n in range(500)), " ".join(f'-"xx{n}"' for n in range(MAX_BINDING_WORDS))),
        ('"a b" "' + "x " * MAX_BINDING_WORDS + '" "c"', '"a b" "' + "x " * (MAX_BINDING_WORDS - 3) + 'x"'),
        ('"' + "line " * 70 + '"', '"' + "line " * (MAX_BINDING_WORDS - 1) + 'line"'),
        ("-abc -" + "x.y-z_" * MAX_BINDING_WORDS, '-"abc" -"' + "x.y-z_" * (MAX_BINDING_WORDS // 3 - 1) + 'x.y-z"'),
    ],
    ids=["words", "a phrase", "one long phrase", "parts of a word"],
)
def test_only_so_many_words_bind(query: str, binds: str):
    """Each text is held against all of them: thousands took minutes in a large project."""
    _, quoted, excluded = parse_query(query)

    assert quoted + excluded == binds


@try_rows("query", ["rm -rf build", "pytest -k retry", "exit status -1", "git commit -m fix -a", "head -20"])
def test_the_switches_of_a_command_exclude_nothing(query: str):
    assert parse_query(query) == (query, "", "")


def test_no_query_reads_marked_words_once_for_each_text():
    """64 of them took 15 s in 3,000 texts."""
    queries = {name: query.text for name, query in queries_of(repository).items()}

    assert "search_marked(language, %(must)s)" in queries["MATCHED_FILTERED"]
    assert [name for name, text in queries.items() if "search_marked(o." in text] == []
