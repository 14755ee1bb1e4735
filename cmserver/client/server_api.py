"""Calls a server's HTTP API: which server and key, answers as Structs, and refusals raised again as the errors that they were."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from cmserver.base import credentials
from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError, Invalid, Issue, RateLimited
from cmserver.base.http.wire import PRIVATE_HEADER, STATUS
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]
"""Parameters of a query; None is not sent."""

PAGE_SIZE = 100
"""The most that the API returns at once."""

_TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""Erasing a large project takes minutes."""

_ERRORS = {name: error for error, (_, name) in STATUS.items()}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
DISTRUSTED_HELP = "Set SSL_CERT_FILE to the certificate of the authority that signed it, for agents, too."
_NO_KEY = "No API key. Set CMSERVER_KEY_FILE or CMSERVER_KEY, or pass --key."


class MissingKey(BadSetting):
    """No option, variable or file holds an API key."""


class ServerUnreachable(CmserverError):
    """The server does not answer."""


class UnreadableAnswer(CmserverError):
    """The answer lacks what its Struct needs: the server is of another version."""


class ApiAnswer(msgspec.Struct, frozen=True):
    """An answer's JSON, not decoded yet."""

    raw: bytes

    def read(self, type_: type[T]) -> T:
        """The part of it that the Struct names."""
        try:
            return msgspec.json.decode(self.raw, type=type_)
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(
                f"The server is of another version than this command; its answer cannot be read ({error})."
            ) from None


class _Page(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    next_cursor: str | None = None


class _Refusal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    error: str
    message: str
    issues: list[Issue] = []
    request_id: str | None = None


class Api:
    """Calls the API. A refusal is raised as the error that it was, with the API's message."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str, query: Query | None = None) -> ApiAnswer:
        return await self.send("GET", path, query=query)

    async def post(self, path: str, body: object = None) -> ApiAnswer:
        return await self.send("POST", path, body)

    async def put(self, path: str, body: object = None) -> ApiAnswer:
        return await self.send("PUT", path, body)

    async def patch(self, path: str, body: object) -> ApiAnswer:
        return await self.send("PATCH", path, body)

    async def delete(self, path: str, query: Query | None = None) -> ApiAnswer:
        return await self.send("DELETE", path, query=query)

    async def pages(self, path: str, name: str, query: Query | None = None, *, limit: int) -> ApiAnswer:
        """The list `name`, from as many pages as it takes for `limit` items. The other fields are those of the last page."""
        items: list[msgspec.Raw] = []
        cursor: str | None = None
        while True:
            answer = await self.get(path, {**(query or {}), "limit": min(limit - len(items), PAGE_SIZE), "cursor": cursor})
            page = answer.read(dict[str, msgspec.Raw])
            page_items = ApiAnswer(bytes(page.get(name, b"null"))).read(list[msgspec.Raw])
            items += page_items
            cursor = answer.read(_Page).next_cursor
            if cursor is None or not page_items or len(items) >= limit:
                return ApiAnswer(msgspec.json.encode({**page, name: items[:limit]}))

    async def send(self, method: str, path: str, body: object = None, *, query: Query | None = None) -> ApiAnswer:
        """The answer to a request; a refusal is raised as the error that it was."""
        content = None if body is None else msgspec.json.encode(body)
        params = {name: _query_value(value) for name, value in (query or {}).items() if value is not None}
        headers = {"Content-Type": "application/json"} if content else None
        try:
            response = await self._http.request(
                method, path, content=content, params=params or None, headers=headers, timeout=_TIMEOUT
            )
        except httpx.InvalidURL as error:
            raise ServerUnreachable(f"{self._http.base_url} is not the address of a server ({error}).") from error
        except httpx.HTTPError as error:
            raise unreachable(self._http, error) from error
        if not response.is_success:
            raise refusal(response)
        return ApiAnswer(response.content)


def _query_value(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def unreachable(http: httpx.AsyncClient, error: httpx.HTTPError) -> ServerUnreachable:
    """The error for a server that did not answer."""
    if is_distrusted(error):
        return ServerUnreachable(f"The certificate of the server at {http.base_url} is not trusted here. {DISTRUSTED_HELP}")
    return ServerUnreachable(
        f"The server at {http.base_url} does not answer ({type(error).__name__}). "
        "Is it running (`cmserver status`), and is its address right?"
    )


def is_distrusted(error: Exception) -> bool:
    """Whether a call failed because nobody whom this machine trusts vouches for the server's certificate."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def refusal(response: httpx.Response) -> CmserverError:
    """The error of a refusal. Its message has one line for each invalid field."""
    try:
        body = msgspec.json.decode(response.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return CmserverError(
            f"{response.url.copy_with(query=None)} answered with status {response.status_code}, but not as cmserver does: "
            "is CMSERVER_URL right?"
        )
    issues = [issue for issue in body.issues if issue.path not in body.message]
    message = "\n".join(
        [sanitize_line(body.message), *(f"  {sanitize_line(issue.path)}: {sanitize_line(issue.message)}" for issue in issues)]
    )
    error = _ERRORS.get(body.error)
    if error is None:
        return CmserverError(f"{message} Look for request {sanitize_line(body.request_id or '')} in the server's log.")
    if issubclass(error, Invalid):
        return Invalid(message, body.issues)
    if issubclass(error, RateLimited):
        return CmserverError(message)  # a command does not retry, and the message says when one may
    return error(message)


# -- which server, and with which key


def is_local(url: str) -> bool:
    """Whether the server is on this machine."""
    return (httpx.URL(url).host or "") in _LOOPBACK


def normalize_address(url: str) -> str:
    """The address as all ways to write it have it: hosts in lower case, one name for this machine, no usual port, no last slash."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeEncodeError):
        return url
    host = "localhost" if parsed.host in _LOOPBACK else parsed.host
    return f"{parsed.scheme}://{host}:{parsed.port or ''}{parsed.path.rstrip('/')}"


def make_trust() -> ssl.SSLContext | bool:
    """Whom calls trust: the authorities in SSL_CERT_FILE, or else the usual ones."""
    file = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=file) if file else True
    except OSError as error:
        raise BadSetting(f"SSL_CERT_FILE names {file}, which holds no certificates ({type(error).__name__}).") from None


def is_private() -> bool:
    """Whether who calls means what is private to them: CMSERVER_PRIVATE says so, as for hooks."""
    return os.environ.get("CMSERVER_PRIVATE", "").lower() not in {"", "0", "false"}


@asynccontextmanager
async def open_http_client(url: str, key: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the server at that address."""
    headers = {"Authorization": f"Bearer {key}", **({PRIVATE_HEADER: "1"} if is_private() else {})}
    try:
        # No proxy for this machine; the authority of a certificate is the environment's in any case.
        http = httpx.AsyncClient(base_url=url, headers=headers, trust_env=not is_local(url), verify=make_trust())
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise BadSetting(f"The server's address or the key is invalid: {error}.") from error
    async with http:
        yield http


def resolve_server(settings: Settings, url: str | None, key: str | None) -> tuple[str, str]:
    """The server's address and the key. The credentials file's key is only ever sent to the server of that file."""
    key = key or read_key_file()
    stored = None if url and key else credentials.read(settings.data_dir)
    address = (url or (stored.url if stored else f"http://127.0.0.1:{settings.port}")).rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise BadSetting(f"Invalid server address {address!r}: use a URL that begins with http:// or https://.")
    if key is None and stored is not None and stored.url.rstrip("/") == address:
        key = stored.key
    if key is None:
        raise MissingKey(_NO_KEY)
    return address, key


def read_key_file() -> str | None:
    """The key in the file that CMSERVER_KEY_FILE names; None when it is not set."""
    path = os.environ.get("CMSERVER_KEY_FILE")
    if not path:
        return None
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"CMSERVER_KEY_FILE names {path}, which cannot be read ({type(error).__name__}).") from None
    if not key:
        raise BadSetting(f"CMSERVER_KEY_FILE names {path}, which is empty: write the key into it.")
    return key
