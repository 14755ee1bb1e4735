"""A stranger's first hour, by each way in: at most three commands and two answers until the agent is told what was said before."""

from __future__ import annotations

import pytest

from tests.process.program import measured
from tests.real_agents import first_hour

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", first_hour.WAYS)
def test_the_second_session_is_told_what_was_said_in_the_first(way: str):
    if missing := first_hour.find_missing(way):
        pytest.skip(f"this machine lacks {missing}")

    hour = first_hour.play(way)

    measured(hour.render())
    assert len(hour.commands) <= 3
    assert hour.answers <= 2
    assert [line for step in hour.steps for line in step.find_above_ready()] == []
    assert first_hour.FACT in hour.told
