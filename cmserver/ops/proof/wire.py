"""The proof on the wire, and its sentences."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.base.structs import reshape
from cmserver.base.text import Text
from cmserver.ops.proof.compare import MIN_NON_ZERO, MIN_SESSIONS
from cmserver.ops.proof.model import MAX_DAYS, USUAL_DAYS, MeanInterval, MeasureComparison, MeasureName, Verdict

CALLED: dict[MeasureName, str] = {
    "turns": "turns to the end",
    "repeated_failures": "failing checks repeated",
    "repeated_questions": "questions asked again",
    "tokens": "tokens",
}
MEANT: dict[MeasureName, str] = {
    "turns": "How often the user had to ask until the session ended.",
    "repeated_failures": "How often a check failed again that had failed in the same session: the same command, folder and tests.",
    "repeated_questions": "Prompts that say the same as one of an earlier session of the project, but for case and signs.",
    "tokens": "What the hooks reported of the session, and what it was told, four characters a token. No agent's bill.",
}


class ProofQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`days` is of how many days; `project` is of which project, else of all that the key sees."""

    project: Text | None = None
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = USUAL_DAYS


class ArmOut(msgspec.Struct, frozen=True, kw_only=True):
    """An arm. `begun` is how many sessions are in it; `compared` is how many of them have ended with a prompt."""

    begun: int
    compared: int


class MeanIntervalOut(MeanInterval, frozen=True, kw_only=True):
    """An interval that has the mean with a confidence of 99 %. `mean` is that of a session; `low` is where the interval begins;
    `high` is where it ends.
    """


class MeasureOut(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of both arms. `name` is what is measured. `told` is its mean in the told sessions, or null for fewer than thirty;
    `untold` is that of the untold ones. `difference` is what the told ones have more, or null while there are too few. `verdict` is
    whether they have `less` or `more` of it; `sentence` is that in words.
    """

    name: MeasureName
    told: MeanIntervalOut | None
    untold: MeanIntervalOut | None
    difference: MeanIntervalOut | None
    verdict: Verdict
    sentence: str


class ProofOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The sessions of some days in two arms. `days` is how many these are; `untoldShare` is how many of a hundred new sessions are
    told nothing. `told` is the arm that is told as ever; `untold` is the one that is told nothing; `measures` is what is compared
    of them, nothing before a session has ended.
    """

    days: int
    untold_share: int
    told: ArmOut
    untold: ArmOut
    measures: list[MeasureOut]


def measure_out(comparison: MeasureComparison, told: ArmOut, untold: ArmOut) -> MeasureOut:
    """The comparison with its sentence; the arms say how many sessions there are."""
    return MeasureOut(
        name=comparison.name,
        told=_interval_out(comparison.told),
        untold=_interval_out(comparison.untold),
        difference=_interval_out(comparison.difference),
        verdict=comparison.verdict,
        sentence=_render_verdict(comparison, told, untold),
    )


def _interval_out(interval: MeanInterval | None) -> MeanIntervalOut | None:
    return None if interval is None else reshape(interval, MeanIntervalOut)


def _render_verdict(comparison: MeasureComparison, told: ArmOut, untold: ArmOut) -> str:
    name, difference = CALLED[comparison.name], comparison.difference
    if difference is None:
        return (
            f"No difference yet in {name}: {told.compared} told and {untold.compared} untold sessions have ended; "
            f"{MIN_SESSIONS} of each are needed, {MIN_NON_ZERO} of them with more than none."
        )
    if comparison.verdict == "no_difference":
        fewer, more = format_figure(abs(difference.low)), format_figure(abs(difference.high))
        return f"No difference yet in {name}: between {fewer} fewer and {more} more when told, and that may be none."
    more = "fewer" if comparison.verdict == "less" else "more"
    low, high = sorted((abs(difference.low), abs(difference.high)))
    return (
        f"Told sessions have {format_figure(abs(difference.mean))} {more} {name} ({format_figure(low)} to {format_figure(high)})."
    )


def format_interval(interval: MeanInterval | None) -> str:
    """The mean and its interval; empty without one."""
    if interval is None:
        return ""
    return f"{format_figure(interval.mean)} ({format_figure(interval.low)} to {format_figure(interval.high)})"


def format_figure(figure: float) -> str:
    """Two places, and none from a hundred on."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.2f}"
