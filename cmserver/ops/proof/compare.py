"""Compares two arms by their means and their pooled variance, with a confidence of 99 %."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

from cmserver.ops.proof.model import ArmMeasure, MeanInterval, MeasureComparison, Verdict

MIN_SESSIONS = 30
"""Below so many in an arm nothing is said of a difference, nor of how far the mean may be off."""
MIN_NON_ZERO = 10
"""Nor below so many of an arm that have more than none: an arm with hardly any has hardly a variance."""
_Z = NormalDist().inv_cdf(0.995)


def compare(told: ArmMeasure | None, untold: ArmMeasure | None) -> MeasureComparison | None:
    """The measure in both arms; None where neither has a session."""
    known = told or untold
    if known is None:
        return None
    difference = _subtract(told, untold) if told and untold and _is_enough(told) and _is_enough(untold) else None
    verdict: Verdict
    if difference is None:
        verdict = "too_few"
    elif difference.low <= 0 <= difference.high:
        verdict = "no_difference"
    else:
        verdict = "less" if difference.high < 0 else "more"
    return MeasureComparison(
        name=known.name,
        told=_of_arm(told),
        untold=_of_arm(untold),
        difference=difference,
        verdict=verdict,
    )


def _is_enough(arm: ArmMeasure) -> bool:
    return arm.sessions >= MIN_SESSIONS and arm.non_zero >= MIN_NON_ZERO


def _of_arm(measure: ArmMeasure | None) -> MeanInterval | None:
    """The interval of an arm's mean; none of the measures is below nothing."""
    if measure is None or measure.variance is None or measure.sessions < MIN_SESSIONS:
        return None
    interval = _interval(measure.mean, measure.variance / measure.sessions, measure.sessions - 1)
    return MeanInterval(mean=interval.mean, low=max(interval.low, 0.0), high=interval.high)


def _subtract(told: ArmMeasure, untold: ArmMeasure) -> MeanInterval:
    """The interval of the difference of the means, by the pooled variance: a small arm's own may be far too small by chance."""
    freedom = told.sessions + untold.sessions - 2
    pooled = sum((arm.variance or 0.0) * (arm.sessions - 1) for arm in (told, untold)) / freedom
    return _interval(told.mean - untold.mean, pooled * (1 / told.sessions + 1 / untold.sessions), freedom)


def _interval(mean: float, squared_error: float, freedom: float) -> MeanInterval:
    reach = t_quantile(freedom) * sqrt(squared_error)
    return MeanInterval(mean=mean, low=mean - reach, high=mean + reach)


def t_quantile(freedom: float) -> float:
    """Student's t that 99 % stay within, on both sides; by Hill's expansion, right to a thousandth from ten degrees on."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
