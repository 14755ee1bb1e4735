"""The regression finds where a title is as likely the project's own as a stranger's, whatever range the cosines have."""

from __future__ import annotations

import random

import pytest

from cmserver.embeddings.calibration.fit import fit
from cmserver.embeddings.model import Calibration


def draw(mean: float, deviation: float, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(mean, deviation) for _ in range(count)]


def even_cosine(calibration: Calibration | None) -> float:
    assert calibration is not None
    return -calibration.intercept / calibration.slope


def test_the_even_cosine_lies_between_the_two():
    calibration = fit(draw(0.5, 0.1, 100, 1), draw(0.3, 0.1, 100, 2))

    assert even_cosine(calibration) == pytest.approx(0.4, abs=0.03)


def test_more_strangers_than_titles_do_not_move_it():
    own, strangers = draw(0.5, 0.1, 100, 1), draw(0.3, 0.1, 100, 2)

    assert even_cosine(fit(own, strangers * 5)) == pytest.approx(even_cosine(fit(own, strangers)), abs=1e-3)


def test_cosines_of_another_range_mean_the_same():
    own, strangers = draw(0.5, 0.1, 100, 1), draw(0.3, 0.1, 100, 2)
    usual = fit(own, strangers)
    squeezed = fit([0.8 + cosine / 10 for cosine in own], [0.8 + cosine / 10 for cosine in strangers])

    assert usual is not None
    assert squeezed is not None
    for cosine in (0.2, 0.4, 0.7):
        there = squeezed.intercept + squeezed.slope * (0.8 + cosine / 10)
        assert there == pytest.approx(usual.intercept + usual.slope * cosine, abs=1e-6)


def test_what_is_told_apart_without_fail_still_has_an_end():
    calibration = fit([0.8, 0.9] * 40, [0.1, 0.2] * 40)

    assert calibration is not None
    assert 0 < calibration.slope < 100
    assert even_cosine(calibration) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("own", "strangers"),
    [([0.5] * 60, [0.5] * 60), ([0.2, 0.3] * 30, [0.6, 0.7] * 30)],
    ids=["all alike", "strangers are nearer"],
)
def test_a_cosine_that_says_nothing_is_not_calibrated(own: list[float], strangers: list[float]):
    assert fit(own, strangers) is None
