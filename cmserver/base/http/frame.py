"""Gives every request an id and every answer security headers, and turns errors into answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache

import structlog
from prometheus_client import Counter, Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from cmserver.base import tracing
from cmserver.base.errors import CmserverError
from cmserver.base.http.wire import Dependencies, answer, refusal
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.metrics import metrics

log = get_logger(__name__)

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
"""Headers of every answer; a route may give another value (pages do)."""
PATH_NOT_FOUND = "Path not found."
_NOT_FOUND = ("NotFound", PATH_NOT_FOUND)
_NOT_ALLOWED = ("MethodNotAllowed", "This path does not allow that method.")


class AsgiFrame:
    """The ASGI application. It calls Starlette's router directly, so that errors are answered here only."""

    def __init__(self, app: Starlette, dependencies: Dependencies, *, redact: Callable[[str], str]) -> None:
        self._app = app
        self._redact = redact
        self.dependencies = dependencies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither websockets nor lifespan events
        scope["app"] = self._app
        scope["dependencies"] = self.dependencies
        request_id_header = next(
            (value for name, value in scope["headers"] if name == b"x-request-id" and self._is_id(value)), None
        )
        request_id = request_id_header or str(new_id()).encode()
        started, status = False, 0
        began = time.perf_counter()

        async def send_framed(message: Message) -> None:
            nonlocal started, status
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                headers = list(message.get("headers", ()))
                own_names = {name for name, _ in headers}
                missing = [header for header in HEADERS if header[0] not in own_names]
                message["headers"] = [*headers, *missing, (b"x-request-id", request_id)]
            await send(message)

        # Not unbound afterwards: the server runs each request in a task, and so in a context, of its own.
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        spans = tracing.factory
        span = spans.begin_request(request_id.decode(), scope["headers"]) if spans else None
        response: Response | None = None
        try:
            await self._app.router(scope, receive, send_framed)
        except CmserverError as error:
            response = refusal(error, request_id.decode())
        except HTTPException as error:
            name, message = _NOT_FOUND if error.status_code == 404 else _NOT_ALLOWED
            content = {"error": name, "message": message, "requestId": request_id.decode()}
            headers = {"Allow": ", ".join(self._methods(scope))} if error.status_code == 405 else dict(error.headers or {})
            response = answer(content, error.status_code, headers)
        except ClientDisconnect:
            log.debug("request.abandoned", path=self._redact(scope["path"]))
        except Exception:
            log.exception("request.failed", method=scope["method"], path=self._redact(scope["path"]))
            response = refusal(CmserverError("Internal error."), request_id.decode())
        if response is not None and not started:
            await response(scope, receive, send_framed)
        route = scope.get("route")
        # All paths that no route has count as one, and so do unknown methods.
        method, path = (scope["method"], route.path) if isinstance(route, Route) else ("-", "-")
        responses, request_seconds = _find_counters(method, path, status)
        responses.inc()
        request_seconds.observe(time.perf_counter() - began)
        if spans and span:
            spans.end_request(span, method, path, status)

    def _is_id(self, value: bytes) -> bool:
        """Whether a client's request id is safe to log and to store: short, ASCII, and no secret."""
        return _ID.fullmatch(value) is not None and self._redact(text := value.decode()) == text

    def _methods(self, scope: Scope) -> list[str]:
        """The methods of a path. Each is a route of its own, and the router reports only the first."""
        routes = [route for route in self._app.routes if isinstance(route, Route)]
        path = next(route.path for route in routes if route.matches(dict(scope))[0] is not Match.NONE)
        return sorted({method for route in routes if route.path == path for method in route.methods or ()})


@cache
def _find_counters(method: str, path: str, status: int) -> tuple[Counter, Histogram]:
    """Return the counter and the histogram with these labels: to look them up costs more than to count."""
    return metrics().responses.labels(method, path, str(status)), metrics().request_seconds.labels(method, path)
