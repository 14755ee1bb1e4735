"""Wrong keys cost little, whoever sends how many, and no good key is refused for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from cmserver.access.authenticate import Authenticator
from cmserver.access.keys import manage as manage_keys
from cmserver.access.limits import wrong_keys
from cmserver.access.limits.meter import Meter
from cmserver.access.limits.wrong_keys import IN_ALL, PER_ADDRESS, WrongKeys
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast

FLOOD = 158
ADDRESS, OTHER = "198.51.100.1", "198.51.100.2"


@pytest.fixture
def lookups(db: Db, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each time that the database is asked for keys."""
    calls: list[int] = []
    statement = db.system_statement

    @asynccontextmanager
    async def counted() -> AsyncGenerator[Conn]:
        calls.append(1)
        async with statement() as conn:
            yield conn

    monkeypatch.setattr(db, "system_statement", counted)
    return calls


async def refused(authenticate: Authenticator, texts: Sequence[str], address: str) -> None:
    found = await asyncio.gather(*(authenticate(text, "", address) for text in texts), return_exceptions=True)
    assert {type(error) for error in found} == {Forbidden}


def wrong(count: int) -> list[str]:
    return [manage_keys.new_key_text() if place % 2 else f"guess {place}" for place in range(count)]


async def test_a_flood_from_one_address_costs_few_look_ups_and_a_line_in_each_window(
    authenticate: Authenticator, lookups: list[int], cast: Cast
):
    with capture_logs() as logs:
        for text in wrong(PER_ADDRESS):
            await refused(authenticate, [text], ADDRESS)
        await refused(authenticate, wrong(FLOOD), ADDRESS)
        authenticate._wrong_keys.end_window()  # pyright: ignore[reportPrivateUsage]
        for text in wrong(PER_ADDRESS):
            await refused(authenticate, [text], ADDRESS)
        await refused(authenticate, wrong(FLOOD), ADDRESS)
        authenticate._wrong_keys.end_window()  # pyright: ignore[reportPrivateUsage]

    assert len(lookups) == 2 * (PER_ADDRESS + 1)
    # An earlier test's window may end meanwhile.
    assert [(line["address"], line["count"]) for line in logs if line["address"] == ADDRESS] == [
        (ADDRESS, 1),
        (ADDRESS, PER_ADDRESS + FLOOD - 1),
        (ADDRESS, PER_ADDRESS + FLOOD),
    ]


async def test_one_after_the_other_they_share_their_look_ups(
    authenticate: Authenticator, lookups: list[int], cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wrong_keys, "SHARED_SECONDS", 0)
    for text in wrong(PER_ADDRESS):
        await refused(authenticate, [text], ADDRESS)
    before = len(lookups)

    await refused(authenticate, wrong(FLOOD), ADDRESS)

    assert before == PER_ADDRESS
    assert len(lookups) == before + 1


async def test_a_good_key_from_there_is_let_in_though_it_is_looked_up_with_the_others(
    db: Db, authenticate: Authenticator, lookups: list[int], cast: Cast
):
    async with db.system() as conn:
        brought = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="brought", text="a key of another form")
    for text in wrong(PER_ADDRESS):
        await refused(authenticate, [text], ADDRESS)
    id_of_alice = cast.alice.key.split("_")[1]

    good = [authenticate(text, "events:write", ADDRESS) for text in (cast.alice.key, cast.bob.key, brought.text, cast.alice.key)]
    bad = refused(authenticate, [*wrong(50), f"cms_{id_of_alice}_{'0' * 48}", f"cms_{id_of_alice}_"], ADDRESS)
    *principals, _ = await asyncio.gather(*good, bad)

    assert [principal.actor_id for principal in principals if principal] == ["alice", "bob", "brought", "alice"]
    assert len(lookups) == PER_ADDRESS + 1


async def test_who_asks_from_elsewhere_waits_for_nobody(authenticate: Authenticator, lookups: list[int], cast: Cast):
    for text in wrong(PER_ADDRESS + 5):
        await refused(authenticate, [text], "2001:db8::1")
    wrong_keys_ = authenticate._wrong_keys  # pyright: ignore[reportPrivateUsage]

    assert wrong_keys_.are_too_many("2001:db8::/64")
    assert not wrong_keys_.are_too_many(OTHER)
    assert (await authenticate(cast.alice.key, "", OTHER)).actor_id == "alice"


async def test_a_revoked_key_that_is_sent_again_and_again_is_looked_up_once(
    db: Db, hub: NotificationListener, authenticate: Authenticator, lookups: list[int], cast: Cast
):
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [cast.bob.principal.key_id])
    hub.listening.set()

    for _ in range(FLOOD):
        await refused(authenticate, [cast.bob.key], ADDRESS)

    assert len(lookups) <= 1 + FLOOD // 50  # it is remembered for two seconds


async def test_of_very_many_addresses_few_lines_are_logged_and_few_are_remembered():
    counted = WrongKeys()
    with capture_logs() as logs:
        for place in range(30_000):
            counted.count(f"2001:db8:{place:x}::/64")
        counted.end_window()

    assert len(counted._seen_before) <= 10_001  # pyright: ignore[reportPrivateUsage]
    assert len(logs) <= 201
    assert sum(int(line["count"]) for line in logs) == 30_000


async def test_from_many_addresses_together_they_share_their_look_ups_as_well():
    counted = WrongKeys()
    for place in range(IN_ALL):
        counted.count(f"10.0.{place // 256}.{place % 256}")

    assert counted.are_too_many("198.51.100.77")
    counted.end_window()
    assert not counted.are_too_many("198.51.100.77")


async def test_after_a_quiet_window_no_timer_is_left():
    counted = WrongKeys()
    counted.count(ADDRESS)
    counted.end_window()
    counted.end_window()

    assert counted._timer is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("proxies", "expected"), [("", ["127.0.0.1"]), ("127.0.0.1", [ADDRESS, OTHER])])
async def test_through_a_trusted_proxy_each_client_counts_for_itself(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast, proxies: str, expected: list[str]
):
    app = create_app(msgspec.structs.replace(settings, trusted_proxies=proxies), db, hub, notifier, secret=b"s" * 32)
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
        with capture_logs() as logs:
            for address in (ADDRESS, OTHER):
                headers = {"X-Api-Key": "wrong", "X-Forwarded-For": f"1.1.1.1, {address}"}
                assert (await client.get("/v1/projects", headers=headers)).status_code == 403

    assert [line["address"] for line in logs if line["event"] == "access.denied"] == expected
    await app.dependencies.get(Meter).flush()
