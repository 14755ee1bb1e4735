"""What rules keep of the labelled sessions: not a fact less than on record, whatever else the machine does."""

from __future__ import annotations

from tests.evaluation.usefulness.corpus import HALVES, Half
from tests.evaluation.usefulness.replay import replay

KEPT: dict[Half, tuple[int, int]] = {"dev": (163, 15), "held_back": (129, 10)}
"""By half: facts kept at least, false statements at most."""


def test_rules_keep_what_they_kept():
    assert set(KEPT) == set(HALVES)
    for half, (kept, wrong) in KEPT.items():
        figures = replay(half)

        assert (figures.kept_facts >= kept, figures.wrong <= wrong) == (True, True), (half, figures)
