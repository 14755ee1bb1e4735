from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.base.ids import epoch_ms, from_epoch_ms, new_id, parse_id


def test_an_id_is_a_uuid_of_version_7_that_holds_its_time(monkeypatch: pytest.MonkeyPatch):
    far_ahead_ms = 4_000_000_000_000  # the memory of the module only looks forward
    monkeypatch.setattr("cmserver.base.ids._last_tick", 0)
    monkeypatch.setattr("time.time_ns", lambda: far_ahead_ms * 1_000_000 + 500_000)

    made = new_id()

    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == far_ahead_ms
    assert (made.int >> 64) & 0xFFF == 2048  # half a millisecond


def test_each_id_is_greater_than_the_one_before():
    made = [new_id() for _ in range(5_000)]

    assert made == sorted(set(made))
    assert [str(one) for one in made] == sorted(str(one) for one in made)


def test_a_clock_that_goes_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch):
    before = new_id()
    monkeypatch.setattr("time.time_ns", lambda: 1)

    after = [new_id() for _ in range(5_000)]  # more than the 4,096 steps of a millisecond

    assert [before, *after] == sorted({before, *after})
    assert all(one.version == 7 for one in after)


def test_a_forked_process_makes_other_ids():
    new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the other process
        os.write(writing, b"".join(new_id().bytes for _ in range(100)))
        os._exit(0)
    os.close(writing)
    ours = {new_id().bytes for _ in range(100)}
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)

    assert len(theirs) == 1600
    assert not ours & {theirs[at : at + 16] for at in range(0, 1600, 16)}
    # The random part alone keeps them apart, should both read the same clock.
    assert not {one[8:] for one in ours} & {theirs[at + 8 : at + 16] for at in range(0, 1600, 16)}


def test_an_id_is_read_only_as_it_is_written():
    text = "01890a5d-ac96-774b-bcce-b302099a8057"

    assert parse_id(text) == UUID(text)
    for other in (text.upper(), text.replace("-", ""), f"{{{text}}}", f"urn:uuid:{text}", f" {text}", "", "42", "ä" * 36):
        assert parse_id(other) is None


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_milliseconds_survive_the_way_there_and_back(milliseconds: int):
    assert epoch_ms(from_epoch_ms(milliseconds)) == milliseconds


def test_a_time_becomes_whole_milliseconds_wherever_it_was_measured():
    east = timezone(timedelta(hours=2))

    assert epoch_ms(datetime(1970, 1, 1, 2, 0, 1, 1_999, tzinfo=east)) == 1_001
    assert from_epoch_ms(1_001) == datetime(1970, 1, 1, 0, 0, 1, 1_000, tzinfo=UTC)
    with pytest.raises(TypeError):
        epoch_ms(datetime(1970, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(OverflowError):
        from_epoch_ms(10**18)
