"""Finds the open ends that a piece of work has done, by the words that they share: names and rare words weigh most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from math import log
from unicodedata import combining, normalize

import msgspec

from cmserver.base.words import COMMON_WORDS, content_words
from cmserver.providers.model import DraftObservation, PriorObservation
from cmserver.reading.conclusions import FEW_WORDS, matches
from cmserver.reading.model import Conclusion
from cmserver.reading.standing import split_prompt

_STEM_CHARS, _SHORT_CHARS = 5, 4
"""A word of so many letters stands for longer ones that begin with it: prod, config."""
_NAME_WEIGHT = 2.0
_MIN_SHARE, _MIN_TITLE_SHARE = 0.45, 0.6
_MIN_SHARE_NAMED, _MIN_TITLE_SHARE_NAMED = 0.25, 0.45
"""Where the work names a file or an identifier of the open end that little else names."""
_MIN_SHARE_WANTED = 0.12
"""Where the user asked for it before the work, or agreed to it."""
_MIN_REQUEST_SHARE = 0.4
_MIN_RARITY, _FEW = 0.9, 3
"""A word is rare that so few have, or so small a part of all."""
_FEW_TERMS, _MAX_ASSENT = 3, 25
_NAME = re.compile(r"(?<![\w./:-])[\w./:-]*(?:[a-z0-9][A-Z]|[\w)][_./:-]+(?=\w))[\w./:-]*")
_FILE = re.compile(r"\w\.[a-z]{1,4}$|/")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d{2,}")


class DoneWork(msgspec.Struct, frozen=True, kw_only=True):
    """What may have done an open end: what a draft says, and what the user had asked for."""

    text: str
    request: str = ""
    left_open: Sequence[str] = ()
    """What is open after the same turn."""


def describe(draft: DraftObservation) -> str:
    return " ".join(filter(None, [draft.title, draft.subtitle, draft.narrative, *draft.facts, *draft.files_modified]))


def find_terms(text: str) -> set[str]:
    """The words that carry a text, cut to their first letters so that inflected forms are the same; names whole and in parts."""
    text = "".join(char for char in normalize("NFD", text) if not combining(char))
    parts = {part.casefold() for part in _PART.findall(text) if len(part) > 2 or part.isdigit()}
    stems = {part[:_STEM_CHARS] for part in parts if part not in COMMON_WORDS}
    return stems | {_name_term(name) for name in _NAME.findall(text)}


def _name_term(name: str) -> str:
    return f"={name.casefold().strip('./:-').rsplit('/', 1)[-1]}"


def is_agreement(prompt: str) -> bool:
    """Whether the user says yes to what the agent left open."""
    return len(prompt.split()) <= _MAX_ASSENT and matches("assent", prompt)


def is_calling_off(sentence: str) -> bool:
    """Whether the user says of something that it is not wanted any more."""
    return matches("called_off", sentence) and not matches("once", sentence) and len(content_words(sentence)) > FEW_WORDS


def find_user_reports(prompt: str) -> Iterator[str]:
    """The sentences in which the user says of something that it is open no more."""
    for sentence in split_prompt(prompt):
        is_report = matches("reported", sentence) and not matches("trouble", sentence)
        if not sentence.endswith("?") and (is_report or is_calling_off(sentence)):
            yield sentence


def find_agent_reports(conclusions: Iterable[Conclusion]) -> Iterator[str]:
    """The conclusions in which the agent says of something that it is open no more."""
    for conclusion in conclusions:
        if not conclusion.is_open and conclusion.kind != "rejected" and matches("closed", conclusion.text):
            yield conclusion.text


class OpenEnds:
    """Open ends that wait for the work that does them.

    `texts` are what else is known of the project: what is common in them weighs little. `agreed` are the numbers of those that the
    user's request says yes to.
    """

    def __init__(self, ends: Iterable[PriorObservation], texts: Iterable[str], agreed: Iterable[int] = ()) -> None:
        # Only a run that passes says that a failing command is over.
        self._ends = [end for end in ends if end.state == "open" and all(result.passed for result in end.commands)]
        self._agreed = set(agreed)
        self._terms = {end.number: find_terms(f"{end.title} {end.quote or ''}") for end in self._ends}
        self._title_terms = {end.number: find_terms(end.title) for end in self._ends}
        documents = [*self._terms.values(), *map(find_terms, texts)] if self._ends else []
        self._counts, self._total = Counter(term for terms in documents for term in terms), len(documents)

    def find_done(self, work: DoneWork) -> list[int]:
        """The numbers of the open ends that the work comes up to."""
        return [end.number for end in self._ends if self._is_done(end, work)]

    def find_named(self, text: str, recent: Container[int] | None = None) -> list[int]:
        """The numbers of the open ends that a sentence is clearly about.

        A user who reports that something is done, after the `recent` ones were left open, says little else: a rare name is enough.
        """
        terms = find_terms(text)
        return [end.number for end in self._ends if self._is_about(end, terms) or self._is_reported(end, terms, recent)]

    def _is_reported(self, end: PriorObservation, terms: set[str], recent: Container[int] | None) -> bool:
        if recent is None or self._share(self._terms[end.number], terms) < _MIN_SHARE_WANTED:
            return False
        return end.number in recent or any(self._is_rare_name(name, terms) for name in end.anchors)

    def _is_done(self, end: PriorObservation, work: DoneWork) -> bool:
        terms, about = find_terms(work.text), self._terms[end.number]
        share = self._share(about, terms)
        if any(self._share(about, find_terms(text)) >= max(share, _MIN_SHARE_NAMED) for text in work.left_open):
            return False  # it is still open, in other words
        title_share = self._share(self._title_terms[end.number], terms)
        is_wanted = end.number in self._agreed or self._share_requested(end, work.request) >= _MIN_REQUEST_SHARE
        return self._is_about(end, terms) or (is_wanted and max(share, title_share) >= _MIN_SHARE_WANTED)

    def _is_about(self, end: PriorObservation, terms: set[str]) -> bool:
        files = [*end.files_read, *filter(_FILE.search, end.anchors)]
        if not terms & self._terms[end.number] - find_terms(" ".join(files)):
            return False  # the same file is not the same thing
        share, title = self._share(self._terms[end.number], terms), self._title_terms[end.number]
        title_share = self._share(title, terms) if len(title) >= _FEW_TERMS else 0.0
        if any(self._is_rare_name(name, terms) for name in end.anchors):
            return share >= _MIN_SHARE_NAMED or title_share >= _MIN_TITLE_SHARE_NAMED
        return share >= _MIN_SHARE or title_share >= _MIN_TITLE_SHARE

    def _is_rare_name(self, name: str, terms: set[str]) -> bool:
        parts = {term for term in find_terms(name) if not term.startswith("=")}
        numbers = {part for part in parts if part.isdigit() and len(part) >= _FEW_TERMS}
        is_rare = any(self._counts[term] <= _FEW or self._rarity(term) >= _MIN_RARITY for term in parts | {_name_term(name)})
        is_named = _name_term(name) in terms if name.startswith("test") else parts <= terms  # one test is not another
        return is_rare and bool(parts) and (is_named or bool(numbers & terms))

    def _share_requested(self, end: PriorObservation, request: str) -> float:
        terms = find_terms(request)
        return max(self._share(self._terms[end.number], terms), self._share(self._title_terms[end.number], terms))

    def _share(self, about: set[str], terms: set[str]) -> float:
        short = {term[:_SHORT_CHARS] for term in terms}
        shared = {
            term for term in about if term in terms or (len(term) == _SHORT_CHARS and term in short) or term[:_SHORT_CHARS] in terms
        }
        return self._weigh(shared) / max(self._weigh(about), 1.0) if len(shared) > 1 else 0.0

    def _weigh(self, terms: Iterable[str]) -> float:
        return sum((_NAME_WEIGHT if term.startswith("=") else 1.0) * (0.3 + self._rarity(term)) for term in terms)

    def _rarity(self, term: str) -> float:
        return log((1 + self._total) / max(1, self._counts[term]))
