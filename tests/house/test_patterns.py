"""Patterns mean the same on every Python that is supported.

Until 3.11.5 a group that is repeated possessively, `(...)*+`, may match what it should not, or nothing, when its content gives up
halfway: https://github.com/python/cpython/issues/106052. Write `(?>(...)*)`, which is right everywhere.
"""

from __future__ import annotations

import re

from tests.house.house import ROOT

_POSSESSIVE_GROUP = re.compile(r"[)}](?:[*+?]|\{\{?[0-9,]+\}\}?)\+")
"""Of a group, or of what an f-string puts in."""


def possessive_groups(text: str) -> list[str]:
    patterns = [line.strip() for line in text.splitlines() if "(" in line or "[" in line]
    return [line for line in patterns if _POSSESSIVE_GROUP.search(line)]


def test_no_group_is_repeated_possessively():
    found = {str(path.relative_to(ROOT)): possessive_groups(path.read_text("utf-8")) for path in (ROOT / "cmserver").rglob("*.py")}

    assert {name: lines for name, lines in found.items() if lines} == {}
    assert possessive_groups('re.compile(r"(?:ab?c)++")') != []
    assert possessive_groups('re.compile(rf"{_BETWEEN}*+[a-z]++")') != []
    assert possessive_groups('re.compile(r"(?>(?:ab?c)+)[a-z]{2,}+")') == []
