"""bin/storm: many storms, beside each other, each in a process of its own."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import SystemRandom
from typing import BinaryIO

import msgspec

from tests.faults import plants
from tests.faults.base import PROGRAM, Base, make_base, temporary_folder
from tests.faults.plan import KINDS, LAYOUTS, Storm, available_kinds, draw
from tests.faults.storm import Report, run_storms
from tests.process.program import measured

LONGEST_SECONDS = 300
_REPORTS = "reports.jsonl"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/storm", description=__doc__)
    parser.add_argument("--storms", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--seed", type=int, help="of the first one; the others follow it (default: random)")
    parser.add_argument(
        "--kinds", help=f"kinds of faults, separated by commas: {', '.join(KINDS)} (default: all that can be played)"
    )
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help=f"separated by commas: {', '.join(LAYOUTS)} (default: all)")
    parser.add_argument("--row", type=int, default=5, help="how many in a row on one system (default: 5)")
    parser.add_argument("--beside", type=int, default=2, help="how many at the same time (default: 2)")
    parser.add_argument("--plant", choices=sorted(plants.PLANTS), help="plant this fault into a copy of the program first")
    parser.add_argument("--keep", type=Path, help="append each report to this file, as a line of JSON")
    parser.add_argument("--seeds", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=3, metavar=("BASE", "PROGRAM", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _end(_signal: int, _frame: object) -> None:
    """So that what the storm has started ends, too."""
    sys.exit(1)


def main() -> int:
    arguments = _arguments()
    kinds = arguments.kinds.split(",") if arguments.kinds else available_kinds()
    layouts = arguments.layouts.split(",")
    if unknown := {*kinds} - {*KINDS} | {*layouts} - {*LAYOUTS}:
        sys.stderr.write(f"bin/storm: unknown: {', '.join(sorted(unknown))}\n")
        return 2
    if arguments.one:
        signal.signal(signal.SIGTERM, _end)
        base, program, folder = map(Path, arguments.one)
        storms = [draw(int(seed), kinds, layouts) for seed in arguments.seeds.split(",")]
        with (folder / _REPORTS).open("ab", buffering=0) as file:
            for report in run_storms(storms, Base(base), folder, program):
                file.write(msgspec.json.encode(report) + b"\n")
        return 0
    if missing := [kind for kind in KINDS if kind not in available_kinds() and not arguments.kinds]:
        sys.stderr.write(f"bin/storm: left out on this machine: {', '.join(missing)}\n")
    first = arguments.seed if arguments.seed is not None else SystemRandom().randrange(10**6) * 1000
    reports: list[Report] = []
    with temporary_folder() as folder, ThreadPoolExecutor(arguments.beside) as pool:
        (folder / "base").mkdir(mode=0o711)
        make_base(folder / "base")
        program = plants.plant(arguments.plant, folder / "program") if arguments.plant else PROGRAM
        storms = [draw(seed, kinds, layouts) for seed in range(first, first + arguments.storms)]
        rows = [row for layout in layouts for row in _in_rows(storms, layout, arguments.row)]
        running = {pool.submit(_run_apart, row, kinds, layouts, folder, program): row for row in sorted(rows, key=_first_seed)}
        while running:
            done = next(as_completed(running))
            row = running.pop(done)
            new = done.result()
            if rest := row[len(new) :]:  # they come after one that failed, and get a system of their own
                running[pool.submit(_run_apart, rest, kinds, layouts, folder, program)] = rest
            reports += new
            for report in new:
                measured(str(report))
            if arguments.keep:
                with arguments.keep.open("ab") as file:
                    file.writelines(msgspec.json.encode(report) + b"\n" for report in new)
    failed = [report.storm.seed for report in reports if report.violations]
    measured(
        f"{len(reports)} storms from seed {first}: {sum(report.events for report in reports)} events acknowledged, "
        f"{sum(report.hook_calls for report in reports)} hooks called, {sum(report.restarts for report in reports)} restarts, "
        f"longest recovery {max(report.recovery_seconds for report in reports):.1f} s; "
        + (f"failed: {', '.join(map(str, sorted(failed)))}" if failed else "all held")
    )
    return 1 if failed else 0


def _in_rows(storms: Sequence[Storm], layout: str, length: int) -> list[list[Storm]]:
    """The storms of that layout, so many to a row."""
    own = [storm for storm in storms if storm.layout == layout]
    return [own[start : start + length] for start in range(0, len(own), length)]


def _first_seed(row: Sequence[Storm]) -> int:
    return row[0].seed


def _run_apart(row: Sequence[Storm], kinds: Sequence[str], layouts: Sequence[str], folder: Path, program: Path) -> list[Report]:
    """Run the row in a process and a folder of its own, up to the first that fails; the logs of that are kept."""
    own = folder / f"s{row[0].seed}"
    own.mkdir(mode=0o711)
    seeds = ",".join(str(storm.seed) for storm in row)
    words = ["--seeds", seeds, "--kinds", ",".join(kinds), "--layouts", ",".join(layouts)]
    trouble = "the storm itself ended"
    with (own / "storm.log").open("wb") as output:
        try:
            _run(
                [sys.executable, "-m", "tests.faults", *words, "--one", str(folder / "base"), str(program), str(own)],
                output,
                len(row),
            )
        except subprocess.TimeoutExpired as error:
            trouble = f"the storm itself took more than {error.timeout:.0f} s"
    lines = (own / _REPORTS).read_bytes().splitlines() if (own / _REPORTS).exists() else []
    reports = [msgspec.json.decode(line, type=Report) for line in lines]
    if len(reports) < len(row) and not (reports and reports[-1].violations):
        reports.append(Report(storm=row[len(reports)], violations=[trouble]))
    if reports[-1].violations:
        kept = Path(tempfile.mkdtemp(prefix=f"storm-{reports[-1].storm.seed}-"))
        for log in [*own.glob("*.log"), *own.glob("*/postgres.log")]:
            shutil.copyfile(log, kept / log.name)
        reports[-1].violations.append(f"see {kept}")
    shutil.rmtree(own, ignore_errors=True)
    return reports


def _run(words: Sequence[str], output: BinaryIO, storms: int) -> None:
    storm = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        storm.wait(LONGEST_SECONDS * storms)
    finally:
        if storm.poll() is None:
            storm.terminate()
            storm.wait()


if __name__ == "__main__":
    sys.exit(main())
