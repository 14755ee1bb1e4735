"""Growth and sizing: what the page says, and that a stage and a churn are measured."""

from __future__ import annotations

import pytest

from tests.bench.growth import record
from tests.bench.growth.command import SETTINGS, measure_churn, measure_stage
from tests.bench.growth.record import Churn, Growth, Hosts, Stage, Table
from tests.bench.operations import KINDS, LISTS, Cost
from tests.bench.test_month import make_day, make_month
from tests.bench.world import world

MACHINE = {"commit": "abc", "date": "2026-11-24", "cores": "2", "processor": "a processor", "PostgreSQL": "18.4"}


def _stage(events: int) -> Stage:
    cost = Cost(program_us=600, postgres_us=events / 100, rows={}, index_entries=0, wal_bytes=0, buffers=0)
    tables = [Table("agent_events", events * 1024, events * 256), Table("audit_log", events * 512, events * 128)]
    return Stage(events=events, database_bytes=events * 3000, tables=tables, costs={"an event": cost})


def test_the_page_shows_costs_and_sizes_of_each_stage():
    churn = Churn(name="as they are", events=10, lanes_bytes=2**20, jobs_bytes=2**21, dead_share=0.25, vacuums=3, postgres_us=900)

    hosts = [Hosts(processes=count, program_us=2000, postgres_us=950 + 50 * count, idle_ms=count) for count in (1, 4)]

    text = record.page(Growth(machine=MACHINE, stages=[_stage(10_240), _stage(102_400)], churns=[churn], hosts=hosts), None)

    assert "|  | 10,240 events | 102,400 events |" in text
    assert "| an event | 600 + 102 | 600 + 1,024 |" in text
    assert "| `agent_events` | 10.0 + 2.50 | 100 + 25.0 |" in text
    assert "| as they are | 1.00 | 2.00 | 25.0% | 3 | 900 |" in text
    assert "| 4 and 4 | 2,000 | 1,150 | 1.05 | 4.00 |" in text
    assert "What hardware" not in text


def test_the_disk_of_a_team_is_what_the_month_measured():
    month = make_month([make_day(1, bytes_per_event=2**30 / 88_000)])

    text = record.page(Growth(machine=MACHINE, stages=[_stage(1000)]), month)

    assert "| 1 | 88,000 | 1.0 GiB | 5 GiB |" in text
    assert "| 20 | 1,760,000 | 20.0 GiB | 100 GiB |" in text


@pytest.mark.slow
def test_a_stage_and_a_churn_are_measured():
    with world(durable=False) as here:
        stage = measure_stage(here, 500, 20)
        churn = measure_churn(here, "as they are", SETTINGS["as they are"], 50)

    assert set(stage.costs) == {kind.name for kind in (*KINDS, *LISTS)}
    assert all(cost.program_us + cost.postgres_us > 0 for cost in stage.costs.values())
    assert {"agent_events", "observations"} < {table.name for table in stage.tables if table.table_bytes}
    assert churn.lanes_bytes > 0
