"""Reads requests, writes answers, and maps errors to HTTP."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache, partial, wraps
from typing import Protocol, TypeVar, cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base import errors
from cmserver.base.allowed_values import list_allowed_values
from cmserver.base.db import Db
from cmserver.base.http.address import Networks, find_client, is_proxy
from cmserver.base.ids import require_id
from cmserver.base.json_text import JsonCutter, TooDeep, decode_json
from cmserver.base.settings import Settings
from cmserver.base.shares import current_share
from cmserver.base.text import FIELD_MOST, WHY_UNSTORABLE, in_words, storable

BODY_MAX_BYTES = 8_388_608
"""Of a body. A hook that wrote a file has been seen at 6.5 MB; what is larger is stored in part anyway."""
BODY_SECONDS = 30.0
"""For a request's head, and then for its body: 8 MiB in that time are 2 Mbit/s."""
MAX_CONNECTIONS = 1_000
"""Of a process: each takes a file, and Linux allows 1,024 where nobody asked for more; 500 live streams leave half for requests."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class Dependencies:
    """The instances that handlers, MCP tools and the server share, one per class. `create_app` provides them."""

    def __init__(self, *instances: object) -> None:
        self._instances = {type(instance): instance for instance in instances}

    def get(self, class_: type[T]) -> T:
        """The instance of exactly this class; LookupError when none is provided."""
        instance = self._instances.get(class_)
        if isinstance(instance, class_):
            return instance
        raise LookupError(f"No {class_.__name__} is provided: pass one to Dependencies in cmserver/app.py.")

    def replace(self, instance: object) -> None:
        """Provide this instance in place of the one of its class; LookupError when there is none."""
        self.get(type(instance))
        self._instances[type(instance)] = instance

    @property
    def classes(self) -> set[type]:
        return set(self._instances)


Authenticate = Callable[[str | None, str, str], Awaitable[object]]
"""The principal for a key's text, the required scope ("" for any) and the client's address."""


class PrivateEntrance(Protocol):
    """The principal of a request for what is private to its sender: a header asks for it, or the name in the path is private.

    `scope` is what the request needs there.
    """

    async def __call__(self, principal: object, *, scope: str, is_asked: bool, name: str) -> object: ...


class Authentication(msgspec.Struct, frozen=True):
    """How the sender of a request is identified, and which proxies may name the client's address."""

    authenticate: Authenticate
    trusted_proxies: Networks
    go_in: PrivateEntrance | None = None


PRIVATE_HEADER = "x-cmserver-private"
"""Whoever sends it (`1`) means what is private to them."""

STATUS: dict[type[errors.CmserverError], tuple[int, str]] = {
    errors.Invalid: (400, "ValidationError"),
    errors.Unauthenticated: (401, "Unauthorized"),
    errors.QuotaExceeded: (402, "quota_exceeded"),
    errors.Forbidden: (403, "Forbidden"),
    errors.NoPerson: (403, "NO_PERSON"),
    errors.NotFound: (404, "NotFound"),
    errors.RequestTimeout: (408, "RequestTimeout"),
    errors.Conflict: (409, "Conflict"),
    errors.Gone: (410, "Gone"),
    errors.TooLarge: (413, "PayloadTooLarge"),
    errors.Misdirected: (421, "MisdirectedRequest"),
    errors.RateLimited: (429, "rate_limited"),
    errors.HeadersTooLarge: (431, "RequestHeaderFieldsTooLarge"),
    errors.Unavailable: (503, "Unavailable"),
    errors.DatabaseExhausted: (503, "DatabaseExhausted"),
    errors.StatementTimeout: (503, "StatementTimeout"),
}
"""HTTP status of each error, and its name under `error`."""

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<how>contains unknown|missing required) field `(?P<name>[^`]*)`$")
_NOT_ALLOWED = "Invalid enum value"
_WITHOUT_NAME = {"contains unknown": "Unknown field", "missing required": "Missing field"}
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,8}")
_ENCODER = msgspec.json.Encoder()
_STRING_BYTES = 12
"""Of a character in JSON, at most."""
_MAX_CUT = 8
"""A body of which values are cut may be so many times as large as others."""
_MEMBERS = 3
"""One value of such a body may have the limit divided by this."""
_CUT_BYTES = 65_536
"""Of a body that is cut in one step."""
_MAX_IGNORED = 20
_MAX_NAME_CHARS = 100
_FIRST_BYTES_SECONDS = 10.0
"""How long a request may announce a body of which nothing comes."""
_TOO_MANY_BODIES = "Too many requests of this key, or from this address, wait for their bodies. Send those first."
_BODIES_SHARE = 4
"""One key, and one address, may have this part of all connections wait for bodies: a quarter."""
_awaited_bodies: Counter[object] = Counter()
"""How many requests wait for their bodies, by key and by address."""
_ignored: ContextVar[list[str] | None] = ContextVar("ignored", default=None)


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response. It ends with a newline, so that a terminal's prompt begins on a line of its own."""
    return Response(_ENCODER.encode(value) + b"\n", status, headers, media_type="application/json")


async def body(request: Request, cutter: JsonCutter | None = None, *, max_bytes: int | None = None) -> bytes:
    """The whole body; one that is too large as the cutter leaves it, if there is one.

    TooLarge as soon as it is known to be larger than `max_bytes` or `BODY_MAX_BYTES`; RequestTimeout when nothing of it comes at
    first, or after `BODY_SECONDS`; Unavailable when a quarter of all connections wait for bodies of this key, or from this
    address.
    """
    seconds = BODY_SECONDS
    first_seconds = min(seconds, _FIRST_BYTES_SECONDS)
    share = current_share()
    senders: list[object] = [client_address(request), *([share.holder] if share else [])]
    if max(_awaited_bodies[sender] for sender in senders) >= max(1, MAX_CONNECTIONS // _BODIES_SHARE):
        raise errors.Unavailable(_TOO_MANY_BODIES)
    _awaited_bodies.update(senders)
    ends_at = asyncio.get_running_loop().time() + seconds
    deadline = asyncio.timeout(first_seconds)
    try:
        async with deadline:
            limit = min(max_bytes or BODY_MAX_BYTES, BODY_MAX_BYTES)
            return await _body(request, limit, cutter, lambda: deadline.reschedule(ends_at))
    except TimeoutError as error:
        message = f"The body took longer than {seconds:g} s, the limit of this server."
        if first_seconds < seconds and deadline.when() != ends_at:
            message = f"Nothing of the body came within {first_seconds:g} s."
        raise errors.RequestTimeout(message) from error
    finally:
        for sender in senders:
            _awaited_bodies[sender] -= 1
            if not _awaited_bodies[sender]:
                del _awaited_bodies[sender]


async def _body(request: Request, limit: int, cutter: JsonCutter | None, on_first: Callable[[], None]) -> bytes:
    """The body; TooLarge as soon as it has more than `limit` bytes, also when it was cut."""
    announced = request.headers.get("content-length", "")
    announced_size = int(announced) if announced.isdigit() else 0
    if announced_size > (_MAX_CUT * limit if cutter else limit):
        raise errors.TooLarge(_too_large(limit))
    if announced_size <= limit:
        cutter = None
    parts: list[bytes] = []
    size = 0
    async for received in request.stream():
        if not parts:
            on_first()
        part = cutter.cut(received) if cutter else received
        size += len(part)
        if size > limit:
            raise errors.TooLarge(_too_large(limit))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes, the limit of this server."


async def read(request: Request, type_: type[T]) -> T:
    """The body (none is `{}`) as a wire Struct; Invalid with the path of the wrong field."""
    return convert(decode_json(await body(request) or b"{}"), type_)


async def read_leniently(request: Request) -> tuple[object, int]:
    """The body as JSON whose sender cannot correct it, and its size: one value that cannot be kept costs that value only."""
    new_cutter = partial(JsonCutter, _STRING_BYTES * FIELD_MOST, BODY_MAX_BYTES // _MEMBERS)
    raw = await body(request, new_cutter())
    try:
        return decode_json(raw, keeps_all=True), len(raw)
    except TooDeep:
        cutter, parts = new_cutter(), list[bytes]()
    for at in range(0, len(raw), _CUT_BYTES):
        parts.append(cutter.cut(raw[at : at + _CUT_BYTES]))
        await asyncio.sleep(0)
    raw = b"".join([*parts, cutter.end()])
    return decode_json(raw, keeps_all=True), len(raw)


async def read_sized(request: Request, type_: type[T]) -> tuple[T, int]:
    """The body as a wire Struct, as `read` has it, and its size in bytes."""
    raw = await body(request)
    return convert(decode_json(raw or b"{}"), type_), len(raw)


def convert(value: object, type_: type[T], *, at: str = "$") -> T:
    """A decoded JSON value as a wire Struct. `at` is its path in the body."""
    try:
        converted = msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise invalid(error, type_, at=at) from error
    except UnicodeEncodeError as error:  # msgspec encodes unknown names and ids before it checks them
        path = _path_of(error.object, value, at)
        raise errors.Invalid(f"{WHY_UNSTORABLE} at {path}.", [errors.Issue(path, WHY_UNSTORABLE)]) from error
    _note_ignored(value, type_, at)
    return converted


def batch(raw: bytes, type_: type[T], *, max_items: int, noun: str) -> list[T]:
    """The items of a JSON array as wire Structs; Invalid with the path of the wrong field. `noun` is their plural."""
    items = decode_json(raw)
    if not isinstance(items, list) or not 1 <= len(cast("list[object]", items)) <= max_items:
        raise errors.Invalid.at("$", f"A batch is a JSON array of 1 to {max_items} {noun}.")
    return [convert(item, type_, at=f"$[{index}]") for index, item in enumerate(cast("list[object]", items))]


def _path_of(text: str, value: object, at: str) -> str:
    members = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return next((f"{at}.{name}" for name, inner in members.items() if inner == text), at)


def query(request: Request, type_: type[T]) -> T:
    """The query string as a wire Struct (numbers and booleans are read from text)."""
    parameters = dict(request.query_params) if request.scope["query_string"] else {}
    try:
        converted = msgspec.convert(parameters, type_, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, type_) from error
    _note_ignored(parameters, type_, "$")
    return converted


def report_ignored(handler: Handler) -> Handler:
    """Wrap a handler: its JSON answer lists unknown fields of the request: `"ignored": ["projct"]`."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        ignored: list[str] = []
        _ignored.set(ignored)  # each request is a task, and so a context, of its own
        response = await handler(request)
        body: object = getattr(response, "body", None)
        if ignored and response.media_type == "application/json" and isinstance(body, bytes) and body.endswith(b"}\n"):
            comma = b"" if body == b"{}\n" else b","
            response.body = b'%b%b"ignored":%b}\n' % (body[:-2], comma, _ENCODER.encode(ignored))
            response.headers["content-length"] = str(len(response.body))
        return response

    return handle


def _note_ignored(value: object, type_: type[object], at: str) -> None:
    """Add the value's fields that the type does not have to the list that `report_ignored` puts into the answer."""
    ignored = _ignored.get()
    if ignored is None or not isinstance(value, dict) or (names := _field_names(type_)) is None:
        return
    unknown = cast("dict[str, object]", value).keys() - names
    prefix = f"{at}."[1:].removeprefix(".")
    ignored += [f"{prefix}{storable(name)[:_MAX_NAME_CHARS]}" for name in sorted(unknown)][: _MAX_IGNORED - len(ignored)]


@cache
def _field_names(type_: type[object]) -> frozenset[str] | None:
    """The names of a Struct's fields in JSON; None for other types."""
    if not hasattr(type_, "__struct_fields__"):
        return None
    return frozenset(field.encode_name for field in msgspec.structs.fields(cast("type[msgspec.Struct]", type_)))


def invalid(error: msgspec.ValidationError, type_: object, *, at: str = "$") -> errors.Invalid:
    """The error of msgspec about a value of that type as Invalid, with the field's path."""
    match = cast("re.Match[str]", _WHERE.match(str(error)))
    path = at + (match["path"] or "$")[1:]
    problem = in_words(match["what"])
    if problem.startswith(_NOT_ALLOWED) and (allowed := list_allowed_values(type_, match["path"] or "$")):
        problem = f"must be one of {', '.join(allowed)}"
        return errors.Invalid(f"{path}: {problem}.", [errors.Issue(path, problem)])
    if field := _FIELD.search(problem):
        path, problem = f"{path}.{field['name']}", _WITHOUT_NAME[field["how"]]
    return errors.Invalid(f"{problem} at {path}.", [errors.Issue(path, problem)])


def refusal(error: errors.CmserverError, request_id: str | None) -> Response:
    """The response to a refusal."""
    status, name = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), (500, "InternalError"))
    content: dict[str, object] = {"error": name, "message": str(error)}
    if isinstance(error, (errors.Invalid, errors.NoPerson)) or (isinstance(error, errors.NotFound) and error.issues):
        content["issues"] = error.issues
    if isinstance(error, errors.Gone):
        content["supersededBy"] = error.superseded_by
    if request_id:
        content["requestId"] = request_id
    headers: dict[str, str] = {}
    if isinstance(error, (errors.RateLimited, errors.Unavailable)):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, errors.RateLimited):
        headers["X-RateLimit-Limit"] = str(error.limit)
        headers["X-RateLimit-Remaining"] = "0"
        headers["X-RateLimit-Reset"] = str(math.ceil(time.time() + error.full_after_seconds))
    if isinstance(error, errors.RequestTimeout):
        headers["Connection"] = "close"  # the rest of the body is not the next request
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return answer(content, status, headers)


def key_text(request: Request) -> str | None:
    """The API key as it was sent: `Authorization: Bearer <key>`, or else `X-Api-Key: <key>`."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text.strip():
        return text.strip()
    return request.headers.get("x-api-key", "").strip() or None


def client_address(request: Request) -> str:
    """The client's address, by the headers of trusted proxies."""
    if "client_address" not in request.scope:
        request.scope["client_address"] = find_client(
            request.client.host if request.client else "",
            request.headers.getlist("x-forwarded-for"),
            request.headers.getlist("forwarded"),
            dependency(request, Authentication).trusted_proxies,
        )
    return str(request.scope["client_address"])


def proxied_user(request: Request) -> str:
    """The name of the person whom a trusted proxy has signed in; empty when none says so."""
    header = dependency(request, Settings).trusted_proxy_user_header
    proxies = dependency(request, Authentication).trusted_proxies
    if not header or not is_proxy(request.client.host if request.client else "", proxies):
        return ""
    names = request.headers.getlist(header)
    return names[0].strip() if len(names) == 1 else ""


def base_path(request: Request) -> str:
    """The path below which a trusted proxy shows this server, by `X-Forwarded-Prefix`: `/memory`; empty for the root."""
    prefixes = request.headers.getlist("x-forwarded-prefix")
    proxies = dependency(request, Authentication).trusted_proxies
    if len(prefixes) != 1 or not is_proxy(request.client.host if request.client else "", proxies):
        return ""
    prefix = prefixes[0].strip().rstrip("/")
    return prefix if _PREFIX.fullmatch(prefix) else ""


def public_url(request: Request) -> str:
    """The server's address as the client sees it, before proxies; without a slash at its end."""
    url = request.base_url.replace(scheme="https") if is_https(request) else request.base_url
    return f"{str(url).rstrip('/')}{base_path(request)}"


def is_https(request: Request) -> bool:
    """Whether the client speaks https, also to a proxy before this server."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)


def path_id(request: Request, no_such: str, parameter: str = "id") -> UUID:
    """The id in the path; NotFound with that sentence where it is none."""
    return require_id(str(request.path_params[parameter]), no_such)


async def caller(request: Request, type_: type[T]) -> T:
    """The principal that sent the request. Raises Unauthenticated, Forbidden or RateLimited."""
    authentication = dependency(request, Authentication)
    principal = await authentication.authenticate(key_text(request), required_scope(request), client_address(request))
    is_asked = request.headers.get(PRIVATE_HEADER, "").strip().lower() in {"1", "true"}
    name = str(request.path_params.get("id", ""))
    if authentication.go_in is not None and (is_asked or name):
        principal = await authentication.go_in(principal, scope=required_scope(request), is_asked=is_asked, name=name)
    if not isinstance(principal, type_):
        raise TypeError(f"Authentication returned a {type(principal).__name__}, not a {type_.__name__}")
    return principal


def required_scope(request: Request) -> str:
    """The scope of the request's operation; "" for any key."""
    scope: str | None = request.scope["needs"]
    return scope or ""


def wants_text(request: Request) -> bool:
    """Whether the client accepts plain text and not JSON."""
    accepted = request.headers.get("accept", "")
    return "text/plain" in accepted and "application/json" not in accepted


def db(request: Request) -> Db:
    """The application's database."""
    return dependency(request, Db)


def dependency(request: Request, class_: type[T]) -> T:
    """The application's instance of that class, which `create_app` provides."""
    dependencies: Dependencies = request.scope["dependencies"]
    return dependencies.get(class_)
