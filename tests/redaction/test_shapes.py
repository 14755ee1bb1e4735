"""How many of the shapes in which secrets turn up are redacted, and which are not, by name."""

from __future__ import annotations

import json

from cmserver.redaction.clean import clean
from tests.redaction.shapes import SHAPES, SURROUNDINGS, UNSEEN, Shape
from tests.redaction.shapes_2 import SHAPES_2
from tests.table import try_rows

LEAST = 140
LEAST_IN_SURROUNDINGS = 0.9

LEFT = {
    "left/bare-words": "words in prose; a rule for them would take every sentence about a passphrase",
    "left/prose": "nothing says that it is a password; whatever mixes letters and digits would go: names of files, versions, ids",
    "left/base64-of-a-line": "would have to be decoded, as all that looks like base64, and what that gives, too",
    "left/reversed": "as any encoding that somebody makes up",
    "left/split-over-two-lines": "neither half says what it is",
    "left/vault-legacy-alone": "`s.` and 24 letters is as much a call of a method; under a telling name it goes",
    "left/pin": "as any number",
}
"""Shapes that stay, and why."""


def stays(shape: Shape, payload: object) -> bool:
    """Whether a planted secret, or a half of it, is still there."""
    shown = json.dumps(clean(payload, field_max_chars=16_000).value, ensure_ascii=False)
    return any(piece in shown for secret in shape.secrets for piece in _pieces(secret))


def _pieces(secret: str) -> list[str]:
    secret = json.dumps(secret, ensure_ascii=False)[1:-1]
    half = max(6, len(secret) // 2)
    return [secret[:half], secret[-half:]]


def test_there_are_151_shapes() -> None:
    assert len(SHAPES) == len({shape.name for shape in SHAPES}) == 151


def test_each_shape_has_its_secret_in_it() -> None:
    for shape in (*SHAPES, *UNSEEN):
        text = json.dumps(shape.payload, ensure_ascii=False)
        assert all(json.dumps(secret)[1:-1] in text for secret in shape.secrets if "\\" not in text), shape.name


def test_at_least_140_of_the_shapes_are_redacted_and_the_others_are_known() -> None:
    staying = {shape.name for shape in SHAPES if stays(shape, shape.payload)}

    assert len(SHAPES) - len(staying) >= LEAST, f"{len(SHAPES) - len(staying)} of {len(SHAPES)}; these stay: {sorted(staying)}"
    assert staying == LEFT.keys()


def test_shapes_that_no_rule_was_written_for_are_redacted() -> None:
    staying = {shape.name for shape in UNSEEN if stays(shape, shape.payload)}

    assert staying == set()


@try_rows("shape", SHAPES_2, ids=lambda shape: shape.name)
def test_a_shape_of_the_second_table_is_redacted(shape: Shape) -> None:
    assert all(json.dumps(secret)[1:-1] in json.dumps(shape.payload).replace("\\\\", "") for secret in shape.secrets)
    assert not stays(shape, shape.payload)


@try_rows("surrounding", SURROUNDINGS)
def test_what_stands_around_a_shape_seldom_hides_it(surrounding: str) -> None:
    tried = [shape for shape in (*SHAPES, *UNSEEN, *SHAPES_2) if shape.name not in LEFT]
    staying = [shape.name for shape in tried if stays(shape, SURROUNDINGS[surrounding](shape.payload))]

    assert 1 - len(staying) / len(tried) >= LEAST_IN_SURROUNDINGS, staying
