"""Tells whether two texts that are near in meaning differ in a fact."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from cmserver.base.sentences import split_sentences
from cmserver.consolidation.marks import (
    IS_CHARACTER,
    SentenceMarks,
    TextMarks,
    load_words,
    opposites_by_word,
)

DifferenceKind = Literal["number", "version", "path", "identifier", "name", "negation", "opposite", "word", "order", "change"]

SAME_PLACE_SHARE = 0.5
"""Two sentences with this share of common words say something of the same thing; where they differ, they differ in a fact."""

_KINDS: tuple[DifferenceKind, ...] = ("number", "version", "path", "identifier", "name", "word")
_UNIT = re.compile(r"\w+|[^\w\s]")
_MARKDOWN = str.maketrans("", "", "*`")
_PUNCTUATION = ".,;:!?()\"'\u2019\u201c\u201d\u201e\u00ab\u00bb\u3002\u3001"


def find_difference(left: TextMarks, right: TextMarks) -> DifferenceKind | None:
    """In what kind of fact two texts differ, or None: the first that is found. One that only says more than the other has none.

    It means to find all: a paraphrase may differ by it, a text in which a number, name or negation was changed never agrees.
    """
    return next(_differences(left, right), None)


def find_reversal(left: TextMarks, right: TextMarks) -> DifferenceKind | None:
    """The first opposite, negation or change by which one of two sentences about one thing turns the other's sense, or None."""
    return next(_reversals(left, right), None)


def only_adds(left: str, right: str) -> bool:
    """Whether one of two texts has all words and signs of the other, letter by letter, and so says the same and perhaps more."""
    mine, others = (Counter(_UNIT.findall(text.translate(_MARKDOWN))) for text in (left, right))
    return mine <= others or others <= mine


def differs_in_form(left: str, right: str) -> bool:
    """Whether one of two texts has a sign, a digit, a capital or an ending that the other has not: however near they are, they may
    say the opposite (`git branch -d`, `-D`), so that only people merge them.

    Between sentences the capital of the first word does not count, nor does punctuation.
    """
    mine, others = (_count_units(text) for text in (left, right))
    only = [*(mine - others), *(others - mine)]
    if any(not unit.isalpha() or unit != unit.lower() for unit in only):
        return True
    beginnings = {unit[:3] for unit in mine - others}
    return any(unit[:3] in beginnings for unit in others - mine)


def _count_units(text: str) -> Counter[str]:
    """The words and signs of a text, without punctuation; the first word of a sentence in small letters, unless it is a name."""
    units: Counter[str] = Counter()
    for sentence in split_sentences(text.translate(_MARKDOWN)):
        words = _UNIT.findall(sentence)
        first = words[0] if words else ""
        units.update([first.lower() if first.istitle() else first, *words[1:]])
    for sign in _PUNCTUATION:
        del units[sign]
    return units


def _differences(left: TextMarks, right: TextMarks) -> Iterator[DifferenceKind]:
    for mine, others in _places(left, right):
        yield from _compare_place(mine, others, left, right)
    yield from _reversals(left, right)


def _reversals(left: TextMarks, right: TextMarks) -> Iterator[DifferenceKind]:
    """An opposite; a negation that only one has; or one holds for the time being or tells of a change, and the other does not."""
    if _has_opposites(left, right):
        yield "opposite"
    if bool(left.whole.negation_count) != bool(right.whole.negation_count):
        yield "negation"
    words = load_words()
    if any(group.isdisjoint(left.plain_words) != group.isdisjoint(right.plain_words) for group in (words.temporary, words.changes)):
        yield "change"


def _compare_place(mine: SentenceMarks, others: SentenceMarks, left: TextMarks, right: TextMarks) -> Iterator[DifferenceKind]:
    """What differs in two sentences about the same thing: other words on both sides, a negation, or the order.

    A character that only one has, of a script without spaces, may be another word (เปิด, ไม่เปิด), so it is no mere detail.
    """
    mine_only, others_only = mine.counts - others.counts, others.counts - mine.counts
    if mine_only and others_only:
        yield _replaced(mine_only, others_only, left, right)
    elif any(map(IS_CHARACTER.fullmatch, [*mine_only, *others_only])):
        yield "word"
    if mine.negation_count != others.negation_count:
        yield "negation"
    elif mine.counts == others.counts and mine.values != others.values:
        yield "order"


def _replaced(mine: Counter[str], others: Counter[str], left: TextMarks, right: TextMarks) -> DifferenceKind:
    """The first kind of words that both sides have."""
    for kind in _KINDS:
        my_word = next((left.tokens[value].text for value in mine if left.tokens[value].kind == kind), None)
        other_word = next((right.tokens[value].text for value in others if right.tokens[value].kind == kind), None)
        if my_word is not None and other_word is not None:
            is_opposite = other_word.casefold() in opposites_by_word().get(my_word.casefold(), ())
            return "opposite" if kind == "word" and is_opposite else kind
    return "word"


def _places(left: TextMarks, right: TextMarks) -> Iterator[tuple[SentenceMarks, SentenceMarks]]:
    """Sentences that are about the same thing, and the whole texts if they are; none where only the order of sentences differs."""
    mine, others = _without_equal(left.sentences, right.sentences), _without_equal(right.sentences, left.sentences)
    if (mine or others) and _share(left.whole, right.whole) >= SAME_PLACE_SHARE:
        yield left.whole, right.whole
    for sentence in mine:
        nearest = max(others, key=lambda other: _share(sentence, other), default=None)
        if nearest is not None and _share(sentence, nearest) >= SAME_PLACE_SHARE:
            yield sentence, nearest


def _without_equal(sentences: Iterable[SentenceMarks], others: Iterable[SentenceMarks]) -> list[SentenceMarks]:
    equal = {sentence.values for sentence in others}
    return [sentence for sentence in sentences if sentence.values not in equal]


def _share(left: SentenceMarks, right: SentenceMarks) -> float:
    """The common words of both as a share of all of theirs, 0 to 1."""
    total = left.counts.total() + right.counts.total()
    return 2 * (left.counts & right.counts).total() / total if total else 0.0


def _has_opposites(left: TextMarks, right: TextMarks) -> bool:
    return any(
        opposite in right.plain_words and opposite not in left.plain_words
        for word in left.plain_words - right.plain_words
        for opposite in opposites_by_word().get(word, ())
    )
