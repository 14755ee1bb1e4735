"""Words are found inside the sentences of scripts that put no spaces between them, in whatever width they are written."""

from __future__ import annotations

import unicodedata

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.text import UNSEGMENTED
from cmserver.recall.file_context import find_file_matches
from cmserver.recall.search.lexical import MAX_BINDING_WORDS, parse_query, read_words
from tests.conftest import Cast
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make
from tests.recall.search.tools import numbers, post_search, run_search
from tests.table import try_rows

TITLES = (
    "修复了数据库连接池超时的问题",  # 1 Chinese: mended the time-out of the database's pool of connections
    "支付服务使用Redis缓存令牌",  # 2 Chinese and a name: the payment service keeps tokens in Redis
    "決済サービスのタイムアウトを延長した",  # 3 Japanese: the time-out of the payment service was extended
    "ログイン画面をやめて新しくした",  # 4 Japanese: the login page was given up and made anew
    "แก้ไขปัญหาการเชื่อมต่อฐานข้อมูล",  # 5 Thai: mended a problem of the connection to the database
    "데이터베이스를 백업하는 작업이 실패했다",  # 6 Korean: the job that backs up the database failed
    "ແກ້ໄຂຖານຂໍ້ມູນແລ້ວ",  # 7 Lao: the database was mended
    "ដោះស្រាយបញ្ហាមូលដ្ឋានទិន្នន័យ",  # 8 Khmer: solved a problem of the database
    "ဒေတာဘေ့စ်ကိုပြင်ဆင်ပြီးပါပြီ",  # 9 Burmese: the database has been repaired
    "the pool of connections timed out",  # 10
    "熊猫日志",  # 11 Chinese: the panda log
)
CASES: list[tuple[str, int]] = [
    ("数据库", 1),
    ("连接池", 1),
    ("为什么数据库超时?", 1),
    ("支付", 2),
    ("令牌存在哪里", 2),
    ("redis", 2),
    ("Redis缓存", 2),
    ("決済", 3),
    ("タイムアウト", 3),
    ("ﾀｲﾑｱｳﾄ", 3),
    ("ログイン", 4),
    ("やめて", 4),
    ("ฐานข้อมูล", 5),
    ("เชื่อมต่อ", 5),
    ("데이터베이스", 6),
    ("백업", 6),
    ("ຖານຂໍ້ມູນ", 7),
    ("បញ្ហា", 8),
    ("ဒေတာဘေ့စ်", 9),
    ("ｐｏｏｌ　ｏｆ　ｃｏｎｎｅｃｔｉｏｎｓ", 10),  # noqa: RUF001 - full-width letters
    ("猫", 11),
    (unicodedata.normalize("NFD", "데이터베이스"), 6),
]


@pytest.fixture
async def titled(cast: Cast, make: Make) -> None:
    """Alice has an observation of each title, numbered from 1."""
    for title in TITLES:
        await make.observation(project=cast.alice.project, title=title)


@pytest.mark.usefixtures("titled")
@try_rows(("query", "expected"), CASES)
async def test_a_word_is_found_inside_a_sentence(db: Db, cast: Cast, query: str, expected: int):
    assert numbers(await run_search(db, cast.alice, query))[0] == expected


@pytest.mark.usefixtures("titled")
@try_rows(
    ("query", "expected"),
    [
        ('"数据库连接" 问题', [1]),
        ('"库数" 问题', []),  # both are there, not in this order
        ('"猫" 日志', [11]),
        ('タイムアウト "サービスの"', [3]),
        ('缓存 "Redis缓存"', [2]),
        ('缓存 "缓存令牌" "payment"', []),
        ("服务 サービス -缓存", [3]),
        ("服务 サービス -决済", [2, 3]),
        ("服务 サービス -決済", [2]),
        ('服务 サービス -"Redis缓存"', [3]),
        ("日志 -猫", []),
        ('ปัญหา "ฐานข้อมูล"', [5]),
        ('ปัญหา "ฐานข้"', [5]),
        ("ปัญหา -ฐานข้อมูล", []),
        ('"タイム アウト" サービス', [3]),  # each run of characters must be there
    ],
)
async def test_quotes_bind_and_a_minus_excludes(db: Db, cast: Cast, query: str, expected: list[int]):
    page = await run_search(db, cast.alice, query)
    assert ([] if page.ignores_quotes else sorted(numbers(page))) == expected


def test_each_character_counts_as_a_binding_word_and_is_left_whole():
    assert parse_query('-退款 "ฐานข้อมูลนี้" -k x') == ("  ฐานข้อมูลนี้ -k x", '"ฐานข้อมูลนี้"', '-"退款"')
    assert parse_query(f'"{"数" * 100}" -ab1')[1] == f'"{"数" * MAX_BINDING_WORDS}"'


async def lexemes(db: Db, cast: Cast, query: str, limit: int = 64) -> list[str]:
    async with db.tenant(cast.alice.team_id) as conn:
        return (await read_words(conn, cast.alice.team_id, [cast.alice.project.id], query, limit))[0]


async def test_a_query_has_pairs_and_a_single_character_only_where_it_stands_alone(db: Db, cast: Cast):
    assert await lexemes(db, cast, "数据库 retry 猫") == ["retri", "数据", "据库", "猫"]


async def test_two_pairs_count_as_one_word_of_a_query(db: Db, cast: Cast):
    assert await lexemes(db, cast, "retry 数据库连接池超时了", limit=3) == ["retri", "数据", "据库", "库连", "连接"]
    assert await lexemes(db, cast, "one two three four retry", limit=3) == ["one", "two", "three"]


async def test_prompts_are_found_alike(client: httpx.AsyncClient, cast: Cast):
    await prompt(client, cast.alice, await session(client, cast.alice, "s"), "为什么数据库连接超时")

    answer = await post_search(client, cast.alice, "连接", kinds=["prompt"])

    assert [hit["text"] for hit in answer["prompts"]] == ["为什么数据库连接超时"]


async def test_files_are_known_by_their_names(db: Db, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, title="design", files_modified=["docs/设计文档v2.md", "设计/文档.md"])

    async with db.tenant(cast.alice.team_id) as conn:
        for path in ("/home/alice/docs/设计文档v2.md", "/home/alice/设计/文档.md"):
            matches = await find_file_matches(conn, cast.alice.project.id, None, path)
            assert [match.mention.id for match in matches] == [made.id]
        others = await find_file_matches(conn, cast.alice.project.id, None, "/home/alice/docs/文档v2.md")

    assert others == []
    assert numbers(await run_search(db, cast.alice, "设计文档")) == [1]


async def test_a_long_text_is_stored_and_found(db: Db, cast: Cast, make: Make):
    letters = "".join(chr(0x4E00 + place * 7919 % 0x5000) for place in range(22_000))  # 64 kB, hardly a pair twice

    await make.observation(project=cast.alice.project, title="long", narrative=letters, facts=[letters[::-1]])

    assert numbers(await run_search(db, cast.alice, letters[9_000:9_004])) == [1]


async def test_more_text_than_a_vector_holds_is_stored(db: Db, cast: Cast, make: Make):
    letters = "".join(chr(0x4E00 + place * 7919 % 0x5000) for place in range(300_000))

    stored = await make.observation(project=cast.alice.project, title="very long", narrative=letters)

    assert stored.number == 1


async def test_the_database_and_the_program_mean_the_same_characters(db: Db):
    async with db.system() as conn:
        row = await (await conn.execute("SELECT unsegmented_characters()")).fetchone()

    assert row is not None
    assert str(row[0]).encode().decode("unicode_escape") == UNSEGMENTED
