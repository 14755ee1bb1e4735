"""Newer words of a user name the older ones that they may replace."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cmserver.consolidation.later_words import find_earlier

FOLDER = Path(__file__).parent / "later_words"


@pytest.mark.parametrize("half", ["dev", "held_back"])
def test_what_has_changed_is_named(half: str):
    pairs: dict[str, list[list[str]]] = tomllib.loads((FOLDER / f"{half}.toml").read_text("utf-8"))

    named = {label: [pair for pair in rows if find_earlier([pair[0]], pair[1]) == 0] for label, rows in pairs.items()}

    assert len(named["changed"]) >= 0.5 * len(pairs["changed"])
    assert len(named["other"]) <= 0.5 * len(named["changed"]), named["other"]
