"""How long the program takes to its first 200 from /readyz: with an empty data folder, and the next time."""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.load import ROOT
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import World, free_port, program

HOW = (
    "`bin/cmserver run` with the venv already made, on a data folder that does not exist: initdb, migrations, first key; "
    "stopped by SIGTERM, and started again on the same folder. The time is from the start of the script to the first 200 of "
    "/readyz."
)


def run(world: World, scale: Scale) -> list[Figure]:
    """`bin/cmserver run` as a user starts it, on its own embedded PostgreSQL; each round a cold start, then a warm one."""
    pairs: list[tuple[float, float]] = []
    for _ in range(scale.starts):
        folder = world.free_folder()
        pairs.append((_seconds(folder), _seconds(folder)))
    return [
        Figure(
            name="cold start, from an empty data folder to /readyz",
            unit="s",
            yardstick="the warm start after it",
            pairs=pairs,
            aim=Aim(of="median", at_least=False, bound=8),
        ),
        Figure(
            name="warm start, to /readyz",
            unit="s",
            yardstick="the cold start before it",
            pairs=[(warm, cold) for cold, warm in pairs],
            aim=Aim(of="median", at_least=False, bound=2),
        ),
    ]


def _seconds(data_dir: Path) -> float:
    began = time.perf_counter()
    with program([str(ROOT / "bin" / "cmserver"), "run"], {"log_format": "json"}, data_dir, port=free_port()):
        return time.perf_counter() - began
