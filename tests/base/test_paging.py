"""Cursors: what a page ended with is where the next one begins, and nothing else is taken for one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cmserver.base import paging
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from tests.table import try_rows

MOMENT = datetime(2026, 11, 21, 22, 53, 1, 123456, tzinfo=UTC)


def test_a_cursor_says_where_the_page_ended():
    last = new_id()

    assert paging.place(paging.cursor(MOMENT, last)) == (MOMENT, last)
    assert paging.place_by_name(paging.cursor(MOMENT, "bob@example.org/ü")) == (MOMENT, "bob@example.org/ü")


def test_without_a_cursor_a_list_begins_at_the_newest():
    assert paging.place(None) == paging.place_by_name(None) == (None, None)


def test_a_page_has_a_cursor_only_where_there_is_more():
    rows = [(MOMENT, new_id()) for _ in range(3)]

    first, cursor = paging.page(rows, 2, lambda row: row)
    whole, end = paging.page(rows, 3, lambda row: row)

    assert (first, paging.place(cursor)) == (rows[:2], rows[1])
    assert (whole, end) == (rows, None)
    assert paging.page(rows[:0], 3, lambda row: row) == ([], None)


@try_rows("wrong", ["", "x", "AAAA", "é", "=" * 8, "_" * 44, paging.cursor(MOMENT, "bob")])
def test_what_is_no_cursor_is_refused_by_its_path(wrong: str):
    with pytest.raises(Invalid) as refused:
        paging.place(wrong)

    assert [issue.path for issue in refused.value.issues] == ["$.cursor"]


@try_rows("wrong", ["", "x", "é", "AAAA", "_" * 44, paging.cursor(MOMENT, "a\x00")])
def test_what_is_no_cursor_of_names_is_refused(wrong: str):
    with pytest.raises(Invalid):
        paging.place_by_name(wrong)
