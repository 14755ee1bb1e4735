"""Who comes without a key is a guest of one team, if nothing says that he might not be a program on this machine."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import httpx
import msgspec
import pytest

from cmserver.access import announce
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, mint
from tests.doors.claude_mem.conftest import LOCAL, visitor
from tests.rows import rows
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS

PROMPT = {"contentSessionId": "c0ffee", "project": "orders", "prompt": "Add a retry"}
INIT = "/api/sessions/init"


async def knock(client: httpx.AsyncClient, headers: dict[str, str] | None = None) -> httpx.Response:
    return await client.post(INIT, json=PROMPT, headers=headers)


async def test_a_guest_works_for_the_team_that_was_named(guest: httpx.AsyncClient, db: Db, cast: Cast):
    response = await knock(guest)

    assert response.status_code == 200, response.text
    assert await rows(db, "SELECT DISTINCT team_id FROM agent_events") == [{"team_id": cast.alice.team_id}]
    (noted,) = await rows(db, "SELECT actor_id, api_key_id FROM audit_log WHERE action = 'session.started'")
    assert noted == {"actor_id": "guest on this machine", "api_key_id": None}


@pytest.mark.parametrize("url", ["http://localhost", "http://LOCALHOST:1", "http://127.8.9.10:37877", "http://[::1]:37877"])
async def test_any_name_of_this_machine_will_do(app: AsgiFrame, cast: Cast, url: str):
    async with visitor(app, "::1", url) as client:
        response = await knock(client)

    assert response.status_code == 200, response.text


@try_rows("peer", ["10.0.0.7", "192.168.1.2", "172.17.0.1", "fe80::1", "2001:db8::1", "::", "0.0.0.0", "unix", ""])
async def test_another_machine_needs_a_key(app: AsgiFrame, cast: Cast, peer: str):
    async with visitor(app, peer) as client:
        response = await knock(client)

    assert response.status_code == 401
    assert response.json()["error"] == "Unauthorized"


async def test_a_peer_without_an_address_needs_a_key(app: AsgiFrame, cast: Cast):
    async def without_peer(scope: dict[str, object], receive: object, send: object) -> None:
        await app({**scope, "client": None}, receive, send)  # pyright: ignore[reportArgumentType]

    async with httpx.AsyncClient(transport=httpx.ASGITransport(without_peer), base_url=LOCAL) as client:  # pyright: ignore[reportArgumentType]
        response = await knock(client)

    assert response.status_code == 401


@try_rows(
    "host",
    [
        "127.0.0.1.evil.com",
        "127.0.0.1.evil.com:37877",
        "localhost.evil",
        "localhost.evil:37877",
        "evil.localhost",
        "[::1].evil",
        "[::1].evil:80",
        "evil.com",
        "127.0.0.1@evil.com",
        "evil.com:80@127.0.0.1",
        "127.0.0.1:80:80",
        "127.0.0.1 evil.com",
        "127.0.0.1,evil.com",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "::1",
        "[::2]",
        "0.0.0.0",
        "localhost.",
        "localhost:",
        " localhost",
        "localhost\t",
        "",
    ],
)
async def test_whoever_asks_for_another_host_needs_a_key(app: AsgiFrame, cast: Cast, host: str):
    """A web page whose name leads to this machine (DNS rebinding) is asked for under that name."""
    assert await _raw(app, [(b"host", host.encode())]) == 401


async def test_two_hosts_are_one_too_many_and_none_is_one_too_few(app: AsgiFrame, cast: Cast):
    assert await _raw(app, [(b"host", b"127.0.0.1"), (b"host", b"evil.com")]) == 401
    assert await _raw(app, [(b"host", b"127.0.0.1"), (b"host", b"127.0.0.1")]) == 401
    assert await _raw(app, []) == 401
    assert await _raw(app, [(b"host", b"127.0.0.1")]) == 200


@try_rows(
    "name",
    [
        "Forwarded",
        "X-Forwarded-For",
        "x-forwarded-host",
        "X-Forwarded-Proto",
        "X-Forwarded-Prefix",
        "X-Forwarded",
        "X_Forwarded_For",
        "X-Forward-For",
        "X-Original-Forwarded-For",
        "X-Original-Host",
        "X-Real-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "X-Remote-Addr",
        "X-Envoy-External-Address",
        "X-Amzn-Trace-Id",
        "X-Azure-ClientIP",
        "True-Client-IP",
        "Fastly-Client-IP",
        "Client-IP",
        "Via",
        "CF-Connecting-IP",
        "CF-Ray",
        "Tailscale-User-Login",
        "CDN-Loop",
        "Fly-Client-IP",
        "X-Nginx-Proxy",
    ],
)
@try_rows("value", ["127.0.0.1", ""])
async def test_what_a_proxy_hands_on_needs_a_key(guest: httpx.AsyncClient, name: str, value: str):
    response = await knock(guest, {name: value})

    assert response.status_code == 401


@try_rows(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:37877"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Referer": "https://evil.example/"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "something-new"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "text/plain;charset=UTF-8"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=application/json"},
        {"Content-Type": ""},
    ],
)
async def test_a_web_page_must_not_write_into_anybody_s_memory(guest: httpx.AsyncClient, db: Db, headers: dict[str, str]):
    response = await knock(guest, headers)

    assert response.status_code == 401
    assert await rows(db, "SELECT 1 FROM agent_events") == []


async def test_a_proxy_that_says_nothing_of_itself_is_known_by_its_old_protocol(app: AsgiFrame, cast: Cast):
    """As nginx with nothing but a proxy_pass: it asks for the address that it was told."""
    assert await _raw(app, [(b"host", b"127.0.0.1:37877")], version="1.0") == 401


async def test_a_person_may_look_at_an_address_by_hand(guest: httpx.AsyncClient):
    response = await guest.get("/api/context/inject?project=orders", headers={"Sec-Fetch-Site": "none"})

    assert response.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer wrong"}, {"X-Api-Key": "wrong"}, {"Authorization": "Bearer "}, {"Authorization": "Basic x"}],
)
async def test_whoever_names_himself_is_no_guest(guest: httpx.AsyncClient, headers: dict[str, str]):
    response = await knock(guest, headers)

    assert response.status_code in {401, 403}


async def test_with_a_key_everything_is_as_everywhere(app: AsgiFrame, db: Db, cast: Cast):
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])
    async with visitor(app, "10.0.0.7", "https://memory.example") as client:
        charlies = await knock(client, {**cast.charlie.headers, "X-Forwarded-For": "10.0.0.7", "Origin": "https://x.example"})
        readers = await knock(client, {"X-Api-Key": reader})

    assert charlies.status_code == 200
    assert readers.status_code == 403
    assert await rows(db, "SELECT DISTINCT team_id FROM agent_events") == [{"team_id": cast.charlie.team_id}]


async def test_without_the_setting_nobody_is_a_guest(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    app = create_app(msgspec.structs.replace(settings, trust_loopback=None), db, hub, notifier, secret=b"x")

    async with visitor(app) as client:
        response = await knock(client)

    assert response.status_code == 401


@try_rows("path", ["/v1/projects", "/v1/observations", "/v1/keys", "/v1/audit", "/v1/jobs"])
async def test_what_is_ours_is_not_for_guests(guest: httpx.AsyncClient, path: str):
    assert (await guest.get(path)).status_code == 401


async def test_the_team_may_be_named_by_its_id(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    app = create_app(msgspec.structs.replace(settings, trust_loopback=str(cast.charlie.team_id)), db, hub, notifier, secret=b"x")

    async with visitor(app) as client:
        response = await knock(client)

    assert response.status_code == 200
    assert await rows(db, "SELECT DISTINCT team_id FROM agent_events") == [{"team_id": cast.charlie.team_id}]


@pytest.mark.parametrize("named", ["nobody", str(uuid4()), "blue' OR true --"], ids=["a name", "an id", "hostile"])
async def test_a_team_that_is_not_there_has_no_guests(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast, named: str
):
    app = create_app(msgspec.structs.replace(settings, trust_loopback=named), db, hub, notifier, secret=b"x")

    async with visitor(app) as client:
        response = await knock(client)

    assert response.status_code == 401
    assert "CMSERVER_TRUST_LOOPBACK" in response.json()["message"]


async def test_what_is_remembered_of_the_team_is_forgotten_when_it_is_archived(
    settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier, cast: Cast
):
    app = create_app(settings, db, hub, notifier, secret=b"x")
    listening = asyncio.create_task(hub.listen([announce.CHANNEL]))
    try:
        await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
        async with visitor(app) as client:
            first = await knock(client)
            heard = asyncio.Event()
            hub.subscribe(announce.CHANNEL, lambda _team: heard.set())
            archived = await client.patch("/v1/teams/blue", json={"archived": True}, headers=cast.alice.headers)
            await asyncio.wait_for(heard.wait(), ENOUGH_SECONDS)
            second = await knock(client)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    assert (first.status_code, archived.status_code, second.status_code) == (200, 200, 401)


async def test_the_team_s_limits_hold_for_its_guests(guest: httpx.AsyncClient, db: Db, cast: Cast):
    await rows(db, "UPDATE teams SET events_per_month = 1 WHERE id = %s", cast.alice.team_id)

    first = await knock(guest)
    second = await guest.post(INIT, json={**PROMPT, "prompt": "Another one"})

    assert (first.status_code, second.status_code) == (200, 402)


async def _raw(app: AsgiFrame, hosts: list[tuple[bytes, bytes]], *, version: str = "1.1") -> int:
    """The status for a request with exactly these Host headers, which no client would send."""
    body = msgspec.json.encode(PROMPT)
    statuses: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(int(str(message["status"])))

    scope: dict[str, object] = {
        "type": "http",
        "http_version": version,
        "method": "POST",
        "scheme": "http",
        "path": INIT,
        "raw_path": INIT.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*hosts, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 37877),
    }
    await app(scope, receive, send)  # pyright: ignore[reportArgumentType]
    return statuses[0]
