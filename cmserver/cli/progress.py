"""How far long work is: a bar on a terminal, else a line a minute on standard error."""

from __future__ import annotations

import sys
import time

import click

_BAR_COLUMNS = 30
_LINE_SECONDS = 60.0
_BAR_SECONDS = 0.1


class Progress:
    """Shows how many of `total` things are done; 0 when that is not known."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self._label, self._total, self._unit = label, total, unit
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

    def end(self) -> None:
        """Clear the bar."""
        if self._is_terminal and self._is_shown:
            click.echo("\r\033[K", err=True, nl=False)

    def _bar(self, done: int) -> str:
        if not self._total:
            return ""
        filled = min(_BAR_COLUMNS, _BAR_COLUMNS * done // self._total)
        return f"[{'#' * filled}{'.' * (_BAR_COLUMNS - filled)}] "

    def _text(self, done: int, seconds: float) -> str:
        share = f" of {self._total} ({min(100, 100 * done // self._total)} %)" if self._total else ""
        left = f", {(self._total - done) * seconds / done:.0f} s left" if self._total > done > 0 else ""
        return f"{self._label}: {done}{share} {self._unit}{left}"
