"""Compares two arms by their means and variances (Welch), with a confidence of 99 %."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

from cmserver.ops.proof.model import ArmMeasure, MeanInterval, MeasureComparison, Verdict

MIN_SESSIONS = 30
"""Below so many in an arm nothing is said of a difference."""
_Z = NormalDist().inv_cdf(0.995)


def compare(told: ArmMeasure | None, untold: ArmMeasure | None) -> MeasureComparison | None:
    """The measure in both arms; None where neither has a session."""
    known = told or untold
    if known is None:
        return None
    difference = _subtract(told, untold) if told and untold else None
    verdict: Verdict
    if difference is None or told is None or untold is None or min(told.sessions, untold.sessions) < MIN_SESSIONS:
        verdict = "too_few"
    elif difference.low <= 0 <= difference.high:
        verdict = "no_difference"
    else:
        verdict = "less" if difference.high < 0 else "more"
    return MeasureComparison(
        name=known.name,
        told=_of_arm(told),
        untold=_of_arm(untold),
        difference=None if verdict == "too_few" else difference,
        verdict=verdict,
    )


def _of_arm(measure: ArmMeasure | None) -> MeanInterval | None:
    if measure is None or measure.variance is None:
        return None
    return _interval(measure.mean, measure.variance / measure.sessions, measure.sessions - 1)


def _subtract(told: ArmMeasure, untold: ArmMeasure) -> MeanInterval | None:
    """Welch's interval of the difference of the means."""
    if told.variance is None or untold.variance is None:
        return None
    parts = [(arm.variance or 0.0) / arm.sessions for arm in (told, untold)]
    squared = sum(parts)
    weights = sum(part**2 / (arm.sessions - 1) for part, arm in zip(parts, (told, untold), strict=True))
    freedom = squared**2 / weights if weights else told.sessions + untold.sessions - 2
    return _interval(told.mean - untold.mean, squared, freedom)


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
