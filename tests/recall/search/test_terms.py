"""Which words of a query lead to its hits."""

from __future__ import annotations

import math

import pytest

from cmserver.base.text import quote_lexeme
from cmserver.recall.search.lexical import select_leading, select_together
from cmserver.recall.search.model import ScopeStatistics, WordSample


def sampled(found_in: int, documents: int = 1_000_000, *, first: int = 0) -> WordSample:
    """In so many of the sample, from its `first` on."""
    return WordSample(
        lexeme="word",
        found_in=list(range(first, first + found_in)),
        sampled=500,
        words=100.0,
        turn_words=1.0,
        documents=documents,
        rows=1_000_000.0,
        projects=1,
        turns=0,
    )


def test_in_a_small_scope_all_words_lead():
    samples = [sampled(500, 2_000), sampled(0, 2_000)]

    assert (select_leading(samples), select_together(samples)) == ([1, 0], [])


def test_in_a_large_scope_rare_words_lead_until_the_rows_are_too_many():
    assert select_leading([sampled(100), sampled(0), sampled(10)]) == [1]


def test_a_single_word_leads_however_common_it_is():
    assert select_leading([sampled(500)]) == [0]


def test_of_common_words_the_rarest_that_documents_have_together_are_looked_for_first():
    assert select_together([sampled(300, 20_000), sampled(200, 20_000), sampled(400, 20_000)]) == [1, 0, 2]
    assert select_together([sampled(200, 20_000), sampled(300, 20_000, first=200)]) == [], "they exclude each other"
    assert select_together([sampled(200, 20_000), sampled(300, 20_000, first=198), sampled(400, 20_000)]) == [0, 2]
    assert select_together([sampled(0, 20_000), sampled(300, 20_000)]) == [], "one is rare"


def test_a_word_is_quoted_for_the_query():
    assert quote_lexeme("it's\\") == "'it''s\\\\'"


def test_the_rarer_a_word_the_more_it_weighs_and_none_weighs_nothing_or_less():
    counts = [float(documents) for documents in range(101)]
    weights = ScopeStatistics(documents=100, mean_words=10, found_in=counts, leading=[0]).idfs

    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert weights[1] == pytest.approx(math.log(1 + 99.5 / 1.5))
    estimated = ScopeStatistics(documents=10, mean_words=10, found_in=[50.0], leading=[0])
    assert estimated.idfs[0] > 0  # of more than there are
