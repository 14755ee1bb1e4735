"""`cmserver mcp`: what goes to the server and what comes back, line by line; and the real program with a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import httpx
import msgspec
import pytest
from mcp.shared.inbound import encode_header_value

from cmserver.client.stdio_bridge import StdioBridge, folder_headers, header_value, run_bridge
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS

URL = "http://cmserver"
Handler = Callable[[httpx.Request], httpx.Response]
MODERN = "2026-07-28"
LEGACY = "2025-11-25"


class _Error(msgspec.Struct):
    code: int
    message: str


class _Refused(msgspec.Struct):
    id: int | None
    error: _Error


class Desk:
    """A bridge between a client that writes lines and a server that is a function."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.said: list[bytes] = []
        self.answer: Handler = lambda _: httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})
        self.waits: dict[str, asyncio.Event] = {}
        """Method -> what its answer waits for."""
        self.came = asyncio.Event()
        self.client = httpx.AsyncClient(base_url=URL, transport=httpx.MockTransport(self._serve))
        self.bridge = StdioBridge(self.client, self.said.append)

    async def _serve(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        self.came.set()
        waits = self.waits.get(json.loads(request.content).get("method"))
        if waits is not None:
            await waits.wait()
        return self.answer(request)

    async def tell(self, **message: object) -> None:
        await self.bridge.handle(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def start(self, **message: object) -> asyncio.Task[None]:
        return asyncio.create_task(self.tell(**message))

    @property
    def answers(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.said]

    @property
    def refusal(self) -> str:
        """The sentence of the one answer, which is an error."""
        (only,) = self.said
        return msgspec.json.decode(only, type=_Refused).error.message


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    made = Desk()
    async with made.client:
        yield made


def envelope(**params: object) -> dict[str, object]:
    return {**params, "_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}}


# -- there and back


async def test_a_line_goes_as_it_is_and_the_answer_comes_back_as_one(desk: Desk):
    desk.answer = lambda _: httpx.Response(
        200, content=b'{\n "jsonrpc": "2.0", "id": "a",\n "result": {"n": 1.50, "t": "a\\nb"}\n}'
    )
    line = b'{"id": "a", "jsonrpc":"2.0",  "method":"tools/list", "params": {"x": 1.50}}\n'

    await desk.bridge.handle(line)

    (asked,) = desk.asked
    assert (str(asked.url), asked.content) == (f"{URL}/mcp", line)
    assert desk.said == [b'{"jsonrpc":"2.0","id":"a","result":{"n":1.50,"t":"a\\nb"}}\n']


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("server/discover", {}, None),
        ("tools/call", {"name": "observation_search"}, "observation_search"),
        ("prompts/get", {"name": "über"}, encode_header_value("über")),
        ("resources/read", {"uri": "cmserver://observations/7"}, "cmserver://observations/7"),
        ("tools/list", {"name": "not of this one"}, None),
    ],
    ids=["discover", "tool", "prompt", "resource", "without-name"],
)
async def test_what_names_its_version_says_it_in_headers_too(desk: Desk, method: str, params: dict[str, object], name: str | None):
    await desk.tell(id=1, method=method, params=envelope(**params))

    (asked,) = desk.asked
    said = asked.headers
    assert (said["mcp-protocol-version"], said["mcp-method"], said.get("mcp-name")) == (MODERN, method, name)


async def test_after_initialize_the_agreed_version_goes_along(desk: Desk):
    agreed = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": LEGACY}}
    desk.answer = lambda _: httpx.Response(200, json=agreed)

    await desk.tell(id=1, method="initialize", params={"protocolVersion": "2025-06-18"})
    await desk.tell(id=2, method="tools/list")
    await desk.tell(id=3, method="initialize")

    assert [one.headers.get("mcp-protocol-version") for one in desk.asked] == [None, LEGACY, None]
    assert [one.headers.get("mcp-method") for one in desk.asked] == [None, None, None]


@try_rows(
    "text",
    ["plain", "", " edge ", "ü", "a\nb", "a\x7fb", "=?base64?eA==?="],
    ids=["plain", "empty", "edge", "u", "nl", "del", "like"],
)
def test_a_header_is_written_as_the_sdk_writes_it(text: str):
    assert header_value(text) == encode_header_value(text)


async def test_text_that_a_client_has_cut_amid_a_character_goes_on_as_it_is(desk: Desk):
    line = b'{"jsonrpc":"2.0","id":"\\ud83d","method":"tools/call","params":{"name":"x","arguments":{"query":"cut \\ud83d"}}}\n'

    await desk.bridge.handle(line)

    assert desk.asked[0].content == line
    assert desk.said == [b'{"jsonrpc":"2.0","id":"\\ud83d","result":{}}\n']


async def test_an_answer_of_a_megabyte_passes(desk: Desk):
    text = "x" * 1_000_000
    desk.answer = lambda _: httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {"content": text}})

    await desk.tell(id=1, method="tools/call")

    assert desk.answers == [{"jsonrpc": "2.0", "id": 1, "result": {"content": text}}]


async def test_requests_run_beside_each_other(desk: Desk):
    desk.waits["slow"] = asyncio.Event()
    slow = desk.start(id=1, method="slow")
    await asyncio.wait_for(desk.came.wait(), ENOUGH_SECONDS)

    await desk.tell(id=2, method="quick")
    assert [one["id"] for one in desk.answers] == [2]

    desk.waits["slow"].set()
    await slow
    assert [one["id"] for one in desk.answers] == [2, 1]


# -- what goes wrong


async def test_an_error_of_the_protocol_comes_back_under_the_id_of_its_request(desk: Desk):
    error = {"code": -32602, "message": "Not so.", "data": {"supported": [LEGACY]}}
    desk.answer = lambda _: httpx.Response(400, json={"jsonrpc": "2.0", "id": None, "error": error})

    await desk.tell(id=7, method="tools/call")

    assert desk.answers == [{"jsonrpc": "2.0", "id": 7, "error": error}]


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (401, {"error": "unauthenticated", "message": "The key is not known."}, "The key is not known."),
        (429, {"error": "rate_limited", "message": "Come again in 3 seconds."}, "Come again in 3 seconds."),
        (503, {"error": "unavailable", "message": "The database is away."}, "The database is away."),
        (500, {"error": "internal", "message": "Internal error.", "requestId": "r-1"}, "request r-1"),
        (502, "<html>Bad Gateway</html>", "answered with status 502, but not as cmserver does"),
        (200, "<html>Hello</html>", "answered with status 200, but not as cmserver does"),
        (202, "", "answered with status 202, but not as cmserver does"),
        (200, {"jsonrpc": "2.0", "id": 1}, "answered with status 200, but not as cmserver does"),
        (200, ["a"], "answered with status 200, but not as cmserver does"),
    ],
    ids=["401", "429", "503", "500", "proxy", "page", "no-answer", "neither", "list"],
)
async def test_what_the_server_refuses_is_a_sentence_for_that_request(desk: Desk, status: int, body: object, sentence: str):
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    desk.answer = lambda _: httpx.Response(status, content=content)

    await desk.tell(id=1, method="tools/list")

    assert sentence in desk.refusal
    assert desk.answers[0]["id"] == 1


async def test_a_server_that_comes_back_works_again(desk: Desk):
    works = desk.answer

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    desk.answer = away
    await desk.tell(id=1, method="tools/list")
    assert f"The server at {URL} does not answer" in desk.refusal

    desk.answer = works
    await desk.tell(id=2, method="tools/list")
    assert desk.answers[1] == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_a_notification_is_never_answered(desk: Desk):
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    await desk.tell(method="notifications/initialized")
    desk.answer = lambda _: httpx.Response(401, json={"error": "unauthenticated", "message": "No."})
    await desk.tell(method="notifications/initialized")
    desk.answer = away
    await desk.tell(method="notifications/initialized")
    await desk.tell(method="notifications/cancelled", params={"requestId": 1})

    assert len(desk.asked) == 3
    assert desk.said == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"1", -32600),
        (b'{"id": 1, "method": 2}', -32600),
        (b"[" * 100_000, -32700),
    ],
    ids=["cut-off", "no-utf8", "batch", "number", "method", "deep"],
)
async def test_what_is_no_message_is_refused_here(desk: Desk, line: bytes, code: int):
    await desk.bridge.handle(line)

    (only,) = desk.said
    refused = msgspec.json.decode(only, type=_Refused)
    assert (refused.id, refused.error.code) == (None, code)
    assert desk.asked == []


@pytest.mark.parametrize("params", [[1], "x", {"_meta": 1}, {"_meta": {"io.modelcontextprotocol/protocolVersion": 1}}, {"name": 1}])
async def test_strange_parameters_are_the_servers_to_refuse(desk: Desk, params: object):
    await desk.tell(id=1, method="tools/call", params=params)

    assert len(desk.asked) == 1
    assert desk.answers == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


# -- cancelling, and the end


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_cancelled_request_is_given_up_and_not_answered(desk: Desk, era: str):
    if era == "legacy":
        agreed = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": LEGACY}}
        desk.answer = lambda _: httpx.Response(200, json=agreed)
        await desk.tell(id=0, method="initialize")
        desk.came.clear()
    before = len(desk.said)
    desk.waits["tools/call"] = asyncio.Event()
    running = desk.start(id="one", method="tools/call", params=envelope() if era == "modern" else {})
    await asyncio.wait_for(desk.came.wait(), ENOUGH_SECONDS)

    params: dict[str, object] = {"requestId": "one"}
    await desk.tell(method="notifications/cancelled", params=envelope(**params) if era == "modern" else params)
    await asyncio.wait({running}, timeout=ENOUGH_SECONDS)

    assert running.cancelled()
    assert len(desk.said) == before
    told = [json.loads(one.content)["method"] for one in desk.asked]
    assert ("notifications/cancelled" in told) == (era == "legacy")


async def test_the_end_of_the_input_is_the_end_also_of_what_is_on_its_way(desk: Desk):
    desk.waits["tools/call"] = asyncio.Event()
    asked = asyncio.get_running_loop()

    def lines() -> Generator[bytes]:
        yield b"\n"
        yield b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n'
        asyncio.run_coroutine_threadsafe(desk.came.wait(), asked).result(ENOUGH_SECONDS)

    await asyncio.wait_for(run_bridge(desk.client, lines(), desk.said.append), ENOUGH_SECONDS)

    assert len(desk.asked) == 1
    assert desk.said == []


# -- the project


def test_the_project_is_what_hooks_call_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "src").mkdir()
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(repo / "src")
    assert dict(folder_headers(None)) == {b"X-Cmserver-Project": str(repo).encode()}

    (repo / ".git" / "config").write_text('[remote "origin"]\n\turl = https://me:pw@github.com/acme/orders.git\n')
    assert dict(folder_headers(None)) == {b"X-Cmserver-Project": b"https://github.com/acme/orders.git"}

    (repo / ".cmserver.toml").write_text('project = "Bestellungen für alle"\n')
    assert dict(folder_headers(None)) == {b"X-Cmserver-Project": "Bestellungen für alle".encode()}
    assert dict(folder_headers("another")) == {b"X-Cmserver-Project": b"another"}

    (tmp_path / "else").mkdir()
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path / "else"))
    assert dict(folder_headers(None)) == {b"X-Cmserver-Project": str(tmp_path / "else").encode()}


def test_the_project_is_that_of_a_named_folder_wherever_the_bridge_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "orders").mkdir()
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path))

    assert dict(folder_headers(None, str(tmp_path / "orders"))) == {b"X-Cmserver-Project": str(tmp_path / "orders").encode()}
    assert dict(folder_headers("another", str(tmp_path / "orders"))) == {b"X-Cmserver-Project": b"another"}


def test_a_folder_of_private_sessions_is_private_for_the_tools_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "diary" / "2026"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path))
    named = {b"X-Cmserver-Project": b"diary"}
    assert dict(folder_headers("diary", str(folder))) == named

    (tmp_path / "diary" / ".cmserver.toml").write_text("private = true\n")
    assert dict(folder_headers("diary", str(folder))) == {**named, b"x-cmserver-private": b"1"}
    assert dict(folder_headers("diary")) == named


def test_without_a_folder_all_projects_are_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert not folder_headers(None)
    assert not folder_headers(None, "${workspaceFolder}")  # an editor without an open folder


def test_what_no_header_can_hold_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.chdir("/")
    assert not folder_headers(None)

    assert dict(folder_headers("a\r\nX-Api-Key: b")) == {b"X-Cmserver-Project": b"a??X-Api-Key: b"}
    assert not folder_headers("x" * 5_000)

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not folder_headers(None)
