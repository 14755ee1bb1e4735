"""What an operator is told of each kind of failure."""

from __future__ import annotations

import pytest

from cmserver.providers.failures import SIGNS
from cmserver.providers.meaning import MEANINGS, failures_page
from cmserver.providers.model import FailureKind


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_is_explained(kind: FailureKind):
    assert f"| `{kind.value}` | It {MEANINGS[kind].what}. | {MEANINGS[kind].then} |" in failures_page()


def test_every_sign_has_its_row_in_the_order_in_which_they_are_looked_at():
    rows = [line for line in failures_page().partition("## By status")[2].splitlines() if line.startswith("| ")][1:]

    assert [row.split("`")[1] for row in rows] == [sign.kind.value for sign in SIGNS]
    assert rows[0].split("|")[1].strip() == "413"
    assert [row.split("|")[1].strip() for row in rows[-2:]] == ["400 to 499", "any other"]


def test_no_cell_of_a_table_is_cut_by_what_stands_in_it():
    lines = [line for line in failures_page().splitlines() if line.startswith("|")]

    assert {line.count("|") for line in lines} == {4, 5}
