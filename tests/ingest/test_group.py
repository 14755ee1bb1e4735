"""Events that arrive while a statement is on its way are stored together by the next one, and answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import httpx
import msgspec
import psycopg
import pytest
from psycopg import AsyncConnection, errors

from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.errors import CmserverError, Unavailable
from cmserver.base.ids import new_id
from cmserver.base.shares import Share, current_share, set_share
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.generation.model import JobOrigin
from cmserver.ingest import group, repository
from cmserver.ingest.group import EventGroups
from cmserver.ingest.model import IngestRequest, NewEvent, StoredAt
from cmserver.ingest.record import make_job_origin
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person, Server
from tests.timeouts import ENOUGH_SECONDS

T = TypeVar("T")


class GatedDb(Db):
    """Counts the statements of tenants, and holds them while its gate is closed."""

    def __init__(self, urls: DatabaseUrls) -> None:
        super().__init__(urls, size=6)
        self.gate = asyncio.Event()
        self.gate.set()
        self.statements = 0
        self.shares: list[Share | None] = []
        self.failure: CmserverError | None = None

    async def statement_in_tenant(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        self.statements += 1
        self.shares.append(current_share())
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await super().statement_in_tenant(act)


@pytest.fixture
async def gated(db: Db, server: Server, database: str) -> AsyncGenerator[GatedDb]:
    async with GatedDb(server.urls_of(database)) as opened:
        yield opened


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement on its way always holds up the next one."""
    monkeypatch.setattr(group, "PATIENCE_SECONDS", ENOUGH_SECONDS)


def new_event(person: Person, lane: UUID | None = None, **fields: object) -> NewEvent:
    event_id, job_id = new_id(), new_id()
    event = NewEvent(
        id=event_id,
        job_id=job_id,
        lane=lane or job_id,
        project_id=person.project.id,
        server_session_id=lane,
        source_adapter="api",
        source_event_id=None,
        idempotency_key=str(event_id),
        event_type="tool_use",
        platform_source=None,
        origin="api",
        generate=True,
        size_chars=2,
        payload=msgspec.Raw(b"{}"),
        metadata={},
        occurred_at=datetime.now(UTC),
        place=0,
        prompt=None,
    )
    return msgspec.structs.replace(event, **fields)


def origin_of(person: Person, request_id: str | None = None) -> JobOrigin:
    return msgspec.structs.replace(make_job_origin(person.principal), request_id=request_id)


async def store_together(groups: EventGroups, db: GatedDb, person: Person, events: list[NewEvent]) -> list[object]:
    """Store the events in one group, behind a statement that is on its way; returns results and errors, in order."""
    db.gate.clear()
    first = asyncio.create_task(groups.store(origin_of(person), new_event(person)))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(groups.store(origin_of(person, f"r-{place}"), event)) for place, event in enumerate(events)]
    await asyncio.sleep(0)
    db.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    return list(results)


async def make_session(db: Db, person: Person) -> UUID:
    async with db.tenant(person.team_id) as conn:
        session, _ = await find_or_make(conn, person.team_id, person.project.id, NewSession(external_session_id=str(new_id())))
    return session.id


def read(database: str, statement: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as conn:
        return conn.execute(statement, params).fetchall()  # pyright: ignore[reportArgumentType]


async def test_what_arrives_meanwhile_is_stored_by_one_statement(patient: None, gated: GatedDb, database: str, cast: Cast):
    groups = EventGroups(gated)
    events = [new_event(cast.alice) for _ in range(10)]

    stored = await store_together(groups, gated, cast.alice, events)

    assert [row.id for row in stored if isinstance(row, StoredAt)] == [event.id for event in events]
    assert gated.statements == 2
    assert read(database, "SELECT count(DISTINCT received_at), count(*) FROM agent_events") == [(2, 11)]
    assert read(database, "SELECT count(*) FROM observation_generation_jobs j JOIN generation_lanes l ON l.lane = j.lane") == [
        (11,)
    ]


async def test_each_request_has_its_own_audit_row_and_job_origin(patient: None, gated: GatedDb, database: str, cast: Cast):
    events = [new_event(cast.alice), new_event(cast.alice, generate=False)]

    await store_together(EventGroups(gated), gated, cast.alice, events)

    audited = read(
        database, "SELECT request_id, resource_id, details -> 'jobs' ->> 0 FROM audit_log WHERE request_id LIKE 'r-%%' ORDER BY 1"
    )
    assert audited == [("r-0", str(events[0].id), str(events[0].job_id)), ("r-1", str(events[1].id), None)]
    (job,) = read(database, "SELECT request_id, actor_id, api_key_id FROM observation_generation_jobs WHERE request_id = 'r-0'")
    assert job == ("r-0", "alice", cast.alice.principal.key_id)


async def test_a_group_uses_the_share_of_none_of_its_keys(patient: None, gated: GatedDb, cast: Cast):
    share = Share(new_id(), "ingest")
    set_share(share)
    try:
        await store_together(EventGroups(gated), gated, cast.alice, [new_event(cast.alice) for _ in range(3)])
    finally:
        set_share(None)

    assert gated.shares == [share, None]


async def test_a_lone_event_takes_one_statement_and_leaves_nothing_behind(gated: GatedDb, cast: Cast):
    groups = EventGroups(gated)
    event = new_event(cast.alice)

    stored = await groups.store(origin_of(cast.alice), event)
    again = await groups.store(origin_of(cast.alice), event)

    assert stored is not None
    assert stored.id == event.id
    assert again is None
    assert gated.statements == 2
    assert vars(groups)["_teams"] == {}


async def test_twins_in_a_group_are_one_event_and_both_are_answered(client: httpx.AsyncClient, cast: Cast, database: str):
    body = {"projectId": "github.com/acme/orders", "eventType": "tool_use", "sourceEventId": "same", "payload": {"tool_name": "x"}}

    answers = await asyncio.gather(*(client.post("/v1/events", json=body, headers=cast.alice.headers) for _ in range(8)))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["event"]["id"] for answer in answers}) == 1
    assert read(database, "SELECT count(*) FROM agent_events") == [(1,)]
    assert read(database, "SELECT count(*) FROM audit_log WHERE action = 'events.received'") == [(1,)]


async def test_an_event_that_cannot_be_stored_fails_alone(patient: None, gated: GatedDb, database: str, cast: Cast):
    good, bad = new_event(cast.alice), new_event(cast.alice, project_id=new_id())

    stored, failure, other = await store_together(EventGroups(gated), gated, cast.alice, [good, bad, new_event(cast.alice)])

    assert isinstance(failure, errors.ForeignKeyViolation)
    assert not isinstance(stored, BaseException)
    assert not isinstance(other, BaseException)
    assert read(database, "SELECT count(*) FROM agent_events") == [(3,)]


async def test_a_database_that_is_away_refuses_the_whole_group(patient: None, gated: GatedDb, cast: Cast):
    gated.failure = Unavailable("The database cannot be reached.")
    groups = EventGroups(gated)

    gated.gate.clear()
    tasks = [asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice))) for _ in range(4)]
    await asyncio.sleep(0)
    gated.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(result) for result in results] == [Unavailable] * 4
    assert gated.statements == 2


async def test_a_locked_lane_holds_up_its_own_events_only(gated: GatedDb, database: str, cast: Cast):
    groups = EventGroups(gated)
    locked, free = await make_session(gated, cast.alice), await make_session(gated, cast.alice)
    for lane in (locked, free):
        await groups.store(origin_of(cast.alice), new_event(cast.alice, lane))

    async with await AsyncConnection.connect(database) as other, other.transaction():
        await other.execute("SELECT FROM generation_lanes WHERE lane = %s FOR UPDATE", [locked])
        blocked = [new_event(cast.alice, locked) for _ in range(3)]
        waiting = [asyncio.create_task(groups.store(origin_of(cast.alice), event)) for event in blocked]
        passing = [asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice, free))) for _ in range(3)]
        async with asyncio.timeout(ENOUGH_SECONDS):
            await asyncio.gather(*passing)
        later = await groups.store(origin_of(cast.alice), new_event(cast.alice))

        assert later is not None
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)

    order = read(database, "SELECT agent_event_id FROM observation_generation_jobs WHERE lane = %s ORDER BY seq OFFSET 1", locked)
    assert [row[0] for row in order] == [event.id for event in blocked]


async def test_a_session_keeps_its_order_in_a_group(patient: None, gated: GatedDb, database: str, cast: Cast):
    lane = await make_session(gated, cast.alice)
    events = [new_event(cast.alice, lane) for _ in range(6)]

    await store_together(EventGroups(gated), gated, cast.alice, events)

    order = read(database, "SELECT agent_event_id FROM observation_generation_jobs WHERE lane = %s ORDER BY seq", lane)
    assert [row[0] for row in order] == [event.id for event in events]


async def test_the_event_of_a_caller_that_is_gone_is_stored_whole(patient: None, gated: GatedDb, database: str, cast: Cast):
    groups = EventGroups(gated)
    gated.gate.clear()
    first = asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice)))
    await asyncio.sleep(0)
    gone = asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice)))
    stays = asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice)))
    await asyncio.sleep(0)

    gone.cancel()
    gated.gate.set()
    await asyncio.gather(first, stays)

    assert gone.cancelled()
    assert read(database, "SELECT count(*) FROM agent_events e JOIN observation_generation_jobs j ON j.agent_event_id = e.id") == [
        (3,)
    ]


@pytest.mark.parametrize(("limit", "value"), [("MAX_EVENTS", 4), ("MAX_CHARS", 350)])
async def test_a_group_is_bounded(
    patient: None, monkeypatch: pytest.MonkeyPatch, gated: GatedDb, database: str, cast: Cast, limit: str, value: int
):
    monkeypatch.setattr(group, limit, value)

    stored = await store_together(EventGroups(gated), gated, cast.alice, [new_event(cast.alice, size_chars=100) for _ in range(8)])

    assert None not in stored
    assert gated.statements == 3
    assert read(database, "SELECT max(n) FROM (SELECT count(*) AS n FROM agent_events GROUP BY received_at) g") == [(4,)]


async def test_teams_do_not_wait_for_each_other(patient: None, gated: GatedDb, cast: Cast):
    groups = EventGroups(gated)
    gated.gate.clear()
    alices = asyncio.create_task(groups.store(origin_of(cast.alice), new_event(cast.alice)))
    charlies = asyncio.create_task(groups.store(origin_of(cast.charlie), new_event(cast.charlie)))
    await asyncio.sleep(0)

    assert gated.statements == 2
    gated.gate.set()
    assert None not in await asyncio.gather(alices, charlies)


async def test_another_team_s_lane_is_refused_by_row_level_security_though_it_is_due_already(db: Db, cast: Cast):
    alice, charlie = cast.alice, cast.charlie
    event = new_event(alice)
    await EventGroups(db).store(make_job_origin(alice.principal), event)
    strange = [msgspec.structs.replace(new_event(charlie), lane=event.lane) for _ in range(2)]

    origin = make_job_origin(charlie.principal)
    request = reshape(origin, IngestRequest, events=strange)

    with pytest.raises(errors.InsufficientPrivilege):
        await db.statement_in_tenant(lambda conn: repository.ingest_one(conn, origin, strange[0]))
    with pytest.raises(errors.InsufficientPrivilege):
        await db.statement_in_tenant(lambda conn: repository.ingest(conn, charlie.team_id, [request]))
