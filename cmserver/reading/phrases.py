"""The phrases of phrases.toml, by which rules of users and open ends of agents are recognised."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal, cast

PhraseKind = Literal[
    "rule",
    "standing",
    "talk",
    "past",
    "doubt",
    "once",
    "joke",
    "rules_heading",
    "exception",
    "reason",
    "follows",
    "remember_that",
    "lead_in",
    "open",
    "done",
    "failing",
    "closed",
]


def find_phrase(kind: PhraseKind, text: str) -> re.Match[str] | None:
    """The first phrase of that kind in the text."""
    return _patterns()[kind].search(text)


def is_open_label(text: str) -> bool:
    """Whether a heading, or what stands before a colon, says of what follows that it is open."""
    return _patterns()["label"].fullmatch(text) is not None


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    text = files("cmserver.reading").joinpath("phrases.toml").read_text("utf-8")
    tables = cast("dict[str, dict[str, list[str]]]", tomllib.loads(text))
    patterns = {
        kind: "|".join(part if part.startswith("^") else rf"(?<!\w)(?:{part})" for part in table["phrase"])
        for kind, table in tables.items()
    }
    patterns["label"] = "|".join(tables["open"]["label"])
    return {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in patterns.items()}
