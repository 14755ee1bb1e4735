"""What is sealed can be opened with the same secret only, and says nothing to others."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.base.sealed import Seal

SEAL = Seal(b"s" * 32, b"audit")


@given(st.binary(min_size=1, max_size=64))
def test_what_was_closed_can_be_opened(plain: bytes):
    assert SEAL.open(SEAL.close(plain)) == plain


def test_neighbours_have_nothing_in_common():
    texts = [base64.urlsafe_b64decode(SEAL.close_number(number)) for number in range(1000, 1100)]

    assert len({text[10:] for text in texts}) == 100
    assert len({text[10:17] for text in texts}) == 100, "not even the bytes that are equal in the numbers"


@pytest.mark.parametrize(
    "text", ["", "17", "nonsense?", "A" * 24, Seal(b"t" * 32, b"audit").close_number(17), Seal(b"s" * 32, b"x").close_number(17)]
)
def test_anything_else_is_not_opened(text: str):
    assert SEAL.open_number(text) is None


def test_a_changed_text_is_not_opened():
    text = SEAL.close_number(17)

    changed = [text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :] for place in range(len(text) - 2)]

    assert [SEAL.open_number(one) for one in changed] == [None] * len(changed)
    assert SEAL.open_number(text) == 17


def test_bytes_that_are_no_number_are_not_taken_for_one():
    assert SEAL.open_number(SEAL.close(b"seventeen")) is None
