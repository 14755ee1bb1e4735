"""Accepting events without HTTP, as more than one door does."""

from __future__ import annotations

import pytest

from cmserver.access.limits.meter import Meter
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.live import Hub
from cmserver.generation.bell import Bell
from cmserver.ingest.accept import Acceptance
from cmserver.ingest.record import Recorder
from cmserver.ingest.wire import EventIn, EventsQuery, Placed
from tests.conftest import Cast
from tests.rows import rows


@pytest.fixture
def acceptance(db: Db, hub: Hub, bell: Bell, meter: Meter) -> Acceptance:
    recorder = Recorder(db, bell, meter, secret=b"s" * 32, debounce_seconds=0, field_max_chars=16_000, max_attempts=3)
    return Acceptance(db, hub, Projects(db, hub), recorder, field_max_chars=16_000)


def placed(*payloads: object) -> list[Placed]:
    return [
        Placed(
            at=f"$[{place}]", event=EventIn(event_type="x", project_id="new", occurred_at_epoch=1, payload=payload), size_bytes=0
        )
        for place, payload in enumerate(payloads)
    ]


async def test_events_say_by_which_door_they_came(acceptance: Acceptance, cast: Cast, db: Db):
    who = cast.alice.principal

    by_default = await acceptance.accept(who, placed("a"), EventsQuery())
    by_mcp = await acceptance.accept(who, placed("b", "c"), EventsQuery(generate=False), origin="mcp")

    assert [one.event.origin for one in (*by_default, *by_mcp)] == ["api", "mcp", "mcp"]
    stored = await rows(db, "SELECT payload, origin FROM agent_events ORDER BY payload")
    assert [(row["payload"], row["origin"]) for row in stored] == [("a", "api"), ("b", "mcp"), ("c", "mcp")]


async def test_the_same_event_by_another_door_is_the_one_that_was_there(acceptance: Acceptance, cast: Cast):
    who = cast.alice.principal
    (first,) = await acceptance.accept(who, placed("a"), EventsQuery())

    (again,) = await acceptance.accept(who, placed("a"), EventsQuery(), origin="mcp")

    assert (again.event.id, again.event.origin) == (first.event.id, "api")
