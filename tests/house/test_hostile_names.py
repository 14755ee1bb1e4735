"""Names that cannot be stored, or can hardly be meant, in every place of every route where one can name something."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import httpx
import msgspec
import pytest
import structlog.testing

from cmserver.app import ROUTES
from cmserver.base.http.operation import Operation
from cmserver.base.ids import new_id
from cmserver.doors.mcp.tools import TOOLS
from tests.conftest import Cast
from tests.doors.mcp.tools import SENT
from tests.house.walk import BODIES, ENDLESS, FIXED, QUERIES

NAMES = {
    "NUL": "%00",
    "NUL inside": "a%00b",
    "NUL behind an id": "01890000-0000-7000-8000-000000000000%00",
    "control characters": "%01%08%1b%5b31m%7f",
    "lines": "a%0d%0aX-Injected:%201",
    "C1 controls": "a%c2%85%c2%9b",
    "no UTF-8": "%ff%fe",
    "half a surrogate pair": "%ed%a0%80",
    "an overlong NUL": "%c0%80",
    "half a character": "%f0%9f%98",
    "nothing but spaces": "%20%09%20",
    "a number beyond all": "9" * 40,
    "a negative number": "-1",
    "digits that are not ASCII": "%d9%a1%d9%a2",
    "a very long name": "a" * 20_000,
    "a very long name of 4 bytes": "%f0%9f%98%80" * 3_000,
    "SQL": "%27%3b%20DROP%20TABLE%20teams--",
    "a way up": "..%2f..%2fetc%2fpasswd",
    "a percent sign": "%25s%25(team)s%25",
}
"""As they stand in a URL."""
UNSTORABLE = {"NUL", "NUL inside", "NUL behind an id", "no UTF-8", "half a surrogate pair", "an overlong NUL", "half a character"}
OPERATIONS = [one for one in ROUTES if "{" in one.path and one.path not in ENDLESS]


def named(operation: Operation) -> Iterator[str]:
    """For each of its parameters the path with a hole there, and all others filled."""
    names = re.findall(r"{(\w+)(?::\w+)?}", operation.path)
    for hole in names:
        path = operation.path
        for name in names:
            path = re.sub(rf"{{{name}(?::\w+)?}}", "{}" if name == hole else FIXED.get(name, str(new_id())), path, count=1)
        yield path


PLACES = [(one, path) for one in OPERATIONS for path in named(one)]


def body_of(operation: Operation) -> object:
    path = re.sub(r":\w+}", "}", operation.path)
    key = f"{operation.method} {path}"
    return BODIES.get(key, {"role": "member"} if "members" in key else {})


async def test_a_hostile_name_in_a_path_is_answered_like_one_that_does_not_exist(client: httpx.AsyncClient, cast: Cast):
    wrong: list[str] = []
    for operation, path in PLACES:
        content = json.dumps(body_of(operation)) if operation.method in {"POST", "PUT", "PATCH"} else None
        for what, name in NAMES.items():
            answer, failed = await ask(client, cast, operation.method, path.format(name), content=content)
            allowed = {404} if what in UNSTORABLE else {400, 403, 404}
            if operation.method == "PUT" and what not in UNSTORABLE:
                allowed |= {200, 201}  # a user may be called almost anything
            if operation.path.startswith("/api/v1/context/") and what not in UNSTORABLE:
                allowed |= {200}  # an unknown project has what the team shares
            if answer.status_code not in allowed or failed:
                wrong.append(f"{operation.method} {path} with {what}: {answer.status_code} {answer.text[:200]}")

    assert not wrong, "\n".join(wrong)


async def ask(
    client: httpx.AsyncClient, cast: Cast, method: str, path: str, *, content: str | bytes | None = None
) -> tuple[httpx.Response, bool]:
    """Alice's request; and whether something was logged that is a bug."""
    headers = {**cast.alice.headers, **SENT}
    with structlog.testing.capture_logs() as logged:
        answer = await client.request(method, path, content=content, headers=headers)
    return answer, bool({one["event"] for one in logged} & {"request.failed", "mcp.failed"})


QUERIED = [one for one in ROUTES if one.query is not None and one.path not in ENDLESS]
CURSORS = [base64.urlsafe_b64encode(raw).decode() for raw in (b"", b"\x00" * 24, b"\xff" * 24, b"\x00" * 9, b"\x00" * 8 + b"\xff")]


@pytest.mark.slow
async def test_a_hostile_value_in_a_query_breaks_nothing(client: httpx.AsyncClient, cast: Cast):
    wrong: list[str] = []
    for operation in QUERIED:
        assert operation.query is not None
        path = re.sub(r"{\w+(:\w+)?}", str(new_id()), operation.path)
        required = QUERIES.get(f"{operation.method} {operation.path}", {})
        for field in msgspec.structs.fields(operation.query):
            others = "&".join(f"{name}={value}" for name, value in required.items() if name != field.encode_name)
            for value in [*NAMES.values(), *CURSORS]:
                answer, failed = await ask(client, cast, operation.method, f"{path}?{others}&{field.encode_name}={value}")
                if answer.status_code >= 500 or failed:
                    wrong.append(f"{operation.path}?{field.encode_name}={value[:80]}: {answer.status_code} {answer.text[:200]}")

    assert not wrong, "\n".join(wrong)


HEADERS = [
    *(f"X-Cmserver-{name}" for name in ("Project", "Git-Remote", "Name-Before", "Git-Branch", "Root", "Delivery", "Sent-At")),
    *(
        "X-Cmserver-Hook",
        "X-Cmserver-Changed-Files",
        "X-Cmserver-Late",
        "X-Request-Id",
        "Host",
        "Origin",
        "Authorization",
        "X-Api-Key",
    ),
    *("Accept", "Content-Type", "Last-Event-Id", "Mcp-Session-Id", "Mcp-Protocol-Version", "X-Platform-Source", "User-Agent"),
]
HOOK = {"hook_event_name": "SessionStart", "session_id": "an-agents", "cwd": "/src/orders", "source": "startup"}
ASKED = {
    "/v1/hooks/claude-code": HOOK,
    "/v1/events": {"eventType": "tool_use", "projectId": "orders"},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "/api/sessions/init": {"contentSessionId": "one", "project": "orders", "prompt": "fix it"},
}


@pytest.mark.slow
@pytest.mark.parametrize("path", ASKED)
async def test_a_hostile_header_breaks_nothing(client: httpx.AsyncClient, cast: Cast, path: str):
    wrong: list[str] = []
    for header in HEADERS:
        for name in NAMES.values():
            value = unquote_to_bytes(name)
            alices = {**SENT, **cast.alice.headers}
            headers = [(key.encode(), text.encode()) for key, text in alices.items() if key.lower() != header.lower()]
            with structlog.testing.capture_logs() as logged:
                answer = await client.post(path, json=ASKED[path], headers=[*headers, (header.encode(), value)])
            if answer.status_code >= 500 or any(one["event"] == "request.failed" for one in logged):
                wrong.append(f"{header}: {value[:80]!r}: {answer.status_code} {answer.text[:200]}")

    assert not wrong, "\n".join(wrong)


TEXTS = [unquote_to_bytes(name).decode("utf-8", "replace") for name in NAMES.values()] + ["\ud800", "a\udfffb", "\ufdd0\uffff"]


def fields(struct: type[msgspec.Struct]) -> list[str]:
    return [one.encode_name for one in msgspec.structs.fields(struct)]


@pytest.mark.slow
async def test_a_hostile_argument_of_a_tool_breaks_nothing(client: httpx.AsyncClient, cast: Cast):
    wrong: list[str] = []
    for tool in TOOLS:
        names = fields(tool.handler.struct)
        for field in names:
            for text in TEXTS:
                for value in (text, [text]):
                    usual = {name: "tool_use" for name in ("query", "content", "eventType", "project") if name in names}
                    call = {"name": tool.name, "arguments": {**usual, field: value}}
                    wrong += await said_wrong(client, cast, "tools/call", call, f"{tool.name} {field}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
async def test_a_hostile_address_of_a_resource_breaks_nothing(client: httpx.AsyncClient, cast: Cast):
    wrong: list[str] = []
    for start in ("cmserver://observations/", "cmserver://sessions/", "cmserver://projects/", "cmserver://", ""):
        for name in [*NAMES.values(), *TEXTS]:
            for end in ("", "/summary", "/context"):
                wrong += await said_wrong(client, cast, "resources/read", {"uri": f"{start}{name}{end}"}, start)
    for cursor in CURSORS:
        wrong += await said_wrong(client, cast, "resources/list", {"cursor": cursor}, "cursor")

    assert not wrong, "\n".join(wrong)


async def said_wrong(client: httpx.AsyncClient, cast: Cast, method: str, params: object, where: str) -> list[str]:
    """What is wrong with the answer to a message of MCP."""
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    answer, failed = await ask(client, cast, "POST", "/mcp", content=message)
    if answer.status_code < 500 and not failed and '"code":-32603' not in answer.text:
        return []
    return [f"{where}: {message[:200]} {answer.status_code} {answer.text[:300]}"]
