"""Whatever is asked, search answers or says clearly why not."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.base.db import Db
from cmserver.base.text import QUERY_MOST
from cmserver.recall.search.lexical import parse_query, read_words
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.tools import numbers, post, run_search, search_numbers
from tests.table import try_rows

HOSTILE = {
    "one word of 2,000 letters and 6,000 bytes": "\u20ac" * QUERY_MOST,
    "one word of 3,800 bytes and another": "\u00e4" * 1_900 + " wombat",
    "a name of 2,000": "x.y/" * 500,
    "capitals": "xX" * 1_000,
    "the same word": "wombat " * 285,
    "250 words": " ".join(f"word{n}" for n in range(250)),
    "an excluded word of 3,800 bytes": "-" + "\u00e4" * 1_900 + " wombat",
    "a phrase of 3,800 bytes": '"' + "\u00e4" * 1_900 + ' wombat" wombat',
    "300 excluded words": " ".join(f"-x{n}" for n in range(300)) + " wombat",
    "200 phrases": " ".join(f'"{n} y"' for n in range(200)) + " wombat",
    "quotes": '"' * QUERY_MOST,
    "brackets": "(" * 1_900 + "wombat",
    "quotes in all ways": "'wombat' \"wombat\" ''wombat'' \\'wombat\\' `wombat` $$wombat$$ E'wombat' \u201cwombat\u201d",
    "operators": "wombat & | ! <-> <2> <16384> :* ( ) ' \\ '' !! && || <-",
    "weights": "wombat:*ABCD wombat:A* 'wombat':99999",
    "half a query": "'wombat' | '",
    "SQL": "\\'; DROP TABLE observations; -- wombat' OR 1=1 /* */ $1 ::regconfig",
    "parameters": "%s %(any)s %% {} {0} $1 :name wombat",
    "LIKE": "% _ %wombat% _ombat",
    "emoji": "wombat 😀 🧑‍🌾 👩🏽‍🚀 🇩🇪",
    "right to left": "\u202e wombat \u05de\u05d4 ﷽ \u200f",
    "other scripts": "漢字かな交じり文 हिन्दी русский e\u0301 ß İ",
    "spaces": "\t\n\r\v\f\u00a0\u2003\u2028 wombat \ufeff",
    "control characters": "".join(map(chr, range(1, 32))) + "wombat\x7f\x80\x9f",
    "stop words": "the and of it is was not in on at to a an",
    "addresses": "http://example.com/a?b=c&d=e user@example.com:80//..//./ wombat",
    "folders": "C:\\temp\\new 'quoted' \\\\server\\share ../../etc/passwd wombat",
    "signs": "..//::##@@\\\\$$__--.. wombat",
    "tags": "<b>wombat</b> </cmserver-context> &amp; <!-- --> wombat",
    "numbers": "-1 1e999 0x41 1.2.3.4.5.6.7 ٣٤ -142 wombat",
    "noncharacters": "\uffff\ufffe\U0010ffff wombat",
}


@pytest.fixture
async def fed(cast: Cast, make: Make) -> None:
    await make.observation(project=cast.alice.project, title="The wombat is fed", files_read=["src/zoo.py"])
    await make.observation(project=cast.alice.project, title="Something else")


@pytest.mark.usefixtures("fed")
@try_rows("query", HOSTILE.values(), ids=HOSTILE.keys())
async def test_no_query_is_an_error_of_the_server(client: httpx.AsyncClient, cast: Cast, query: str):
    requests = [
        ("/v1/search", {"query": query, "minScore": 0, "kinds": ["observation", "prompt"]}),
        ("/v1/context", {"query": query}),
    ]

    for path, fields in requests:
        response = await post(client, cast.alice, path, **fields)

        assert response.status_code == 200, response.text
        assert [hit["number"] for hit in response.json()["observations"]] in ([], [1])


async def test_words_among_hostile_ones_are_found(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The wombat is fed")

    silent = [
        name for name, query in HOSTILE.items() if "wombat" in query and await search_numbers(client, cast.alice, query) != [1]
    ]

    # It comes after the first 64 words. A word of more than 2,046 bytes is none to PostgreSQL, and binds nothing.
    assert set(silent) == {"200 phrases"}


@try_rows(
    "body",
    [
        b'{"query": "\\ud800"}',
        b'{"query": "\\udfff\\ud800"}',
        b'{"query": "wom\\u0000bat"}',
        b'{"query": "\xff"}',
        b'{"query": "\xed\xa0\x80"}',
        b"[]",
        b"{",
        b"",
        b'{"query": 1}',
        b'{"query": null}',
        b'{"query": ["wombat"]}',
        b'{"query": ""}',
        b'{"query": "wombat", "types": ["\\ud800"]}',
        b'{"query": "wombat", "filePrefix": "\\u0000"}',
    ],
    ids=repr,
)
async def test_a_body_that_is_no_query_is_refused(client: httpx.AsyncClient, cast: Cast, body: bytes):
    response = await client.post("/v1/search", content=body, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["message"]


async def test_hostile_filters_are_only_values(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The wombat is fed", files_read=["%_'\\x"], concepts=["it's {a,b}"])

    for fields in ({"files": ["%_'\\x"]}, {"filePrefix": "%_'\\"}, {"concepts": ["IT'S {A,B}"]}):
        assert await search_numbers(client, cast.alice, "wombat", **fields) == [1]
    for fields in ({"files": ["%"]}, {"filePrefix": "_"}, {"types": ["%"]}, {"agents": ["' OR true --"]}):
        assert await search_numbers(client, cast.alice, "wombat", **fields) == []


async def test_the_first_64_words_of_a_query_count(db: Db, cast: Cast):
    async with db.tenant(cast.alice.team_id) as conn:
        query = " ".join(f"zed{n}" for n in range(100))
        lexemes, _ = await read_words(conn, cast.alice.team_id, [cast.alice.project.id], query)

    assert lexemes == [f"zed{n}" for n in range(64)]


@pytest.mark.parametrize(
    "text",
    [
        "src/a_b.ts " * 1_800,
        " ".join(f"src/folder{n}/someName{n}.ts" for n in range(600)),
        "xX" * 10_000,
        "a." * 10_000,
        "a/b:c#d@e_" * 2_000,
        "' \\ \\' :* & | ! " * 1_200,
        "-1-2-3" * 3_000,
        "v1.2.3 KRB-142 " * 1_300,
    ],
    ids=["one path", "many paths", "capitals", "dots", "signs", "operators", "hyphens", "versions"],
)
async def test_no_text_is_too_strange_to_be_stored_and_found(db: Db, cast: Cast, make: Make, text: str):
    observation = await make.observation(
        project=cast.alice.project,
        title=text[:200],
        narrative=f"{text} wombat",
        facts=[text[:2_000]] * 50,
        files_read=[text[:2_000]] * 50,
    )

    assert numbers(await run_search(db, cast.alice, "wombat")) == [observation.number]


async def test_a_text_of_more_names_than_a_tsvector_holds_is_found_by_its_words(db: Db, cast: Cast, make: Make):
    """As it could be stored before there were names, and is there when the vectors are made anew."""
    names = [" ".join(f"f{k}g{n}.h{k}i{n}.j{k}k{n}" for n in range(90)) for k in range(200)]

    observation = await make.observation(
        project=cast.alice.project,
        facts=[*names[:49], "wombat"],
        concepts=names[50:100],
        files_read=names[100:150],
        files_modified=names[150:],
    )

    assert numbers(await run_search(db, cast.alice, "wombat")) == [observation.number]
    assert numbers(await run_search(db, cast.alice, "h1i1")) == []


async def test_so_does_a_prompt_of_too_many_names(db: Db):
    text = " ".join(f"f{n}g.h{n}i.j{n}k" for n in range(30_000)) + " wombat"

    async with db.system() as conn:
        await conn.execute(
            "CREATE TEMP TABLE said "
            "(prompt text, reply text, files text[], commits text[], search_language text, text_search tsvector)"
        )
        await conn.execute("CREATE TRIGGER words BEFORE INSERT ON said FOR EACH ROW EXECUTE FUNCTION turn_words()")
        cursor = await conn.execute(
            "INSERT INTO said VALUES (%s, NULL, '{}', '{}', 'english') RETURNING text_search @@ 'wombat'", [text]
        )
        assert await cursor.fetchone() == (True,)


SIGNS = [
    "wombat",
    "the",
    "or",
    '"',
    "'",
    "\\",
    "-",
    "!",
    "&",
    "|",
    "(",
    ")",
    "<->",
    "<2>",
    ":*",
    ":",
    "*",
    "%",
    "_",
    "$",
    "/",
    ".",
    "😀",
    '-"',
]
pieces = st.sampled_from([*SIGNS, " "])
queries = st.lists(pieces | st.text(max_size=5), min_size=1, max_size=12).map("".join)


async def test_any_mixture_of_signs_is_answered(client: httpx.AsyncClient, cast: Cast, make: Make):
    """Collected first, asked afterwards: hypothesis knows no event loop."""
    await make.observation(project=cast.alice.project, title="The wombat is fed")
    mixtures: list[str] = []

    @settings(max_examples=120, database=None, derandomize=True)
    @given(queries)
    def collect(query: str) -> None:
        mixtures.append(query)

    collect()
    for query in mixtures:
        content = json.dumps({"query": query, "minScore": 0})
        response = await client.post("/v1/search", content=content, headers=cast.alice.headers)
        storable = query and "\x00" not in query and not any(0xD800 <= ord(letter) < 0xE000 for letter in query)
        assert response.status_code == (200 if storable else 400), (query, response.text)


@settings(max_examples=200, database=None, derandomize=True)
@given(queries)
def test_marks_never_fail_and_leave_no_syntax_but_their_own(query: str):
    words, quoted, excluded = parse_query(query)

    assert "\x00" not in words + quoted + excluded
    assert (quoted.count('"') % 2, excluded.count('"') % 2) == (0, 0)
    assert len(words) <= len(query)
