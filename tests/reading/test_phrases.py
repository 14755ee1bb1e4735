"""The phrases stay few: what none knows is told by its turn's line."""

from __future__ import annotations

import tomllib
from importlib.resources import files


def test_there_are_at_most_600_words_of_phrases():
    tables: dict[str, dict[str, list[str]]] = tomllib.loads(files("cmserver.reading").joinpath("phrases.toml").read_text("utf-8"))

    words = sum(len(part.split()) for table in tables.values() for parts in table.values() for part in parts)

    assert 300 < words <= 600
