"""What happened to a load's events in each case, kept for a table. `python -m tests.cluster.record` writes it into its page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from tests.bench import page
from tests.house.house import ROOT

FILE = ROOT / "tests" / "bench" / "kept" / "cluster.json"
PAGE = ROOT / "docs" / "why" / "scale.md"
RECORD = "CMSERVER_TEST_RECORD"
"""The variable that names the file to which outcomes are added; without it nothing is kept."""
_BEGIN, _END = "<!-- The cases: generated from tests/bench/kept/cluster.json. -->\n", "<!-- The end of what is generated. -->\n"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One case of one run."""

    case: str
    seed: int
    acknowledged: int
    lost: int
    doubled: int
    """Events that are stored twice, or observed twice."""
    median_wait: float
    """Of an event, in seconds, from the first time it was sent until it was acknowledged."""
    longest_wait: float
    slowest_answer: float
    """Of a server, in seconds, whatever it said."""
    commit: str
    date: str
    load: str
    """The machine's load average at the end."""


def machine() -> dict[str, str]:
    facts = page.machine("")
    return {"commit": facts["commit"], "date": facts["date"], "load": facts["load at the end"]}


def keep(outcome: Outcome) -> None:
    """Add it to the file of CMSERVER_TEST_RECORD."""
    if name := os.environ.get(RECORD):
        file = Path(name)
        file.write_bytes(msgspec.json.format(msgspec.json.encode([*kept(file), outcome]), indent=1) + b"\n")


def kept(file: Path = FILE) -> list[Outcome]:
    return msgspec.json.decode(file.read_bytes(), type=list[Outcome]) if file.is_file() else []


def table(outcomes: Sequence[Outcome]) -> str:
    """A row a case, in the order in which the cases were tried first."""
    seeds = list(dict.fromkeys(outcome.seed for outcome in outcomes))
    dates = sorted({f"{outcome.date} ({outcome.commit})" for outcome in outcomes})
    head = [
        "What happens",
        "Longest wait of an event, median",
        "worst",
        "Slowest answer",
        "Median event",
        "Acknowledged",
        "Lost",
        "Doubled",
    ]
    loads = [float(outcome.load) for outcome in outcomes]
    lines = [
        (
            f"{len(seeds)} runs, {', '.join(dates)}, on two cores at a load average of {min(loads):.0f} to {max(loads):.0f}, "
            f"seeds {', '.join(map(str, seeds))}:\n"
        ),
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
    ]
    for case in dict.fromkeys(outcome.case for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.case == case]
        waits = [run.longest_wait for run in runs]
        slowest = max(run.slowest_answer for run in runs)
        usual = median(run.median_wait for run in runs) * 1000
        counts = [sum(run.acknowledged for run in runs), sum(run.lost for run in runs), sum(run.doubled for run in runs)]
        seconds = [f"{value:.1f} s" for value in (median(waits), max(waits), slowest)]
        cells = [case, *seconds, f"{usual:.0f} ms", *(f"{count:,}" for count in counts)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, outcomes: Sequence[Outcome]) -> str:
    """The page, its table written again."""
    before, rest = text.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table(outcomes)}\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    assert kept(), "no case was tried: etcd-server and iproute2 of Debian are needed, and root"
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), kept()), "utf-8")
