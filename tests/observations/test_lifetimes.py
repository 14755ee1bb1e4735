"""Reading extends the life of what expires, and makes permanent what is read often; a person may do so, too."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.observations.accesses.jobs import count_accesses
from cmserver.observations.accesses.model import VIAS
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import ObservationVersion
from cmserver.observations.model import Observation
from cmserver.observations.read import audit_read
from tests.conftest import Cast, Person
from tests.make import Make

DAY = 86_400


async def make_expiring(db: Db, make: Make, person: Person, *, ttl_seconds: int = DAY) -> Observation:
    observation = await make.observation(project=person.project)
    async with db.system() as conn:
        await conn.execute(
            "UPDATE observations SET ttl_seconds = %s, expires_at = created_at + make_interval(secs => %s) WHERE id = %s",
            [ttl_seconds, ttl_seconds, observation.id],
        )
    return await stored(db, observation)


async def stored(db: Db, observation: Observation) -> Observation:
    async with db.tenant(observation.team_id) as conn:
        (found,) = await history.lock(conn, observation.team_id, [observation.id])
    return found


async def versions(db: Db, observation: Observation) -> list[ObservationVersion]:
    async with db.tenant(observation.team_id) as conn:
        return await history.of_observation(conn, observation.team_id, observation.id, 10)


async def read_by(db: Db, person: Person, via: str, *read: Observation) -> None:
    async with db.tenant(person.team_id) as conn:
        await audit_read(conn, person.principal, person.project.id, via, read)


async def expire(db: Db, observation: Observation, *, days_ago: float = 0) -> None:
    async with db.system() as conn:
        await conn.execute(
            "UPDATE observations SET ttl_seconds = 1, expires_at = now() - make_interval(secs => %s) WHERE id = %s",
            [days_ago * DAY, observation.id],
        )


def lifetime(observation: Observation) -> timedelta:
    assert observation.expires_at is not None
    return observation.expires_at - observation.created_at


@pytest.mark.parametrize("via", VIAS)
async def test_each_read_of_the_text_adds_half_a_lifetime(db: Db, cast: Cast, make: Make, via: str):
    observation = await make_expiring(db, make, cast.alice)

    lifetimes: list[timedelta] = []
    for _ in range(4):
        await read_by(db, cast.alice, via, await stored(db, observation))
        lifetimes.append(lifetime(await stored(db, observation)))

    assert lifetimes == [timedelta(days=days) for days in (1.5, 2, 2.5, 3)]
    after = await stored(db, observation)
    assert (after.access_count, after.version, after.ttl_seconds) == (4, 1, DAY)
    assert after.updated_at == observation.updated_at


@pytest.mark.parametrize("via", ["list", "search", "context", "startup", "timeline"])
async def test_a_line_in_a_list_extends_nothing(db: Db, cast: Cast, make: Make, via: str):
    observation = await make_expiring(db, make, cast.alice)

    await read_by(db, cast.alice, via, observation)

    assert await stored(db, observation) == observation


async def test_the_fifth_read_makes_it_permanent(db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)

    for _ in range(4):
        await read_by(db, cast.alice, "get", await stored(db, observation))
    before = await stored(db, observation)
    await read_by(db, cast.alice, "get", before)

    after = await stored(db, observation)
    assert (after.ttl_seconds, after.expires_at, after.access_count, after.version) == (None, None, 5, 2)
    (version,) = await versions(db, observation)
    assert (version.action, version.performed_by, version.version) == ("promoted", "system", 2)
    assert version.before is not None
    assert (version.before.ttl_seconds, version.before.expires_at) == (DAY, before.expires_at)


@pytest.mark.parametrize(
    ("team", "project", "reads"),
    [({}, {}, 5), ({"promoteAccesses": 2}, {}, 2), ({"promoteAccesses": 2}, {"promoteAccesses": 3}, 3)],
)
async def test_a_project_or_its_team_says_how_many_reads_it_takes(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, team: dict[str, int], project: dict[str, int], reads: int
):
    for path, policy in (("/v1/teams/blue", team), ("/v1/projects/orders", project)):
        await client.patch(path, json={"retention": policy}, headers=cast.alice.headers)
    observation = await make_expiring(db, make, cast.alice)

    ttls: list[int | None] = []
    for _ in range(reads):
        await client.get(f"/v1/observations/{observation.number}", headers=cast.alice.headers)
        ttls.append((await stored(db, observation)).ttl_seconds)

    assert ttls == [*[DAY] * (reads - 1), None]


async def test_a_page_is_extended_in_one_update_and_a_permanent_one_is_not_written(db: Db, cast: Cast, make: Make):
    permanent = await make.observation(project=cast.alice.project)
    page = [permanent, *[await make_expiring(db, make, cast.alice) for _ in range(3)]]

    counted = "SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relid = 'observations'::regclass"
    async with db.tenant(cast.alice.team_id) as conn:
        ((before,),) = await (await conn.execute(counted)).fetchall()
        await audit_read(conn, cast.alice.principal, cast.alice.project.id, "batch", page)
        ((after,),) = await (await conn.execute(counted)).fetchall()

    assert after - before == 3
    assert await stored(db, permanent) == permanent
    assert [lifetime(await stored(db, row)) for row in page[1:]] == [timedelta(days=1.5)] * 3


async def test_no_access_is_counted_twice_or_lost(db: Db, cast: Cast, make: Make):
    permanent = await make.observation(project=cast.alice.project)
    expiring = await make_expiring(db, make, cast.alice)
    for _ in range(6):  # the sixth is of a permanent one
        await read_by(db, cast.alice, "batch", permanent, await stored(db, expiring))

    await count_accesses(db)
    await count_accesses(db)

    assert [(await stored(db, row)).access_count for row in (permanent, expiring)] == [6, 6]


async def test_a_row_that_became_permanent_meanwhile_is_counted_from_the_log(db: Db, cast: Cast, make: Make):
    stale = await make_expiring(db, make, cast.alice)
    for _ in range(5):
        await read_by(db, cast.alice, "get", stale)

    await read_by(db, cast.alice, "get", stale)  # as it was read before it was promoted
    at_once = (await stored(db, stale)).access_count
    await count_accesses(db)
    await count_accesses(db)

    assert (at_once, (await stored(db, stale)).access_count) == (5, 6)


async def test_what_has_expired_is_not_brought_back_by_a_late_reader(db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)
    await expire(db, observation)
    expired = await stored(db, observation)

    await read_by(db, cast.alice, "get", observation)

    assert await stored(db, observation) == expired


@pytest.mark.parametrize(("importance", "is_permanent"), [(0.79, False), (0.8, True), (1, True)])
async def test_importance_that_is_raised_makes_it_permanent(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, importance: float, is_permanent: bool
):
    observation = await make_expiring(db, make, cast.alice)

    answer = await client.patch(
        f"/v1/observations/{observation.number}", json={"importance": importance}, headers=cast.alice.headers
    )

    shown = answer.json()["observation"]
    assert (shown["ttlSeconds"] is None, shown["expiresAtEpoch"] is None) == (is_permanent, is_permanent)
    found = [(version.action, version.performed_by) for version in await versions(db, observation)]
    assert found == [*([("promoted", "system")] if is_permanent else []), ("corrected", "alice")]


async def test_what_was_important_before_is_not_promoted_by_another_correction(client: httpx.AsyncClient, cast: Cast):
    body: dict[str, Any] = {"projectId": "orders", "title": "A lock", "importance": 0.9, "ttlSeconds": DAY}
    made = (await client.post("/v1/observations", json=body, headers=cast.alice.headers)).json()["observation"]

    answer = await client.patch(f"/v1/observations/{made['number']}", json={"importance": 0.95}, headers=cast.alice.headers)

    assert answer.json()["observation"]["ttlSeconds"] == DAY


async def test_a_person_sets_and_ends_a_lifetime(client: httpx.AsyncClient, cast: Cast):
    in_an_hour = int(time.time() * 1000) + 3_600_000

    async def send(method: str, path: str, **fields: object) -> Any:
        answer = await client.request(method, path, json=fields, headers=cast.alice.headers)
        body = answer.json()
        return body["observation"] if answer.is_success else (answer.status_code, body["issues"][0]["path"])

    made = await send("POST", "/v1/observations", projectId="orders", title="A lock", expiresAtEpoch=in_an_hour)
    path = f"/v1/observations/{made['number']}"
    permanent = await send("PATCH", path, expiresAtEpoch=None)
    changed = await send("PATCH", path, ttlSeconds=DAY, importance=0.9)
    refused = [
        await send("PATCH", path, expiresAtEpoch=1_000),
        await send("PATCH", path, expiresAtEpoch=in_an_hour, ttlSeconds=DAY),
        await send("POST", "/v1/observations", projectId="orders", title="A lock", expiresAtEpoch=1_000),
    ]

    assert made["ttlSeconds"] in range(3_500, 3_601)
    assert (permanent["ttlSeconds"], permanent["expiresAtEpoch"]) == (None, None)
    assert changed["ttlSeconds"] == DAY
    assert changed["expiresAtEpoch"] > in_an_hour
    assert refused == [(400, "$.expiresAtEpoch")] * 3


async def test_a_person_makes_it_permanent_once(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)
    path = f"/v1/observations/{observation.number}/promote"

    first = await client.post(path, headers=cast.alice.headers)
    again = await client.post(path, headers=cast.alice.headers)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["observation"]["ttlSeconds"] is None
    assert again.json()["observation"]["version"] == first.json()["observation"]["version"] == 2
    assert [(version.action, version.performed_by) for version in await versions(db, observation)] == [("promoted", "alice")]


async def test_a_person_brings_back_what_has_expired(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)
    await expire(db, observation, days_ago=3)
    path = f"/v1/observations/{observation.number}"
    gone = await client.get(path, headers=cast.alice.headers)

    promoted = await client.post(f"{path}/promote", headers=cast.alice.headers)

    assert (gone.status_code, promoted.status_code) == (410, 200)
    assert (await client.get(path, headers=cast.alice.headers)).status_code == 200


async def test_a_superseded_one_is_not_promoted(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation, other = await make_expiring(db, make, cast.alice), await make.observation(project=cast.alice.project)
    async with db.tenant(cast.alice.team_id) as conn:
        await history.supersede(conn, cast.alice.team_id, [observation.id], other.id)

    answer = await client.post(f"/v1/observations/{observation.number}/promote", headers=cast.alice.headers)

    assert answer.status_code == 410


async def test_the_doors_extend_what_they_show_whole(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)
    requests: list[tuple[str, str, object]] = [
        ("GET", f"/v1/observations/{observation.number}", None),
        ("POST", "/v1/observations/batch", {"ids": [observation.number]}),
        ("POST", "/v1/context", {"projectId": "orders", "query": "retry orders client"}),
        ("GET", "/v1/observations", None),
    ]

    for method, path, body in requests:
        answer = await client.request(method, path, json=body, headers=cast.alice.headers)
        assert answer.status_code == 200, answer.text

    assert lifetime(await stored(db, observation)) == timedelta(days=2.5)


async def test_nothing_shows_what_has_expired_before_it_is_purged(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project, title="A wombat in the cellar")
    await expire(db, observation)
    requests: list[tuple[str, str, object]] = [
        ("GET", f"/v1/observations/{observation.number}", None),
        ("GET", "/v1/observations", None),
        ("POST", "/v1/observations/batch", {"ids": [observation.number]}),
        ("POST", "/v1/search", {"projectId": "orders", "query": "wombat cellar"}),
        ("POST", "/v1/context", {"projectId": "orders", "query": "wombat cellar"}),
        ("GET", "/v1/context?project=orders", None),
    ]

    answers = [await client.request(method, path, json=body, headers=cast.alice.headers) for method, path, body in requests]

    assert [answer.status_code for answer in answers] == [410, 200, 200, 200, 200, 200]
    assert not any("wombat" in answer.text.lower() for answer in answers[:1] + answers[2:])
    assert answers[1].json()["observations"] == []


async def test_two_readers_at_once_count_two(db: Db, cast: Cast, make: Make):
    observation = await make_expiring(db, make, cast.alice)
    await asyncio.gather(*(read_by(db, cast.alice, "get", observation) for _ in range(3)))

    after = await stored(db, observation)
    assert (after.access_count, lifetime(after)) == (3, timedelta(days=2.5))
