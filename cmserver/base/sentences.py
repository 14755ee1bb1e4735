"""Splits texts into sentences. Abbreviations, code spans, versions and names such as a.b.c stay whole."""

from __future__ import annotations

import re

_END = re.compile(r"(?<![.!?…])[.!?…]++[\"')\]»”’*_]*+(?P<space>\s++)|(?<![。！？])[。！？]++\s*+")  # noqa: RUF001 - of Chinese and Japanese
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:[zdup]|e\.g|i\.e|z\.\s?B|d\.\s?h|u\.\s?a|p\.\s?ex|p\.\s?ej|ca|etc|vs|cf|bzw|usw|approx|resp|incl|excl|nr|dr|mr|mrs)\.$",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 10
_FIRST_LETTER = re.compile(r"[\"'(`«„“¿¡\[*_/]{0,4}(\w)")
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, stripped, in order. A fenced block of code is one; no sentence goes over several lines."""
    sentences: list[str] = []
    block: list[str] = []
    fence = ""
    for line in text.splitlines():
        if fence:
            block.append(line)
            if line.strip() == fence:
                sentences.append("\n".join(block).strip())
                block, fence = [], ""
        elif opening := _FENCE.match(line):
            block, fence = [line], opening[1]
        else:
            sentences += _split_item(line)
    return [*sentences, "\n".join(block).strip()] if block else sentences  # the last fence may never be closed


def split_line(line: str) -> list[str]:
    """The sentences of one line, stripped."""
    masked = _CODE_SPAN.sub(lambda span: "x" * len(span[0]), line)
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(masked):
        is_wide = end["space"] is None
        place = end.end() if is_wide else end.start("space")
        if is_wide or _starts_sentence(masked[max(start, place - _LONGEST_ABBREVIATION) : place], line[end.end() : end.end() + 5]):
            sentences.append(line[start:place])
            start = end.end()
    sentences.append(line[start:])
    return [sentence for part in sentences if (sentence := part.strip())]


def _split_item(line: str) -> list[str]:
    """The sentences of a line; the marker of a list item stays with the first."""
    marker = _LIST_ITEM.match(line)
    if marker is None:
        return split_line(line)
    first, *rest = split_line(line[marker.end() :]) or [""]
    return [(marker[0] + first).strip(), *rest]


def _starts_sentence(before: str, after: str) -> bool:
    """Whether a sentence begins with `after`: not in lower case but with a name of code, nor after an abbreviation."""
    first = _FIRST_LETTER.match(after)
    is_start = first is not None and (not first[1].islower() or after.startswith("`"))
    return is_start and _ABBREVIATION.search(before) is None
