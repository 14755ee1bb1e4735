"""The guard: whether texts that are near in meaning differ in a fact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.consolidation.difference import find_difference, only_adds
from cmserver.consolidation.marks import read_marks
from cmserver.consolidation.similarity import lexical_similarity
from cmserver.observations.model import compose
from tests.bench.recall.corpora import history
from tests.consolidation.near_misses import make_near_misses
from tests.evaluation.pairs.load import read_pairs
from tests.table import try_rows


@try_rows(
    ("kind", "left", "right"),
    [
        ("number", "Captures are retried 3 times", "Captures are retried 5 times"),
        ("name", "The largest partition is 1.2 GB", "The largest partition is 1.2 TB"),
        ("word", "Inventory is due every 14 days", "Inventory is due every 14 weeks"),
        ("number", "The daily report is ready at 09:00", "The daily report is ready at 07:30"),
        ("number", "Built with LLVM 4.1", "Built with LLVM 4.10"),
        ("version", "pyarrow is pinned to 14.0.2", "pyarrow is pinned to 15.0.2"),
        ("path", "The probe calls /healthz of the router", "The probe calls /readyz of the router"),
        ("path", "Configured in src/pool.toml alone", "Configured in src/jobs.toml alone"),
        ("identifier", "`readMarkers` runs in batches", "`sendMarkers` runs in batches"),
        ("name", "The client for Linux has no GPU", "The client for Windows has no GPU"),
        ("word", "Closures capture by reference", "Closures capture by value"),
        ("opposite", "The console is enabled in release builds", "The console is disabled in release builds"),
        ("opposite", "Inlining runs before elimination", "Inlining runs after elimination"),
        ("negation", "Guests may read the history", "Guests may not read the history"),
        ("negation", "Guests can read the history", "Guests can't read the history"),
        ("negation", "Kinder brauchen ein eigenes Ticket", "Kinder brauchen kein eigenes Ticket"),
        ("negation", "L'API répond en préproduction", "L'API ne répond pas en préproduction"),
        ("negation", "El torno guarda las lecturas", "El torno no guarda las lecturas"),
        ("negation", "服务支持重试", "服务不支持重试"),
        ("order", "The client sends markers to the server", "The server sends markers to the client"),
        ("order", "VAT was 19 % instead of 7 %", "VAT was 7 % instead of 19 %"),
        ("change", "Dark mode fails on the map", "The map screen is dark for the time being, still"),
    ],
)
def test_a_fact_that_is_replaced_is_a_difference(kind: str, left: str, right: str):
    assert find_difference(read_marks(left), read_marks(right)) == kind


@try_rows(
    ("left", "right"),
    [
        ("`PoolController` was split.", "PoolController was split"),
        ("RAM USAGE OF THE STACK: 11.2 KB", "RAM usage of the stack — 11.2 KB"),
        ("The pool is full.", "The pool is full. Seen with 20 workers on 3 hosts."),
        ("It doesn't start", "It does not start"),
    ],
)
def test_another_form_of_the_same_and_more_details_are_none(left: str, right: str):
    assert find_difference(read_marks(left), read_marks(right)) is None
    assert find_difference(read_marks(right), read_marks(left)) is None


@given(st.text(alphabet="aB1 ./-:_%`'\n不é", max_size=200))
def test_no_text_differs_from_itself(text: str):
    marks = read_marks(text)

    assert find_difference(marks, marks) is None
    assert lexical_similarity(marks, marks) == (1.0 if marks.words else 0.0)


@given(st.text(alphabet="aB1 ./-not\n", max_size=60), st.text(alphabet="aB1 ./-not\n", max_size=60))
def test_a_difference_is_found_from_both_sides(left: str, right: str):
    marks, others = read_marks(left), read_marks(right)

    assert (find_difference(marks, others) is None) == (find_difference(others, marks) is None)


@try_rows("unit", ["/", ".", "a.", "1,", "1.", "-", "a_", "::", "`", "@a/", "v1.", "a-", "不", "a b. "])
def test_a_hostile_text_is_read(unit: str):
    marks = read_marks(unit * (20_000 // len(unit)))

    assert find_difference(marks, marks) is None


def collect_texts() -> list[str]:
    """The texts of the labelled pairs that may be looked at, and of a product's history."""
    sides = [side.text for pair in read_pairs("dev") for side in (pair.left, pair.right)]
    documents = history.load().documents
    texts = [compose(row.title, row.subtitle, row.narrative, row.facts) or row.content or "" for row in documents]
    return [text for text in [*sides, *texts] if text]


@pytest.mark.parametrize(("count", "seed"), [(500, 1), pytest.param(5_000, 2, marks=pytest.mark.slow)])
def test_each_near_miss_differs(count: int, seed: int):
    near_misses = make_near_misses(collect_texts(), count, seed)

    taken_for_equal = [
        (near_miss.kind, near_miss.text, near_miss.changed)
        for near_miss in near_misses
        if find_difference(read_marks(near_miss.text), read_marks(near_miss.changed)) is None
    ]

    assert len(near_misses) == count
    assert taken_for_equal == []


@try_rows(
    ("left", "right", "expected"),
    [
        ("Pin the parser", "Pin the parser in `package.json`", True),
        ("The **pool** is full", "The pool is full", True),
        ("Ask William", "Ask Williams", False),
        ("At least >= 80 %", "At least <= 80 %", False),
        ("Delete with -d", "Delete with -D after the merge", False),
        ("Tries: 5", "Tries: 5.", True),
        ("Version 1.5 is old", "Version 15 is old", False),
    ],
)
def test_one_text_only_adds_to_the_other_letter_by_letter(left: str, right: str, expected: bool):
    assert only_adds(left, right) == only_adds(right, left) == expected
