from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.ingest.identity import EventFacts, encode_canonical_json, hash_payload, make_event_key, make_job_key
from tests.table import try_rows

TEAM, PROJECT, SESSION = UUID(int=1), UUID(int=2), UUID(int=3)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVENT: dict[str, object] = {
    "team_id": TEAM,
    "project_id": PROJECT,
    "source_adapter": "claude_code",
    "platform_source": None,
    "source_event_id": None,
    "session": SESSION,
    "event_type": "PostToolUse",
    "occurred_at": NOON,
    "content_hash": "aa",
}
JOB: dict[str, object] = {
    "team_id": TEAM,
    "project_id": PROJECT,
    "source_type": "agent_event",
    "source_id": UUID(int=4),
    "job_type": "observations",
    "source_run": 1,
}

TEXT = st.text(st.characters(), max_size=8)  # lone surrogates too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def key(**changes: object) -> str:
    return make_event_key(EventFacts(**(EVENT | changes)))  # pyright: ignore[reportArgumentType]


def job(**changes: object) -> str:
    return make_job_key(**(JOB | changes))  # pyright: ignore[reportArgumentType]


def turned_around(value: object) -> object:
    """The same value with the members of each object in the opposite order."""
    return json.loads(json.dumps(value), object_pairs_hook=lambda members: dict(reversed(members)))


@given(JSON)
def test_canonical_json_is_the_same_for_every_order_of_the_keys(value: object) -> None:
    assert encode_canonical_json(turned_around(value)) == encode_canonical_json(value)


@given(JSON)
def test_canonical_json_says_everything_the_value_says(value: object) -> None:
    written = encode_canonical_json(value).decode("utf-8", "surrogatepass")

    read: object = json.loads(written)

    assert read == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [1.5, None, True], "é": "ü"}, '{"a":[1.5,null,true],"b":1,"é":"ü"}'.encode()),
        ("\ud800", b'"\xed\xa0\x80"'),
        (10**40, str(10**40).encode()),
    ],
)
def test_canonical_json_has_sorted_keys_and_no_spaces(value: object, expected: bytes) -> None:
    assert encode_canonical_json(value) == expected


def test_one_and_one_point_zero_are_two_values() -> None:
    assert encode_canonical_json(1) != encode_canonical_json(1.0)


def test_the_payload_hash_needs_the_installations_secret() -> None:
    assert hash_payload(b"one", {"a": 1}) == hash_payload(b"one", {"a": 1})
    assert hash_payload(b"one", {"a": 1}) != hash_payload(b"two", {"a": 1})
    assert hash_payload(b"one", {"a": 1}) != hash_payload(b"one", {"a": 2})


def test_keys_never_change_from_release_to_release() -> None:
    assert key() == "agent_event:v1:79c3c989975aed57536af5e453ec6ac1e04ad1442e99e969d17b8d9574451bc9"
    assert key(source_event_id="toolu_1") == "agent_event:v1:8eb933ae8b31deca15dca9398c5e6fd74552a43bdfd2ab2dd93add7c0196b376"
    assert job() == "generation_job:v1:4e2eef11047c627fcb1c31c401e99d0fa6239f635074ecd656a2e2c26c7f7b15"
    assert hash_payload(b"secret", {"b": 1.5, "a": "é"}) == "296c3fca71a1b14c64e994399f60933fd4b1a043c42a580684b1f4cd4ec33deb"


@try_rows(
    "change",
    [
        {"team_id": UUID(int=9)},
        {"project_id": UUID(int=9)},
        {"source_adapter": "codex"},
        {"platform_source": "cli"},
        {"platform_source": ""},
        {"session": None},
        {"session": ""},
        {"session": "content-1"},
        {"event_type": "Stop"},
        {"occurred_at": NOON + timedelta(milliseconds=1)},
        {"content_hash": "ab"},
        {"source_event_id": "1"},
        {"source_event_id": ""},
    ],
)
def test_an_event_that_differs_in_one_part_is_another_event(change: dict[str, object]) -> None:
    assert key(**change) != key()


@pytest.mark.parametrize(
    "change",
    [
        {"session": None},
        {"event_type": "Stop"},
        {"occurred_at": NOON + timedelta(hours=1)},
        {"content_hash": "ab"},
    ],
)
def test_an_event_with_an_id_from_its_source_is_known_by_that_alone(change: dict[str, object]) -> None:
    assert key(source_event_id="toolu_1", **change) == key(source_event_id="toolu_1")


@pytest.mark.parametrize(
    "change",
    [{"team_id": UUID(int=9)}, {"project_id": UUID(int=9)}, {"source_adapter": "codex"}, {"platform_source": "cli"}],
)
def test_an_id_from_a_source_counts_within_team_project_and_source_only(change: dict[str, object]) -> None:
    assert key(source_event_id="toolu_1", **change) != key(source_event_id="toolu_1")


def test_the_same_moment_in_another_time_zone_is_the_same_event() -> None:
    elsewhere = NOON.astimezone(tz=datetime.fromisoformat("2026-01-01T00:00:00+05:30").tzinfo)

    assert key(occurred_at=elsewhere) == key()


def test_parts_do_not_run_into_each_other() -> None:
    assert key(source_adapter="a", platform_source="bc") != key(source_adapter="ab", platform_source="c")
    assert key(source_adapter='a","b', source_event_id="c") != key(source_adapter="a", source_event_id='b","c')


def test_an_id_with_a_lone_surrogate_still_makes_a_key() -> None:
    assert key(source_event_id="\ud800") != key(source_event_id="\ud801")


@try_rows(
    "change",
    [
        {"team_id": UUID(int=9)},
        {"project_id": UUID(int=9)},
        {"source_type": "session_summary"},
        {"source_id": UUID(int=9)},
        {"job_type": "summary"},
        {"source_run": 2},
    ],
)
def test_a_job_that_differs_in_one_part_is_another_job(change: dict[str, object]) -> None:
    assert job(**change) != job()
