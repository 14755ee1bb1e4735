"""Revocation: at once, in every process, also for what was queued under the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

import httpx

from cmserver.access.announce import CHANNEL
from cmserver.access.keys import manage
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from tests.access.tools import Api, audited, everything, until_it_waits_for_a_lock
from tests.conftest import Cast, mint
from tests.generation.tools import Outbox, Scripted
from tests.timeouts import ENOUGH_SECONDS


@asynccontextmanager
async def process(settings: Settings, db: Db) -> AsyncGenerator[tuple[httpx.AsyncClient, asyncio.Queue[str]]]:
    """A web process of its own, which hears what the others announce; the queue gets each announcement once it has acted on it."""
    notifications, payloads = NotificationListener(db.url), asyncio.Queue[str]()
    app = create_app(settings, db, notifications, JobNotifier(db, notifications), secret=b"s" * 32)
    notifications.subscribe(CHANNEL, payloads.put_nowait)
    listening = asyncio.create_task(notifications.listen([CHANNEL]))
    try:
        await asyncio.wait_for(notifications.listening.wait(), ENOUGH_SECONDS)
        assert await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS) == ""  # anything may have happened before
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
            yield client, payloads
    finally:
        listening.cancel()


async def test_a_revoked_key_is_refused_by_every_process(settings: Settings, db: Db, cast: Cast):
    async with process(settings, db) as (here, _), process(settings, db) as (there, payloads):
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 200  # remembered from now on

        revoked = await Api(here, cast.alice.key).delete(f"/keys/{cast.bob.principal.key_id}")

        assert (revoked.status_code, revoked.json()["revoked"]) == (200, True)
        assert (await Api(here, cast.bob.key).get("/teams")).status_code == 403
        assert await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS) == str(cast.alice.team_id)
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 403
        assert (await Api(there, cast.alice.key).get("/teams")).status_code == 200


async def test_a_rotated_key_without_overlap_is_refused_by_every_process(settings: Settings, db: Db, cast: Cast):
    async with process(settings, db) as (here, _), process(settings, db) as (there, payloads):
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 200

        await Api(here, cast.alice.key).post(f"/keys/{cast.bob.principal.key_id}/rotate", overlapSeconds=0)

        await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 403


async def test_the_keys_of_an_archived_team_are_refused_by_every_process(settings: Settings, db: Db, cast: Cast):
    async with process(settings, db) as (here, _), process(settings, db) as (there, payloads):
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 200

        await Api(here, cast.alice.key).patch("/teams/blue", archived=True)

        await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 403


async def test_a_lower_limit_of_requests_holds_in_every_process(settings: Settings, db: Db, cast: Cast):
    async with process(settings, db) as (here, _), process(settings, db) as (there, payloads):
        assert (await Api(there, cast.bob.key).get("/teams")).status_code == 200

        lowered = await Api(here, cast.alice.key).patch("/teams/blue", requestsPerMinute=1)

        assert lowered.status_code == 200
        await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)
        answers = [(await Api(there, cast.bob.key).get("/teams")).status_code for _ in range(3)]
        assert 429 in answers


async def test_what_a_project_is_called_is_forgotten_in_every_process(settings: Settings, db: Db, cast: Cast):
    async with process(settings, db) as (here, _), process(settings, db) as (there, payloads):
        query = {"projectId": "orders", "query": "retry"}
        assert (await Api(there, cast.bob.key).post("/search", **query)).status_code == 200  # remembered from now on

        await Api(here, cast.alice.key).patch("/projects/orders", name="shop")

        await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)
        assert (await Api(there, cast.bob.key).post("/search", **query)).status_code == 404


async def test_what_was_queued_under_a_revoked_key_fails_and_says_why(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier
):
    principal, text = await mint(db, cast.alice.team_id, "hook", scopes=["memories:write"])
    outbox = Outbox(db, notifier, principal, cast.alice.project)
    await outbox.put(2)
    await Outbox(db, notifier, cast.alice.principal, cast.alice.project).put(1, session="other")
    provider = Scripted()

    assert (await Api(client, text).delete(f"/keys/{principal.key_id}")).status_code == 200
    await (await outbox.hand(provider)).work()

    assert await outbox.statuses() == {"failed": 2, "completed": 1}
    errors = await outbox.rows("SELECT DISTINCT last_error FROM observation_generation_jobs WHERE status = 'failed'")
    assert errors == [{"last_error": {"reason": "key_revoked", "message": "The API key that asked for this was revoked."}}]
    assert [len(prompt.events) for prompt in provider.prompts] == [1]


async def test_any_key_may_revoke_itself_and_once_more_changes_nothing(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    made = await alice.made(scopes=["events:write"])

    itself = await Api(client, made["apiKey"]).delete(f"/keys/{made['id']}")
    before = await everything(db)
    again = await alice.delete(f"/keys/{made['id']}")

    assert itself.json()["id"] == made["id"]
    assert itself.json()["key"]["revokedAtEpoch"] is not None
    assert again.json() == itself.json()
    assert await everything(db) == before
    assert await audited(db, "key.revoked") == [("key.revoked", made["id"])]


async def test_a_key_without_the_scope_revokes_no_other(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, text = await mint(db, cast.alice.team_id, "hook", scopes=["memories:write"])
    before = await everything(db)

    response = await Api(client, text).delete(f"/keys/{cast.alice.principal.key_id}")

    assert (response.status_code, "keys:write" in response.json()["message"]) == (403, True)
    assert await everything(db) == before


async def test_a_key_is_revoked_with_what_it_was_rotated_to_and_from(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    for place in range(3):
        chain = [await alice.made()]
        for _ in range(2):  # by whoever has the key
            last = chain[-1]
            chain.append((await Api(client, last["apiKey"]).post(f"/keys/{last['id']}/rotate", overlapSeconds=600)).json())
        other = await alice.made()

        revoked = (await alice.delete(f"/keys/{chain[place]['id']}")).json()

        ids = [key["id"] for key in chain]
        assert (revoked["id"], revoked["key"]["id"]) == (ids[place], ids[place])
        assert sorted(key["id"] for key in revoked["alsoRevoked"]) == sorted({*ids} - {ids[place]})
        answers = [(await Api(client, key["apiKey"]).get("/teams")).status_code for key in [*chain, other]]
        assert answers == [403, 403, 403, 200]
        assert {id_ for _, id_ in await audited(db, "key.revoked")} >= {*ids}
        assert (await alice.delete(f"/keys/{ids[place]}")).json()["alsoRevoked"] == []  # it may be sent again


async def test_one_key_of_a_chain_can_be_revoked_alone(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    old = await alice.made()
    new = (await alice.post(f"/keys/{old['id']}/rotate")).json()

    revoked = (await alice.delete(f"/keys/{old['id']}?only=true")).json()

    assert revoked["alsoRevoked"] == []
    assert (await Api(client, old["apiKey"]).get("/teams")).status_code == 403
    assert (await Api(client, new["apiKey"]).get("/teams")).status_code == 200
    assert (await alice.delete(f"/keys/{old['id']}")).json()["alsoRevoked"][0]["id"] == new["id"]  # the rest of it, afterwards


async def test_nobody_ends_the_key_in_his_hand_by_naming_another(client: httpx.AsyncClient, cast: Cast):
    old = cast.alice.principal.key_id
    new = (await Api(client, cast.alice.key).post(f"/keys/{old}/rotate")).json()

    by_mistake = await Api(client, new["apiKey"]).delete(f"/keys/{old}")

    assert (by_mistake.status_code, by_mistake.json()["error"]) == (409, "Conflict")
    assert (await Api(client, new["apiKey"]).delete(f"/keys/{old}?only=true")).status_code == 200
    assert (await Api(client, new["apiKey"]).get("/teams")).status_code == 200


async def test_a_rotation_under_way_is_waited_for(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    old = await alice.made()
    thief = cast.alice.principal
    async with db.tenant(thief.team_id) as conn:
        new = await manage.rotate(conn, thief, UUID(old["id"]), overlap_seconds=600)
        newer = await manage.rotate(conn, thief, new.id, overlap_seconds=600)
        revoking = asyncio.create_task(alice.delete(f"/keys/{old['id']}"))
        await until_it_waits_for_a_lock(db, revoking)

    revoked = (await revoking).json()

    assert {key["id"] for key in revoked["alsoRevoked"]} == {str(new.id), str(newer.id)}
