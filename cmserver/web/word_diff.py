"""Compares two texts word by word, for pages that show both side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

_PARTS = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_PARTS = 3_000
"""Longer texts are compared line by line: comparing takes the product of their lengths."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a text; `is_changed` where the other text does not have it."""

    text: str
    is_changed: bool


class WordDiff(msgspec.Struct, frozen=True):
    """Both texts in pieces."""

    left: list[Piece]
    right: list[Piece]

    @property
    def is_same(self) -> bool:
        return not any(piece.is_changed for piece in (*self.left, *self.right))


def compare_words(left: str, right: str) -> WordDiff:
    """Where the texts differ. Pieces of each make up the whole text."""
    left_parts, right_parts = _PARTS.findall(left), _PARTS.findall(right)
    if max(len(left_parts), len(right_parts)) > _MAX_PARTS:
        left_parts, right_parts = left.splitlines(keepends=True), right.splitlines(keepends=True)
    left_pieces: list[Piece] = []
    right_pieces: list[Piece] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left_parts, right_parts, autojunk=False).get_opcodes():
        _add(left_pieces, left_parts[i1:i2], is_changed=tag != "equal")
        _add(right_pieces, right_parts[j1:j2], is_changed=tag != "equal")
    return WordDiff(left_pieces, right_pieces)


def _add(pieces: list[Piece], parts: Sequence[str], *, is_changed: bool) -> None:
    if not parts:
        return
    if pieces and not is_changed and not "".join(parts).strip() and len(parts) == 1 and pieces[-1].is_changed:
        pieces[-1] = Piece(pieces[-1].text + parts[0], is_changed=True)  # a space between two changed words
        return
    if pieces and pieces[-1].is_changed == is_changed:
        pieces[-1] = Piece(pieces[-1].text + "".join(parts), is_changed=is_changed)
        return
    pieces.append(Piece("".join(parts), is_changed=is_changed))
