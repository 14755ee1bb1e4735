"""One Struct made of another."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from cmserver.base.structs import reshape


class Row(msgspec.Struct, kw_only=True):
    name: str
    labels: list[str] | None = None
    created_at: datetime
    ended_at: datetime | None = None


class RowOut(msgspec.Struct, kw_only=True):
    name: str
    labels: list[str] | None
    created_at_epoch: int
    ended_at_epoch: int | None
    note: str = "none"


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_fields_of_the_same_name_are_copied_and_times_become_milliseconds():
    out = reshape(Row(name="a", created_at=NOON), RowOut)

    assert out == RowOut(name="a", labels=None, created_at_epoch=1_795_348_800_000, ended_at_epoch=None)


def test_milliseconds_become_times():
    out = RowOut(name="a", labels=["x"], created_at_epoch=1_795_348_800_000, ended_at_epoch=None)

    assert reshape(out, Row) == Row(name="a", labels=["x"], created_at=NOON)


def test_named_values_go_before_those_of_the_source():
    out = reshape(Row(name="a", created_at=NOON), RowOut, name="b", note="more")

    assert (out.name, out.note) == ("b", "more")


def test_a_value_that_is_missing_or_has_no_field_is_refused():
    class Wider(RowOut, kw_only=True):
        more: int

    with pytest.raises(TypeError, match="more"):
        reshape(Row(name="a", created_at=NOON), Wider)
    with pytest.raises(TypeError, match="colour"):
        reshape(Row(name="a", created_at=NOON), RowOut, colour="red")
