"""How far long work is: a bar on a terminal, a line a minute elsewhere, and what Ctrl-C leaves."""

from __future__ import annotations

import asyncio
import sys

import pytest

from cmserver.cli import progress as module
from cmserver.cli.progress import Progress


class Clock:
    """Stands still until it is moved."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def make(total: int) -> Progress:
    return Progress("Importing", total, "lines", interrupted="It goes on there.")


def test_elsewhere_than_on_a_terminal_there_is_a_line_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with make(200) as progress:
        for second in range(1, 151):
            clock.seconds = second
            progress.show(second)

    assert capsys.readouterr().err.splitlines() == [
        "Importing: 60 of 200 (30 %) lines, 140 s left",
        "Importing: 120 of 200 (60 %) lines, 80 s left",
    ]


def test_on_a_terminal_there_is_a_bar_that_goes_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with make(200) as progress:
        progress.show(1)  # too soon
        clock.seconds = 10
        progress.show(100)
        clock.seconds = 20
        progress.show(300)

    bars = capsys.readouterr().err.split("\r\033[K")
    assert bars == [
        "",
        f"[{'#' * 15}{'.' * 15}] Importing: 100 of 200 (50 %) lines, 10 s left",
        f"[{'#' * 30}] Importing: 300 of 200 (100 %) lines",
        "",
    ]


def test_without_a_total_there_is_neither_share_nor_rest(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with make(0) as progress:
        clock.seconds = 60
        progress.show(7)

    assert capsys.readouterr().err == "Importing: 7 lines\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [(KeyboardInterrupt, "It goes on there.\n"), (asyncio.CancelledError, "It goes on there.\n"), (ValueError, "")],
)
def test_ctrl_c_says_what_becomes_of_what_is_done(error: type[BaseException], text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(error), make(3):
        raise error

    assert capsys.readouterr().err == text
