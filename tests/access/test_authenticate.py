"""Who may come in, how soon a revocation is felt, and what is written down of those who may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from cmserver.access import announce, repository
from cmserver.access import authenticate as room
from cmserver.access.authenticate import Authenticator
from cmserver.access.keys import manage as manage_keys
from cmserver.access.limits.denials import Denials
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Limits, StoredKey
from cmserver.base import notifications
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, RateLimited, Unauthenticated
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from tests.conftest import Cast, mint
from tests.rows import rows
from tests.timeouts import ENOUGH_SECONDS, scaled


@pytest.fixture
async def listening(hub: NotificationListener) -> AsyncGenerator[NotificationListener]:
    """The hub, hearing what other processes announce."""
    async for listener in _listening(hub):
        yield listener


@pytest.fixture
async def elsewhere(db: Db) -> AsyncGenerator[NotificationListener]:
    """The hub of another process."""
    async for listener in _listening(NotificationListener(db.url)):
        yield listener


async def _listening(hub: NotificationListener) -> AsyncGenerator[NotificationListener]:
    task = asyncio.create_task(hub.listen([announce.CHANNEL]))
    await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
    yield hub
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten is forgotten because it was announced, not because time went by."""
    monkeypatch.setattr(room, "_CACHE_SECONDS", 3600)


class Clock:
    """The time of what is remembered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def revoke(db: Db, key_id: UUID | None) -> None:
    """As psql would: nobody is told."""
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [key_id])


async def change(db: Db, team_id: UUID, *hubs: NotificationListener) -> None:
    """Announce that something of the team has changed, and wait until it is heard."""
    payloads: asyncio.Queue[str] = asyncio.Queue()
    done = [hub.subscribe(announce.CHANNEL, payloads.put_nowait) for hub in hubs]
    async with db.tenant(team_id) as conn:
        await announce.drop_cached(conn, team_id)
    for _ in hubs:
        assert await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS) == str(team_id)
    for end in done:
        end()


async def denied(db: Db) -> list[dict[str, object]]:
    return await rows(db, "SELECT * FROM audit_log WHERE action = 'access.denied' ORDER BY id")


async def test_no_key_and_every_kind_of_bad_key(db: Db, cast: Cast, authenticate: Authenticator):
    async with db.system() as conn:
        past = datetime.now(UTC) - timedelta(seconds=1)
        expired = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="old", expires_at=past)
        revoked = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="gone")
    await revoke(db, revoked.id)

    with pytest.raises(Unauthenticated):
        await authenticate(None, "")
    for bad in (
        "nonsense",
        "cms_x_y",
        cast.alice.key + "0",
        "cms_" + cast.charlie.key[4:36] + "_" + cast.alice.key[37:],
        expired.text,
        revoked.text,
    ):
        with pytest.raises(Forbidden):
            await authenticate(bad, "")


async def test_a_key_brings_its_own_limits_and_its_team_s(db: Db, cast: Cast, authenticate: Authenticator):
    async with db.system() as conn:
        key = await manage_keys.mint(
            conn, cast.alice.team_id, scopes=["*"], actor_id="a", requests_per_minute=10, events_per_month=20
        )
        await conn.execute("UPDATE teams SET requests_per_minute = 30, events_per_month = 40 WHERE id = %s", [cast.alice.team_id])

    principal = await authenticate(key.text, "")

    assert principal.limits == Limits(
        requests_per_minute=10, events_per_month=20, team_requests_per_minute=30, team_events_per_month=40
    )


async def test_older_scope_words_mean_the_sets_they_meant(db: Db, cast: Cast, authenticate: Authenticator):
    _, text = await mint(db, cast.alice.team_id, "hook", scopes=["memories:write"])

    principal = await authenticate(text, "")

    assert principal.may("events:write")
    assert principal.may("sessions:write")
    assert not principal.may("observations:read")


async def test_the_keys_of_an_archived_team_are_refused(db: Db, cast: Cast, authenticate: Authenticator):
    async with db.system() as conn:
        await conn.execute("UPDATE teams SET archived_at = now() WHERE id = %s", [cast.alice.team_id])

    with pytest.raises(Forbidden):
        await authenticate(cast.alice.key, "")
    assert (await authenticate(cast.charlie.key, "")).actor_id == "charlie"


@pytest.mark.usefixtures("listening", "long_memory")
async def test_a_key_that_expires_while_it_is_remembered_is_over_at_once(db: Db, cast: Cast, authenticate: Authenticator):
    soon = datetime.now(UTC) + timedelta(seconds=scaled(1))
    async with db.system() as conn:
        key = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="brief", expires_at=soon)
    await authenticate(key.text, "")

    while datetime.now(UTC) < soon:
        await asyncio.sleep(0.02)

    with pytest.raises(Forbidden):
        await authenticate(key.text, "")


@pytest.mark.usefixtures("long_memory")
async def test_a_revocation_is_effective_at_once_in_every_process(
    db: Db, cast: Cast, listening: NotificationListener, elsewhere: NotificationListener, authenticate: Authenticator
):
    other = Authenticator(db, elsewhere, Meter(db))
    principal = await authenticate(cast.bob.key, "")
    await other(cast.bob.key, "")
    await revoke(db, principal.key_id)
    assert await authenticate(cast.bob.key, "") == await other(cast.bob.key, "")  # both go by what they remember

    await change(db, cast.bob.team_id, listening, elsewhere)

    for authenticator in (authenticate, other):
        with pytest.raises(Forbidden):
            await authenticator(cast.bob.key, "")


async def test_a_revocation_that_no_process_hears_of_is_effective_after_two_seconds(
    db: Db, cast: Cast, hub: NotificationListener, authenticate: Authenticator, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(notifications, "time", clock)
    hub.listening.set()
    principal = await authenticate(cast.bob.key, "")
    await revoke(db, principal.key_id)

    clock.seconds = 1.9
    assert await authenticate(cast.bob.key, "") == principal
    clock.seconds = 2.0
    with pytest.raises(Forbidden):
        await authenticate(cast.bob.key, "")


@pytest.mark.usefixtures("long_memory")
async def test_what_changes_in_one_team_is_not_forgotten_of_another(
    db: Db, cast: Cast, listening: NotificationListener, authenticate: Authenticator
):
    principal = await authenticate(cast.charlie.key, "")
    await revoke(db, principal.key_id)

    await change(db, cast.alice.team_id, listening)
    assert await authenticate(cast.charlie.key, "") == principal

    listening.deliver(announce.CHANNEL, "")  # the connection was lost, and is back
    with pytest.raises(Forbidden):
        await authenticate(cast.charlie.key, "")


@pytest.mark.usefixtures("long_memory")
async def test_a_process_that_cannot_hear_remembers_nothing(
    db: Db, cast: Cast, hub: NotificationListener, authenticate: Authenticator
):
    principal = await authenticate(cast.bob.key, "")
    hub.listening.set()
    await authenticate(cast.alice.key, "")
    hub.listening.clear()
    await revoke(db, principal.key_id)
    await revoke(db, cast.alice.principal.key_id)

    for key in (cast.bob.key, cast.alice.key):
        with pytest.raises(Forbidden):
            await authenticate(key, "")


@pytest.mark.usefixtures("long_memory")
async def test_a_revocation_that_comes_while_the_key_is_looked_up_wins(
    db: Db, cast: Cast, listening: NotificationListener, authenticate: Authenticator, monkeypatch: pytest.MonkeyPatch
):
    seen, go_on = asyncio.Event(), asyncio.Event()
    look_up = repository.find_keys

    async def slow(conn: Conn, ids: Sequence[UUID], hashes: Sequence[str]) -> list[StoredKey]:
        stored = await look_up(conn, ids, hashes)
        seen.set()
        await go_on.wait()
        return stored

    monkeypatch.setattr(repository, "find_keys", slow)
    asking = asyncio.create_task(authenticate(cast.bob.key, ""))
    await asyncio.wait_for(seen.wait(), ENOUGH_SECONDS)

    await revoke(db, cast.bob.principal.key_id)
    await change(db, cast.bob.team_id, listening)
    go_on.set()

    assert (await asking).actor_id == "bob"  # it came before
    with pytest.raises(Forbidden):
        await authenticate(cast.bob.key, "")


async def test_the_rate_limit_comes_before_the_scope(db: Db, cast: Cast, authenticate: Authenticator):
    async with db.system() as conn:
        key = await manage_keys.mint(conn, cast.alice.team_id, scopes=["jobs:read"], actor_id="a", requests_per_minute=1)

    with pytest.raises(Forbidden, match="events:write"):
        await authenticate(key.text, "events:write")
    with pytest.raises(RateLimited):
        await authenticate(key.text, "events:write")


async def test_who_was_refused_and_why_stands_in_the_audit_log_of_the_key_s_team(db: Db, cast: Cast, authenticate: Authenticator):
    async with db.system() as conn:
        past = datetime.now(UTC) - timedelta(seconds=1)
        expired = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="expired", expires_at=past)
        reader = await manage_keys.mint(
            conn, cast.alice.team_id, scopes=["jobs:read"], actor_id="reader", project_id=cast.alice.project.id
        )
        hasty = await manage_keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="hasty", requests_per_minute=1)
        await conn.execute("UPDATE teams SET archived_at = now() WHERE id = %s", [cast.charlie.team_id])
    await revoke(db, cast.bob.principal.key_id)
    await authenticate(hasty.text, "")

    for text, error in [
        (cast.bob.key, Forbidden),
        (expired.text, Forbidden),
        (cast.charlie.key, Forbidden),
        (reader.text, Forbidden),
        (hasty.text, RateLimited),
    ]:
        with pytest.raises(error):
            await authenticate(text, "events:write")

    rows = await denied(db)
    assert [(row["team_id"], row["actor_id"], row["details"]) for row in rows] == [
        (cast.alice.team_id, "bob", {"reason": "revoked"}),
        (cast.alice.team_id, "expired", {"reason": "expired"}),
        (cast.charlie.team_id, "charlie", {"reason": "team_archived"}),
        (cast.alice.team_id, "reader", {"reason": "scope_missing", "scope": "events:write"}),
        (cast.alice.team_id, "hasty", {"reason": "rate_limited"}),
    ]
    assert rows[3]["api_key_id"] == reader.id
    assert rows[3]["project_id"] == cast.alice.project.id
    for text in (cast.bob.key, expired.text, reader.text, hasty.text):
        assert text.split("_")[2] not in str(rows)


async def test_a_flood_of_refusals_writes_one_row_for_each_key_and_reason(db: Db, cast: Cast, authenticate: Authenticator):
    _, text = await mint(db, cast.alice.team_id, "reader", scopes=["jobs:read"])
    await revoke(db, cast.bob.principal.key_id)

    for key in [text, cast.bob.key] * 5:
        with pytest.raises(Forbidden):
            await authenticate(key, "events:write")

    assert [row["actor_id"] for row in await denied(db)] == ["reader", "bob"]


async def test_a_minute_later_a_refusal_is_written_again(db: Db, cast: Cast):
    now = 0.0
    denials = Denials(db, lambda: now)

    for now in (0.0, 59.0, 60.0, 61.0, 119.0, 120.0):  # noqa: B007 - the clock reads it
        await denials.record(cast.alice.principal, "revoked")
    await denials.record(cast.alice.principal, "expired")

    assert [row["details"] for row in await denied(db)] == [{"reason": "revoked"}] * 3 + [{"reason": "expired"}]


async def test_a_key_that_nobody_has_is_logged_without_itself(db: Db, cast: Cast, authenticate: Authenticator):
    wrong = cast.alice.key[:-1] + ("0" if cast.alice.key[-1] != "0" else "1")

    with capture_logs() as logs:
        for text in (wrong, "nonsense"):
            with pytest.raises(Forbidden):
                await authenticate(text, "")

        authenticate._wrong_keys.end_window()  # pyright: ignore[reportPrivateUsage]

    assert [(line["event"], line["reason"], line["count"]) for line in logs] == [("access.denied", "unknown_key", 1)] * 2
    assert wrong.split("_")[2] not in str(logs)
    assert "nonsense" not in str(logs)
    assert await denied(db) == []
