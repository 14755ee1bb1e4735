"""The comparison with other programs: what is kept of it, when it fails, and that the peers that need no installation run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.bench import page
from tests.bench.load import loader
from tests.bench.peers import record
from tests.bench.peers.command import measure, verdict
from tests.bench.peers.install import Programs, cache_folder
from tests.bench.peers.record import Fall, Round, Run
from tests.bench.peers.subjects import PEERS, Bench
from tests.bench.world import world

MEASURE = "8 connections"


def _rounds(*rates: float, cpu: float = 1.0) -> list[Round]:
    return [Round(per_second=rate, cpu_per_thousand=cpu, p50_ms=1, p99_ms=9) for rate in rates]


def _run(ours: list[Round], theirs: list[Round], *, measured_at: str = "2026-11-24T10:00:00+00:00", commit: str = "abc1234") -> Run:
    machine = {"commit": commit, "measured at": measured_at, "cores": "2", "processor": "a processor", "PostgreSQL": "18.4"}
    return Run(
        machine=machine,
        seconds=3,
        rounds={MEASURE: {"cmserver run": ours, "bullmq": theirs}},
        memory_mib={"bullmq": 37.4},
        names={"cmserver run": "`cmserver run`", "bullmq": "BullMQ"},
        promises={"cmserver run": "on the disk", "bullmq": "in memory"},
    )


def test_a_ratio_is_of_rounds_that_belong_together_and_more_is_better():
    run = _run(_rounds(10, 300, 20, cpu=2), _rounds(100, 200, 10, cpu=1))

    found = record.ratios(run)

    assert found == {
        f"{MEASURE}: cmserver run / bullmq, events/s": 1.5,
        f"{MEASURE}: cmserver run / bullmq, work per CPU second": 0.5,
    }


@pytest.mark.parametrize(("now", "fallen"), [(80, 0), (79, 1), (200, 0)])
def test_only_a_fall_by_more_than_a_fifth_is_told(now: float, fallen: int):
    before = _run(_rounds(100), _rounds(100))

    found = record.falls(before, _run(_rounds(now), _rounds(100)))

    assert len(found) == fallen
    assert verdict(before, found).startswith(f"{fallen} ratios fell")


def test_a_fall_of_cpu_time_is_told_though_the_rate_has_not_fallen():
    found = record.falls(_run(_rounds(100), _rounds(100)), _run(_rounds(100, cpu=1.5), _rounds(100)))

    assert found == [Fall(f"{MEASURE}: cmserver run / bullmq, work per CPU second", 1, 1 / 1.5)]


def test_a_peer_that_only_one_run_has_is_not_compared():
    other = msgspec.structs.replace(
        _run(_rounds(1), _rounds(100)), rounds={MEASURE: {"cmserver run": _rounds(1), "new": _rounds(9)}}
    )

    assert record.falls(_run(_rounds(100), _rounds(100)), other) == []


def test_the_last_kept_run_is_the_one_that_was_measured_last(tmp_path: Path):
    older = _run(_rounds(1), _rounds(1), commit="zzzzzzz")
    newer = _run(_rounds(2), _rounds(1), commit="aaaaaaa with changes", measured_at="2026-11-25T10:00:00+00:00")

    paths = [record.keep(run, tmp_path).name for run in (newer, older)]

    assert paths == ["peers-aaaaaaa.json", "peers-zzzzzzz.json"]
    assert record.last_kept(tmp_path) == newer
    assert verdict(record.last_kept(tmp_path / "none"), []).endswith("bin/bench peers --write")


def test_the_table_has_each_peer_with_its_promise_its_figures_and_its_ratio():
    text = record.section(_run(_rounds(150, cpu=0.5), _rounds(100, cpu=0.25)))

    assert text.startswith("## Beside other programs\n")
    assert "| BullMQ | in memory |" in text
    assert "| `cmserver run` | 150 | 1.00 | 9.00 | 0.500 |  |" in text
    assert "| BullMQ | 100 | 1.00 | 9.00 | 0.250 | 1.50, 0.50 |" in text
    assert "| BullMQ | 37.4 |" in text


def test_the_page_gets_what_the_run_has_both_sides_of():
    ours, theirs = "cmserver run", "claude-mem 13.25.3 worker"
    rounds = {ours: _rounds(10, 30, cpu=4), theirs: _rounds(20, 40, cpu=2)}
    run = msgspec.structs.replace(
        _run([], []),
        rounds={MEASURE: rounds, record.DRAIN: {"cmserver api": _rounds(6), "procrastinate": _rounds(2)}},
        names={name: peer.name for name, peer in PEERS.items()},
        memory_mib={ours: 90, theirs: 120},
    )

    found = {figure.name: (figure.pairs, figure.is_met) for figure in record.figures(run)}

    assert found == {
        "events beside claude-mem 13.25.3, its worker, 8 connections": ([(10, 20), (30, 40)], False),
        "drain, one worker": ([(6, 2)], True),
        "CPU time of an event with its observation, 8 connections": ([(4, 2), (4, 2)], False),
        "memory of `cmserver run` after its events": ([(90, 120)], True),
    }
    assert found.keys() <= set(page.CORE["peers"])


@pytest.mark.slow
def test_peers_that_need_no_installation_store_and_take_events(tmp_path: Path):
    nothing = Programs(node_modules=tmp_path, root=tmp_path, venv=tmp_path)
    with world(durable=False) as here, loader() as over_sql:
        bench = Bench(here, nothing, over_sql)
        start, drain = PEERS["frozen statement"].start, PEERS["cmserver api"].drain
        assert start
        assert drain
        with start(bench) as subject:
            loads = [subject.add(2, 0.3), drain(bench, 40)]

    assert loads[1].events == 40
    assert all(load.events > 0 and load.cpu_seconds > 0 for load in loads)


@pytest.mark.slow
@pytest.mark.skipif(not (cache_folder() / "venv" / ".installed").is_file(), reason="bin/bench peers has not installed the peers")
def test_each_peer_stores_events_and_those_with_a_worker_take_them():
    run = measure(tuple(PEERS), 1, 1, 40)

    assert {name: set(peers) for name, peers in run.rounds.items()} == {
        **{
            measured: {name for name, peer in PEERS.items() if peer.start}
            for measured in ("1 connection", "8 connections", "64 connections")
        },
        "drain, one worker": {name for name, peer in PEERS.items() if peer.drain},
    }
    assert all(round_.per_second > 0 for peers in run.rounds.values() for rounds in peers.values() for round_ in rounds)
    assert record.falls(run, run) == []
