"""Merges: no fact is lost, none stands twice, and what is taken out leaves nothing behind."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.base.sentences import split_sentences
from cmserver.consolidation.merge import MergeableText, MergeStrategy, MergeTooLong, fold_unit, list_units, merge_texts
from cmserver.observations.model import compose

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SENTENCES = [
    "The pool has 20 connections.",
    "the pool has 20 connections",
    "The pool has 25 connections.",
    "Der Dienst startet z. B. um 6 Uhr.",
    "It calls `a. Bee` twice!",
    "- item of a list",
    "1. item of a list",
    "東京です。",
    "See a.b.c, version 1.2.3.",
    "`make all`",
    "¿Por qué?",
    "!ready",
    "-16 LUFS",
    "16 LUFS",
    "…",
]


def text(title: str | None = None, days: int = 0, **fields: object) -> MergeableText:
    """A text with its composed content, so many days after the first one."""
    row = msgspec.convert({"title": title, "updated_at": EPOCH + timedelta(days=days), **fields}, MergeableText)
    return row if row.content else msgspec.structs.replace(row, content=row.composed)


sentences = st.sampled_from(SENTENCES) | st.text(alphabet="aB .!-`*1\n'", min_size=1, max_size=20).filter(
    lambda line: bool(line.strip()) and "```" not in line  # the texts of a merge may stand in a block of code that is never closed
)
lists = st.lists(st.sampled_from(["auth", "pool", "src/a.py"]), max_size=2, unique=True)


@st.composite
def texts(draw: st.DrawFn) -> MergeableText:
    paragraph = st.lists(sentences, min_size=1, max_size=4).map("\n".join) | st.lists(sentences, min_size=1, max_size=3).map(
        " ".join
    )
    row = text(
        draw(st.none() | sentences.map(lambda line: line.replace("\n", " "))),
        draw(st.integers(0, 9)),
        subtitle=draw(st.none() | sentences),
        narrative=draw(st.none() | paragraph),
        facts=draw(st.lists(sentences, max_size=3)),
        concepts=draw(lists),
        files_read=draw(lists),
        files_modified=draw(lists),
    )
    content = draw(st.none() | paragraph)
    return row if content is None else msgspec.structs.replace(row, content=content)


def folds(*rows: MergeableText) -> set[str]:
    return {fold_unit(unit) for row in rows for unit in list_units(row)} - {""}


@given(texts(), st.lists(texts(), max_size=3))
def test_every_sentence_of_all_is_in_the_merge(target: MergeableText, sources: list[MergeableText]):
    merged = merge_texts(target, sources)

    assert folds(target, *sources) <= folds(merged)


@given(texts(), st.lists(texts(), max_size=3))
def test_nothing_is_in_the_merge_that_none_said(target: MergeableText, sources: list[MergeableText]):
    assert folds(merge_texts(target, sources)) <= folds(target, *sources)


@given(texts(), st.lists(texts(), max_size=3))
def test_no_sentence_is_repeated_that_the_target_did_not_repeat(target: MergeableText, sources: list[MergeableText]):
    merged = merge_texts(target, sources)
    fields = [merged.subtitle, merged.narrative, *merged.facts]  # a title may say what a fact says
    before = Counter(fold_unit(unit) for unit in list_units(target))

    counts = Counter(fold_unit(unit) for field in fields if field for unit in split_sentences(field))

    assert {unit for unit, count in counts.items() if count > max(1, before[unit])} - {""} == set()


@given(texts(), st.integers(1, 3), st.sampled_from(["smart_merge", "latest_wins"]))
def test_a_text_merged_with_itself_is_unchanged(target: MergeableText, count: int, strategy: MergeStrategy):
    assert merge_texts(target, [target] * count, strategy) == target


@given(texts(), st.lists(texts(), max_size=3), st.randoms(use_true_random=False))
def test_the_order_of_sources_does_not_change_what_is_kept(
    target: MergeableText, sources: list[MergeableText], generator: random.Random
):
    shuffled = generator.sample(sources, len(sources))

    assert folds(merge_texts(target, shuffled)) == folds(merge_texts(target, sources))


@given(texts(), st.lists(texts(), max_size=3))
def test_what_is_merged_again_is_unchanged(target: MergeableText, sources: list[MergeableText]):
    merged = merge_texts(target, sources)

    assert folds(merge_texts(merged, sources)) == folds(merged)


def test_smart_merge_keeps_the_better_title_and_the_others_as_facts():
    target = text("MSRV: 1.74")
    source = text("Minimum supported Rust version is 1.74", 1, narrative="CI builds with it, too.", facts=["Set in Cargo.toml"])

    merged = merge_texts(target, [source])

    assert merged.title == source.title
    assert merged.facts == ("MSRV: 1.74", "Set in Cargo.toml")
    assert merged.narrative == "CI builds with it, too."
    assert merged.content == compose(merged.title, None, merged.narrative, merged.facts)


def test_facts_that_differ_in_case_space_and_punctuation_stand_once():
    target = text("Pool", facts=["The pool has 20 connections."])

    merged = merge_texts(target, [text("pool", facts=["the  pool has **20** connections", "- The pool has 25 connections"])])

    assert merged.facts == ("The pool has 20 connections.", "- The pool has 25 connections")


def test_the_truly_newest_wins():
    target = text("a", 3, facts=["old"], concepts=["x"])

    merged = merge_texts(target, [text("b", 9, narrative="newest", concepts=["y"]), text("c", 5)], "latest_wins")

    assert (merged.title, merged.narrative, merged.facts, merged.concepts) == ("b", "newest", (), ("x", "y"))


def test_append_puts_the_texts_one_after_another():
    target = text("a", narrative="First.", facts=["one"])

    merged = merge_texts(
        target, [text("c", 9, narrative="Third."), text("b", 5, narrative="Second.", facts=["one", "two"])], "append"
    )

    assert merged.narrative == "First.\n\nb\n\nSecond.\n\nc\n\nThird."
    assert (merged.title, merged.facts) == ("a", ("one", "two"))


def test_a_content_by_hand_gets_what_is_new():
    target = text("a", narrative="By hand.", content="By hand, with more.")

    merged = merge_texts(target, [text("a", 1, facts=["A fact"])])

    assert merged.content == "By hand, with more.\n\n- A fact"


@pytest.mark.parametrize(
    ("path", "target", "source"),
    [
        ("$.facts", {"facts": [f"fact {n}" for n in range(30)]}, {"facts": [f"more {n}" for n in range(30)]}),
        ("$.narrative", {"narrative": "a" * 15_000}, {"narrative": "b" * 15_000}),
        ("$.concepts", {"concepts": [f"c{n}" for n in range(30)]}, {"concepts": [f"d{n}" for n in range(30)]}),
    ],
)
def test_a_merge_that_would_lose_a_fact_is_refused(path: str, target: dict[str, object], source: dict[str, object]):
    with pytest.raises(MergeTooLong) as refusal:
        merge_texts(text("a", 0, **target), [text("a", 0, **source)])

    assert [issue.path for issue in refusal.value.issues] == [path]


def test_a_title_that_both_have_is_not_added_to_a_content_of_its_own():
    target = text("Retry", narrative="Three times.", content="Three times.")
    source = text("Retry", 1, narrative="Three times. Then it gives up.", content="Three times. Then it gives up.")

    assert merge_texts(target, [source]).content == "Three times.\n\nThen it gives up."
