"""What a connection may hold before any key is looked at: the attacks, through a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import repeat

import httptools
import httpx
import msgspec
import pytest
import structlog.testing
from uvicorn.protocols.http import httptools_impl

from cmserver.base.http import server, wire
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.server import (
    FEW_CHUNKS,
    HEAD_MAX_BYTES,
    MAX_DROPPED_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_REST_BYTES,
    MIN_CHUNK_BYTES,
    ConnectionLimits,
    Connections,
    GuardedProtocol,
)
from cmserver.base.settings import Settings
from tests.base.http.tools import Answer, exchange, exchange_until_refused, parse_answers, serving
from tests.conftest import Cast
from tests.timeouts import ENOUGH_SECONDS, scaled

SEGMENT = 16_384
MANY = 4_000_000
LINE = b"GET /healthz HTTP/1.1\r\n"
HEAD = LINE + b"Host: cmserver\r\n"
CHUNKED = b"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nTransfer-Encoding: chunked\r\n"
ENDLESS = {
    "a request line": (b"GET /", b"a"),
    "a query": (b"GET /v1/search?query=", b"a"),
    "a header's name": (HEAD, b"a"),
    "a header's value": (HEAD + b"X-Long: ", b"a"),
    "headers": (HEAD, b"X-One: 1\r\n"),
    "empty lines": (b"", b"\r\n"),
}
"""How a head can go on for ever: what begins it, and what comes again and again."""
ENDLESS_BODIES = {
    "a chunk's size": (b"", b"0"),
    "a chunk's extension": (b"1;", b"a"),
    "a trailer's value": (b"1\r\na\r\n0\r\nX-Long: ", b"a"),
    "trailers": (b"1\r\na\r\n0\r\n", b"X-One: 1\r\n"),
}
PATHS = ("/healthz", "/v1/events", "/mcp", "/v1/mcp", "/v1/stream", "/stream", "/api/search", "/docs")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch):
    """Few connections, and more time."""
    for module in (wire, server):
        monkeypatch.setattr(module, "MAX_CONNECTIONS", 40)
        monkeypatch.setattr(module, "BODY_SECONDS", 60.0)


@pytest.fixture
async def port(app: AsgiFrame, settings: Settings) -> AsyncGenerator[int]:
    async with serving(app, settings) as port:
        yield port


@pytest.fixture
async def hasty_port(app: AsgiFrame, settings: Settings, few: None, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[int]:
    """A server that waits for little."""
    for module in (wire, server):
        monkeypatch.setattr(module, "BODY_SECONDS", scaled(0.3))
    async with serving(app, settings) as port:
        yield port


class CountingParser:
    """httptools' parser, and how many bytes all of them were given."""

    taken = 0

    def __init__(self, protocol: object) -> None:
        self._parser = httptools.HttpRequestParser(protocol)

    def feed_data(self, data: bytes) -> None:
        CountingParser.taken += len(data)
        self._parser.feed_data(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._parser, name)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[CountingParser]:
    class Names:
        HttpRequestParser = CountingParser

        def __getattr__(self, name: str) -> object:
            return getattr(httptools, name)

    monkeypatch.setattr(httptools_impl, "httptools", Names())
    monkeypatch.setattr(CountingParser, "taken", 0)
    return CountingParser


def endless(begin: bytes, again: bytes, size: int) -> Iterator[bytes]:
    yield begin
    for _ in range(size // SEGMENT):
        yield again * (SEGMENT // len(again))


def assert_refused(raw: bytes, status: int, name: str) -> Answer:
    """One refusal, of the same shape as any other, and the last word on the connection."""
    (answer,) = parse_answers(raw)
    refusal = msgspec.json.decode(answer.body)

    assert (answer.status, refusal["error"]) == (status, name), raw
    assert refusal["message"]
    assert refusal["requestId"] == answer.headers["x-request-id"]
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer


# ---- heads


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_head_that_never_ends_is_refused_after_64_kb_however_much_comes(
    port: int, what: str, counted: type[CountingParser]
):
    taken: list[int] = []
    for size in (MANY, 4 * MANY):
        counted.taken = 0
        answer = await exchange_until_refused(port, endless(*ENDLESS[what], size))
        assert_refused(answer, 431, "RequestHeaderFieldsTooLarge")
        taken.append(counted.taken)

    assert max(taken) <= HEAD_MAX_BYTES + 2 * 262_144, "no more than a segment beyond the limit is parsed"


@pytest.mark.parametrize("path", PATHS)
async def test_every_door_has_the_same_limit(port: int, path: str):
    head = f"POST {path} HTTP/1.1\r\nHost: cmserver\r\nX-Long: ".encode()

    assert_refused(await exchange_until_refused(port, endless(head, b"a", MANY)), 431, "RequestHeaderFieldsTooLarge")


async def test_a_head_that_comes_at_once_has_the_same_limit(port: int):
    fits = HEAD + b"Connection: close\r\nX-Long: " + b"a" * (HEAD_MAX_BYTES - 200) + b"\r\n\r\n"
    too_large = HEAD + b"X-Long: " + b"a" * HEAD_MAX_BYTES + b"\r\n\r\n"

    assert [one.status for one in parse_answers(await exchange(port, fits))] == [200]
    assert_refused(await exchange(port, too_large), 431, "RequestHeaderFieldsTooLarge")


async def test_thousands_of_small_headers_are_refused(port: int):
    assert_refused(await exchange(port, HEAD + b"a:1\r\n" * (MAX_HEADERS + 1) + b"\r\n"), 431, "RequestHeaderFieldsTooLarge")


@pytest.mark.parametrize(
    "raw",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: cmserver\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        LINE + b"Host: cmserver\r\nX: \x00\r\n\r\n",
        CHUNKED + b"Content-Length: 5\r\n\r\nhello",
        LINE + b"\r\n",
        HEAD + b"host: cmserver\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: a\r\nHOST: b\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_in_the_words_of_all_refusals(port: int, raw: bytes):
    assert_refused(await exchange(port, raw), 400, "ValidationError")


async def test_a_client_of_http_1_0_needs_no_host(port: int):
    assert [one.status for one in parse_answers(await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n"))] == [200]


async def test_a_connection_that_says_a_byte_now_and_then_is_given_up(hasty_port: int):
    def slowly() -> Iterator[bytes]:
        yield from (bytes([one]) for one in HEAD)

    reader, writer = await asyncio.open_connection("127.0.0.1", hasty_port)

    async def drip() -> None:
        with contextlib.suppress(ConnectionError):
            for part in slowly():
                writer.write(part)
                await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    raw = await asyncio.wait_for(reader.read(), ENOUGH_SECONDS)
    dripping.cancel()
    writer.close()

    assert_refused(raw, 408, "RequestTimeout")


async def test_a_body_that_nobody_waits_for_any_more_must_come_to_its_end(hasty_port: int):
    head = b"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nContent-Length: 1000000\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", hasty_port)
    writer.write(head)

    raw = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(ENOUGH_SECONDS):
            while part := await reader.read(1000):
                raw += part
                writer.write(b"a")
    writer.close()

    (answer,) = parse_answers(raw)
    assert answer.status == 401, "a key is looked at before the body"


# ---- bodies


@pytest.mark.parametrize("what", ENDLESS_BODIES)
async def test_the_framing_of_a_body_that_never_ends_is_cut_off(port: int, cast: Cast, what: str, counted: type[CountingParser]):
    begin, again = ENDLESS_BODIES[what]
    head = CHUNKED + f"X-Api-Key: {cast.alice.key}\r\n\r\n".encode()

    taken: list[int] = []
    for size in (MANY, 4 * MANY):
        counted.taken = 0
        raw = await exchange_until_refused(port, endless(head + begin, again, size))
        if raw:  # the event may have been answered before its trailers were at an end
            parse_answers(raw)
        taken.append(counted.taken)

    assert max(taken) <= HEAD_MAX_BYTES + 2 * 262_144


async def test_trailers_are_no_headers(port: int, cast: Cast):
    body = b"2\r\n{}\r\n0\r\nX-Api-Key: " + cast.alice.key.encode() + b"\r\n\r\n"

    (answer,) = parse_answers(await exchange(port, CHUNKED + b"Connection: close\r\n\r\n", body))

    assert answer.status == 401


async def test_a_body_whose_framing_breaks_is_refused_and_the_request_ended(port: int, cast: Cast):
    head = CHUNKED + f"X-Api-Key: {cast.alice.key}\r\n\r\n".encode()

    assert_refused(await exchange(port, head + b"2\r\n{}\r\nnonsense\r\n"), 400, "ValidationError")


TINY_CHUNK = b"1\r\na\r\n"


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the parts of bodies that the parser has handed on."""
    sizes: list[int] = []
    plain = GuardedProtocol.on_body

    def on_body(self: GuardedProtocol, body: bytes) -> None:
        sizes.append(len(body))
        plain(self, body)

    monkeypatch.setattr(GuardedProtocol, "on_body", on_body)
    return sizes


async def test_a_body_in_tiny_chunks_is_refused_after_a_few_of_them(port: int, cast: Cast, chunks: list[int]):
    for key in ("", f"X-Api-Key: {cast.alice.key}\r\n"):
        chunks.clear()
        raw = await exchange_until_refused(port, endless(CHUNKED + key.encode() + b"\r\n" + TINY_CHUNK, TINY_CHUNK, MANY))

        assert parse_answers(raw)[0].status in ({400} if key else {400, 401})
        assert len(chunks) <= FEW_CHUNKS + 1


async def test_tiny_chunks_are_refused_in_the_words_of_all_refusals(port: int, cast: Cast):
    head = CHUNKED + f"X-Api-Key: {cast.alice.key}\r\n\r\n".encode()

    assert_refused(await exchange(port, head + TINY_CHUNK * (FEW_CHUNKS + 1)), 400, "ValidationError")


async def test_a_few_tiny_chunks_and_many_larger_ones_are_taken(port: int, cast: Cast):
    head = CHUNKED + f"Connection: close\r\nX-Api-Key: {cast.alice.key}\r\n\r\n".encode()
    body = b'{"eventType": "tool_use", "projectId": "orders"}'
    small = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body)
    larger = (b"%x\r\n" % (2 * MIN_CHUNK_BYTES) + b" " * 2 * MIN_CHUNK_BYTES + b"\r\n") * (4 * FEW_CHUNKS)

    for chunks in (small, small + larger):
        (answer,) = parse_answers(await exchange(port, head + chunks + b"0\r\n\r\n"))
        assert answer.status == 201


async def _refused_early(port: int, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Answer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    answered = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ENOUGH_SECONDS)
    length = next(int(line.partition(b":")[2]) for line in answered.split(b"\r\n") if line.startswith(b"content-length"))
    (answer,) = parse_answers(answered + await reader.readexactly(length))
    return reader, writer, answer


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", f"Content-Length: {MAX_REST_BYTES + 1}"])
async def test_nothing_is_parsed_of_the_body_of_a_request_that_was_refused_before(
    port: int, framing: str, counted: type[CountingParser]
):
    head = f"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\n{framing}\r\n\r\n".encode()

    reader, writer, answer = await _refused_early(port, head)
    with contextlib.suppress(ConnectionError):
        for part in endless(b"", b"1000\r\n" + b"a" * 0x1000 + b"\r\n", MAX_DROPPED_BYTES // 2):
            writer.write(part)
            await writer.drain()
    rest = await asyncio.wait_for(reader.read(), ENOUGH_SECONDS)
    writer.close()

    assert (answer.status, answer.headers["connection"], rest) == (401, "close", b"")
    assert counted.taken == len(head)


async def test_a_client_that_reads_only_when_it_has_sent_all_still_reads_its_refusal(port: int):
    head = f"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nContent-Length: {MAX_DROPPED_BYTES // 2}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in (head, *endless(b"", b"a", MAX_DROPPED_BYTES // 2)):
        writer.write(part)
        await writer.drain()

    assert_refused(await asyncio.wait_for(reader.read(), ENOUGH_SECONDS), 401, "Unauthorized")
    writer.close()


async def _send_all(writer: asyncio.StreamWriter, parts: Iterable[bytes], pause_seconds: float = 0) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause_seconds)
            await writer.drain()


async def test_who_never_stops_sending_after_a_refusal_is_cut_off(port: int):
    _, writer, _ = await _refused_early(port, CHUNKED + b"\r\n")

    with pytest.raises(ConnectionError):
        await _send_all(writer, endless(b"", b"a", 4 * MAX_DROPPED_BYTES))


async def test_who_never_goes_after_a_refusal_is_cut_off_in_time(hasty_port: int):
    _, writer, _ = await _refused_early(hasty_port, CHUNKED + b"\r\n")

    with pytest.raises(ConnectionError):
        await _send_all(writer, repeat(b"a"), pause_seconds=0.01)


async def test_a_refused_request_whose_chunks_have_all_come_keeps_its_connection(port: int):
    reader, writer, answer = await _refused_early(port, CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\r\n")
    writer.write(HEAD + b"Connection: close\r\n\r\n")
    (next_answer,) = parse_answers(await asyncio.wait_for(reader.read(), ENOUGH_SECONDS))
    writer.close()

    assert "connection" not in answer.headers
    assert (answer.status, next_answer.status) == (401, 200)


# ---- several requests


async def test_a_flood_of_pipelined_requests_is_answered_in_part_and_the_connection_closed(port: int):
    request = HEAD + b"\r\n"

    answers = parse_answers(await exchange(port, request * 2_000))

    assert {answer.status for answer in answers} == {200}
    assert 1 <= len(answers) <= MAX_PIPELINED + 1
    assert [answer.headers.get("connection") for answer in answers] == [None] * (len(answers) - 1) + ["close"]


async def test_a_few_pipelined_requests_are_answered_in_order(port: int):
    requests = [f"GET /{name} HTTP/1.1\r\nHost: cmserver\r\n" for name in ("healthz", "readyz", "nowhere", "healthz")]
    raw = "\r\n".join([*requests[:-1], requests[-1] + "Connection: close\r\n", ""])

    assert [answer.status for answer in parse_answers(await exchange(port, raw.encode()))] == [200, 200, 404, 200]


async def test_what_is_no_http_behind_good_requests_takes_no_answer_from_them(port: int):
    answers = parse_answers(await exchange(port, (HEAD + b"\r\n") * 3 + b"nonsense\r\n\r\n"))

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert answers[-1].headers["connection"] == "close"


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "evil"])
async def test_an_upgrade_is_answered_as_any_request_and_nothing_behind_it_is_read(port: int, protocol: str):
    upgrade = HEAD + f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n".encode()

    (answer,) = parse_answers(await exchange(port, upgrade + HEAD + b"\r\n"))

    assert answer.status == 200
    assert answer.headers["connection"] == "close"


async def test_a_body_behind_an_upgrade_is_not_taken_for_the_next_request(port: int):
    smuggled = b"GET /openapi.json HTTP/1.1\r\nHost: cmserver\r\n\r\n"
    head = f"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nContent-Length: {len(smuggled)}\r\nConnection: Upgrade\r\nUpgrade: evil"

    assert_refused(await exchange(port, head.encode() + b"\r\n\r\n", smuggled), 400, "ValidationError")


async def test_connections_that_are_closed_with_answers_outstanding_leave_no_traceback(
    port: int, settings: Settings, caplog: pytest.LogCaptureFixture
):
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: cmserver\r\n\r\n" * MAX_PIPELINED

    with structlog.testing.capture_logs() as logged:
        for _ in range(300 // (server.MAX_CONNECTIONS // 2)):
            crowd = await _open(port, server.MAX_CONNECTIONS // 2)
            for _, writer in crowd:
                writer.write(requests)
            await asyncio.sleep(0.05)
            for _, writer in crowd:
                writer.transport.abort()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/healthz")).status_code == 200

    assert [line for line in logged if line["log_level"] == "error"] == []
    assert [record for record in caplog.records if record.name.startswith("uvicorn") and record.levelname == "ERROR"] == []


# ---- many connections


async def _open(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def test_idle_connections_make_room_for_new_ones(port: int, settings: Settings):
    idle = await _open(port, server.MAX_CONNECTIONS)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(3):
            assert (await client.get("/healthz")).status_code == 200
    closed = await asyncio.wait_for(idle[0][0].read(), ENOUGH_SECONDS)
    for _, writer in idle:
        writer.close()

    assert closed == b""


async def test_a_hundred_agents_behind_one_address_are_all_served(
    app: AsgiFrame, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 110)
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with (
        serving(app, settings) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=ENOUGH_SECONDS) as client,
    ):
        for _ in range(3):
            answers = await asyncio.gather(*(client.get("/healthz") for _ in range(100)))
            assert {answer.status_code for answer in answers} == {200}


async def test_without_an_idle_connection_a_new_one_is_told_so(
    port: int, settings: Settings, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    """Those that are there wait for the rest of a body that a good key has announced."""
    monkeypatch.setattr(wire, "_BODIES_SHARE", 1)  # instead of four keys at four addresses
    head = f"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nX-Api-Key: {cast.alice.key}\r\nContent-Length: 10\r\n"
    busy = await _open(port, server.MAX_CONNECTIONS)
    for reader, writer in busy:
        writer.write(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert await asyncio.wait_for(reader.readline(), ENOUGH_SECONDS) == b"HTTP/1.1 100 Continue\r\n"

    answer = assert_refused(await exchange(port), 503, "Unavailable")
    for _, writer in busy:
        writer.close()

    assert int(answer.headers["retry-after"]) >= 1


class _Idle:
    def __init__(self, address: str, *, has_asked: bool, idle_since: float) -> None:
        self.address = address
        self.has_asked = has_asked
        self.idle_since = idle_since
        self.is_idle = True
        self.transport = self
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_who_has_the_most_connections_loses_them_first():
    crowd = [_Idle("10.0.0.66", has_asked=True, idle_since=number) for number in range(90)]
    others = [_Idle(f"10.0.0.{number}", has_asked=False, idle_since=0) for number in range(10)]
    connections = {*crowd, *others}

    Connections(ConnectionLimits(head_seconds=1, connections=100)).make_room(connections)  # pyright: ignore[reportArgumentType]

    assert [one.idle_since for one in crowd if one.is_closed] == [0, 1, 2, 3, 4]
    assert not any(one.is_closed for one in others)


def test_refusals_are_logged_once_a_minute_with_their_count():
    connections = Connections(ConnectionLimits(head_seconds=1, connections=1))

    with structlog.testing.capture_logs() as logged:
        for _ in range(1000):
            connections.count_refused("HeadersTooLarge", "10.0.0.66")

    assert len(logged) == 1


# ---- what goes on as before


async def test_a_client_that_asks_whether_to_send_its_body_is_told_to(port: int, cast: Cast):
    body = b'{"eventType": "tool_use", "projectId": "orders"}'
    head = f"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nX-Api-Key: {cast.alice.key}\r\nContent-Length: {len(body)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")

    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ENOUGH_SECONDS) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    (answer,) = parse_answers(await asyncio.wait_for(reader.read(), ENOUGH_SECONDS))
    writer.close()

    assert answer.status == 201


async def test_a_connection_is_kept_between_requests_also_after_an_early_refusal(port: int):
    refused = b"POST /v1/events HTTP/1.1\r\nHost: cmserver\r\nContent-Length: 300000\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for head, body in [(HEAD + b"\r\n", b""), (refused, b"a" * 300_000), (HEAD + b"\r\n", b"")]:
        writer.write(head + body)
        answered = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ENOUGH_SECONDS)
        length = next(int(line.partition(b":")[2]) for line in answered.split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
        assert b"connection: close" not in answered
    writer.close()


def test_the_protocol_holds_what_this_version_of_uvicorn_calls():
    """Methods of uvicorn's that are called or overridden; another version may do without them, and the limits with it."""
    for name in ("_start_asgi_task", "on_response_complete", "on_headers_complete", "_unset_keepalive_if_required"):
        assert hasattr(httptools_impl.HttpToolsProtocol, name)
    assert issubclass(GuardedProtocol, httptools_impl.HttpToolsProtocol)
