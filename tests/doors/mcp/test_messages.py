"""What becomes of a message in whatever form it comes, and of what is none; and what nobody may learn of it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.http import wire
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.mcp.tools import TOOLS
from cmserver.generation.job_notifier import JobNotifier
from cmserver.observations.model import Observation
from tests.conftest import Cast, Person
from tests.doors.mcp.tools import PING, SENT, call, calling, post, rpc, serving
from tests.make import Make
from tests.rows import rows
from tests.timeouts import ENOUGH_SECONDS

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
    for other in ("text/plain", "", "application/x-www-form-urlencoded", "application/jsonp"):
        answered = await rpc(client, cast.alice, "ping", content_type=other)
        assert (answered.status_code, "Content-Type" in answered.json()["message"]) == (400, True), other
    for right in ("application/json; charset=utf-8", " application/json "):
        assert (await rpc(client, cast.alice, "ping", content_type=right)).status_code == 200, right
    assert (await rpc(client, cast.alice, "ping", accept="text/html")).status_code == 406
    for enough in ("application/json", "*/*", "application/*"):
        assert (await rpc(client, cast.alice, "ping", accept=enough)).status_code == 200, enough


async def test_a_session_that_a_client_remembers_means_nothing(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "ping", mcp_session_id="0123456789abcdef")

    assert answered.status_code == 200
    assert "mcp-session-id" not in answered.headers


class TestSmall:
    """With a small limit."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(wire, "BODY_MAX_BYTES", 4_096)

    async def test_a_body_of_the_limit_passes_and_one_byte_more_does_not(self, client: httpx.AsyncClient, db: Db, cast: Cast):
        project = cast.alice.project.canonical_id
        around = calling("observation_record_event", f'{{"projectId":"{project}","eventType":"x","payload":""}}')
        filler = b"p" * (4_096 - len(around))

        fits = await post(client, cast.alice, around.replace(b'"payload":""', b'"payload":"%s"' % filler))
        over = await post(client, cast.alice, around.replace(b'"payload":""', b'"payload":"p%s"' % filler))

        assert (fits.status_code, fits.json()["result"]["isError"]) == (200, False)
        assert over.status_code == 413
        assert "4,096 bytes" in over.json()["message"]
        assert await rows(db, "SELECT length(payload #>> '{}') AS chars FROM agent_events") == [{"chars": len(filler)}]


async def test_our_limit_counts_and_not_the_smaller_one_of_the_sdk(client: httpx.AsyncClient, cast: Cast):
    large = calling("observation_record_event", f'{{"eventType":"x","projectId":"orders","payload":"{"a" * (5 << 20)}"}}')

    answered = await post(client, cast.alice, large)

    assert (answered.status_code, answered.json()["result"]["isError"]) == (200, False)


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


ODD: list[object] = ["", "\0", "\ud83d", "x" * 70_000, -1, 2**70, 0.5, True, [], [[]], {}, {"": None}, None]
"""Values for fields that want others."""


async def test_no_value_of_any_field_is_a_fault_of_ours(client: httpx.AsyncClient, cast: Cast):
    right: dict[str, object] = {"query": "x", "ids": [1], "title": "x", "eventType": "x", "jobId": "x", "wait": False}
    right["projectId"] = str(cast.alice.project.id)
    for tool in TOOLS:
        fields = [field.encode_name for field in msgspec.structs.fields(tool.handler.struct)]
        usual = {name: value for name, value in right.items() if name in fields}
        for name in sorted({*fields, "unknown"} - {"wait"}):  # which would be waited for
            for odd in ODD:
                answered = await rpc(client, cast.alice, "tools/call", {"name": tool.name, "arguments": {**usual, name: odd}})

                assert answered.status_code == 200, (tool.name, name, odd)
                assert "result" in answered.json(), (tool.name, name, odd, answered.text[:300])


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


async def test_a_database_that_is_away_is_a_sentence(settings: Settings, hub: NotificationListener, cast: Cast, tmp_path: Path):
    async with Db(f"host={tmp_path} dbname=cmserver", size=1) as nowhere:
        nowhere.hurry()
        app = create_app(settings, nowhere, hub, JobNotifier(nowhere, hub), secret=b"s" * 32, authenticate=_known(cast.alice))
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
            text, is_error = await call(client, cast.alice, "observation_get", ids=[1])

    assert is_error
    assert "database" in text.lower()


def _known(person: Person) -> Any:
    async def authenticate(_text: str | None, _scope: str, _address: str) -> object:
        return person.principal

    return authenticate


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_client_that_goes_away_is_no_fault(app: AsgiFrame, cast: Cast, monkeypatch: pytest.MonkeyPatch, version: str):
    """Nor does the call stay behind."""
    began, gone, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> Observation:
        began.set()
        try:
            await gone.wait()
            raise NotFound("There is no such observation.")
        finally:
            done.set()

    monkeypatch.setattr("cmserver.doors.mcp.tools.store_observations", slow)
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    }
    params: dict[str, object] = {"name": "observation_add", "arguments": {"title": "x"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    named = {
        **SENT,
        **cast.alice.headers,
        "MCP-Protocol-Version": version,
        "MCP-Method": "tools/call",
        "MCP-Name": "observation_add",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in {**named, "Content-Length": len(body)}.items())

    with structlog.testing.capture_logs() as logs:
        async with serving(app) as url:
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            await asyncio.wait_for(began.wait(), ENOUGH_SECONDS)
            writer.close()
            await writer.wait_closed()
            gone.set()
            await asyncio.wait_for(done.wait(), ENOUGH_SECONDS)

    assert [one for one in logs if one["log_level"] in {"error", "warning"}] == []


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
