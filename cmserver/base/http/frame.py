"""The frame around every request: its id, the security headers, and what becomes of an error nobody expected."""

from __future__ import annotations

import re

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from cmserver.base.errors import CmserverError
from cmserver.base.http.wire import answer, refusal
from cmserver.base.ids import new_id

log = structlog.get_logger()

_ID = re.compile(rb"^[\x21-\x7e]{1,128}$")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_NOT_FOUND = ("NotFound", "There is no such path.")
_NOT_ALLOWED = ("MethodNotAllowed", "This path does not take that method.")


class Frame:
    """Pure ASGI: on the way of every event, so it does little. Calls the application's router itself, past Starlette's own
    error handling, so that there is one table of errors and one place that writes them.
    """

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self.state = app.state
        """What requests share, for whoever runs the server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets here, and whoever runs the server opens and closes what it needs
        scope["app"] = self._app
        given = next((value for name, value in scope["headers"] if name == b"x-request-id" and _ID.match(value)), None)
        request_id = given or str(new_id()).encode()
        started = False

        async def send_framed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS, (b"x-request-id", request_id)]
            await send(message)

        # Not unbound afterwards: the server runs each request in a task, and so in a context, of its own.
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        try:
            await self._app.router(scope, receive, send_framed)
        except CmserverError as error:
            await _last_word(refusal(error, request_id.decode()), scope, receive, send_framed, started=started)
        except HTTPException as error:
            name, message = _NOT_FOUND if error.status_code == 404 else _NOT_ALLOWED
            told = {"error": name, "message": message, "requestId": request_id.decode()}
            headers = {"Allow": ", ".join(self._methods(scope))} if error.status_code == 405 else dict(error.headers or {})
            response = answer(told, error.status_code, headers)
            await _last_word(response, scope, receive, send_framed, started=started)
        except ClientDisconnect:
            log.debug("request.abandoned", path=scope["path"])
        except Exception:
            log.exception("request.failed", method=scope["method"], path=scope["path"])
            told = {"error": "InternalError", "message": "Internal error.", "requestId": request_id.decode()}
            await _last_word(answer(told, 500), scope, receive, send_framed, started=started)

    def _methods(self, scope: Scope) -> list[str]:
        """What the path takes. Each method is a route of its own, and the router tells only the first one's."""
        routes = [route for route in self._app.routes if isinstance(route, Route)]
        path = next(route.path for route in routes if route.matches(dict(scope))[0] is not Match.NONE)
        return sorted({method for route in routes if route.path == path for method in route.methods or ()})


async def _last_word(response: Response, scope: Scope, receive: Receive, send: Send, *, started: bool) -> None:
    if not started:
        await response(scope, receive, send)
