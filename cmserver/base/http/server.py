"""Makes the uvicorn server, with limits on its connections that hold before authentication.

uvicorn limits neither the size of headers, nor the number of pipelined requests, nor the time that a slow request takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Generator
from functools import partial
from typing import Any, cast

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from cmserver.base.errors import CmserverError, HeadersTooLarge, Invalid, RequestTimeout, Unavailable
from cmserver.base.http.frame import HEADERS, AsgiFrame
from cmserver.base.http.wire import BODY_SECONDS, MAX_CONNECTIONS, refusal
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings

log = get_logger(__name__)

HEAD_MAX_BYTES = 65_536
"""Request line and headers together; also a chunk's size line, and trailers."""
MAX_HEADERS = 256
MAX_PIPELINED = 16
"""Waiting requests of a connection. With more it is closed, as RFC 9112 (9.3.2) allows."""
_LINGER_SECONDS = 1.0
"""How long input is dropped after a refusal: closing a socket with unread input would discard the refusal."""
MAX_REST_BYTES = 1_048_576
"""After an early answer an announced body of up to this size is read, so that the connection can be reused."""
MAX_DROPPED_BYTES = 16_777_216
"""Input that is dropped while the client reads the last answer. With more the connection is closed at once."""
FEW_CHUNKS = 256
MIN_CHUNK_BYTES = 32
"""Minimum average of a body's chunks when there are more than FEW_CHUNKS: small chunks are expensive to parse."""
_LARGE_SEGMENT_BYTES = 65_536
"""After a segment of this size other connections are served; the event loop would otherwise read 32 of them first."""
_LOG_INTERVAL_SECONDS = 60.0
_EVICTED_SHARE = 20
_OTHER_FILES = 256
"""Files that the process has open besides its HTTP connections: the database's, logs, models."""

_NOT_HTTP = "The request is not valid HTTP/1.1."
_TINY_CHUNKS = f"The body has more than {FEW_CHUNKS} chunks of less than {MIN_CHUNK_BYTES} bytes on average. Send larger chunks."
_ONE_HOST = "The request must have one header Host."
_NO_UPGRADE = "Connections cannot be upgraded. Send the request without the header Upgrade."


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: one SIGTERM stops API, worker and database in the right order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def make_server(app: AsgiFrame, settings: Settings) -> uvicorn.Server:
    """The HTTP server of the application, which the caller gives a socket and stops."""
    limits = ConnectionLimits(head_seconds=BODY_SECONDS, connections=_possible_connections(MAX_CONNECTIONS))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=cast("Any", Connections(limits).protocol),
        ws="none",
        proxy_headers=False,
        server_header=False,
        # Agents pause for longer than the usual five seconds; a request sent while its connection is closed would be lost.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
    )
    return _Server(config)


def _possible_connections(max_connections: int) -> int:
    """`max_connections`, or as many as the limit of open files allows after it was raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return max_connections
    possible = max(soft - _OTHER_FILES, soft // 2)
    log.warning("connections.limited", wanted=max_connections, possible=possible, open_files=soft)
    return possible


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for connections."""

    head_seconds: float
    """Time to receive the head of a request, or the rest of a body after its answer."""
    connections: int
    """Maximum number of open connections."""


class Connections:
    """The limits that the connections of a server share, and the counts of those it refused."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._refused_counts: Counter[str] = Counter()
        self._logged_at = -_LOG_INTERVAL_SECONDS

    def protocol(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> GuardedProtocol:
        """Create the protocol of a connection, for `uvicorn.Config(http=...)`."""
        return GuardedProtocol(self, config, server_state, app_state, _loop)

    def count_refused(self, reason: str, address: str | None) -> None:
        """Count a connection that was refused or closed early; logs at most once a minute."""
        self._refused_counts[reason] += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("connections.refused", counts=dict(self._refused_counts), last_address=address)
            self._refused_counts.clear()

    def make_room(self, connections: set[GuardedProtocol]) -> None:
        """Close idle connections, first those of the address that has most of them."""
        idle = [connection for connection in connections if connection.is_idle]
        idle_count = Counter(connection.address for connection in idle)
        idle.sort(key=lambda connection: (-idle_count[connection.address], connection.has_asked, connection.idle_since))
        for connection in idle[: max(1, len(connections) // _EVICTED_SHARE)]:
            self.count_refused("closed to make room", connection.address)
            connection.transport.close()
            connections.discard(connection)


class _StopParsingError(Exception):
    """Stops the parser in the middle of a segment."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size of a request's head, on chunks, and on time."""

    def __init__(
        self,
        shared: Connections,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shared = shared
        self._pending_bytes = 0
        """Bytes that the parser has read since it last reported progress."""
        self._has_progress = False
        """Whether the current segment completed headers, a piece of a body, or a request."""
        self._segment_bytes = 0
        self._body_incomplete = False
        """Whether the last request's body is still being received."""
        self._chunk_count = 0
        self._chunk_bytes = 0
        self._dropped_bytes = 0
        self._is_last_answer = False
        """Whether the answer that is being sent has `Connection: close`."""
        self._active: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last one received."""
        self._refusal: CmserverError | None = None
        self._stopped = False
        """Whether further input is dropped."""
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = self.loop.time()

    # -- state

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None

    @property
    def has_asked(self) -> bool:
        """Whether any request was received."""
        return self._active is not None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, or the client does not read the answer."""
        return self._active is None or self._active.response_complete or self.flow.write_paused

    # -- events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connections = cast("set[GuardedProtocol]", self.connections)
        if len(connections) > self._shared.limits.connections:
            connections.discard(self)
            self._shared.make_room(connections)
            if len(connections) >= self._shared.limits.connections:
                self._refuse(Unavailable("The server has reached its limit of connections. Try again in a moment."))
                self.transport.close()
                return
            connections.add(self)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stopped = True
        self._cancel_deadline()
        self._unset_keepalive_if_required()
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in [self._active, *waiting]:  # uvicorn informs only the last one
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._stopped:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > MAX_DROPPED_BYTES:
                self.transport.close()
            return
        if len(data) >= _LARGE_SEGMENT_BYTES:
            self.transport.pause_reading()
            self.loop.call_soon(self._resume_reading)
        self._unset_keepalive_if_required()
        self._has_progress = False
        self._segment_bytes = len(data)
        assert self.parser is not None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._answer_and_close()  # the rest of the segment is not HTTP
            return
        except httptools.HttpParserError:
            self._stop(self._refusal or Invalid(_NOT_HTTP))
            return
        if self._has_progress:
            self._pending_bytes = 0
        else:
            self._pending_bytes += len(data)
            if self._pending_bytes > HEAD_MAX_BYTES:
                self._stop(_head_too_large())
                return
        if self._is_answering():
            if self._deadline is not None:
                self._cancel_deadline()
        else:
            self._await_input()

    def _resume_reading(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _await_input(self) -> None:
        """Start the keep-alive timer between requests, else the deadline of the request that has begun."""
        if not self._pending_bytes and not self._body_incomplete:
            self._cancel_deadline()
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._shared.limits.head_seconds, self._refuse_late_request)

    def _refuse_late_request(self) -> None:
        self._deadline = None
        if self.transport.is_closing() or self._is_answering():
            return
        seconds = self._shared.limits.head_seconds
        self._stop(RequestTimeout(f"The request took longer than {seconds:g} s, the limit of this server."))

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- events of the parser

    def on_headers_complete(self) -> None:
        self._has_progress = True
        if self._pending_bytes + self._segment_bytes > HEAD_MAX_BYTES and self._head_bytes() > HEAD_MAX_BYTES:
            self._abort_parsing(_head_too_large())
        if len(self.headers) > MAX_HEADERS:
            self._abort_parsing(HeadersTooLarge(f"The request has more than {MAX_HEADERS} headers, the limit of this server."))
        if len(self.pipeline) >= MAX_PIPELINED:
            # Never sent: the earlier requests are answered, then the connection is closed.
            self._abort_parsing(Invalid(_NOT_HTTP))
        assert self.parser is not None
        hosts = [name for name, _ in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._abort_parsing(Invalid(_ONE_HOST))  # RFC 9112, 3.2: proxies differ in which of two they read
        upgrades = self.parser.should_upgrade()
        if upgrades and any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in self.headers
        ):
            self._abort_parsing(Invalid(_NO_UPGRADE))  # the parser would read the body as the next request
        super().on_headers_complete()
        if upgrades:
            self.cycle.keep_alive = False
        self.headers = []  # trailers must not become headers of the next request
        self._body_incomplete = True
        self._chunk_count = self._chunk_bytes = 0

    def on_chunk_header(self) -> None:
        self._chunk_count += 1
        if self._chunk_count > FEW_CHUNKS and self._chunk_bytes < self._chunk_count * MIN_CHUNK_BYTES:
            self._abort_parsing(Invalid(_TINY_CHUNKS))

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        self._chunk_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_progress = True
        self._body_incomplete = False
        super().on_message_complete()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _abort_parsing(self, error: CmserverError) -> None:
        self._refusal = error
        raise _StopParsingError

    # -- answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, cast("Any", partial(self._answer, cycle, app)))

    async def _answer(self, cycle: RequestResponseCycle, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, partial(self._send, cycle) if self._has_incomplete_body(cycle) else send)

    async def _send(self, cycle: RequestResponseCycle, message: Any) -> None:
        """Send an answer that may precede the end of the request's body. A large or endless rest of the body is dropped."""
        starts = message["type"] == "http.response.start" and self._has_incomplete_body(cycle)
        if not starts or (cycle.keep_alive and _has_short_body(cycle)):
            await cycle.send(message)
            return
        self._stopped = self._is_last_answer = True
        self._cancel_deadline()
        self.flow.resume_reading()
        kept_headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
        message["headers"] = [*kept_headers, CLOSE_HEADER]
        await cycle.send(message)
        cycle.keep_alive = True  # not closed at once: see on_response_complete

    def _has_incomplete_body(self, cycle: RequestResponseCycle) -> bool:
        """Whether the request's body is still being received."""
        return self._body_incomplete and self.cycle is cycle

    def on_response_complete(self) -> None:
        self.idle_since = self.loop.time()
        if self._is_last_answer:
            self.server_state.total_requests += 1
            self._linger(self._shared.limits.head_seconds)
            return
        super().on_response_complete()
        if self._body_incomplete and not self._stopped and not self._is_answering() and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._await_input()

    def _is_answering(self) -> bool:
        return self._active is not None and not self._active.response_complete

    # -- closing

    def _stop(self, error: CmserverError) -> None:
        """Drop further input. Complete requests are still answered; an incomplete one is refused when it is its turn."""
        if not self._is_answering():
            if self._body_incomplete:  # its answer has been sent
                self._count(error)
                self.transport.close()
            else:
                self._refuse(error)
            return
        if self._body_incomplete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle is self._active:
                if self.cycle.response_started:
                    self._count(error)
                    self.transport.close()
                else:
                    self._refuse(error)
                return
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else cast("RequestResponseCycle", self._active)
        self._count(error)
        self._answer_and_close()

    def _answer_and_close(self) -> None:
        self._stopped = True
        self._cancel_deadline()
        self.flow.resume_reading()  # input is dropped: closing a socket with unread input would discard the last answers
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    def _refuse(self, error: CmserverError) -> None:
        """Write the refusal, and close when the client has had time to read it."""
        self._stopped = True
        self._count(error)
        self._cancel_deadline()
        self._unset_keepalive_if_required()
        request_id = str(new_id())
        response = refusal(error, request_id)
        headers = [*self.server_state.default_headers, *response.raw_headers, *HEADERS, (b"x-request-id", request_id.encode())]
        lines = [name + b": " + value + b"\r\n" for name, value in headers if name != b"connection"]
        self.transport.write(
            b"".join([STATUS_LINE[response.status_code], *lines, b"connection: close\r\n\r\n", bytes(response.body)])
        )
        self._linger(_LINGER_SECONDS)

    def _linger(self, seconds: float) -> None:
        """Drop input for some seconds, so that the client can read the last answer, then close."""
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._deadline = self.loop.call_later(seconds, self.transport.close)

    def _count(self, error: CmserverError) -> None:
        self._shared.count_refused(type(error).__name__, self.address)


def _has_short_body(cycle: RequestResponseCycle) -> bool:
    announced = next((value for name, value in cycle.scope["headers"] if name == b"content-length"), None)
    return announced is not None and int(announced) <= MAX_REST_BYTES


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The request line and headers are larger than {HEAD_MAX_BYTES:,} bytes, the limit of this server. Send fewer headers."
    )
