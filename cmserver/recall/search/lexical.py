"""Finds what shares words with a query: what of it is looked for, how common each word is, and BM25 within the scope.

Queries are whole sentences; requiring all of their words finds nothing for most of them. Any word may match, and only what the user
has marked is binding: a "quoted phrase" must be there, a -word or -"phrase" must not.

All that has any of the words is a hit, as long as that is little. In a large database the commonest words would have most of it
looked at, and say least: they still count in what the rarer ones find, but lead nowhere by themselves. Where all are common, what
has several of them together comes before them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from math import prod
from operator import itemgetter
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.base.text import PROMPT_MOST, UNSEGMENTED
from cmserver.recall.search import repository
from cmserver.recall.search.model import ScopeStatistics, WordSample

MAX_WORDS = 64
"""Words of a query over this limit are ignored."""
MAX_BINDING_WORDS = 64
"""Only this many quoted or excluded words are taken, in their order: each text in the scope is matched against all of them."""
_MAX_ROWS = 1_500
"""How many rows may be read, by the estimate from the sample."""
_ENTRIES_PER_ROW = 20
"""How many entries of the index are read in the time of one row."""
_MIN_TOGETHER, _FEWEST_SAMPLED = 300, 3
"""Documents with all of the rarest words are looked at first: this many, if at least so many of the sample have them all."""

_Scope = tuple[UUID, frozenset[UUID] | None]


class ScopeSizes:
    """The number of documents of large scopes, remembered for a minute: to count 10,000 takes as long as half of what is searched.

    A minute adds few to so many. Small scopes are counted each time.
    """

    SECONDS = 60.0
    _MAX_SCOPES = 10_000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sizes: dict[_Scope, tuple[float, int]] = {}

    def find(self, scope: _Scope) -> int | None:
        """None where it has to be counted."""
        counted_at, documents = self._sizes.get(scope, (-self.SECONDS, None))
        return documents if self._clock() - counted_at < self.SECONDS else None

    def keep(self, scope: _Scope, documents: int) -> None:
        """Remember it from now on, if the scope is large and it was counted."""
        if documents > repository.SMALL_SCOPE and self.find(scope) is None:
            if len(self._sizes) >= self._MAX_SCOPES:
                self._sizes.clear()
            self._sizes[scope] = (self._clock(), documents)


_sizes, _turn_counts = ScopeSizes(), ScopeSizes()

# Quoted and excluded words; not -k, -rf and -1, which are options of commands and are searched as they are. A character of a script
# without spaces counts as a word.
_MARKED = re.compile(rf'(?<!\S)(-?)"([^"]+)"|(?<!\S)-([^\W\d_][^\s"]{{2,}}|[{UNSEGMENTED}][^\s"]*)')
_WORD = re.compile(rf"[{UNSEGMENTED}]|(?:(?![{UNSEGMENTED}])[^\W_])+")


def parse_query(query: str) -> tuple[str, str, str]:
    """The words to search for; those that are quoted, and those that are excluded, in the syntax of websearch_to_tsquery."""
    query = query[:PROMPT_MOST].replace("\x00", " ")
    quoted: list[str] = []
    excluded: list[str] = []
    left = MAX_BINDING_WORDS
    for sign, phrase, word in _MARKED.findall(query):
        word_ends = [match.end() for match in _WORD.finditer(phrase or word)][:left]
        if not word_ends:
            continue
        left -= len(word_ends)
        text = f'"{(phrase or word)[: word_ends[-1]]}"'
        (quoted if phrase and not sign else excluded).append(text if phrase and not sign else f"-{text}")
    words = _MARKED.sub(lambda mark: mark[2] if mark[2] and not mark[1] else " ", query)
    return words, " ".join(quoted), " ".join(excluded)


async def read_words(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID] | None,
    text: str,
    limit: int = MAX_WORDS,
    *,
    at: datetime | None = None,
) -> tuple[list[str], ScopeStatistics]:
    """The lexemes of the first `limit` words of the text, their estimated frequencies in the scope, from a sample of its newest
    documents, and which of them lead to the hits. In a scope without observations they are those of its turns. Of
    another time (`at`) no size is remembered.
    """
    scope = (team_id, None if project_ids is None else frozenset(project_ids))
    known = (_sizes.find(scope), _turn_counts.find(scope)) if at is None else (None, None)
    samples = await repository.words(conn, team_id, project_ids, text, limit, *known)
    if not samples:
        return [], ScopeStatistics(documents=0, mean_words=1, found_in=[], leading=[])
    first = samples[0]
    if at is None:
        _sizes.keep(scope, first.documents)
        _turn_counts.keep(scope, first.turns)
    documents = first.documents or first.turns
    return [sample.lexeme for sample in samples], describe_scope(samples, documents)


def describe_scope(samples: Sequence[WordSample], documents: int) -> ScopeStatistics:
    """What the scores of a query with these words are relative to, of which there is at least one."""
    first = samples[0]
    return ScopeStatistics(
        documents=documents,
        mean_words=max(first.words, 1.0),
        found_in=[(len(sample.found_in) + 0.5) / (sample.sampled + 1) * documents for sample in samples],
        leading=select_leading(samples),
        together=select_together(samples),
        are_turns=first.documents == 0,
        projects=first.projects,
        turn_count=first.turns,
        turn_words=max(first.turn_words, 1.0),
    )


async def read_words_of_many(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID], texts: Sequence[str]
) -> list[tuple[list[str], ScopeStatistics]]:
    """What `read_words` says of each text, by one statement."""
    scope = (team_id, frozenset(project_ids))
    words = await repository.words_of_many(
        conn, team_id, project_ids, texts, MAX_WORDS, _sizes.find(scope), _turn_counts.find(scope)
    )
    by_text: list[list[tuple[int, WordSample]]] = [[] for _ in texts]
    for word in words:
        for text, place in zip(word.texts, word.places, strict=True):
            by_text[text - 1].append((place, word))
    described: list[tuple[list[str], ScopeStatistics]] = []
    for placed in by_text:
        samples = [word for _, word in sorted(placed, key=itemgetter(0))]
        if samples:
            first = samples[0]
            _sizes.keep(scope, first.documents)
            _turn_counts.keep(scope, first.turns)
            described.append(([it.lexeme for it in samples], describe_scope(samples, first.documents or first.turns)))
        else:
            described.append(([], ScopeStatistics(documents=0, mean_words=1, found_in=[], leading=[])))
    return described


def select_leading(samples: Sequence[WordSample]) -> list[int]:
    """The places of the rarest words, as many as lead to at most `_MAX_ROWS` rows."""
    leading: list[int] = []
    rows = 0.0
    for place in sorted(range(len(samples)), key=lambda place: len(samples[place].found_in)):
        rows += _estimate_rows(samples[place])
        if leading and rows > _MAX_ROWS:
            break
        leading.append(place)
    return leading


def select_together(samples: Sequence[WordSample]) -> list[int]:
    """The places of the rarest words, as many as `_MIN_TOGETHER` documents seem to have all together: the sample says it, so words
    that exclude each other are not taken for independent. None where a single word leads to few rows.
    """
    first, *others = sorted(range(len(samples)), key=lambda place: len(samples[place].found_in))
    if _estimate_rows(samples[first]) <= _MAX_ROWS:
        return []
    together, having = [first], set(samples[first].found_in)
    for place in others:
        both = having.intersection(samples[place].found_in)
        if len(both) * samples[place].documents >= _MIN_TOGETHER * samples[place].sampled and len(both) >= _FEWEST_SAMPLED:
            together, having = [*together, place], both
    return together if len(together) > 1 else []


def count_matching(statistics: ScopeStatistics) -> int:
    """How many documents have any of the words, as if words were distributed independently."""
    without = prod(1 - min(found_in / max(statistics.documents, 1), 1) for found_in in statistics.found_in)
    return round((1 - without) * statistics.documents)


def _estimate_rows(sample: WordSample) -> float:
    """How many rows the word leads to, with the time for entries of other projects counted as rows; 0 in a small scope."""
    if sample.documents <= max(repository.SMALL_SCOPE, sample.sampled):
        return 0
    return (len(sample.found_in) + 0.5) / (sample.sampled + 1) * (sample.documents + sample.rows / _ENTRIES_PER_ROW)
