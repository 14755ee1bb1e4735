"""Who may come in by the door of agents, and from where."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from mcp import MCPError

from cmserver.access.limits.meter import Meter
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast, Person, mint
from tests.doors.mcp.tools import MODES, PING, SENT, Mode, connected, post, rpc
from tests.rows import rows

# ---- keys


async def of_alice(db: Db, cast: Cast, change: str) -> Person:
    """Another key of Alice's, of which something is changed in the database."""
    principal, text = await mint(db, cast.alice.team_id, "alice", scopes=["*"])
    if change:
        await rows(db, f"UPDATE api_keys SET {change} WHERE id = %s", principal.key_id)
    return Person(principal=principal, key=text, project=cast.alice.project)


NO_GOOD = {
    "revoked": "revoked_at = now()",
    "expired": "expires_at = now() - interval '1 second'",
}


async def test_without_a_key_nobody_comes_in(client: httpx.AsyncClient):
    answered = await rpc(client, None, "tools/list")

    assert answered.status_code == 401
    assert answered.headers["WWW-Authenticate"] == "Bearer"
    assert answered.json()["error"] == "Unauthorized"


@pytest.mark.parametrize("key", ["cms_x_y", "Bearer", "'; DROP TABLE api_keys", "cms_" + "a" * 5_000])
async def test_with_a_wrong_key_nobody_comes_in(client: httpx.AsyncClient, cast: Cast, key: str):
    del cast

    for headers in ({"authorization": f"Bearer {key}"}, {"x_api_key": key}):
        answered = await post(client, None, PING, **headers)

        assert (answered.status_code, answered.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_a_key_with_one_character_changed_is_wrong(client: httpx.AsyncClient, cast: Cast):
    key = cast.alice.key
    wrong = key[:-1] + ("a" if key[-1] != "a" else "b")

    assert (await rpc(client, None, "ping", authorization=f"Bearer {wrong}")).status_code == 401
    assert (await rpc(client, None, "ping", authorization=f"Bearer {key}")).status_code == 200


@pytest.mark.parametrize("reason", NO_GOOD)
async def test_a_key_that_is_no_longer_good_is_refused_and_that_is_written_down(
    client: httpx.AsyncClient, db: Db, cast: Cast, reason: str
):
    person = await of_alice(db, cast, NO_GOOD[reason])

    answered = await rpc(client, person, "tools/list")

    assert (answered.status_code, answered.headers["WWW-Authenticate"]) == (401, "Bearer")
    denied = await rows(db, "SELECT details ->> 'reason' AS reason FROM audit_log WHERE action = 'access.denied'")
    assert denied == [{"reason": reason}]


async def test_a_key_of_a_team_that_is_put_away_is_refused(client: httpx.AsyncClient, db: Db, cast: Cast):
    await rows(db, "UPDATE teams SET archived_at = now() WHERE id = %s", cast.alice.team_id)

    assert (await rpc(client, cast.alice, "tools/list")).status_code == 401
    assert (await rpc(client, cast.charlie, "tools/list")).status_code == 200


async def test_a_key_that_is_revoked_between_two_calls_is_refused_at_the_second(client: httpx.AsyncClient, db: Db, cast: Cast):
    person = await of_alice(db, cast, "")
    before = await rpc(client, person, "tools/list")

    await rows(db, "UPDATE api_keys SET revoked_at = now() WHERE id = %s", person.principal.key_id)
    after = await rpc(client, person, "tools/list")

    assert (before.status_code, after.status_code) == (200, 401)


async def test_the_key_may_come_by_its_own_header(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, None, "ping", x_api_key=cast.alice.key)

    assert (answered.status_code, answered.json()["result"]) == (200, {})


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_a_good_key_is_told_so(app: AsgiFrame, db: Db, cast: Cast, mode: Mode):
    wrong = Person(principal=cast.alice.principal, key="cms_x_y", project=cast.alice.project)

    for somebody in (None, wrong, await of_alice(db, cast, NO_GOOD["revoked"])):
        with pytest.raises(ExceptionGroup) as found:
            async with connected(app, somebody, mode=mode):
                pytest.fail("it came in")

        assert found.group_contains(MCPError, match="error response")


async def test_a_key_that_asks_too_often_is_told_when_to_come_back(client: httpx.AsyncClient, db: Db, cast: Cast):
    person = await of_alice(db, cast, "requests_per_minute = 2")

    first, _, third = [await rpc(client, person, "ping") for _ in range(3)]

    assert first.status_code == 200
    assert third.status_code == 429
    assert 1 <= int(third.headers["Retry-After"]) <= 60
    assert third.headers["X-RateLimit-Limit"] == "2"
    assert (await rpc(client, cast.alice, "ping")).status_code == 200, "others are not in its way"


async def test_the_meter_counts_each_message_once(client: httpx.AsyncClient, app: AsgiFrame, db: Db, cast: Cast):
    for _ in range(3):
        await rpc(client, cast.alice, "ping")

    await app.dependencies.get(Meter).flush()
    found = await rows(db, "SELECT amount FROM usage_counters WHERE kind = 'requests' AND team_id = %s", cast.alice.team_id)
    assert found == [{"amount": 3}]


# ---- names of this server, and pages that ask


OURS = [
    *("localhost", "localhost:37777", "LOCALHOST:1", "evil.localhost"),
    *("127.0.0.1", "127.0.0.1:37777", "127.8.8.8", "[::1]", "[::1]:37777", "[::ffff:127.0.0.1]", "10.0.0.7:80", "[fd00::7]"),
]
NOT_OURS = [
    *("evil.example", "evil.example:37777", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80@127.0.0.1"),
    *("localhost@evil.example", "evil.example@localhost", "localhost, evil.example", "localhost evil.example"),
    *("evil.example#localhost", "evil.example?localhost", "localhost/evil.example", "evil.example\\localhost"),
    *("", " ", "[::1", "::1", "localhost:abc", "localhost:99999", "127.1", "0x7f000001", "2130706433", "*", "%6cocalhost"),
]


async def test_the_server_answers_to_names_that_nobody_else_can_turn(client: httpx.AsyncClient, cast: Cast):
    for host in OURS:
        assert (await rpc(client, cast.alice, "ping", host=host)).status_code == 200, host


async def test_it_answers_to_no_other_name_whoever_asks(client: httpx.AsyncClient, cast: Cast):
    for host in NOT_OURS:
        answered = await rpc(client, cast.alice, "ping", host=host)

        assert answered.status_code == 421, host
        assert "CMSERVER_ALLOWED_HOSTS" in answered.json()["message"]
        assert (await rpc(client, None, "ping", host=host)).status_code == 421, "also before it looks at a key"


async def test_it_answers_to_one_name_at_a_time(client: httpx.AsyncClient, cast: Cast):
    rest = [(name, value) for name, value in {**SENT, **cast.alice.headers}.items() if name != "Host"]
    for names in (["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost", "localhost"]):
        answered = await client.post("/mcp", content=PING, headers=[*(("Host", name) for name in names), *rest])

        assert answered.status_code == 421, names


ORIGINS_HERE = ["http://localhost", "http://localhost:3000", "HTTPS://LOCALHOST", "http://127.0.0.1:6274", "http://[::1]:5173"]
ORIGINS_ELSEWHERE = [
    *("https://evil.example", "http://localhost.evil.example", "http://localhost@evil.example", "http://evil.example@localhost"),
    *(
        "null",
        "",
        "file://",
        "chrome-extension://abcdef",
        "http://10.0.0.7",
        "http://localhost, https://evil.example",
        "*",
        "localhost",
    ),
    *("http://127.0.0.1.evil.example", "http://localhost/", "http://[::1"),
]


async def test_a_page_of_this_machine_may_ask(client: httpx.AsyncClient, cast: Cast):
    for origin in ORIGINS_HERE:
        assert (await rpc(client, cast.alice, "ping", origin=origin)).status_code == 200, origin


async def test_a_page_of_elsewhere_may_not_even_with_a_good_key(client: httpx.AsyncClient, cast: Cast):
    for origin in ORIGINS_ELSEWHERE:
        answered = await rpc(client, cast.alice, "ping", origin=origin)

        assert answered.status_code == 403, origin
        assert "CMSERVER_ALLOWED_HOSTS" in answered.json()["message"]


async def test_of_two_origins_both_must_be_allowed(client: httpx.AsyncClient, cast: Cast):
    origins = [("Origin", "http://localhost"), ("Origin", "https://evil.example")]

    answered = await client.post("/mcp", content=PING, headers=[*{**SENT, **cast.alice.headers}.items(), *origins])

    assert answered.status_code == 403


class TestAllowed:
    """What an operator has listed."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(
            settings,
            allowed_hosts="memory.example.com, other.example:8443, https://tools.example.com/ , HTTP://Other.example:8080",
        )

    async def test_a_listed_name_is_answered_and_no_other(self, client: httpx.AsyncClient, cast: Cast):
        for host in ("memory.example.com", "Memory.Example.COM:443", "other.example:8443", "localhost"):
            assert (await rpc(client, cast.alice, "ping", host=host)).status_code == 200, host
        for host in ("example.com", "x.memory.example.com", "memory.example.com.evil.example", "other.example:80", "*"):
            assert (await rpc(client, cast.alice, "ping", host=host)).status_code == 421, host

    async def test_a_page_of_a_listed_origin_may_ask_and_no_other(self, client: httpx.AsyncClient, cast: Cast):
        for origin in ("https://tools.example.com", "http://other.example:8080", "http://localhost"):
            assert (await rpc(client, cast.alice, "ping", origin=origin)).status_code == 200, origin
        for origin in ("http://tools.example.com", "https://tools.example.com:8443", "http://other.example", "null"):
            assert (await rpc(client, cast.alice, "ping", origin=origin)).status_code == 403, origin


class TestAny:
    """What an operator has said who wants no guard of names."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, allowed_hosts="*")

    async def test_any_name_will_do_but_no_page_and_a_key_is_needed(self, client: httpx.AsyncClient, cast: Cast):
        assert (await rpc(client, cast.alice, "ping", host="evil.example")).status_code == 200
        assert (await rpc(client, cast.alice, "ping", host="evil.example", origin="null")).status_code == 403
        assert (await rpc(client, None, "ping", host="evil.example")).status_code == 401
