"""No index tempts the planner away from the one that a foreign key's check needs."""

from __future__ import annotations

from uuid import uuid4

import psycopg

# Two kinds of indexes beside the referred one: those that are sorted first by two or more of the columns that a foreign key refers
# to, and younger ones. Of equals the planner takes the youngest, and before the first ANALYZE all are equals. A partial index is no
# danger, since a check does not say what its WHERE says: a clause that is true of every row makes an index harmless.
TEMPTING = """
SELECT DISTINCT i.indexrelid::regclass::text
  FROM pg_constraint f
  JOIN pg_index i ON i.indrelid = f.confrelid AND i.indexrelid <> f.conindid AND i.indpred IS NULL
  JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'btree'
 WHERE f.contype = 'f' AND cardinality(f.confkey) >= 2
   AND ((i.indnkeyatts >= 2 AND i.indkey[0] = ANY (f.confkey) AND i.indkey[1] = ANY (f.confkey))
     OR (cardinality(f.confkey) >= 3 AND i.indexrelid > f.conindid AND i.indkey[0] = ANY (f.confkey)))
   AND f.connamespace = 'public'::regnamespace
 ORDER BY 1
"""


def tempting(conn: psycopg.Connection) -> list[str]:
    return [row[0] for row in conn.execute(TEMPTING)]


def test_a_foreign_key_s_check_has_one_index_to_choose(database: str):
    with psycopg.connect(database) as conn:
        assert tempting(conn) == []


def test_the_test_above_bites(database: str):
    with psycopg.connect(database) as conn:
        conn.execute("CREATE INDEX side_by_side ON agent_events (team_id, project_id, occurred_at)")
        conn.execute("CREATE INDEX younger ON agent_events (team_id, occurred_at)")
        conn.execute("CREATE INDEX harmless ON agent_events (team_id, occurred_at) WHERE occurred_at > '-infinity'")

        assert tempting(conn) == ["side_by_side", "younger"]


def test_checks_find_their_row_by_its_id_on_tables_that_were_never_analysed(database: str):
    with psycopg.connect(database) as conn:
        conn.execute(
            "WITH t AS (INSERT INTO teams (id, name) VALUES (gen_random_uuid(), 't') RETURNING id)"
            " INSERT INTO projects (id, team_id, canonical_id, name) SELECT gen_random_uuid(), id, 'p', 'p' FROM t"
        )
        conn.execute(
            "INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate,"
            " size_chars, payload, occurred_at) SELECT gen_random_uuid(), p.id, p.team_id, 'api', 'k' || n, 'x', 'api', false, 2,"
            " '{}', now() FROM projects p, generate_series(1, 20000) n"
        )
        plan = conn.execute(
            "EXPLAIN SELECT FROM ONLY agent_events x WHERE id = %(id)s AND project_id = %(id)s AND team_id = %(id)s"
            " FOR KEY SHARE OF x",
            {"id": uuid4()},
        ).fetchall()

    assert "agent_events_of_project" in str(plan) or "agent_events_pkey" in str(plan)
