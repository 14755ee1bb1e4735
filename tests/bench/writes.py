"""What PostgreSQL writes for one event over its whole life: WAL and index entries, counted by pg_waldump and not timed.

Counts hardly depend on the machine, so they are compared with those of the commit before which they were first counted.
"""

from __future__ import annotations

import re
import subprocess
import time
from typing import cast

import psycopg
from msgspec.structs import replace

from tests.bench.drain import PROVIDER, wait_until_ended
from tests.bench.load import loader
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role, value

HOW = (
    "Events of two kilobytes are sent one by one to `cmserver run --role api`; then a worker makes an observation of every third, "
    "with the provider of `drain`, and embeds it. Counted are the records of the write-ahead log (pg_waldump) from the first event "
    "to the last embedding: their bytes without images of whole pages, which depend on when the last checkpoint was, and without "
    "the payload as it is stored; and the entries of B-tree indexes. Yardstick: the same counts before 2026-11-25."
)
BYTES_BEFORE = 10_766
ENTRIES_BEFORE = 52.7
_MAX_RATIO = 0.6
_LONGEST_SECONDS = 300.0
_UNEMBEDDED = "SELECT count(*) FROM observation_embeddings WHERE embedding IS NULL"
_PAYLOAD_BYTES = "SELECT sum(pg_column_size(payload))::bigint FROM agent_events"
_EVENTS = "SELECT count(*) FROM agent_events"
_RECORD = re.compile(r"^(\w+/\S+)\s+(\d+) \(\s*[\d.]+\)\s+(\d+) \(\s*[\d.]+\)", re.MULTILINE)
_ENTRIES = {"Btree/INSERT_LEAF", "Btree/INSERT_POST"}


def run(world: World, scale: Scale) -> list[Figure]:
    """One round: the counts of two differ by less than a hundredth."""
    wal_bytes, entries, life = _measure(world, scale.drained // 4)
    note = ", ".join(f"{name} {count:.1f} ({size:,.0f} bytes)" for name, (count, size) in life)
    aim = Aim(of="ratio", at_least=False, bound=_MAX_RATIO)
    return [
        Figure(
            name="WAL beside the payload, per event until it is embedded",
            unit="bytes",
            yardstick="before 2026-11-25",
            pairs=[(wal_bytes, BYTES_BEFORE)],
            aim=aim,
            note=f"records per event: {note}",
        ),
        Figure(
            name="index entries, per event until it is embedded",
            unit="entries",
            yardstick="before 2026-11-25",
            pairs=[(entries, ENTRIES_BEFORE)],
            aim=aim,
        ),
    ]


def _measure(world: World, events: int) -> tuple[float, float, list[tuple[str, tuple[float, float]]]]:
    """Bytes of WAL beside the payload, index entries, and the largest kinds of records (number, bytes); all per event."""
    place = world.place()
    settings = {"generation_debounce_seconds": 0, "log_level": "error", "provider": PROVIDER}
    with loader() as sender, role(world, place, "api", **settings) as port:
        sender.send(replace(place.http(port, connections=1, seconds=_LONGEST_SECONDS), requests=20, warm_seconds=0.0))
        _checkpoint(place)
        start, stored, payload = _position(place), _count(place, _EVENTS), _count(place, _PAYLOAD_BYTES)
        sender.send(replace(place.http(port, connections=1, seconds=_LONGEST_SECONDS), requests=events, warm_seconds=0.0))
    with role(world, place, "worker", **settings):
        wait_until_ended(place)
        end = time.monotonic() + _LONGEST_SECONDS
        while _count(place, _UNEMBEDDED):
            if time.monotonic() > end:
                raise RuntimeError(f"After {_LONGEST_SECONDS:.0f} s there are still observations without an embedding.")
            time.sleep(0.1)
    stored = _count(place, _EVENTS) - stored
    last = _position(place)
    _flush(place)
    records = _read_records(world, start, last)
    wal_bytes = sum(size for _, size in records.values()) - (_count(place, _PAYLOAD_BYTES) - payload)
    entries = sum(count for name, (count, _) in records.items() if name in _ENTRIES)
    largest = sorted(records.items(), key=lambda record: -record[1][1])[:6]
    return wal_bytes / stored, entries / stored, [(name, (count / stored, size / stored)) for name, (count, size) in largest]


def _read_records(world: World, start: str, end: str) -> dict[str, tuple[int, int]]:
    """The records between the positions, of all databases: how many of each kind, and their bytes. They must be on the disk."""
    program = world.embedded.binaries.bin / "pg_waldump"
    command = [program, "--stats=record", "--start", start, "--end", end, "--path", world.embedded.cluster / "pg_wal"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: (int(count), int(size)) for name, count, size in _RECORD.findall(done.stdout)}


def _checkpoint(place: Place) -> None:
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("CHECKPOINT")


def _flush(place: Place) -> None:
    """All WAL until now to the disk; a checkpoint would remove what was before."""
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SELECT pg_logical_emit_message(false, 'bench', '', true)")


def _position(place: Place) -> str:
    return str(value(place.url, "SELECT pg_current_wal_insert_lsn()"))


def _count(place: Place, statement: str) -> int:
    return cast("int", value(place.url, statement) or 0)
