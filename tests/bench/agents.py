"""Sessions of agents that ask what is remembered: by the Model Context Protocol in the wire forms of both of its eras, and by REST.

Written out by hand, since a client library would cost the machine more than the server that is measured on it.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Literal, Protocol
from urllib.parse import urlencode

import msgspec

from tests.timeouts import ENOUGH_SECONDS

Arguments = Mapping[str, object]
Verb = Literal["observation_search", "observation_timeline", "observation_get", "observation_context", "tools/list"]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ROUND: tuple[Verb, ...] = (
    "tools/list",
    "observation_search",
    "observation_timeline",
    "observation_get",
    "observation_search",
    "observation_get",
    "observation_context",
    "observation_search",
    "observation_timeline",
    "observation_get",
)
"""What an agent asks, one after the other."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_PATIENCE_SECONDS = 2 * ENOUGH_SECONDS
_IDLE_SECONDS = 4.0
"""The server closes what nobody has used for five."""
_numbers = count(1)


class Reply(msgspec.Struct, frozen=True):
    """Of an HTTP request."""

    status: int
    body: bytes


class Result(msgspec.Struct, rename="camel", frozen=True):
    """As much of a result of the protocol as says whether it is one."""

    is_error: bool = False


class Message(msgspec.Struct, frozen=True):
    """As much of a message of the protocol as says whether it is an answer."""

    result: Result


class Door(Protocol):
    """How the same is asked by one protocol."""

    def opening(self) -> Sequence[bytes]:
        """What a client sends before its first question."""
        ...

    def question(self, verb: Verb, arguments: Arguments) -> bytes:
        """As it goes over the connection."""
        ...

    def refusal(self, answer: Reply) -> str | None:
        """What is wrong with an answer to it; None when it is as it should be."""
        ...


class Mcp:
    """The Model Context Protocol, in the older era or in that of 2026-07-28."""

    def __init__(self, key: str, version: str = MODERN) -> None:
        self.version = version
        self._head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"

    def opening(self) -> Sequence[bytes]:
        if self.version == MODERN:
            return [self.message("server/discover", {})]
        who = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        return [self.message("initialize", who), self.message("notifications/initialized", None)]

    def question(self, verb: Verb, arguments: Arguments) -> bytes:
        return self.message(verb, {}) if verb == "tools/list" else self.call(verb, arguments)

    def call(self, tool: str, arguments: Arguments) -> bytes:
        return self.message("tools/call", {"name": tool, "arguments": arguments})

    def message(self, method: str, params: Arguments | None) -> bytes:
        """With None it is a notification."""
        said: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        headers = {"MCP-Protocol-Version": self.version}
        if params is not None:
            said |= {"id": next(_numbers), "params": params}
        if self.version == MODERN:
            headers |= {"Mcp-Method": method} | ({"Mcp-Name": str(params["name"])} if params and "name" in params else {})
            said["params"] = {**(params or {}), "_meta": _ENVELOPE}
        return _request(self._head, msgspec.json.encode(said), headers)

    def refusal(self, answer: Reply) -> str | None:
        if answer.status == 202:
            return None
        try:
            is_error = answer.status != 200 or msgspec.json.decode(answer.body, type=Message).result.is_error
        except msgspec.DecodeError:
            is_error = True
        return f"{answer.status} {answer.body[:300]!r}" if is_error else None


_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_PATHS: dict[Verb, str] = {
    "observation_search": "/v1/search",
    "observation_timeline": "/v1/timeline",
    "observation_get": "/v1/observations/batch",
}


class Rest:
    """The same verbs by paths. There is no list of tools; it searches instead."""

    def __init__(self, key: str) -> None:
        self._head = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"

    def opening(self) -> Sequence[bytes]:
        return []

    def question(self, verb: Verb, arguments: Arguments) -> bytes:
        if verb == "observation_context":
            query = urlencode({"project": arguments["projectId"], "format": "text"})
            return f"GET /v1/context?{query} {self._head}\r\n".encode()
        index = {"format": "index"} if verb == "observation_search" else {}
        return _request(f"POST {_PATHS[verb]} {self._head}", msgspec.json.encode({**arguments, **index}), {})

    def refusal(self, answer: Reply) -> str | None:
        return None if answer.status == 200 else f"{answer.status} {answer.body[:300]!r}"


def _request(head: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    given = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **headers,
    }
    return "".join([head, *(f"{name}: {value}\r\n" for name, value in given.items()), "\r\n"]).encode() + body


class Connection:
    """One that is kept alive between questions, and opened anew before the server would close it, as client libraries do."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._used = 0.0
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Reply:
        """ConnectionError or EOFError when there is no whole answer."""
        await self.send(request)
        return await self.answer()

    async def send(self, request: bytes) -> None:
        is_stale = time.monotonic() - self._used > _IDLE_SECONDS
        if self._open is None or is_stale or self._open[0].at_eof() or self._open[1].is_closing():
            self.close()
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        self._used = time.monotonic()
        self._open[1].write(request)
        await self._open[1].drain()

    async def answer(self) -> Reply:
        assert self._open
        reader, _ = self._open
        async with asyncio.timeout(_PATIENCE_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
        self._used = time.monotonic()
        return Reply(int(head[9:12]), body)

    def close(self) -> None:
        if self._open:
            self._open[1].transport.abort()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to ask for."""

    project: str
    queries: Sequence[str]
    numbers: Sequence[int]

    def arguments(self, verb: Verb, rng: random.Random) -> Arguments:
        """Other ones each time."""
        if verb == "observation_search":
            return {"query": rng.choice(self.queries), "projectId": self.project}
        if verb == "observation_timeline":
            return {"anchor": rng.choice(self.numbers)}
        if verb == "observation_get":
            return {"ids": rng.sample(self.numbers, 3)}
        return {"projectId": self.project} if verb == "observation_context" else {}


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the questions: milliseconds by verb, what went wrong, and how long all of it took."""

    milliseconds: dict[str, list[float]]
    errors: list[str]
    seconds: float

    @property
    def all_ms(self) -> list[float]:
        return [each for one in self.milliseconds.values() for each in one]


class Session:
    """One agent's: it asks, waits for the answer, thinks, and asks again."""

    def __init__(self, door: Door, port: int, known: Known, seed: int) -> None:
        self._door, self._known = door, known
        self._connection = Connection(port)
        self._rng = random.Random(seed)  # the same questions in each run
        self._is_open = False

    async def ask(self, verbs: Iterable[Verb], think_seconds: float, taken: dict[str, list[float]], errors: list[str]) -> None:
        await asyncio.sleep(self._rng.uniform(0, think_seconds))
        if not self._is_open:
            self._is_open = True
            for request in self._door.opening():
                await self._one("opening", request, taken, errors)
        for verb in verbs:
            named: Verb = "observation_search" if isinstance(self._door, Rest) and verb == "tools/list" else verb
            await self._one(named, self._door.question(named, self._known.arguments(named, self._rng)), taken, errors)
            if think_seconds:
                await asyncio.sleep(self._rng.uniform(0.5, 1.5) * think_seconds)

    async def _one(self, named: str, request: bytes, taken: dict[str, list[float]], errors: list[str]) -> None:
        began = time.perf_counter()
        try:
            refusal = self._door.refusal(await self._connection.ask(request))
        except (OSError, EOFError, TimeoutError) as error:
            refusal = repr(error)
        taken[named].append((time.perf_counter() - began) * 1000)
        if refusal is not None:
            errors.append(f"{named}: {refusal}")

    def close(self) -> None:
        self._connection.close()


@asynccontextmanager
async def sessions(doors: Sequence[Door], port: int, known: Known) -> AsyncGenerator[list[Session]]:
    """One for each door."""
    async with AsyncExitStack() as stack:
        opened = [Session(door, port, known, seed) for seed, door in enumerate(doors)]
        for one in opened:
            stack.callback(one.close)
        yield opened


async def load(agents: Sequence[Session], verbs: Sequence[Verb], think_seconds: float) -> Taken:
    """All of them at once, each beginning with another of the verbs; each thinks half as long to half as long again after an
    answer.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    turned: list[list[Verb]] = [[*verbs[place:], *verbs[:place]] for place in range(len(verbs))]
    began = time.perf_counter()
    await asyncio.gather(*(one.ask(turned[n % len(turned)], think_seconds, taken, errors) for n, one in enumerate(agents)))
    return Taken(milliseconds=dict(taken), errors=errors, seconds=time.perf_counter() - began)
