"""Stored text costs what its length costs to fence, whatever it holds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from cmserver.base import lookalikes
from cmserver.models.providers.prompts.fence import escape_tags, fence_text
from cmserver.observations.plain import block
from tests.table import try_rows

PIECES = [
    "<", "\u2039", "\u3008", "\uff1c", "\u226e", "\u00ab", "&lt;", "&#60;", "&amp;", "&", "&#38;", "&lang;", "&#8203;", "&#000",
    "\ufdfa",
    "a", ":", "/", " ", "-", "!", "\n", "\u0301", "\u0338", "\u02bc", "\u02b0", "\u200d", "\u200b", "\u2800",
    "cmserver", "system", "event",
]  # fmt: skip
_LENGTH = 8_000
_RANDOM = random.Random(14)
TEXTS = [*PIECES, *("".join(_RANDOM.choices(PIECES, k=_RANDOM.choice([2, 3]))) for _ in range(60)), "\u2039\ufdfa"]


def _repeat(piece: str, length: int) -> str:
    return (piece * length)[:length]


@try_rows("piece", TEXTS, ids=ascii)
def test_each_character_is_folded_at_most_once(piece: str, monkeypatch: pytest.MonkeyPatch):
    fold = lookalikes._fold  # pyright: ignore[reportPrivateUsage]
    read: list[int] = []

    def count(sign: str) -> tuple[str, str]:
        folded = fold(sign)
        read.append(1 + len(folded[0]))
        return folded

    text = _repeat(piece, _LENGTH)

    with monkeypatch.context() as patched:
        patched.setattr(lookalikes, "_fold", count)
        lookalikes.replace_tags(text, lambda _name, _is_apart: False, str)

    assert sum(read) <= 10 * len(text)
    assert len(read) <= len(text)


def _seconds(run: Callable[[str], object], text: str) -> float:
    times: list[float] = []
    for _ in range(3):
        began = time.process_time()
        run(text)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.speed
@try_rows("run", [block, escape_tags, partial(fence_text, max_chars=4_000), lookalikes.clean_name])
def test_no_text_costs_much_more_than_one_of_plain_tags(run: Callable[[str], object]):
    plain = _seconds(block, _repeat("<\u00e9", _LENGTH))

    slow = {piece: _seconds(run, _repeat(piece, _LENGTH)) / plain for piece in TEXTS}

    assert {ascii(piece): ratio for piece, ratio in slow.items() if ratio > 6} == {}


@pytest.mark.speed
@try_rows("piece", ["\u2039", "\u2039\ufdfa", "&#38;", "&lt;&amp;", "<:", "\u02b0:"], ids=ascii)
def test_four_times_the_text_takes_about_four_times_as_long(piece: str):
    assert _seconds(block, _repeat(piece, 40_000)) < 10 * _seconds(block, _repeat(piece, 10_000))
