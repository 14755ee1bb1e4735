"""Rate limits and quotas: each is hit and recovered from; several processes share them; what is counted is written seldom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import LiteralString, TypeVar
from uuid import UUID

import httpx
import msgspec
import pytest
from psycopg.rows import scalar_row

from cmserver.access.keys import manage as manage_keys
from cmserver.access.limits import repository
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Limits, Principal
from cmserver.base.db import Db
from cmserver.base.errors import QuotaExceeded, RateLimited, Unavailable
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from tests.conftest import Cast, Person
from tests.timeouts import ENOUGH_SECONDS

T = TypeVar("T")


class Clock:
    """A process's clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def meter(db: Db, clock: Clock) -> AsyncGenerator[Meter]:
    meter = Meter(db, clock)
    yield meter
    await meter.flush()


@pytest.fixture
async def nowhere(tmp_path: Path) -> AsyncGenerator[Db]:
    """A database that cannot be reached."""
    async with Db(f"host={tmp_path} dbname=cmserver", size=1) as db:
        db.hurry()
        yield db


class Cable(Db):
    """A database that can be cut off."""

    is_cut = False

    async def in_tenant(
        self,
        team_id: UUID,
        act: Callable[[Conn], Awaitable[T]],
        *,
        person_id: UUID | None = None,
        has_time_limit: bool = True,
        reads_all: bool = False,
    ) -> T:
        if self.is_cut:
            raise Unavailable("The database cannot be reached.")
        return await super().in_tenant(team_id, act, person_id=person_id, has_time_limit=has_time_limit, reads_all=reads_all)


@pytest.fixture
async def cable(database: str) -> AsyncGenerator[Cable]:
    async with Cable(database, size=1) as db:
        yield db


def limited(
    person: Person,
    *,
    requests: int | None = None,
    events: int | None = None,
    team_requests: int | None = None,
    team_events: int | None = None,
) -> Principal:
    limits = Limits(
        requests_per_minute=requests,
        events_per_month=events,
        team_requests_per_minute=team_requests,
        team_events_per_month=team_events,
    )
    return msgspec.structs.replace(person.principal, limits=limits)


async def admitted(meter: Meter, principal: Principal, tries: int) -> int:
    """How many of so many requests are let in."""
    done = await asyncio.gather(*(meter.admit(principal, "jobs:read") for _ in range(tries)), return_exceptions=True)
    assert {type(result) for result in done} <= {type(None), RateLimited}
    return sum(result is None for result in done)


async def store(meter: Meter, principal: Principal, events: int) -> None:
    await meter.admit_events(principal, events)
    meter.count_events(principal, events, admitted=events)


async def value(db: Db, query: LiteralString, *params: object) -> object:
    async with db.system() as conn, conn.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(query, params)
        return await cursor.fetchone() if cursor.description else None


async def later(db: Db, seconds: float, *clocks: Clock, flushed: Meter | None = None) -> None:
    """So many seconds go by, for the database and for the processes. `told` has told what it used, as it does by itself."""
    if flushed is not None:
        await flushed.flush()
    await value(db, "UPDATE rate_limits SET refilled_at = refilled_at - make_interval(secs => %s)", seconds)
    for clock in clocks:
        clock.now += seconds


async def counted(db: Db, kind: str) -> object:
    return await value(db, "SELECT coalesce(sum(amount), 0)::int FROM usage_counters WHERE kind = %s", kind)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the database was asked, in order."""
    statements: list[str] = []
    take, count = repository.take, repository.count

    async def taking(conn: Conn, team_id: UUID, taken: Mapping[UUID, tuple[int, int]]) -> dict[UUID, float]:
        statements.append("take")
        return await take(conn, team_id, taken)

    async def counting(conn: Conn, team_id: UUID, amounts: list[tuple[UUID, str, int]]) -> None:
        statements.append("count")
        await count(conn, team_id, amounts)

    monkeypatch.setattr(repository, "take", taking)
    monkeypatch.setattr(repository, "count", counting)
    return statements


async def test_a_key_may_make_a_minute_s_worth_at_once_and_then_one_as_often_as_it_refills(
    db: Db, cast: Cast, meter: Meter, clock: Clock
):
    alice = limited(cast.alice, requests=3)
    assert await admitted(meter, alice, 5) == 3

    with pytest.raises(RateLimited, match="3 a minute") as refused:
        await meter.admit(alice, "jobs:read")
    assert refused.value.retry_after_seconds == 20
    assert refused.value.limit == 3
    assert refused.value.full_after_seconds == 60

    await later(db, 20, clock, flushed=meter)
    assert await admitted(meter, alice, 5) == 1
    await later(db, 3600, clock, flushed=meter)
    assert await admitted(meter, alice, 5) == 3


@pytest.mark.parametrize("told_after", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("a_minute", [6, 30, 600])
async def test_who_waits_as_long_as_he_is_told_gets_in(
    db: Db, cast: Cast, meter: Meter, clock: Clock, a_minute: int, told_after: float
):
    """Whenever the process tells the database meanwhile, and also when his requests do not come at the full second."""
    alice = limited(cast.alice, requests=a_minute)
    assert await admitted(meter, alice, a_minute + 1) == a_minute
    await later(db, 0.3, clock)

    for _ in range(3):
        await admitted(meter, alice, a_minute)
        with pytest.raises(RateLimited) as refused:
            await meter.admit(alice, "jobs:read")
        await later(db, told_after, clock)
        await meter.flush()
        await later(db, refused.value.retry_after_seconds - told_after, clock)
        await meter.admit(alice, "jobs:read")


async def test_a_team_s_limit_is_for_all_its_keys_together(db: Db, cast: Cast, meter: Meter, clock: Clock):
    alice, bob = limited(cast.alice, team_requests=4), limited(cast.bob, requests=3, team_requests=4)

    assert await admitted(meter, alice, 3) == 3
    assert await admitted(meter, bob, 3) == 1
    assert await admitted(meter, limited(cast.charlie, team_requests=4), 9) == 4

    await later(db, 60, clock, flushed=meter)
    assert await admitted(meter, bob, 9) == 3
    assert await admitted(meter, alice, 9) == 1


async def test_two_processes_share_a_bucket(db: Db, cast: Cast):
    here, there = Clock(), Clock()
    meter, other = Meter(db, here), Meter(db, there)
    alice = limited(cast.alice, requests=4)
    assert await admitted(meter, alice, 3) == 3
    await meter.flush()

    assert await admitted(other, alice, 9) == 1

    await later(db, 15, here, there)
    assert await admitted(other, alice, 9) == 1
    await other.flush()
    assert await admitted(meter, alice, 9) == 0


async def test_what_several_processes_let_pass_in_one_second_is_paid_back(db: Db, cast: Cast):
    clocks = [Clock() for _ in range(4)]
    meters = [Meter(db, clock) for clock in clocks]
    alice = limited(cast.alice, requests=4)

    for meter in meters:  # each asks before the others have told
        await meter.admit(alice, "jobs:read")
    assert [await admitted(meter, alice, 9) for meter in meters] == [3, 3, 3, 3]
    for meter in meters:
        await meter.flush()

    assert await value(db, "SELECT round(tokens) FROM rate_limits") == -4  # a minute's worth, and no more than that
    await later(db, 60, *clocks)
    assert await admitted(meters[0], alice, 9) == 0
    await later(db, 15, *clocks)
    assert await admitted(meters[0], alice, 9) == 1


async def test_first_requests_that_come_together_share_one_question(cast: Cast, meter: Meter, statements: list[str]):
    assert await admitted(meter, limited(cast.alice, requests=10), 40) == 10

    assert statements == ["take"]


async def test_a_process_asks_at_most_once_a_second(cast: Cast, meter: Meter, clock: Clock, statements: list[str]):
    alice = limited(cast.alice, requests=1000)
    for _ in range(100):
        await meter.admit(alice, "events:write")
    assert statements == ["take"]

    clock.now += 1
    for _ in range(100):
        await meter.admit(alice, "events:write")
    assert statements == ["take", "take", "count"]


async def test_another_limit_holds_at_once(db: Db, cast: Cast, meter: Meter):
    assert await admitted(meter, limited(cast.alice, requests=9), 5) == 5

    assert await admitted(meter, limited(cast.alice, requests=2), 5) == 0
    assert await admitted(meter, cast.alice.principal, 50) == 50


async def test_without_the_database_a_limited_key_writes_nothing_and_goes_on_reading(cast: Cast, nowhere: Db):
    meter = Meter(nowhere)

    with pytest.raises(Unavailable):
        await meter.admit(limited(cast.alice, requests=9), "events:write")
    await meter.admit(limited(cast.alice, requests=9), "observations:read")
    await meter.admit(cast.bob.principal, "events:write")  # without a limit there is nothing to ask


async def test_a_database_that_goes_away_closes_what_was_open_and_opens_it_when_it_is_back(cast: Cast, cable: Cable, clock: Clock):
    meter = Meter(cable, clock)
    alice = limited(cast.alice, requests=9, events=9)
    await meter.admit(alice, "events:write")
    cable.is_cut = True
    await meter.admit(alice, "events:write")  # asked less than a second ago
    clock.now += 1

    for scope in ("events:write", "keys:write", "admin", "*"):
        with pytest.raises(Unavailable):
            await meter.admit(alice, scope)
    with pytest.raises(Unavailable):
        await meter.admit_events(alice, 1)
    await meter.admit(alice, "observations:read")
    await meter.admit(alice, "")

    cable.is_cut = False
    assert await admitted(meter, alice, 20) == 5


async def test_a_batch_that_would_pass_the_quota_is_refused_whole(db: Db, cast: Cast, meter: Meter, clock: Clock):
    alice = limited(cast.alice, events=5)
    await store(meter, alice, 3)

    with pytest.raises(QuotaExceeded, match=r"This key has stored 3 of its 5 events of this month; 3 more"):
        await meter.admit_events(alice, 3)
    await store(meter, alice, 2)
    with pytest.raises(QuotaExceeded):
        await meter.admit_events(alice, 1)

    await meter.flush()
    assert await counted(db, "events") == 5
    another = Meter(db, clock)
    with pytest.raises(QuotaExceeded, match="5 of its 5"):
        await another.admit_events(alice, 1)


async def test_a_new_month_begins_with_nothing_used(db: Db, cast: Cast, meter: Meter, clock: Clock):
    alice = limited(cast.alice, events=5, team_events=6)
    await store(meter, alice, 5)
    await meter.flush()
    with pytest.raises(QuotaExceeded):
        await meter.admit_events(alice, 1)

    await value(db, "UPDATE usage_counters SET month = month - interval '1 month'")
    clock.now += 1

    await store(meter, alice, 5)
    await meter.flush()
    assert await value(db, "SELECT array_agg(amount::int) FROM usage_counters WHERE kind = 'events'") == [5, 5]


async def test_a_team_s_quota_is_for_all_its_keys_and_a_bound_key_does_not_learn_what_the_others_used(cast: Cast, meter: Meter):
    alice, bob = limited(cast.alice, team_events=6), limited(cast.bob, team_events=6)
    bound = msgspec.structs.replace(bob, project_id=cast.bob.project.id)
    await store(meter, alice, 4)

    with pytest.raises(QuotaExceeded, match="This team has stored 4 of its 6 events"):
        await meter.admit_events(bob, 3)
    with pytest.raises(QuotaExceeded, match="This team has used up its 6 events"):
        await meter.admit_events(bound, 3)
    await meter.admit_events(limited(cast.charlie, team_events=6), 6)
    await store(meter, bound, 2)


async def test_events_that_are_just_being_stored_count_until_they_are_known(cast: Cast, meter: Meter):
    alice = limited(cast.alice, events=5)
    await meter.admit_events(alice, 4)
    with pytest.raises(QuotaExceeded):
        await meter.admit_events(alice, 2)

    meter.count_events(alice, 0, admitted=4)  # they had all come before

    await meter.admit_events(alice, 5)


async def test_many_requests_are_written_once(db: Db, cast: Cast, meter: Meter, statements: list[str]):
    for _ in range(50):
        await meter.admit(cast.alice.principal, "events:write")
        await store(meter, cast.alice.principal, 2)
        await meter.admit(cast.bob.principal, "jobs:read")
    assert statements == []

    await meter.flush()
    await meter.flush()

    assert statements == ["count"]
    assert (await counted(db, "requests"), await counted(db, "events")) == (100, 100)


async def test_what_was_used_is_told_by_itself_soon_after(db: Db, cast: Cast):
    meter = Meter(db)
    await meter.admit(cast.alice.principal, "jobs:read")

    async with asyncio.timeout(ENOUGH_SECONDS):
        while await counted(db, "requests") != 1:
            await asyncio.sleep(0.05)


async def test_what_could_not_be_told_is_told_later(db: Db, cast: Cast, cable: Cable):
    meter = Meter(cable)
    cable.is_cut = True
    await meter.admit(cast.alice.principal, "events:write")
    await store(meter, cast.alice.principal, 2)
    await meter.flush()
    await meter.admit(cast.alice.principal, "events:write")

    cable.is_cut = False
    await meter.flush()

    assert (await counted(db, "requests"), await counted(db, "events")) == (2, 2)


async def test_a_request_that_is_given_up_leaves_the_question_to_the_others(cast: Cast, meter: Meter):
    alice = limited(cast.alice, requests=1)
    impatient, patient = (asyncio.create_task(meter.admit(alice, "jobs:read")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()

    await asyncio.wait_for(patient, ENOUGH_SECONDS)
    assert await admitted(meter, alice, 1) == 0


async def test_usage_of_a_team_that_is_gone_is_dropped(db: Db, cast: Cast, meter: Meter):
    await meter.admit(cast.charlie.principal, "jobs:read")
    await meter.admit(cast.alice.principal, "jobs:read")
    await value(db, "DELETE FROM teams WHERE id = %s", cast.charlie.team_id)

    await meter.flush()
    await meter.flush()

    assert await counted(db, "requests") == 1


async def test_and_keeps_nobody_else_s_from_being_told(db: Db, cast: Cast, meter: Meter):
    await admitted(meter, cast.charlie.principal, 1)
    await admitted(meter, cast.alice.principal, 1)
    async with db.system() as conn:
        await conn.execute("DELETE FROM teams WHERE id = %s", [cast.charlie.team_id])

    await meter.flush()

    assert await value(db, "SELECT sum(amount) FROM usage_counters WHERE team_id = %s", cast.alice.team_id) == 1


async def test_when_a_key_was_last_used_is_written_once_a_minute(db: Db, cast: Cast, meter: Meter, clock: Clock):
    last_used = "SELECT last_used_at FROM api_keys WHERE id = %s"
    alice = cast.alice.principal

    async def use() -> object:
        await meter.admit(alice, "jobs:read")
        await meter.flush()
        return await value(db, last_used, alice.key_id)

    first = await use()
    assert first is not None
    assert await value(db, last_used, cast.bob.principal.key_id) is None
    clock.now += 59
    assert await use() == first
    clock.now += 1
    assert await use() == first  # another process may have written it

    await value(db, "UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'")
    clock.now += 59
    earlier = await use()
    assert earlier != first
    clock.now += 1
    assert await use() != earlier


async def key_with(
    db: Db, team_id: UUID, *, requests: int | None = None, events: int | None = None, project: UUID | None = None
) -> str:
    """The text of a new key with limits."""
    async with db.system() as conn:
        key = await manage_keys.mint(
            conn, team_id, scopes=["*"], actor_id="a", project_id=project, requests_per_minute=requests, events_per_month=events
        )
    return key.text


def event(name: str) -> dict[str, object]:
    return {"eventType": "tool_use", "projectId": "orders", "sourceEventId": name, "payload": {"n": name}}


async def test_a_refused_request_says_when_to_come_again(db: Db, cast: Cast, client: httpx.AsyncClient):
    key = await key_with(db, cast.alice.team_id, requests=2)
    headers = {"X-Api-Key": key}
    began = time.time()
    answers = [await client.get("/v1/usage", headers=headers) for _ in range(3)]
    ended = time.time()

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    refused = answers[2]
    assert refused.json()["error"] == "rate_limited"
    assert 30 - (ended - began) <= int(refused.headers["Retry-After"]) <= 30
    assert refused.headers["X-RateLimit-Limit"] == "2"
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert began + 60 <= int(refused.headers["X-RateLimit-Reset"]) <= ended + 61

    assert (await client.get("/v1/usage", headers=cast.alice.headers)).status_code == 200


async def test_over_the_quota_nothing_is_stored_and_a_repetition_is_not_counted_twice(
    db: Db, cast: Cast, app: AsgiFrame, client: httpx.AsyncClient
):
    headers = {"X-Api-Key": await key_with(db, cast.alice.team_id, events=3)}
    for _ in range(2):
        done = await client.post("/v1/events", json=event("first"), headers=headers)
        assert done.status_code in {200, 201}

    refused = await client.post("/v1/events/batch", json=[event(name) for name in ("a", "b", "c")], headers=headers)
    single = await client.post("/v1/events/batch", json=[event(name) for name in ("a", "b")], headers=headers)

    assert (refused.status_code, refused.json()["error"]) == (402, "quota_exceeded")
    assert "1 of its 3 events" in refused.json()["message"]
    assert single.status_code < 300
    assert await value(db, "SELECT count(*) FROM agent_events") == 3
    assert await value(db, "SELECT details FROM audit_log WHERE action = 'access.denied'") == {"reason": "quota_exceeded"}
    await meter_of(app).flush()
    assert await counted(db, "events") == 3


async def test_the_month_s_usage_is_shown_to_the_team_and_to_a_bound_key_only_its_own(
    db: Db, cast: Cast, app: AsgiFrame, client: httpx.AsyncClient
):
    bound = {"X-Api-Key": await key_with(db, cast.alice.team_id, requests=70, events=80, project=cast.alice.project.id)}
    await value(db, "UPDATE teams SET events_per_month = 90 WHERE id = %s", cast.alice.team_id)
    await client.post("/v1/events", json=event("mine"), headers=bound)
    await client.post("/v1/events/batch", json=[event("a"), event("b")], headers=cast.alice.headers)
    await client.post("/v1/events", json=event("theirs"), headers=cast.charlie.headers)
    other = await value(
        db,
        "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%s, %s, 'other', 'other') RETURNING id",
        new_id(),
        cast.alice.team_id,
    )
    for project, person, age in [
        (cast.alice.project.id, cast.alice, "0"),
        (other, cast.alice, "0"),
        (other, cast.alice, "40 days"),
        (cast.charlie.project.id, cast.charlie, "0"),
    ]:
        await value(
            db,
            "INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status,"
            " input_tokens, output_tokens, created_at)"
            " VALUES (%s, %s, %s, %s, 1, 'observations', 'p', 'm', '{}', 'applied', 100, 10, now() - %s::interval)",
            new_id(),
            person.team_id,
            project,
            new_id(),
            age,
        )
    await meter_of(app).flush()

    team = (await client.get("/v1/usage", headers=cast.alice.headers)).json()
    own = (await client.get("/v1/usage", headers=bound)).json()

    month = await value(db, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')")
    assert team["since"] == own["since"] == f"{month}-01T00:00:00Z"
    counts = ["requests", "events", "providerCalls", "inputTokens", "outputTokens"]
    assert [team["usage"][name] for name in counts] == [2, 3, 2, 200, 20]
    assert [own["usage"][name] for name in counts] == [1, 1, 1, 100, 10]
    assert team["limits"] == {
        "requestsPerMinute": None,
        "eventsPerMonth": None,
        "teamRequestsPerMinute": None,
        "teamEventsPerMonth": 90,
    }
    assert own["limits"] == {**team["limits"], "requestsPerMinute": 70, "eventsPerMonth": 80}


def meter_of(app: AsgiFrame) -> Meter:
    return app.dependencies.get(Meter)


async def test_a_key_does_not_escape_its_limits_by_rotating_itself(client: httpx.AsyncClient, cast: Cast, db: Db):
    async with db.system() as conn:
        first = await manage_keys.mint(
            conn, cast.alice.team_id, scopes=["memories:write"], actor_id="hook", requests_per_minute=60, events_per_month=2
        )
    text, statuses, used = first.text, list[int](), [first.id]

    for _ in range(3):
        headers = {"X-Api-Key": text}
        event = {"projectId": "orders", "eventType": "tool_use", "payload": {"n": len(statuses)}}
        statuses.append((await client.post("/v1/events", json=event, headers=headers)).status_code)
        rotated = await client.post(f"/v1/keys/{used[-1]}/rotate", json={"overlapSeconds": 0}, headers=headers)
        text = rotated.json()["apiKey"]
        used.append(UUID(rotated.json()["id"]))

    assert statuses == [201, 201, 402]
    async with db.system() as conn, conn.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute("SELECT id FROM rate_limits")
        assert await cursor.fetchall() == [first.id], "one bucket for all of them"
        await cursor.execute("SELECT DISTINCT counts_as FROM api_keys WHERE id = ANY (%s) AND counts_as IS NOT NULL", [used])
        assert await cursor.fetchall() == [first.id]
