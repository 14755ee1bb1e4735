"""Tells whether a model's words for a merge say what the merged texts say: no fact missing, none changed, none new.

Each fact, and each sentence that a change of one word could turn (see `is_exact`), must stand in the result word for word, and no
such sentence may be new. Of every other sentence, on either side, three quarters of its words and all of its names must stand in
one sentence of the other side, and nothing there may turn its sense. No word may be new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cmserver.base.sentences import split_sentences
from cmserver.consolidation.difference import find_reversal
from cmserver.consolidation.marks import TextMarks, read_marks
from cmserver.consolidation.merge import MergeableText, fold_unit, list_units
from cmserver.consolidation.model import ModelRefusal

_KEPT_SHARE = 3 / 4
_NAMES = ("path", "identifier", "name")


def find_refusal(rows: Sequence[MergeableText], worded: MergeableText) -> ModelRefusal | None:
    """Why the result may not be taken for a merge of the rows; None when it may."""
    result = _mark_units(list_units(worded))
    sources = _mark_units(unit for row in rows for unit in list_units(row))
    facts = {fold_unit(unit) for row in rows for unit in _fact_units(row)}
    for folded, marks in sources.items():
        if folded not in result and (folded in facts or is_exact(marks) or not _has_counterpart(marks, result.values())):
            return "fact_missing"
    known_words = {value for marks in sources.values() for value in marks.tokens}
    for folded, marks in result.items():
        is_new = is_exact(marks) or not marks.tokens.keys() <= known_words or not _has_counterpart(marks, sources.values())
        if folded not in sources and is_new:
            return "fact_new"
    return None


def list_exact_units(rows: Sequence[MergeableText]) -> list[str]:
    """The facts and sentences of the rows that a result must have word for word, each once."""
    facts = {fold_unit(unit) for row in rows for unit in _fact_units(row)}
    units = {fold_unit(unit): unit for row in reversed(rows) for unit in reversed(list_units(row))}
    return [unit for folded, unit in reversed(units.items()) if folded and (folded in facts or is_exact(read_marks(unit)))]


def is_exact(sentence: TextMarks) -> bool:
    """Whether it holds a number, a version, a sign such as <, a negation, or more than one path, identifier or name."""
    values = [value for token in sentence.tokens.values() for value in (token.text,) if not any(map(str.isalnum, value))]
    return bool(
        values
        or sentence.values("number")
        or sentence.values("version")
        or sentence.whole.negation_count
        or len(_names(sentence)) > 1
    )


def _fact_units(row: MergeableText) -> Iterator[str]:
    for fact in row.facts:
        yield from split_sentences(fact)


def _mark_units(units: Iterable[str]) -> dict[str, TextMarks]:
    """The marks of each unit that says something, by the unit without case and punctuation."""
    return {folded: read_marks(unit) for unit in units if (folded := fold_unit(unit))}


def _has_counterpart(sentence: TextMarks, others: Iterable[TextMarks]) -> bool:
    words, names = sentence.whole.counts, _names(sentence)
    if not words:
        return True
    return any(
        (words & other.whole.counts).total() >= _KEPT_SHARE * words.total()
        and names <= other.tokens.keys()
        and find_reversal(sentence, other) is None
        and (words != other.whole.counts or sentence.whole.values == other.whole.values)  # the same words in another order
        for other in others
    )


def _names(sentence: TextMarks) -> set[str]:
    return {value for kind in _NAMES for value in sentence.values(kind)}
