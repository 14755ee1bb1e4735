"""Finds what shares words with a query: what of it is looked for, how common each word is, and BM25 within the scope.

Queries are whole sentences; requiring all of their words finds nothing for most of them. Any word may match, and only what the user
has marked is binding: a "quoted phrase" must be there, a -word or -"phrase" must not.

All that has any of the words is a hit, as long as that is little. In a large database the commonest words would have most of it
looked at, and say least: they still count in what the rarer ones find, but lead nowhere by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from math import log
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.recall.search import repository
from cmserver.recall.search.model import RankedRow, Ranking, SearchRequest, Term, WordSample
from cmserver.recall.search.repository import quote_lexeme
from cmserver.recall.search.score import known_share, unseen_weight

MAX_CHARS = 10_000
MAX_WORDS = 64
"""Characters and words of a query over these limits are ignored."""
MAX_BINDING_WORDS = 64
"""Only this many quoted or excluded words are taken, in their order: each text in the scope is matched against all of them."""
SMALL_SCOPE = 2_000
"""A scope of up to this many documents is read whole: that is quicker than an index of all projects' words."""
_MAX_ROWS = 1_500
"""How many rows may be read, by the estimate from the sample."""
_ENTRIES_PER_ROW = 20
"""How many entries of the index are read in the time of one row."""
_TOO_COMMON = 10
"""When even the rarest word has this many times `_MAX_ROWS`, rows are looked up by pairs of words."""

# Quoted and excluded words; not -k, -rf and -1, which are options of commands and are searched as they are.
_MARKED = re.compile(r'(?<!\S)(-?)"([^"]+)"|(?<!\S)-([^\W\d_][^\s"]{2,})')
_WORD = re.compile(r"[^\W_]+")


class QueryWords(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a query, and how common they are among the newest documents. `any_of` is the tsquery that finds the rows."""

    lexemes: list[str]
    terms: list[Term]
    any_of: str
    documents: int
    mean_words: float
    """Mean length of a document, in words."""
    hits: float
    """How many documents have any of the words, by the estimate from the sample."""


class WordMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that share words with the query, and the idf of each lexeme in their order (0 when no document has it)."""

    ranked: list[RankedRow]
    idfs: list[float]
    max_bm25: float
    """The BM25 of a document that has each word once, or of the best document if that is more."""
    known_share: float
    """How much of the query is known here, 0 to 1."""
    matching: int
    """At least so many documents match."""


def parse_query(query: str) -> tuple[str, str]:
    """The words to search for, and those that are quoted or excluded, in the syntax of websearch_to_tsquery."""
    query = query[:MAX_CHARS].replace("\x00", " ")
    binding: list[str] = []
    left = MAX_BINDING_WORDS
    for sign, phrase, word in _MARKED.findall(query):
        word_ends = [match.end() for match in _WORD.finditer(phrase or word)][:left]
        if not word_ends:
            continue
        left -= len(word_ends)
        binding.append(f'{sign if phrase else "-"}"{(phrase or word)[: word_ends[-1]]}"')
    words = _MARKED.sub(lambda mark: mark[2] if mark[2] and not mark[1] else " ", query)
    return words, " ".join(binding)


async def read_query_words(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, lexemes: list[str]) -> QueryWords:
    """The words with their estimated frequency in the scope, from a sample of its newest documents."""
    samples = await repository.sampled(conn, team_id, project_ids, lexemes)
    terms, any_of = select_leading_terms(lexemes, samples)
    first = samples[0]
    without = 1.0  # the share of the documents that have none of the words, as if they were distributed at random
    for sample in samples:
        without *= 1 - sample.found_in / max(sample.sampled, 1)
    return QueryWords(
        lexemes=lexemes,
        terms=terms,
        any_of=any_of,
        documents=first.documents,
        mean_words=max(first.words, 1.0),
        hits=(1 - without) * first.documents,
    )


def select_leading_terms(lexemes: Sequence[str], samples: Sequence[WordSample]) -> tuple[list[Term], str]:
    """The terms in the order of `lexemes` and `samples`, and the tsquery that finds the rows to score.

    The tsquery has the rarest words, as many as lead to at most `_MAX_ROWS` rows. These rows give the frequency of those words; the
    sample gives that of the others.
    """
    by_lexeme = dict(zip(lexemes, samples, strict=True))
    ordered = sorted(lexemes, key=lambda lexeme: by_lexeme[lexeme].found_in)
    leading: list[str] = []
    rows = 0.0
    for lexeme in ordered:
        rows += _estimate_rows(by_lexeme[lexeme])
        if leading and rows > _MAX_ROWS:
            break
        leading.append(lexeme)
    if len(ordered) > 1 and _estimate_rows(by_lexeme[ordered[0]]) > _TOO_COMMON * _MAX_ROWS:
        pairs = combinations(ordered[:_TOO_COMMON], 2)
        any_of = " | ".join(f"({quote_lexeme(first)} & {quote_lexeme(second)})" for first, second in pairs)
        return [_estimated_term(lexeme, by_lexeme[lexeme]) for lexeme in lexemes], any_of
    terms = [
        Term(lexeme=lexeme, documents=None) if lexeme in leading else _estimated_term(lexeme, by_lexeme[lexeme])
        for lexeme in lexemes
    ]
    return terms, " | ".join(map(quote_lexeme, leading))


def idf(documents: float, found_in: float) -> float:
    """The inverse document frequency of a word that `found_in` of the documents have."""
    return log(1 + max(documents - found_in + 0.5, 0.5) / (found_in + 0.5))


async def rank_observations(conn: Conn, request: SearchRequest, words: QueryWords, ranking: Ranking, limit: int) -> WordMatches:
    """The observations that match the words best and pass the filters."""
    rows = await repository.rank(
        conn,
        request.project_ids,
        words.terms,
        words.any_of,
        request.filters,
        ranking,
        documents=words.documents,
        words=words.mean_words,
        whole=words.documents <= SMALL_SCOPE,
        limit=limit,
    )
    return _matches(rows)


async def rank_prompts(conn: Conn, request: SearchRequest, words: QueryWords, ranking: Ranking, limit: int) -> WordMatches:
    """The prompts of users that match the words best and pass the filters."""
    return _matches(await repository.prompts(conn, request.project_ids, words.lexemes, request.filters, ranking, limit))


async def rank_ids(conn: Conn, ids: Sequence[UUID], words: QueryWords, matches: WordMatches, ranking: Ranking) -> list[RankedRow]:
    """The BM25 scores of the observations with these ids, which were found by meaning."""
    used = [(lexeme, weight) for lexeme, weight in zip(words.lexemes, matches.idfs, strict=True) if weight > 0]
    if not ids or not used:
        return []
    lexemes, idfs = zip(*used, strict=True)
    return await repository.rank_these(conn, ids, lexemes, idfs, ranking, words.mean_words)


def _matches(rows: Sequence[RankedRow]) -> WordMatches:
    """The matches of the rows; the first row, which is there even without any match, has the frequency of each word."""
    best = rows[0]
    strange = unseen_weight(best.documents)
    weights = [(idf(best.documents, found_in), found_in == 0) for found_in in best.found_in]
    return WordMatches(
        ranked=[row for row in rows if row.id is not None],
        idfs=[0.0 if is_unseen else weight for weight, is_unseen in weights],
        max_bm25=max(best.score, sum(weight * strange if is_unseen else weight for weight, is_unseen in weights)),
        known_share=known_share(sum(is_unseen for _, is_unseen in weights), len(weights), best.documents),
        matching=round(max(best.found_in, default=0)),
    )


def _estimate_rows(sample: WordSample) -> float:
    """How many rows the word leads to, with the time for entries of other projects counted as rows; 0 in a small scope."""
    if sample.documents <= max(SMALL_SCOPE, sample.sampled):
        return 0
    return (sample.found_in + 0.5) / (sample.sampled + 1) * (sample.documents + sample.rows / _ENTRIES_PER_ROW)


def _estimated_term(lexeme: str, sample: WordSample) -> Term:
    return Term(lexeme=lexeme, documents=(sample.found_in + 0.5) / (sample.sampled + 1) * sample.documents)
