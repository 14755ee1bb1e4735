"""Ending the time of an observation by hand, and bringing it back."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make


async def test_what_is_expired_by_hand_is_gone_and_undo_brings_it_back_for_good(client: httpx.AsyncClient, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    path = f"/v1/observations/{observation.number}"

    expired = await client.post(f"{path}/expire", headers=cast.alice.headers)
    gone = await client.get(path, headers=cast.alice.headers)
    undone = await client.post(f"{path}/undo", headers=cast.alice.headers)
    back = await client.get(path, headers=cast.alice.headers)

    assert expired.status_code == 200, expired.text
    assert expired.json()["observation"]["expiresAtEpoch"] is not None
    assert gone.status_code == 410
    assert undone.json()["restored"] == [observation.number]
    assert back.json()["observation"]["expiresAtEpoch"] is None


async def test_what_has_expired_cannot_be_expired_again(client: httpx.AsyncClient, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    path = f"/v1/observations/{observation.number}/expire"

    first = await client.post(path, headers=cast.alice.headers)
    second = await client.post(path, headers=cast.alice.headers)

    assert (first.status_code, second.status_code) == (200, 410)


async def test_what_has_expired_is_listed_to_those_who_see_its_project_until_it_is_purged(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    alice, charlie = cast.alice, cast.charlie
    for _ in range(4):
        await make.observation(project=alice.project)
    for number in (1, 2, 3):
        await client.post(f"/v1/observations/{number}/expire", headers=alice.headers)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET taken_at = now() WHERE number = 3")

    async def listed(headers: dict[str, str], **query: str) -> list[int]:
        answer = await client.get("/v1/observations", params={"state": "expired", **query}, headers=headers)
        assert answer.status_code == 200, answer.text
        return [row["number"] for row in answer.json()["observations"]]

    before = await listed(alice.headers)
    of_project = await listed(alice.headers, project=str(alice.project.id))
    of_stranger = await listed(charlie.headers)
    past = await client.get("/v1/observations", params={"state": "expired", "asOf": "2026-01-01T00:00:00Z"}, headers=alice.headers)
    await client.post("/v1/observations/1/undo", headers=alice.headers)
    async with db.system() as conn:
        served = await (
            await conn.execute(
                "SELECT details -> 'numbers' FROM audit_log WHERE action = 'observations.served' ORDER BY id LIMIT 1"
            )
        ).fetchone()

    assert before == of_project == [2, 1]
    assert of_stranger == []
    assert past.status_code == 400
    assert past.json()["issues"][0]["path"] == "$.state"
    assert await listed(alice.headers) == [2]
    assert served is not None
    assert served[0] == [2, 1]
