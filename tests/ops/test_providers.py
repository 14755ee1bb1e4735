"""Who generates observations, over HTTP: the chain, its pauses, and their end by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JOBS
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted

Chain = Callable[[str], None]


@pytest.fixture
def chain(app: AsgiFrame, settings: Settings) -> Chain:
    """Says what CMSERVER_PROVIDER is, in a process that has no keys of providers."""

    def say(providers: str) -> None:
        app.dependencies.replace(structs.replace(settings, provider=providers))

    return say


async def pause(db: Db, provider: str, seconds: float = 60) -> None:
    async with db.system() as conn:
        await calls.pause_provider(conn, provider, "quota_exhausted", "No credit.", seconds)


async def read_answer(client: httpx.AsyncClient, key: str, path: str = "/v1/providers") -> Any:
    response = await client.get(path, headers={"X-Api-Key": key})
    assert response.status_code == 200, response.text
    return response.json()


async def resume(client: httpx.AsyncClient, key: str, provider: str) -> httpx.Response:
    return await client.post(f"/v1/providers/{provider}/resume", headers={"X-Api-Key": key})


async def test_the_chain_is_told_in_its_order_without_any_key_of_a_provider(
    client: httpx.AsyncClient, cast: Cast, db: Db, chain: Chain
):
    chain("anthropic, offline")
    await pause(db, "anthropic")

    first, second = (await read_answer(client, cast.charlie.key))["providers"]

    assert (first["name"], first["state"]) == ("anthropic", "paused")
    assert first["model"]
    assert first["pause"]["reason"] == "quota_exhausted"
    assert first["pause"]["untilEpoch"] > first["pause"]["pausedAtEpoch"]
    assert second == {"name": "offline", "model": "rules", "state": "ready", "pause": None}


async def test_info_names_the_first_and_the_chain(client: httpx.AsyncClient, cast: Cast, db: Db, chain: Chain):
    chain("anthropic,offline")
    await pause(db, "anthropic")

    provider = (await read_answer(client, cast.alice.key, "/v1/info"))["provider"]

    assert (provider["name"], provider["chain"]) == ("anthropic", ["anthropic", "offline"])
    assert [pause["provider"] for pause in provider["pauses"]] == ["anthropic"]


async def test_what_a_provider_said_is_for_the_operator(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pause(db, "offline")
    _, admin = await mint(db, cast.alice.team_id, "admin", scopes=["admin"])

    messages = {key: (await read_answer(client, key))["providers"][0]["pause"]["message"] for key in (cast.alice.key, admin)}
    (in_info,) = (await read_answer(client, admin, "/v1/info"))["provider"]["pauses"]

    assert messages == {cast.alice.key: "No credit.", admin: "offline has no credit or quota left."}
    assert in_info["message"] == messages[admin]


async def test_a_pause_that_is_over_is_none(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pause(db, "offline", seconds=-1)

    (offline,) = (await read_answer(client, cast.alice.key))["providers"]

    assert offline["state"] == "ready"
    assert (await resume(client, cast.alice.key, "offline")).json() == {"resumed": False, "name": "offline"}


async def test_what_is_paused_beside_the_chain_is_told_and_resumed_all_the_same(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pause(db, "house")

    providers = (await read_answer(client, cast.alice.key))["providers"]
    resumed = await resume(client, cast.alice.key, "house")

    assert [(provider["name"], provider["model"], provider["state"]) for provider in providers] == [
        ("offline", "rules", "ready"),
        ("house", None, "paused"),
    ]
    assert resumed.json()["resumed"] is True
    assert (await resume(client, cast.alice.key, "house")).status_code == 404


def poor(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.QUOTA_EXHAUSTED, "No credit.")


async def test_the_operator_resumes_a_provider_and_what_waited_goes_on(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox, hub: NotificationListener
):
    await outbox.put(1)
    hand = await outbox.hand(Scripted(poor))
    await hand.work()
    rung = asyncio.Event()
    hub.subscribe(JOBS, lambda _: rung.set())

    with capture_logs() as logged:
        first = await resume(client, cast.alice.key, "scripted")

    assert first.json() == {"resumed": True, "name": "scripted"}
    assert [line["provider"] for line in logged if line["event"] == "provider.resumed"] == ["scripted"]
    assert rung.is_set()
    (noted,) = await outbox.rows("SELECT resource_type, resource_id, actor_id FROM audit_log WHERE action = 'provider.resumed'")
    assert noted == {"resource_type": "provider", "resource_id": "scripted", "actor_id": "alice"}
    assert await (await outbox.hand(Scripted())).work() == 1
    assert await outbox.statuses() == {"completed": 1}


async def test_what_is_not_paused_changes_nothing_and_leaves_no_trace(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    response = await resume(client, cast.alice.key, "offline")

    assert response.json() == {"resumed": False, "name": "offline"}
    assert await outbox.value("SELECT count(*) FROM audit_log WHERE action = 'provider.resumed'") == 0


async def test_nobody_but_the_operator_ends_a_pause(client: httpx.AsyncClient, cast: Cast, db: Db):
    await pause(db, "offline")
    _, admin = await mint(db, cast.alice.team_id, "admin", scopes=["admin"])
    bound = (await bound_to(db, cast.alice, "other")).key

    answers = [await resume(client, key, "offline") for key in (admin, bound)]

    assert [response.status_code for response in answers] == [403, 403]
    assert (await read_answer(client, admin))["providers"][0]["state"] == "paused"
