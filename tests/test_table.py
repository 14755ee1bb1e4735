"""A table is one test, and it says which rows failed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.table import try_rows


def test_every_row_that_failed_is_listed_and_no_other():
    @try_rows(("number", "square"), [(2, 4), (3, 8), (4, 16), (5, 24)])
    def squares(number: int, square: int) -> None:
        assert number * number == square

    with pytest.raises(AssertionError) as failed:
        squares()  # pyright: ignore[reportCallIssue]

    assert "2 rows failed" in str(failed.value)
    assert [row in str(failed.value) for row in ("'2, 4'", "'3, 8'", "'4, 16'", "'5, 24'")] == [False, True, False, True]


async def test_that_holds_for_what_waits_too():
    @try_rows("row", ["good", "bad"])
    async def test(row: str) -> None:
        assert row == "good"

    with pytest.raises(AssertionError, match="1 rows failed\n\n'bad'"):
        await test()  # pyright: ignore[reportCallIssue]


@try_rows("row", "ab")
@try_rows("other", [1, 2], ids=["one", "two"])
def test_it_gets_its_fixtures_and_tables_of_tables_work(row: str, other: int, tmp_path: Path):
    (tmp_path / f"{row}{other}").touch(exist_ok=False)

    assert list(inspect.signature(test_it_gets_its_fixtures_and_tables_of_tables_work).parameters) == ["tmp_path"]
