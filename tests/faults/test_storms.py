"""Storms in their short form: faults of random kinds under load, and afterwards everything holds. bin/storm is the long form.

The faults are those of the seed CMSERVER_TEST_STORM_SEED, else 1; what the processes do meanwhile is up to the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.base import Base
from tests.faults.plan import LAYOUTS, available_kinds, draw
from tests.faults.storm import run_storm
from tests.process.program import measured

pytestmark = pytest.mark.slow

_SEED = int(os.environ.get("CMSERVER_TEST_STORM_SEED", "1"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_a_storm_nothing_is_lost_doubled_or_stuck(base: Base, folder: Path, layout: str):
    report = run_storm(draw(_SEED, available_kinds(), [layout]), base, folder)

    measured(str(report))
    assert report.violations == [], str(report)
    assert report.events > 0
    assert report.hook_calls > 0
    assert report.replaying.ended > 0
    assert report.replaying.looks > 0
    assert report.pinning.checks > 0


def test_connections_that_fall_silent_for_good_hold_nothing_up(base: Base, folder: Path):
    report = run_storm(draw(50, ["net-silent"]), base, folder)

    measured(str(report))
    assert report.violations == [], str(report)
    assert report.events > 0
    assert report.hook_calls > 0


def test_what_the_steward_wrote_under_kills_and_freezes_can_be_undone_and_people_keep_their_words(base: Base, folder: Path):
    """bin/storm --kinds kill-steward,freeze-steward,kill-postgres,kill-backend --storms 70 is the long form."""
    report = run_storm(draw(_SEED, ["kill-steward", "freeze-steward", "kill-backend", "provider-500"], ["split"]), base, folder)

    measured(str(report))
    assert report.violations == [], str(report)
    assert report.keeping.merged > 0
    assert report.keeping.undone > 0


def test_a_storm_is_repeated_by_its_seed():
    kinds = available_kinds()

    assert draw(7, kinds) == draw(7, kinds)
    assert len({str(draw(seed, kinds)) for seed in range(50)}) == 50
    assert {fault.kind for seed in range(200) for fault in draw(seed, kinds).faults} == {*kinds}
