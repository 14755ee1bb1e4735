"""Taking in events without HTTP, as more than one door does."""

from __future__ import annotations

import pytest

from cmserver.access.limits.meter import Meter
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest.intake import EventIntake
from cmserver.ingest.record import EventRecorder
from cmserver.ingest.wire import EventIn, RecordOptions
from tests.conftest import Cast
from tests.rows import rows


@pytest.fixture
def intake(db: Db, hub: NotificationListener, notifier: JobNotifier, meter: Meter) -> EventIntake:
    recorder = EventRecorder(db, notifier, meter, secret=b"s" * 32, debounce_seconds=0, gather_seconds=0)
    return EventIntake(db, hub, Projects(db, hub), recorder)


def events(*payloads: object) -> dict[str, EventIn]:
    return {
        f"$[{place}]": EventIn(event_type="x", project_id="new", occurred_at_epoch=1, payload=payload)
        for place, payload in enumerate(payloads)
    }


async def test_events_say_by_which_door_they_came(intake: EventIntake, cast: Cast, db: Db):
    principal = cast.alice.principal

    by_default = await intake.accept(principal, events("a"), RecordOptions(), size_bytes=0)
    by_mcp = await intake.accept(principal, events("b", "c"), RecordOptions(generate=False), size_bytes=0, origin="mcp")

    assert [recorded.event.origin for recorded in (*by_default, *by_mcp)] == ["api", "mcp", "mcp"]
    stored = await rows(db, "SELECT payload, origin FROM agent_events ORDER BY payload")
    assert [(row["payload"], row["origin"]) for row in stored] == [("a", "api"), ("b", "mcp"), ("c", "mcp")]


async def test_the_same_event_by_another_door_is_the_one_that_was_there(intake: EventIntake, cast: Cast):
    principal = cast.alice.principal
    (first,) = await intake.accept(principal, events("a"), RecordOptions(), size_bytes=0)

    (again,) = await intake.accept(principal, events("a"), RecordOptions(), size_bytes=0, origin="mcp")

    assert (again.event.id, again.event.origin) == (first.event.id, "api")
