"""Which words of a query lead to its hits."""

from __future__ import annotations

import math

import pytest

from cmserver.recall.search.lexical import idf, select_leading_terms
from cmserver.recall.search.model import WordSample


def sampled(found_in: int, documents: int = 1_000_000) -> WordSample:
    return WordSample(found_in=found_in, sampled=500, words=100.0, documents=documents, rows=1_000_000.0)


def test_in_a_small_scope_all_words_lead_and_their_hits_are_counted():
    terms, any_of = select_leading_terms(["the", "wombat"], [sampled(500, 2_000), sampled(0, 2_000)])

    assert sorted(any_of.split(" | ")) == ["'the'", "'wombat'"]
    assert [term.documents for term in terms] == [None, None]


def test_in_a_large_scope_rare_words_lead_until_the_rows_are_too_many():
    words = [sampled(100), sampled(0), sampled(10)]

    terms, any_of = select_leading_terms(["common", "rare", "usual"], words)

    assert any_of == "'rare'"
    assert [term.lexeme for term in terms] == ["common", "rare", "usual"]
    assert terms[1].documents is None
    assert terms[0].documents == pytest.approx(100.5 / 501 * 1_000_000)
    assert terms[2].documents == pytest.approx(10.5 / 501 * 1_000_000)


def test_a_single_word_leads_however_common_it_is():
    terms, any_of = select_leading_terms(["common"], [sampled(500)])

    assert any_of == "'common'"
    assert terms[0].documents is None


def test_where_all_words_are_common_each_leads_together_with_another_one():
    terms, any_of = select_leading_terms(["a", "b", "c"], [sampled(300), sampled(200), sampled(400)])

    assert any_of == "('b' & 'a') | ('b' & 'c') | ('a' & 'c')"
    assert all(term.documents is not None for term in terms)


def test_of_many_common_words_only_some_are_paired():
    lexemes = [f"w{n}" for n in range(64)]

    _, any_of = select_leading_terms(lexemes, [sampled(300) for _ in lexemes])

    assert any_of.count("&") == 45


def test_a_word_is_quoted_for_the_query():
    _, any_of = select_leading_terms(["it's\\"], [sampled(1, 10)])

    assert any_of == "'it''s\\\\'"


def test_the_rarer_a_word_the_more_it_weighs_and_none_weighs_nothing_or_less():
    weights = [idf(100, documents) for documents in range(101)]

    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert weights[1] == pytest.approx(math.log(1 + 99.5 / 1.5))
    assert idf(10, 50) > 0  # more than there are, as an estimate may say
