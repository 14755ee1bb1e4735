"""The simulated month: what counts as flat, and a short one lived through."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.bench.month import record
from tests.bench.month.command import SHORT
from tests.bench.month.record import Day, Month
from tests.bench.month.simulation import live
from tests.bench.world import world


def make_day(number: int, **others: float) -> Day:
    """A day like all others, but for what is named."""
    same = Day(
        day=number,
        events=100,
        hook_p99_ms=10,
        context_p99_ms=20,
        search_p99_ms=20,
        cpu_ms_per_event=2,
        memory_mib=120,
        postgres_mib=90,
        file_descriptors=30,
        connections=12,
        bytes_per_event=9000,
        queue_bytes=600_000,
        dead_share=0.01,
    )
    return msgspec.structs.replace(same, **others)


def make_month(days: list[Day]) -> Month:
    """A month that went well."""
    return Month(
        machine={"commit": "abc", "date": "2026-11-24"},
        people=20,
        days=days,
        outages=[3],
        restarts=[6],
        kills=[],
        verified=True,
        lost_events=0,
        doubled_events=0,
    )


def test_a_level_month_is_flat_whatever_its_first_week_was():
    days = [make_day(number, memory_mib=80 if number < 8 else 120) for number in range(1, 29)]

    assert record.rises(days) == []
    assert "Nothing grew" in record.section(make_month(days))


def test_what_grows_after_the_second_week_is_named():
    days = [make_day(number, memory_mib=100 + number) for number in range(1, 29)]

    assert record.rises(days) == ["memory of the program: 111 MiB in the second week, 125 MiB in the last"]
    assert "**Not flat:** memory of the program" in record.section(make_month(days))


def test_a_short_month_is_not_judged():
    days = [make_day(number, memory_mib=100 * number) for number in range(1, 10)]

    assert record.rises(days) == []
    assert "too short to say" in record.section(make_month(days))


def test_what_was_kept_is_read_again(tmp_path: Path):
    month = make_month([make_day(number) for number in range(1, 29)])

    record.keep(month, tmp_path)

    assert record.last_kept(tmp_path) == month


@pytest.mark.slow
def test_after_days_with_outage_crash_and_restart_every_event_is_there_once():
    with world(durable=False) as here:
        month = live(here, SHORT, 19, lambda _: None)

    assert month.verified
    assert (month.lost_events, month.doubled_events) == (0, 0)
    assert [month.outages, month.kills, month.restarts] == [[3], [4], [6]]
    assert [day.day for day in month.days] == [1, 2, 3, 4, 5, 8, 9]
