"""Each table belongs to one room, and only that room writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import LiteralString

import psycopg

from cmserver.base.sql import Query
from tests.house.house import declared, owner_of, queries
from tests.table import try_rows

BORROWERS = {
    "ingest": "an event, its job, its lane and their audit are one statement, which is the guarantee that none is lost",
    "ops": "an import writes whole rows of every room as they were exported, with their ids and times",
    "retention": "what goes is found by policies and by what other rooms still need, taken and counted in one statement",
    "generation": "the heartbeat of procrastinate's worker is our lease, and comes too late when the lease is over",
}
"""The only rooms that may have BORROWS, and why."""

COMMENT = re.compile(r"--[^\n]*")
WRITE = re.compile(
    r"(INSERT INTO|(?<!FOR )(?<!KEY )(?<!DO )UPDATE|DELETE FROM|MERGE INTO|TRUNCATE) (ONLY )?(?P<table>\w+)", re.IGNORECASE
)


def written(query: Query[object]) -> set[str]:
    """The tables that the query writes."""
    text = " ".join(COMMENT.sub("", query.text).split())
    return {match["table"].lower() for match in WRITE.finditer(text)}


def trespasses(name: str, query: Query[object]) -> Iterator[str]:
    room = name.split(".")[1]
    mine = declared("OWNS").get(room, set()) | declared("BORROWS").get(room, set())
    for table in sorted(written(query) - mine):
        yield f"{name} writes {table}, which belongs to {owner_of(table)}"


def tables(conn: psycopg.Connection) -> set[str]:
    found = conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')")
    return {str(row[0]) for row in found}


def test_every_table_belongs_to_exactly_one_room(database: str):
    with psycopg.connect(database) as conn:
        there = {table for table in tables(conn) if not table.startswith("procrastinate_")}

    owned = [table for mine in declared("OWNS").values() for table in mine]

    assert sorted(owned) == sorted(there), "name each table in the OWNS of one repository"


def test_no_room_writes_a_table_of_another():
    assert [said for name, query in queries() for said in trespasses(name, query)] == []


def test_borrowing_has_a_reason_and_a_lender():
    borrowed = declared("BORROWS")

    assert borrowed.keys() == BORROWERS.keys()
    for room, taken in borrowed.items():
        assert {owner_of(table) for table in taken}.isdisjoint({None, room})


@try_rows(
    ("text", "said"),
    [
        ("INSERT INTO api_keys (id) VALUES (%(id)s)", ["api_keys"]),
        ("WITH x AS (UPDATE ONLY teams SET name = 'x' RETURNING id) DELETE\n FROM projects p USING x", ["projects", "teams"]),
        ("SELECT id FROM teams FOR UPDATE OF teams", []),
        ("SELECT id FROM teams FOR NO KEY UPDATE SKIP LOCKED -- INSERT INTO projects", []),
        ("INSERT INTO server_sessions (id) VALUES (%(id)s) ON CONFLICT (id)\n DO UPDATE SET id = excluded.id", []),
    ],
)
def test_the_tests_above_see_what_they_should(text: LiteralString, said: list[str]):
    query = Query(object, text)

    found = list(trespasses("cmserver.sessions.repository.WRONG", query))

    assert [sentence.split(" writes ")[1].split(",")[0] for sentence in found] == said
