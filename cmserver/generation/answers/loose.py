"""Small readings that XML and JSON share: references to events, lists written as text, skip marks written as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate

_NUMBER = r"(?:e(?:vents?)?[\s_#:-]{0,3})?(\d{1,9})"
_REFERENCE = re.compile(
    rf"(?<![\w.])(?P<e>e(?:vents?)?[\s_#:-]{{0,3}})?(\d{{1,9}})(?:\s{{0,3}}(?:-|\u2013|\u2014|\.\.\.?|\u2026|to|through)\s{{0,3}}{_NUMBER})?(?!\w)",
    re.IGNORECASE,
)
_LEADING_REFERENCES = re.compile(
    r"[\s\[(]*+(?:e(?:vents?)?[\s_#-]{0,3}\d{1,9}(?!\w)(?:[\s,;&\])]|and\b|to\b|-|\u2013|\.\.)*+)++[:.=,\u2013\u2014-]*+",
    re.IGNORECASE,
)
_BULLET = re.compile(r"[ \t]*+(?:[-*\u2022\u2023\u25aa\u2013\u2014][ \t]++|\u2022|\d{1,3}[.)][ \t]++)")
_BETWEEN = re.compile(r"[,;\n\r]")
_INNER_TAG = re.compile(r"\s*+<([A-Za-z][\w-]*+)[^<>]*+>")


def places(references: Iterable[str], batch: int) -> set[int]:
    """The places (from 0) of the events that are named: e1, E1, [e1], e1-e4; bare numbers where no `e` is written."""
    written_down = [text for text in references if text]
    if not written_down:
        return set()
    starts = [0] * (batch + 1)
    for text in written_down:
        found = list(_REFERENCE.finditer(text))
        written = [one for one in found if one["e"]] or found
        for one in written:
            first, last = int(one[2]), int(one[3] or one[2])
            if 1 <= first <= min(last, batch):
                starts[first - 1] += 1
                starts[min(last, batch)] -= 1
    return {place for place, depth in enumerate(accumulate(starts[:batch])) if depth}


def names_events(text: str) -> bool:
    return any(one["e"] for one in _REFERENCE.finditer(text))


def skip_of(text: str) -> tuple[str, str]:
    """`e3: only looked` as its references and its reason."""
    found = _LEADING_REFERENCES.match(text)
    return (found[0], text[found.end() :].strip()) if found else ("", text.strip())


def items_of(name: str, text: str) -> list[str]:
    """A list field that was written as text: children of any name, bullets, lines, and commas where items hold none."""
    text = text.strip()
    if not text:
        return []
    if (tagged := _INNER_TAG.match(text)) and f"</{tagged[1]}>" in text:
        return re.split(rf"</?{re.escape(tagged[1])}(?:\s[^<>]*+)?+/?>", text)
    if text[0] == "[" and text[-1] == "]":
        text = text[1:-1]
        return [one.strip().strip("\"'") for one in re.split(r"[\"']\s*+,\s*+[\"']" if '"' in text or "'" in text else ",", text)]
    if name != "facts":
        return [without_bullet(one) for one in _BETWEEN.split(text)]
    lines = text.splitlines()
    if not any(_BULLET.match(line) for line in lines):
        return lines
    items: list[list[str]] = []
    for line in lines:
        if not items or _BULLET.match(line):
            items.append([without_bullet(line)])
        else:
            items[-1].append(line.strip())
    return ["\n".join(lines) for lines in items]


def without_bullet(text: str) -> str:
    return _BULLET.sub("", text, count=1) if _BULLET.match(text) else text
