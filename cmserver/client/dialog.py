"""How the client talks with its user; the commands bring `click.echo` and their questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Report(Protocol):
    """Takes one message; with `err` about something that went wrong."""

    def __call__(self, message: str, *, err: bool = False) -> None: ...


class Dialog(msgspec.Struct, frozen=True):
    """Shows what will change, and asks."""

    report: Report
    confirm: Callable[[str], bool]
    """Asks this question before anything is changed. False in a dry run; raises when the user says no."""
