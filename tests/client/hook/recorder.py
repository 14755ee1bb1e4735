"""A server that writes down what hooks send it, and answers as it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from tests.timeouts import ENOUGH_SECONDS

JSON = "application/json"


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came in; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b'{"answer":true}'
    content_type: str = JSON
    headers: dict[str, str] = {}


class Recorder:
    """Listens from `start` to `stop`, each time at the same port. While `free` is not set, its answers wait."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._certificate = certificate
        self.sent: list[Sent] = []
        self.reply: Callable[[Sent], Reply] = lambda _: Reply()
        self.free = threading.Event()
        self.free.set()
        self.came = threading.Semaphore(0)
        """Released once for each request."""
        with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as once:
            self.port = once.server_port
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                recorder._serve(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that went away

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self._certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def numbers(self) -> list[object]:
        """What `number` says in the payloads, each delivery once, in the order in which they came first."""
        first = {one.headers["x-cmserver-delivery"]: one.payload["number"] for one in reversed(self.sent)}
        return list(reversed(first.values()))

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(handler.rfile.readline(), 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            body = handler.rfile.read(int(headers.get("content-length", "0")))
        sent = Sent(method=handler.command, path=handler.path, headers=headers, body=body)
        self.sent.append(sent)
        self.came.release()
        self.free.wait(ENOUGH_SECONDS)
        reply = self.reply(sent)
        handler.send_response(reply.status)
        for name, value in {"content-type": reply.content_type, "content-length": str(len(reply.body)), **reply.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(reply.body)
        handler.wfile.flush()
