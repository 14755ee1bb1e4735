"""Newer words of a user replace older ones only where both are about the same matter."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cmserver.consolidation.later_words import replaces

FOLDER = Path(__file__).parent / "later_words"


@pytest.mark.parametrize("half", ["dev", "held_back"])
def test_what_is_replaced_is_about_the_same_matter(half: str):
    pairs: dict[str, list[list[str]]] = tomllib.loads((FOLDER / f"{half}.toml").read_text("utf-8"))

    replaced = {label: [pair for pair in rows if replaces(pair[0], pair[1])] for label, rows in pairs.items()}

    made = len(replaced["changed"]) + len(replaced["other"])
    assert len(replaced["other"]) <= 0.02 * made, replaced["other"]
    assert len(replaced["changed"]) >= 0.5 * len(pairs["changed"])
