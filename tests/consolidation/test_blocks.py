"""The nearest of many vectors, whatever share of them is alike."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np

from cmserver.base.ids import new_id
from cmserver.consolidation.comparison.blocks import BlockComparison
from cmserver.consolidation.comparison.model import StoredVector


def stored(number: int, vector: Sequence[float], type_: str = "discovery") -> StoredVector:
    data = b"\0\2\0\0" + np.array(vector, dtype=">f2").tobytes()
    return StoredVector(id=new_id(), number=number, scope="project", type=type_, caller_type=None, vector=data)


def test_of_each_new_one_the_nearest_older_ones_of_its_group_are_paired_of_equal_ones_the_oldest():
    same, near, far = (1.0, 0.0), (1.0, 0.1), (0.0, 1.0)
    old = [stored(number, same) for number in range(1, 5)] + [stored(5, near), stored(6, far), stored(7, same, "security_alert")]
    new = [stored(8, near), stored(9, same)]
    comparison = BlockComparison(new, at_least=0.9, most=3)

    for block in (old[:3], old[3:], new):
        comparison.compare(block)

    numbers = {row.id: row.number for row in old + new}
    pairs = [(numbers[pair.newer], numbers[pair.older]) for pair in comparison.pairs()]
    assert pairs == [(8, 5), (8, 1), (8, 2), (9, 1), (9, 2), (9, 3)]


def test_thousands_that_are_all_alike_take_no_more_memory_than_others():
    rows = [stored(number, (1.0, 0.5)) for number in range(3_000)]
    comparison = BlockComparison(rows, at_least=0.9, most=3)

    tracemalloc.start()
    try:
        comparison.compare(rows)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 60 << 20
    assert len(comparison.pairs()) == 1 + 2 + 3 * (len(rows) - 3)
