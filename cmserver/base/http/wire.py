"""A handler is three moves: read, do, answer. This is read and answer, and the one table from refusals to HTTP."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.db import Db
from cmserver.base.errors import (
    CmserverError,
    Conflict,
    Forbidden,
    Invalid,
    Issue,
    Misdirected,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RequestTimeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from cmserver.base.redaction.clean import decode_json
from cmserver.base.text import WHY_UNSTORABLE, in_words

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


Authenticate = Callable[[str | None, str], Awaitable[object]]
"""From the key's text and the scope that is needed ("" for none in particular) to whoever is asking."""
C = TypeVar("C")

STATUS: dict[type[CmserverError], tuple[int, str]] = {
    Invalid: (400, "ValidationError"),
    Unauthenticated: (401, "Unauthorized"),
    QuotaExceeded: (402, "quota_exceeded"),
    Forbidden: (403, "Forbidden"),
    NotFound: (404, "NotFound"),
    RequestTimeout: (408, "RequestTimeout"),
    Conflict: (409, "Conflict"),
    TooLarge: (413, "PayloadTooLarge"),
    Misdirected: (421, "MisdirectedRequest"),
    RateLimited: (429, "rate_limited"),
    Unavailable: (503, "Unavailable"),
}
"""What each refusal is in HTTP: status, and the name under `error`."""

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<how>contains unknown|missing required) field `(?P<name>[^`]*)`$")
_WITHOUT_NAME = {"contains unknown": "Unknown field", "missing required": "Missing field"}
_ENCODER = msgspec.json.Encoder()


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(_ENCODER.encode(value), status, headers, media_type="application/json")


async def body(request: Request) -> bytes:
    """The whole body.

    TooLarge as soon as it is known to be over the limit (`app.state.body_max_bytes`); RequestTimeout when it is not there in time
    (`app.state.body_timeout_seconds`).
    """
    seconds = cast("float", request.app.state.body_timeout_seconds)
    try:
        async with asyncio.timeout(seconds):
            return await _body(request)
    except TimeoutError as error:
        message = f"The body did not come within {seconds:g} s, the limit of this server (CMSERVER_BODY_TIMEOUT_SECONDS)."
        raise RequestTimeout(message) from error


async def _body(request: Request) -> bytes:
    limit = cast("int", request.app.state.body_max_bytes)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge(_too_large(limit))
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(_too_large(limit))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes, the limit of this server (CMSERVER_BODY_MAX_BYTES)."


async def read(request: Request, type_: type[T]) -> T:
    """The body (none is `{}`) as a wire Struct; Invalid with the path of the wrong field."""
    return convert(decode_json(await body(request) or b"{}"), type_)


def convert(value: object, type_: type[T], *, at: str = "$") -> T:
    """A decoded JSON value as a wire Struct. `at` is where it stands in the body."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise invalid(error, at=at) from error
    except UnicodeEncodeError as error:  # msgspec reads an unknown name or an id as UTF-8 before it judges it
        path = _path_of(error.object, value, at)
        raise Invalid(f"{WHY_UNSTORABLE} at {path}.", [Issue(path, WHY_UNSTORABLE)]) from error


def batch(raw: bytes, type_: type[T], *, most: int, of: str) -> list[T]:
    """The items of a JSON array as wire Structs; Invalid with the path of the wrong field. `of` says in a word what they are."""
    items = decode_json(raw)
    if not isinstance(items, list) or not 1 <= len(cast("list[object]", items)) <= most:
        raise Invalid.at("$", f"A batch is a JSON array of 1 to {most} {of}.")
    return [convert(item, type_, at=f"$[{place}]") for place, item in enumerate(cast("list[object]", items))]


def _path_of(text: str, value: object, at: str) -> str:
    members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return next((f"{at}.{name}" for name, inner in members.items() if inner == text), at)


def query(request: Request, type_: type[T]) -> T:
    """The query string as a wire Struct (numbers and booleans are read from text)."""
    given = dict(request.query_params) if request.scope["query_string"] else {}
    try:
        return msgspec.convert(given, type_, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from error


def invalid(error: msgspec.ValidationError, *, at: str = "$") -> Invalid:
    """Msgspec's sentence as ours, with the field's path apart."""
    match = cast("re.Match[str]", _WHERE.match(str(error)))
    path = at + (match["path"] or "$")[1:]
    what = in_words(match["what"])
    if field := _FIELD.search(what):
        path, what = f"{path}.{field['name']}", _WITHOUT_NAME[field["how"]]
    return Invalid(f"{what} at {path}.", [Issue(path, what)])


def refusal(error: CmserverError, request_id: str | None) -> Response:
    """The response to a refusal."""
    status, name = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), (500, "InternalError"))
    told: dict[str, object] = {"error": name, "message": str(error)}
    if isinstance(error, Invalid) or (isinstance(error, NotFound) and error.issues):
        told["issues"] = error.issues
    if request_id:
        told["requestId"] = request_id
    headers: dict[str, str] = {}
    if isinstance(error, (RateLimited, Unavailable)):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, RateLimited):
        headers["X-RateLimit-Limit"] = str(error.limit)
        headers["X-RateLimit-Remaining"] = "0"
        headers["X-RateLimit-Reset"] = str(math.ceil(time.time() + error.full_after_seconds))
    if isinstance(error, RequestTimeout):
        headers["Connection"] = "close"  # what may still come of the body is not the next request
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return answer(told, status, headers)


def key_text(request: Request) -> str | None:
    """The API key as it was sent: `Authorization: Bearer <key>`, or else `X-Api-Key: <key>`."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text.strip():
        return text.strip()
    return request.headers.get("x-api-key", "").strip() or None


async def caller(request: Request, type_: type[C]) -> C:
    """Who sent the request, as far as its operation's scope needs to know (`app.state.authenticate`).

    Unauthenticated, Forbidden or RateLimited when it may not go on.
    """
    authenticate = cast("Authenticate", request.app.state.authenticate)
    who = await authenticate(key_text(request), cast("str | None", request.scope["needs"]) or "")
    if not isinstance(who, type_):
        raise TypeError(f"app.state.authenticate gave a {type(who).__name__}, not a {type_.__name__}")
    return who


def wants_text(request: Request) -> bool:
    """Whether whoever asks takes plain text, and not JSON, for an answer."""
    accepted = request.headers.get("accept", "")
    return "text/plain" in accepted and "application/json" not in accepted


def db(request: Request) -> Db:
    """The app's `Db` (`app.state.db`)."""
    return cast("Db", request.app.state.db)
