"""Finds errors that several sessions met and mended in the same way, by the words of their observations alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sentences import split_sentences
from cmserver.consolidation.marks import compared_text, read_marks
from cmserver.observations.model import Observation

MIN_SESSIONS = 3
"""At least this many sessions must say so."""
_MIN_WORDS = 3
"""An error or a remedy of fewer words says too little to be recognised."""
_ERROR = re.compile(
    r"(?:[A-Za-z_][\w.]*(?:Error|Exception|NotFound|Failure|UndefinedTable)\b.*|\b(?:error|fatal|panic|docker|npm ERR!)(?: \w+)?:.*"
    r"|\bE[A-Z]{5,}\b.*|\berror TS\d+:.*)"
)
_REMEDY = re.compile(
    r"(?:^|[.:;] |\b)(?:the )?(?:fix(?:ed)?(?: was)?(?: to| by)?|solution|solved by|resolved by|workaround|remedy)\s*:?\s+(.+)",
    re.IGNORECASE,
)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation says of an error and its remedy: the texts, and the words that tell them apart."""

    observation: Observation
    error: str
    remedy: str
    error_words: frozenset[str]
    remedy_words: frozenset[str]

    @property
    def session(self) -> object:
        """What counts as the session it is of; what has none counts by its day."""
        return self.observation.server_session_id or self.observation.created_at.date()


class RecurringFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error with one remedy in several sessions; `sources` are all that say so, oldest first."""

    sources: list[Failure]
    sessions: int

    @property
    def error(self) -> str:
        return min((failure.error for failure in self.sources), key=len)

    @property
    def remedy(self) -> str:
        return min((failure.remedy for failure in self.sources), key=len)

    @property
    def fingerprint(self) -> str:
        """The same for the same error and remedy, also when more sessions say so."""
        first = min(self.sources, key=lambda failure: (len(failure.error_words), failure.error))
        words = " ".join([*sorted(first.error_words), "|", *sorted(first.remedy_words)])
        return f"recurring:{hashlib.sha256(words.encode()).hexdigest()[:32]}"


def find_recurring(rows: Iterable[Observation]) -> list[RecurringFailure]:
    """The errors that at least three sessions mended in the same way."""
    failures = sorted((failure for row in rows if (failure := read_failure(row))), key=lambda failure: len(failure.error_words))
    groups: list[list[Failure]] = []
    for failure in failures:
        group = next((group for group in groups if _is_same(group[0], failure)), None)
        if group is None:
            groups.append([failure])
        else:
            group.append(failure)
    found: list[RecurringFailure] = []
    for group in groups:
        sessions = len({failure.session for failure in group})
        if sessions >= MIN_SESSIONS:
            found.append(RecurringFailure(sources=sorted(group, key=lambda failure: failure.observation.number), sessions=sessions))
    return found


def read_failure(row: Observation) -> Failure | None:
    """The error and the remedy that the observation tells of; None when it lacks one of them."""
    units = [unit for text in (row.title, row.narrative, *(row.facts or ())) if text for unit in text.splitlines()]
    error = next((match[0] for unit in units if (match := _ERROR.search(unit))), None)
    remedy = next((match[1] for unit in units if (match := _REMEDY.search(unit))), None)
    if error is None or remedy is None:
        return None
    error, remedy = (text.strip(" `'\".") for text in (error, remedy))
    error_marks, remedy_marks = read_marks(error), read_marks(remedy)
    if remedy_marks.whole.negation_count:
        return None
    error_words, remedy_words = frozenset(error_marks.whole.counts), frozenset(remedy_marks.whole.counts)
    if min(len(error_words), len(remedy_words)) < _MIN_WORDS:
        return None
    return Failure(observation=row, error=error, remedy=remedy, error_words=error_words, remedy_words=remedy_words)


def _is_same(first: Failure, other: Failure) -> bool:
    """Whether the second tells of the same error and remedy, with more words perhaps."""
    same_error = first.error_words <= other.error_words or other.error_words <= first.error_words
    return same_error and (first.remedy_words <= other.remedy_words or other.remedy_words <= first.remedy_words)


def measure_novelty(words: frozenset[str], others: Iterable[frozenset[str]]) -> float:
    """1 when no other observation has a word of it, 0 when one has all of them. `others` are the words of each."""
    if not words:
        return 0.0
    return 1.0 - max((len(words & other) / len(words) for other in others), default=0.0)


def list_words(row: Observation) -> frozenset[str]:
    return frozenset(read_marks(compared_text(row)).whole.counts)


def list_new_words(texts: Sequence[str], sources: Sequence[Observation]) -> set[str]:
    """The words and names of the texts that no source has."""
    known = {value for row in sources for value in read_marks(compared_text(row)).tokens}
    return {
        value for text in texts for sentence in split_sentences(text) for value in read_marks(sentence).tokens if value not in known
    }


def source_ids(failures: Sequence[Failure]) -> list[UUID]:
    return [failure.observation.id for failure in failures]
