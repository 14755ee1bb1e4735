"""Which words of a query lead to its hits, and how common each is.

All that has any of the words is a hit, as long as that is little. In a large database the commonest words would have most of it
looked at, and say least: they still count in what the rarer ones find, but lead nowhere by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import log

from cmserver.recall.search.model import Sampled, Term
from cmserver.recall.search.repository import quoted

SMALL = 2_000
"""A scope of so many documents is read whole: that is quicker than an index of all projects' words. All words lead there."""
_ROWS_AT_MOST = 1_500
"""So many rows may be looked at, as the sample has it."""
_PER_TABLE = 20
"""So many entries of the index are read in the time of one row."""
_TOO_COMMON = 10
"""A single word with so many times more rows than that leads only together with another one."""


def leading(lexemes: Sequence[str], sampled: Sequence[Sampled]) -> tuple[list[Term], str]:
    """The words in the order of `lexemes`, as `sampled` is, and the tsquery that finds what is looked at.

    Of the words that lead the hits themselves will say how common they are; of the others the sample does.
    """
    by_lexeme = dict(zip(lexemes, sampled, strict=True))
    ordered = sorted(lexemes, key=lambda lexeme: by_lexeme[lexeme].found_in)
    led: list[str] = []
    rows = 0.0
    for lexeme in ordered:
        rows += _rows(by_lexeme[lexeme])
        if led and rows > _ROWS_AT_MOST:
            break
        led.append(lexeme)
    common = _rows(by_lexeme[ordered[0]]) > _TOO_COMMON * _ROWS_AT_MOST
    if common and len(ordered) > 1:
        pairs = combinations(ordered[:_TOO_COMMON], 2)
        return [_estimated(lexeme, by_lexeme[lexeme]) for lexeme in lexemes], " | ".join(
            f"({quoted(a)} & {quoted(b)})" for a, b in pairs
        )
    terms = [Term(lexeme=each, documents=None) if each in led else _estimated(each, by_lexeme[each]) for each in lexemes]
    return terms, " | ".join(quoted(lexeme) for lexeme in led)


def idf(documents: float, found_in: float) -> float:
    """What a word weighs that so many of the documents have."""
    return log(1 + max(documents - found_in + 0.5, 0.5) / (found_in + 0.5))


def _rows(one: Sampled) -> float:
    if one.documents <= max(SMALL, one.sampled):
        return 0
    return (one.found_in + 0.5) / (one.sampled + 1) * (one.documents + one.rows / _PER_TABLE)


def _estimated(lexeme: str, one: Sampled) -> Term:
    return Term(lexeme=lexeme, documents=(one.found_in + 0.5) / (one.sampled + 1) * one.documents)
