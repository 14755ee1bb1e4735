"""What the profile makes of py-spy's stacks and strace's table, and that it measures each operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.operations import KINDS, Cost, measure, start_role
from tests.bench.profile import record
from tests.bench.profile.hook import profile_hook
from tests.bench.profile.record import Operation, Profile, Statement
from tests.bench.world import world

STACKS = [
    "main (/x/cmserver/cli/run.py:9);run (/x/cmserver/ingest/group.py:120) 30",
    "main (/x/cmserver/cli/run.py:9);run (/x/cmserver/ingest/group.py:121) 20",
    "main (/x/cmserver/cli/run.py:9);execute (/x/.venv/lib/python3.11/site-packages/psycopg/cursor_async.py:97) 40",
    "process 12:x;loads (/usr/lib/python3.11/json/__init__.py:299) 10",
    "a line that is none",
]
CALLS = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600           3       200        10 recvfrom
 40.00    0.000400           4       100           sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000                   300        10 total
"""


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/x/cmserver/ingest/group.py", "cmserver/ingest"),
        ("/home/me/cmserver/cmserver/worker.py", "cmserver/worker"),
        ("/x/cmserver/.venv/lib/python3.11/site-packages/msgspec/json.py", "msgspec"),
        ("/usr/lib/python3.11/asyncio/events.py", "Python's library"),
    ],
)
def test_a_file_belongs_to_a_room_or_a_library(file: str, place: str):
    assert record.place_of(file) == place


def test_the_innermost_frame_of_a_stack_has_its_time():
    places, functions = record.shares(STACKS)

    assert places == {"cmserver/ingest": 0.5, "psycopg": 0.4, "Python's library": 0.1}
    assert functions["cmserver/ingest: run"] == 0.5


def test_system_calls_are_counted_per_operation():
    assert record.system_calls(CALLS, 100) == {"recvfrom": 1.9, "sendto": 1}


def test_the_section_shows_each_operation_with_its_parts():
    cost = Cost(
        program_us=600, postgres_us=630, rows={"agent_events": 1, "audit_log": 2}, index_entries=30, wal_bytes=6000, buffers=90
    )
    statement = Statement(text="INSERT INTO agent_events", calls=1, microseconds=410)
    operation = Operation(
        name="an event", cost=cost, places={"psycopg": 120}, functions={}, system_calls={"recvfrom": 2}, statements=[statement]
    )

    text = record.section(Profile(machine={"commit": "abc", "date": "2026-11-24", "PostgreSQL": "18.4"}, operations=[operation]))

    assert "| an event | 600 | 630 | 3.00 | 30.0 | 6,000 | 90.0 | 2.00 |" in text
    assert "- By place: psycopg 120 µs." in text
    assert "| `INSERT INTO agent_events` | 1.00 | 410 |" in text


@pytest.mark.slow
def test_a_hook_of_the_client_is_measured_beside_curl(tmp_path: Path):
    with world(durable=False) as here:
        client, curl = profile_hook(here, 2, tmp_path)

    assert [client.name, curl.name] == ["the hook client", "curl alone"]
    assert client.p50_ms > 0 < curl.p50_ms
    assert not curl.processes or client.programs >= curl.programs == 1


@pytest.mark.slow
def test_the_cost_of_an_event_counts_its_rows():
    kind = KINDS[0]
    with world(durable=False) as here, start_role(here, here.place(), kind.role) as server:
        cost = measure(server, kind, 20)

    assert cost.rows["agent_events"] == 1
    assert cost.rows["observation_generation_jobs"] == 1
    assert cost.index_entries > 2
    assert cost.wal_bytes > 1000
