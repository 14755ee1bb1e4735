"""Secrets behind colours, control and invisible characters, which whoever reads the text later does not see."""

from __future__ import annotations

import json

import pytest

from cmserver.redaction.clean import clean
from cmserver.redaction.redact import redact
from tests.table import try_rows

TOKEN = "ghp_" + "aB3dE5fG7hJ9" * 3

HIDDEN = {
    "grep's colours": ("\x1b[01;31m\x1b[KPASSWORD\x1b[m\x1b[K=hunter2XyCOL9", "hunter2XyCOL9"),
    "a coloured value": ('"password": \x1b[32m"hunter2XyCOL9"\x1b[0m', "hunter2XyCOL9"),
    "a token in two colours": (f"{TOKEN[:20]}\x1b[1m{TOKEN[20:]}\x1b[0m", TOKEN[20:]),
    "a zero width in a token": (f"{TOKEN[:20]}\u200b{TOKEN[20:]}", TOKEN[20:]),
    "a soft hyphen in a name": ("pass\u00adword=hunter2XyCOL9", "hunter2XyCOL9"),
    "a bell in a name": ("pass\x07word=hunter2XyCOL9", "hunter2XyCOL9"),
    "a zero width in a mark": ("<priv\u200bate>Anna Berg</priv\u200bate>", "Anna Berg"),
    "a selector in a mark": ("<private\ufe0f>Anna Berg</private>", "Anna Berg"),
}


@try_rows(("text", "secret"), HIDDEN.values(), ids=list(HIDDEN))
def test_what_is_hidden_from_the_eye_is_not_hidden_from_redaction(text: str, secret: str):
    for value in (text, [text], {"tool_response": {"stdout": f"first line\n{text}\nlast line"}}, {text: 1}):
        assert secret not in json.dumps(clean(value, field_max_chars=1000).value, ensure_ascii=False)
    assert secret not in json.dumps(clean(text + "\n" + "x" * 5000, field_max_chars=1000).value)
    assert secret not in redact(text)[0]


@pytest.mark.parametrize(
    "text", ["\x1b[32mok\x1b[0m 12 tests passed", "done \u2705\ufe0f", "\U0001f469\u200d\U0001f4bb wrote it\r\n"]
)
def test_a_text_that_hides_no_secret_stays_as_it_is(text: str):
    assert clean({"stdout": text}, field_max_chars=1000).value == {"stdout": text}
    assert redact(text) == (text, {})


@pytest.mark.parametrize("number", [1e308, -1e308, 1e-300, 1.7976931348623157e308])
def test_a_number_that_would_be_written_with_hundreds_of_digits_is_stored_as_a_text(number: float):
    assert clean({"a": [1.5, number]}, field_max_chars=1000).value == {"a": [1.5, repr(number)]}
    assert clean({"a": [1.5, 0.0, 1e30]}, field_max_chars=1000).value == {"a": [1.5, 0.0, 1e30]}


def test_a_colour_within_a_secret_hides_it_nowhere_in_a_long_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cmserver.redaction.redact._PIECE_CHARS", 5_000)
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    hidden = f"{token[:9]}\x1b[1;31m{token[9:]}"

    shown = {at: redact("x" * (5_000 - at) + " " + hidden + "\r\n" + "y" * 5_000)[0] for at in range(60)}

    assert [at for at, text in shown.items() if token[9:] in text] == []
