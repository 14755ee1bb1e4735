"""Fits how a cosine tells a project's own titles from strangers': a logistic regression of one feature, by Newton's method."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from statistics import fmean, pstdev

from cmserver.embeddings.model import Calibration

_STEPS = 50
_RIDGE = 0.01
"""Keeps the slope finite where a cosine separates all of them."""
_MIN_DEVIATION = 1e-4


def fit(own: Sequence[float], strangers: Sequence[float]) -> Calibration | None:
    """From the cosine of each title to its nearest document, both classes weighing the same; None where it says nothing."""
    cosines = [*own, *strangers]
    mean, deviation = fmean(cosines), pstdev(cosines)
    if deviation < _MIN_DEVIATION:
        return None
    points = [((cosine - mean) / deviation, 1.0, 0.5 / len(own)) for cosine in own]
    points += [((cosine - mean) / deviation, 0.0, 0.5 / len(strangers)) for cosine in strangers]
    intercept = slope = 0.0
    for _ in range(_STEPS):
        gradient_0 = gradient_1 = h_00 = h_01 = h_11 = 0.0
        for x, label, weight in points:
            probability = 1 / (1 + exp(-(intercept + slope * x)))
            error, curvature = weight * (label - probability), weight * probability * (1 - probability)
            gradient_0, gradient_1 = gradient_0 + error, gradient_1 + error * x
            h_00, h_01, h_11 = h_00 + curvature, h_01 + curvature * x, h_11 + curvature * x * x
        gradient_1, h_11 = gradient_1 - _RIDGE * slope, h_11 + _RIDGE
        determinant = h_00 * h_11 - h_01 * h_01
        step_0 = (h_11 * gradient_0 - h_01 * gradient_1) / determinant
        step_1 = (h_00 * gradient_1 - h_01 * gradient_0) / determinant
        intercept, slope = intercept + step_0, slope + step_1
        if sqrt(step_0 * step_0 + step_1 * step_1) < 1e-9:
            break
    if slope <= 0:
        return None
    return Calibration(intercept=intercept - slope * mean / deviation, slope=slope / deviation)
