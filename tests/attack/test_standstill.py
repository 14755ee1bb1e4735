"""Every door is sent the most that it takes, while somebody else asks for /healthz: how long does the server answer nobody?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import httpx
import msgspec
import pytest
from msgspec import inspect

from cmserver.app import ROUTES
from cmserver.doors.mcp.tools import TOOLS
from cmserver.doors.web.visit import MAX_FORM_BYTES
from tests.bench.stalls import longest_answer
from tests.house import walk
from tests.house.web_page import page_routes
from tests.process.conftest import Run, folder, run
from tests.process.program import Program, measured

__all__ = ["folder", "run"]  # fixtures
pytestmark = [pytest.mark.slow, pytest.mark.speed]

WORST_MS = 250
ROUNDS = 3
"""The best of them counts: what else the machine does only adds."""
_AFTER_SECONDS = 0.05
_BODY_CHARS, _QUERY_CHARS = 7_800_000, 20_000
"""With their escapes about the limits of a body (8 MB) and of a request's first line (64 kB)."""
_DENSE = 'in May "a b" -c, on 3 März 2026 curl -u a: <private> Größe\\ #12 kind: Secret\n'
"""What readers look at closely: dates, quotes, tags, secrets, escapes."""
_JSON = {"Content-Type": "application/json"}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Request(msgspec.Struct, frozen=True):
    """One request with the most of one field."""

    name: str
    method: str
    path: str
    params: dict[str, str] = {}
    content: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _JSON)
    with_key: bool = True


def fill(length: int) -> str:
    return (_DENSE * (length // len(_DENSE) + 1))[:length]


def texts(type_: inspect.Type, room: int) -> Iterator[tuple[str, object]]:
    """Each field of a body or a query, filled as far as it or the request allows."""
    match type_:
        case inspect.StructType(fields=fields):
            for field in fields:
                for value in values(field.type, room):
                    yield field.encode_name, value
        case inspect.UnionType(types=types):
            for inner in types:
                yield from texts(inner, room)
        case inspect.ListType(item_type=inner):
            yield from texts(inner, room)
        case inspect.Metadata(type=inner):
            yield from texts(inner, room)
        case _:
            pass


def values(type_: inspect.Type, room: int) -> Iterator[object]:
    match type_:
        case inspect.StrType(max_length=length):
            yield fill(min(length or room, room))
        case inspect.ListType(item_type=inspect.StrType(max_length=length), max_length=count):
            count = min(count or room, max(1, room // (length or 200)))
            yield [f"{place} {fill(min(length or 200, room))}"[: length or None] for place in range(count)]
        case inspect.DictType() | inspect.AnyType():
            yield {"text": fill(room)}
        case inspect.UnionType(types=types):
            for inner in types:
                yield from values(inner, room)
        case inspect.Metadata(type=inner):
            yield from values(inner, room)
        case _:
            pass


def encode(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def requests_of_routes() -> Iterator[Request]:
    examples: dict[tuple[str, str], Any] = {(stop.method, stop.path): stop.example for stop in walk.stops()}
    for route in ROUTES:
        if route.path in ("/v1/stream", "/stream", "/api/events", "/api/stream", "/mcp"):
            continue  # they do not end; /mcp is below
        path = re.sub(r"\{[^}]*\}", "1", route.path)
        example = examples[route.method, re.sub(r":\w+}", "}", route.path)]
        if route.body is not None:
            for name, value in texts(inspect.type_info(route.body), _BODY_CHARS):
                is_list = isinstance(example, list)
                body = {**cast("dict[str, object]", example[0] if is_list else example), name: value}
                content = encode([body] if is_list else body)
                yield Request(f"{route.method} {route.path} {name}", route.method, path, content=content)
        if route.query is not None:
            for name, value in texts(inspect.type_info(route.query), _QUERY_CHARS):
                if isinstance(value, str):
                    yield Request(f"{route.method} {route.path}?{name}", route.method, path, params={name: value})


def requests_of_tools() -> Iterator[Request]:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    examples: dict[str, Any] = {stop.tool.name: stop.example for stop in walk.stops() if stop.tool}
    for tool in TOOLS:
        for name, value in texts(inspect.type_info(tool.handler.struct), _BODY_CHARS):
            arguments: dict[str, object] = {**examples[tool.name], name: value}
            params = {"name": tool.name, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            yield Request(f"MCP {tool.name} {name}", "POST", "/mcp", content=encode(message), headers=headers)


def requests_of_hooks() -> Iterator[Request]:
    for prompt in (fill(_BODY_CHARS), "always use a. " * 500_000):
        payload = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "cwd": "/srv/a", "prompt": prompt}
        yield Request("a hook's prompt", "POST", "/v1/hooks/claude-code", content=encode(payload))


def requests_of_forms() -> Iterator[Request]:
    """Of nobody: with the escapes that take longest, at the limit and at that of a body."""
    for page in page_routes():
        if page.method == "POST":
            path = re.sub(r"\{[^}]*\}", "1", page.path)
            for size in (MAX_FORM_BYTES, 8_000_000):
                content = b"name=%61&password=" + b"%ff" * ((size - 18) // 3)
                yield Request(f"POST {page.path} {size}", "POST", path, content=content, headers=_FORM, with_key=False)


def send(server: Program, request: Request) -> int:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client:
        headers = dict(request.headers) | ({"Authorization": f"Bearer {server.key}"} if request.with_key else {})
        content = request.content or None
        return client.request(request.method, request.path, params=request.params, content=content, headers=headers).status_code


def measure(port: int, act: Callable[[], object]) -> float:
    """Milliseconds: the best of the rounds, of which each is the worst answer."""
    worst = float("inf")
    for _ in range(ROUNDS):
        worst = min(worst, longest_answer(port, act, _AFTER_SECONDS))
        if worst <= WORST_MS:
            break
    return worst


def check(server: Program, requests: Iterator[Request]) -> None:
    port = int(server.url.rpartition(":")[2])
    found: dict[str, float] = {}
    for request in requests:
        found[request.name] = max(found.get(request.name, 0), measure(port, lambda request=request: send(server, request)))
    slowest = sorted(found.items(), key=lambda pair: -pair[1])
    measured(f"{len(found)} doors, the slowest: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in slowest[:8]))
    assert not [f"{name}: {ms:.0f} ms" for name, ms in slowest if ms > WORST_MS]


@pytest.fixture
def server(run: Run) -> Program:
    settings = {"CMSERVER_PROVIDER": "offline"}
    program = run("server", settings=settings)
    program.wait_until_ready()
    return program


@pytest.mark.parametrize("requests", [requests_of_routes, requests_of_tools, requests_of_hooks, requests_of_forms])
def test_nobody_waits_while_a_door_is_sent_the_most_that_it_takes(server: Program, requests: Callable[[], Iterator[Request]]):
    check(server, requests())


def test_nobody_waits_while_a_page_compares_texts(server: Program):
    """Two texts of few different words, which take an algorithm that looks for the longest match the cube of their length."""
    left, right = (" ".join("a" if place % every else "b" for place in range(1_400)) for every in (2, 3))
    port = int(server.url.rpartition(":")[2])
    with server.http() as client, httpx.Client(base_url=server.url, trust_env=False, timeout=120, follow_redirects=True) as browser:
        event = {"projectId": "orders", "sourceType": "api", "eventType": "note", "occurredAtEpoch": 1}
        client.post("/v1/events?generate=false", json=event).raise_for_status()
        body = {"projectId": "orders", "title": "Orders", "narrative": left}
        number = client.post("/v1/observations", json=body).raise_for_status().json()["observation"]["number"]
        client.patch(f"/v1/observations/{number}", json={"narrative": right}).raise_for_status()
        browser.post("/ui/sign-in/key", data={"key": server.key}).raise_for_status()

        ms = measure(port, lambda: browser.get(f"/ui/observations/{number}").raise_for_status())

    assert ms <= WORST_MS
