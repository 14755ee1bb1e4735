"""Who may come in by the door of agents, from where, and what becomes of what is no message."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog
from mcp import MCPError

from cmserver.access.limits.meter import Meter
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.http.frame import Frame
from cmserver.base.live import Hub
from cmserver.base.settings import Settings
from cmserver.generation.bell import Bell
from tests.conftest import Cast, Person, mint
from tests.make import Make
from tests.mcp.tools import MODES, SENT, Mode, call, connected, post, rpc
from tests.rows import rows

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def calling(tool: str, arguments: str) -> bytes:
    """A call with arguments as they are written."""
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}' % (
        tool.encode(),
        arguments.encode(),
    )


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
    assert "needs an API key" in answered.json()["message"]


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
async def test_a_client_without_a_good_key_is_told_so(app: Frame, db: Db, cast: Cast, mode: Mode):
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
        assert "CMSERVER_ALLOWED_ORIGINS" in answered.json()["message"]


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
            allowed_hosts="memory.example.com, other.example:8443",
            allowed_origins="https://tools.example.com/ , HTTP://Other.example:8080",
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
    """What an operator who wants no such guard has said."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, allowed_hosts="*", allowed_origins="*")

    async def test_any_name_and_any_page_will_do_but_a_key_is_needed(self, client: httpx.AsyncClient, cast: Cast):
        assert (await rpc(client, cast.alice, "ping", host="evil.example", origin="null")).status_code == 200
        assert (await rpc(client, None, "ping", host="evil.example", origin="null")).status_code == 401


# ---- methods, sizes, forms


async def test_there_is_no_stream_to_listen_to_and_no_session_to_end(client: httpx.AsyncClient, cast: Cast):
    for path in ("/mcp", "/v1/mcp"):
        for method in ("GET", "DELETE", "PUT", "PATCH"):
            answered = await client.request(method, path, headers={**SENT, **cast.alice.headers})

            assert (answered.status_code, answered.headers["Allow"]) == (405, "POST")


async def test_both_paths_are_the_same_door(client: httpx.AsyncClient, cast: Cast):
    headers = {**SENT, **cast.alice.headers}
    asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}

    short, long = [(await client.post(path, json=asked, headers=headers)).json() for path in ("/mcp", "/v1/mcp")]

    assert short == long
    assert short["id"] == 7
    assert (await client.post("/v1/mcp", content=PING, headers=SENT)).status_code == 401


async def test_what_needs_no_answer_is_taken(client: httpx.AsyncClient, cast: Cast):
    for content in (
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        b'{"jsonrpc":"2.0","method":"notifications/nobody/knows"}',
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
    ):
        answered = await post(client, cast.alice, content)

        assert (answered.status_code, answered.content) == (202, b""), content


NO_MESSAGE = {
    "nothing": b"",
    "half": b"{",
    "no object": b'"x"',
    "bytes": b"\xff\xfe",
    "more after it": PING + b"\x00",
    "another version": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "a batch": b"[" + PING + b"]",
    "an empty batch": b"[]",
    "brackets": b"[" * 100_000,
}


async def test_what_is_no_message_is_refused(client: httpx.AsyncClient, cast: Cast):
    for what, content in NO_MESSAGE.items():
        answered = await post(client, cast.alice, content)

        assert answered.status_code == 400, what
        assert answered.json()["error"]["code"] in {-32700, -32600, -32602}, what


async def test_a_body_must_say_that_it_is_json_and_take_json_for_an_answer(client: httpx.AsyncClient, cast: Cast):
    assert (await rpc(client, cast.alice, "ping", content_type="text/plain")).status_code in {400, 415}
    assert (await rpc(client, cast.alice, "ping", accept="text/html")).status_code == 406
    for enough in ("application/json", "*/*", "application/*"):
        assert (await rpc(client, cast.alice, "ping", accept=enough)).status_code == 200, enough


async def test_a_session_that_a_client_remembers_means_nothing(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "ping", mcp_session_id="0123456789abcdef")

    assert answered.status_code == 200
    assert "mcp-session-id" not in answered.headers


class TestSmall:
    """With a small limit."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, body_max_bytes=4_096)

    async def test_a_body_of_the_limit_passes_and_one_byte_more_does_not(self, client: httpx.AsyncClient, db: Db, cast: Cast):
        project = cast.alice.project.canonical_id
        around = calling("observation_record_event", f'{{"projectId":"{project}","eventType":"x","payload":""}}')
        filler = b"p" * (4_096 - len(around))

        fits = await post(client, cast.alice, around.replace(b'"payload":""', b'"payload":"%s"' % filler))
        over = await post(client, cast.alice, around.replace(b'"payload":""', b'"payload":"p%s"' % filler))

        assert (fits.status_code, fits.json()["result"]["isError"]) == (200, False)
        assert over.status_code == 413
        assert "CMSERVER_BODY_MAX_BYTES" in over.json()["message"]
        assert await rows(db, "SELECT length(payload #>> '{}') AS chars FROM agent_events") == [{"chars": len(filler)}]


async def test_our_limit_counts_and_not_the_smaller_one_of_the_sdk(client: httpx.AsyncClient, cast: Cast):
    padded = PING[:-1] + b',"params":{"_meta":{"x":"' + b"a" * (5 << 20) + b'"}}}'

    assert (await post(client, cast.alice, padded)).status_code == 200


# ---- arguments of every kind


async def stored(client: httpx.AsyncClient, db: Db, cast: Cast, payload: str) -> tuple[str, str, list[Any]]:
    """What becomes of an event with that payload here and by REST: both refusals, and what is stored."""
    named = f'"projectId":"{cast.alice.project.canonical_id}","eventType":"x","payload":{payload}'
    here = await post(client, cast.alice, calling("observation_record_event", f"{{{named}}}"))
    assert here.status_code == 200, here.text
    result = here.json()["result"]
    rest = await client.post("/v1/events", content=f"{{{named}}}", headers=cast.alice.headers)
    found = await rows(db, "DELETE FROM agent_events RETURNING payload::text")
    said = result["content"][0]["text"] if result["isError"] else ""
    return said, "" if rest.status_code == 201 else rest.json()["message"], [one["payload"] for one in found]


PAYLOADS = [
    r'"a\u0000b"',
    r'"half \ud83d of a pair"',
    r'"\ude00\ud83d"',
    r'"\ud83d\ude00 whole"',
    r'{"\ud800": 1}',
    "123456789012345678901234567890",
    "0.1",
    "-0.0",
    "1.0",
    "1e300",
    "null",
    '{"a": 1, "a": 2}',
    r'"\u202e\ufeff"',
    '"<private>not this</private>"',
    '"sk-ant-api03-' + "A" * 95 + '"',
    '{"a":' * 64 + "1" + "}" * 64,
]


async def test_what_rest_stores_is_stored_alike(client: httpx.AsyncClient, db: Db, cast: Cast):
    for payload in PAYLOADS:
        here, rest, found = await stored(client, db, cast, payload)

        assert (here, rest) == ("", "")
        first, second = found
        assert first == second


async def test_what_lies_too_deep_is_refused_with_the_same_sentence(client: httpx.AsyncClient, db: Db, cast: Cast):
    for levels in (65, 150):
        here, rest, found = await stored(client, db, cast, '{"a":' * levels + "1" + "}" * levels)

        assert here == rest
        assert "deeper than 64 levels" in here
        assert found == []


async def test_what_is_no_number_of_json_is_refused(client: httpx.AsyncClient, db: Db, cast: Cast):
    for number in ("NaN", "Infinity", "1e400"):
        here, rest, found = await stored(client, db, cast, f'{{"a":{number}}}')

        assert "$.payload.a" in here
        assert rest
        assert found == []


async def test_a_nul_is_refused_where_text_is_compared(client: httpx.AsyncClient, cast: Cast):
    said, is_error = await call(client, cast.alice, "observation_search", query="a\0b")
    rest = await client.post("/v1/search", json={"query": "a\0b"}, headers=cast.alice.headers)

    assert is_error
    assert said == rest.json()["message"]
    assert "$.query" in said


async def test_what_is_no_call_is_an_error_of_the_protocol(client: httpx.AsyncClient, cast: Cast):
    for params in (None, {}, {"name": 4}, {"name": "observation_get", "arguments": ["x"]}):
        answered = await rpc(client, cast.alice, "tools/call", params)

        assert answered.json()["error"]["code"] == -32602, params


async def test_an_unknown_tool_is_an_error_of_the_protocol(client: httpx.AsyncClient, cast: Cast):
    for name in ("observation_delete", "search", "", "x" * 100_000):
        error = (await rpc(client, cast.alice, "tools/call", {"name": name, "arguments": {}})).json()["error"]

        assert error["code"] == -32602
        assert error["message"].startswith("There is no tool ")
        assert len(error["message"]) < 200


async def test_an_unknown_method_is_an_error_of_the_protocol(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "tools/burn")

    assert answered.json()["error"]["code"] == -32601


# ---- what nobody expected


async def test_a_fault_of_ours_is_told_as_one_and_not_what_it_was(
    client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("tungsten")

    monkeypatch.setattr("cmserver.recall.search.searcher.Searcher.search", broken)

    with structlog.testing.capture_logs() as logs:
        answered = await rpc(client, cast.alice, "tools/call", {"name": "observation_search", "arguments": {"query": "zanzibar"}})

    assert answered.status_code == 200
    assert answered.json()["error"] == {"code": -32603, "message": "Internal error."}
    (told,) = [one for one in logs if one["log_level"] == "error"]
    assert (told["event"], told["method"]) == ("mcp.failed", "tools/call")
    assert "zanzibar" not in repr(told)


async def test_a_database_that_is_away_is_a_sentence(settings: Settings, hub: Hub, cast: Cast, tmp_path: Path):
    async with Db(f"host={tmp_path} dbname=cmserver", size=1) as nowhere:
        nowhere.hurry()
        app = create_app(settings, nowhere, hub, Bell(nowhere, hub), secret=b"s" * 32, authenticate=_known(cast.alice))
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
            text, is_error = await call(client, cast.alice, "observation_get", ids=[1])

    assert is_error
    assert "database" in text.lower()


def _known(person: Person) -> Any:
    async def authenticate(_text: str | None, _scope: str) -> object:
        return person.principal

    return authenticate


async def test_nothing_of_what_is_sent_goes_into_the_logs(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, caplog: pytest.LogCaptureFixture
):
    """Of the libraries below us what `base.logs` lets through: warnings."""
    await make.observation(project=cast.alice.project, title="zanzibar is fed")
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, logger="mcp")
    project = cast.alice.project.canonical_id

    with structlog.testing.capture_logs() as logs:
        await call(client, cast.alice, "observation_search", query="zanzibar")
        await call(client, cast.alice, "observation_get", ids=[1, "zanzibar"])
        await call(client, cast.alice, "observation_add", title="zanzibar", zanzibar=1)
        await call(client, cast.alice, "observation_record_event", projectId=project, eventType="zanzibar", payload="zanzibar")
        await call(client, cast.alice, "observation_generation_status", jobId="zanzibar")
        for content in (b"zanzibar", b'{"zanzibar":1}', b'["zanzibar"]', b'{"jsonrpc":"2.0","method":"zanzibar","params":3}'):
            await post(client, cast.alice, content)
        for method in ("zanzibar", "tools/call", "resources/read", "prompts/get", "initialize", "completion/complete"):
            await rpc(client, cast.alice, method, {"name": "zanzibar", "uri": "zanzibar", "arguments": "zanzibar"})
        await post(
            client, cast.alice, json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"zanzibar": 1}})
        )
        await rpc(client, cast.alice, "ping", host="zanzibar")
        await rpc(client, cast.alice, "ping", origin="https://zanzibar")
        await rpc(client, cast.alice, "ping", mcp_protocol_version="zanzibar", mcp_session_id="zanzibar")
        await rpc(client, None, "ping", authorization="Bearer cms_zanzibar_zanzibar")
        await rpc(client, cast.alice, "tools/list", x_cmserver_project="zanzibar")

    told = f"{logs} {caplog.text} {[record.args for record in caplog.records]}"
    assert "zanzibar" not in told
    assert cast.alice.key not in told
    audit = str(await rows(db, "SELECT * FROM audit_log"))
    assert "zanzibar" not in audit


async def test_the_meter_counts_each_message_once(client: httpx.AsyncClient, app: Frame, db: Db, cast: Cast):
    for _ in range(3):
        await rpc(client, cast.alice, "ping")

    assert isinstance(app.state.meter, Meter)
    await app.state.meter.flush()
    found = await rows(db, "SELECT amount FROM usage_counters WHERE kind = 'requests' AND team_id = %s", cast.alice.team_id)
    assert found == [{"amount": 3}]
