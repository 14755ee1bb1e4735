"""What a benchmark comes to: figures, each with the thing it is compared with, measured in the same round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

Unit = Literal["requests/s", "observations/s", "events/s", "ms", "s", "tokens", "%", "MiB", "kB", "bytes", "entries"]


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure should reach: its ratio, or its own median."""

    of: Literal["ratio", "median"]
    at_least: bool
    bound: float

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'under'} {self.bound:,g}"

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value < self.bound


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. A pair is one round: the thing that is measured, and its yardstick a moment before or after it."""

    name: str
    unit: Unit
    yardstick: str
    """What it is compared with, in words."""
    pairs: list[tuple[float, float]]
    aim: Aim
    note: str = ""

    @property
    def median(self) -> float:
        return median(measured for measured, _ in self.pairs)

    @property
    def yardstick_median(self) -> float:
        return median(yardstick for _, yardstick in self.pairs)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: never of numbers that were not measured in the same round."""
        return median(measured / yardstick for measured, yardstick in self.pairs)

    @property
    def judged(self) -> float:
        return self.ratio if self.aim.of == "ratio" else self.median

    @property
    def is_met(self) -> bool:
        return self.aim.met_by(self.judged)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent of them do not exceed. ValueError when there are none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(milliseconds: Sequence[float]) -> str:
    """`p50 1.2 ms, p99 3.4 ms`."""
    return f"p50 {shown(percentile(milliseconds, 50))} ms, p99 {shown(percentile(milliseconds, 99))} ms"


def shown(value: float) -> str:
    """Three digits that say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(figure: Figure) -> str:
    """A figure as it is printed."""
    verdict = "ok " if figure.is_met else "NOT"
    measured = f"{shown(figure.median)} {figure.unit}"
    compared = f"{figure.ratio:.2f} of {figure.yardstick} ({shown(figure.yardstick_median)} {figure.unit})"
    aim = f"aim: {figure.aim.of} {figure.aim}"
    return "  ".join(part for part in (verdict, f"{figure.name}: {measured}", compared, aim, figure.note) if part)
