"""A token can be decrypted with its own key only, and tells others nothing."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from cmserver.base.token_cipher import TokenCipher
from tests.table import try_rows

CIPHER = TokenCipher(b"s" * 32, b"audit")


@given(st.binary(min_size=1, max_size=64))
def test_what_was_encrypted_can_be_decrypted(plain: bytes):
    assert CIPHER.decrypt(CIPHER.encrypt(plain)) == plain


def test_neighbours_have_nothing_in_common():
    texts = [base64.urlsafe_b64decode(CIPHER.encrypt_number(number)) for number in range(1000, 1100)]

    assert len({text[10:] for text in texts}) == 100
    assert len({text[10:17] for text in texts}) == 100, "not even the bytes that are equal in the numbers"


@try_rows(
    "text",
    [
        "",
        "17",
        "nonsense?",
        "A" * 24,
        TokenCipher(b"t" * 32, b"audit").encrypt_number(17),
        TokenCipher(b"s" * 32, b"x").encrypt_number(17),
    ],
)
def test_anything_else_is_not_decrypted(text: str):
    assert CIPHER.decrypt_number(text) is None


def test_a_changed_text_is_not_decrypted():
    text = CIPHER.encrypt_number(17)

    changed = [text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :] for place in range(len(text) - 2)]

    assert [CIPHER.decrypt_number(token) for token in changed] == [None] * len(changed)
    assert CIPHER.decrypt_number(text) == 17


def test_bytes_that_are_no_number_are_not_taken_for_one():
    assert CIPHER.decrypt_number(CIPHER.encrypt(b"seventeen")) is None
