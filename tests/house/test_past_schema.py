"""The schema of time travel has the tables under their own names: a column that one gets is in its view, too."""

from __future__ import annotations

import psycopg

BESIDE = {"observations": ["valid_from", "valid_to"], "observations_in_team": ["valid_from", "valid_to"]}
"""What a view has besides."""


def columns(conn: psycopg.Connection, schema: str) -> dict[str, list[tuple[str, str]]]:
    rows = conn.execute(
        """
        SELECT c.relname, array_agg(ARRAY[a.attname::text, format_type(a.atttypid, a.atttypmod)] ORDER BY a.attname)
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'v') GROUP BY 1
        """,
        [schema],
    ).fetchall()
    return {str(name): [(column, type_) for column, type_ in pairs] for name, pairs in rows}


def test_each_view_of_the_past_has_the_columns_of_its_table(database: str):
    with psycopg.connect(database) as conn:
        past, present = columns(conn, "cmserver_past"), columns(conn, "public")

    assert past.keys() >= {"observations", "turns", "turn_ledger", "turn_sentences", "context_injections"}
    for name, found in past.items():
        there = [(column, type_) for column, type_ in found if column not in BESIDE.get(name, [])]
        assert there == present[name], f"a migration that adds a column to {name} makes cmserver_past.{name} anew"


def test_each_view_of_the_past_obeys_row_level_security(database: str):
    with psycopg.connect(database) as conn:
        unsafe = conn.execute(
            """
            SELECT relname FROM pg_class
             WHERE relnamespace = 'cmserver_past'::regnamespace AND relkind = 'v'
               AND NOT coalesce(reloptions, '{}') @> '{security_invoker=true}'
            """
        ).fetchall()

    assert unsafe == []
