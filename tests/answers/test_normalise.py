"""Quotes and numbers of a model's answer are bounded before they are read."""

from __future__ import annotations

import pytest

from cmserver.answers.text_fields import read_numbers
from cmserver.models.providers.model import DraftObservation
from cmserver.observations.normalise import normalise_observation
from cmserver.reading.text import MAX_QUOTE
from tests.table import try_rows


@pytest.mark.parametrize("part", ["a.", "a::", "@", "a_", "`"])
def test_a_quote_is_kept_to_its_length(part: str):
    clean = normalise_observation(DraftObservation(title="A title", quote=part * 30_000), [])

    assert clean is not None
    assert clean.quote is not None
    assert 0 < len(clean.quote) <= MAX_QUOTE


@try_rows(
    ("text", "numbers"),
    [("#12, #15", [12, 15]), ("12 15", [12, 15]), ("", []), ("nothing; 3 of 5 tests pass since 2024", []), ("e1", []), ("#", [])],
)
def test_numbers_are_read_from_a_list_of_numbers_only(text: str, numbers: list[int]):
    assert read_numbers([text]) == numbers
