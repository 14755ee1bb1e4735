"""The help for each kind of failure, and its page in the reference."""

from __future__ import annotations

from cmserver.models.providers.failures import FAILURE_HELP, SIGNS
from cmserver.models.providers.model import FailureKind
from tests.house.provider_errors_page import provider_errors_page
from tests.table import try_rows


@try_rows("kind", FailureKind)
def test_every_kind_is_explained(kind: FailureKind):
    assert f"| `{kind.value}` | It {FAILURE_HELP[kind].predicate}. | {FAILURE_HELP[kind].consequence} |" in provider_errors_page()


def test_every_sign_has_its_row_in_the_order_in_which_they_are_looked_at():
    rows = [line for line in provider_errors_page().partition("## By status")[2].splitlines() if line.startswith("| ")][1:]

    assert [row.split("`")[1] for row in rows] == [sign.kind.value for sign in SIGNS]
    assert rows[0].split("|")[1].strip() == "413"
    assert [row.split("|")[1].strip() for row in rows[-2:]] == ["400 to 499", "any other"]


def test_no_cell_of_a_table_is_cut_by_what_stands_in_it():
    lines = [line for line in provider_errors_page().splitlines() if line.startswith("|")]

    assert {line.count("|") for line in lines} == {4, 5}
