"""How far long work is: a bar on a terminal, else a line a minute on standard error."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType
from typing import Self

import click

POLL_SECONDS = 1.0
"""Between two looks at work that a server does."""
_BAR_COLUMNS = 30
_LINE_SECONDS = 60.0
_BAR_SECONDS = 0.1


class Progress:
    """Shows how many of `total` things are done; 0 when that is not known. At the end of the block the bar is cleared.

    Ctrl-C ends the block with the sentence `interrupted`, which says what becomes of what is done.
    """

    def __init__(self, label: str, total: int, unit: str, *, interrupted: str) -> None:
        self._label, self._total, self._unit, self._interrupted = label, total, unit, interrupted
        self._is_terminal = sys.stderr.isatty()
        self._began = self._shown_at = time.monotonic()
        self._is_shown = False

    def show(self, done: int) -> None:
        """Called as often as one likes."""
        now = time.monotonic()
        if now - self._shown_at < (_BAR_SECONDS if self._is_terminal else _LINE_SECONDS):
            return
        self._shown_at, self._is_shown = now, True
        text = self._text(done, now - self._began)
        click.echo(f"\r\033[K{self._bar(done)}{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._is_terminal and self._is_shown:
            click.echo("\r\033[K", err=True, nl=False)
        if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):  # what asyncio makes of Ctrl-C
            click.echo(self._interrupted, err=True)

    def _bar(self, done: int) -> str:
        if not self._total:
            return ""
        filled = min(_BAR_COLUMNS, _BAR_COLUMNS * done // self._total)
        return f"[{'#' * filled}{'.' * (_BAR_COLUMNS - filled)}] "

    def _text(self, done: int, seconds: float) -> str:
        share = f" of {self._total} ({min(100, 100 * done // self._total)} %)" if self._total else ""
        left = f", {(self._total - done) * seconds / done:.0f} s left" if self._total > done > 0 else ""
        return f"{self._label}: {done}{share} {self._unit}{left}"
