"""What was deleted, as both `purge` and the two `delete` tell it."""

from __future__ import annotations

import msgspec

from cmserver.cli.show import pairs


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an erasure: how many there were of what."""

    counts: dict[str, int]


def erased_lines(sentence: str, gone: Erased) -> str:
    """The sentence, and the counts under it."""
    return f"{sentence}\n{pairs(*gone.counts.items())}" if gone.counts else sentence
