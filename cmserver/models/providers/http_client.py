"""POSTs JSON to the HTTP API of a provider that has no client library."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeVar

import msgspec
from httpx import (
    URL,
    AsyncClient,
    ConnectError,
    ConnectTimeout,
    HTTPError,
    InvalidURL,
    ProxyError,
    Response,
    Timeout,
    TimeoutException,
)

from cmserver.base.errors import Invalid
from cmserver.models.providers.failures import (
    DISTRUSTED,
    classify_status,
    find_error_in_body,
    incomplete_answer_error,
    unreachable_error,
)
from cmserver.models.providers.model import MAX_ANSWER_BYTES, FailureKind, ProviderError

Usage = TypeVar("Usage", bound=msgspec.Struct)

_CONNECT_SECONDS = 5.0
_MAX_LINE_BYTES = 1 << 20
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


class MissingKey(Invalid):
    """A provider or an embedder has no key."""

    def __init__(self, owner: str, setting: str) -> None:
        super().__init__(f"The {owner} needs a key: set {setting}, or {setting}_FILE to a file with it.")
        self.setting = setting
        """The variable that may hold the key."""


def check_key(key: str | None, setting: str) -> str | None:
    """The key without surrounding space, or None. Raises Invalid, without quoting it, for characters no key has."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise Invalid(f"{setting} has characters that no key has: was more copied than the key?")
    return key or None


def require_key(owner: str, key: str | None, setting: str) -> str:
    """The key of a provider or an embedder. Raises MissingKey, or Invalid if it is malformed."""
    checked = check_key(key, setting)
    if not checked:
        raise MissingKey(owner, setting)
    return checked


def decode_usage(raw: msgspec.Raw, usage: type[Usage]) -> Usage:
    """The usage that an answer reports; empty if it cannot be read."""
    try:
        return msgspec.json.decode(raw, type=usage)
    except msgspec.DecodeError:
        return usage()


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP answer, with the key redacted."""

    status: int
    headers: Mapping[str, str]
    """Case-insensitive."""
    text: str


class HttpEndpoint:
    """The address of a provider's API, with its own connections.

    Redirections are not followed, so that a key goes only where the operator sends it. Addresses of this machine bypass the proxy
    of the environment. `setting` names the setting of the address, for messages.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        headers: dict[str, str],
        secret: str | None,
        timeout_seconds: float,
        setting: str = "CMSERVER_BASE_URL",
    ) -> None:
        try:
            url = URL(base_url)
            host = url.host
        except (InvalidURL, UnicodeError) as error:  # the name of a host that is none in Unicode
            raise Invalid(f"{setting} holds an address that cannot be used for {name}: {error}.") from error
        self.name = name
        self._setting = setting
        self._base_url = base_url.rstrip("/")
        self._public_url = f"{url.scheme}://{url.netloc.decode()}{url.path.rstrip('/')}"
        self._is_here = host in _THIS_MACHINE
        self._secret = secret
        self._timeout_seconds = timeout_seconds
        self._client = AsyncClient(
            headers=headers,
            timeout=Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)),
            follow_redirects=False,
            mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
        )

    async def post(self, path: str, body: object) -> HttpAnswer:
        """Return the answer, whatever its status; raise ProviderError if it is incomplete."""
        async with self._open(path, body) as response:
            return self._answer(response, await self._read_text(response))

    async def post_for_lines(self, path: str, body: object) -> AsyncGenerator[str]:
        """The lines of the answer as they come, without empty ones; ProviderError if it reports an error or breaks off."""
        async with self._open(path, body) as response:
            if response.status_code != HTTPStatus.OK:
                answer = self._answer(response, await self._read_text(response))
                raise classify_status(self.name, answer.status, answer.text, answer.headers)
            read = bytearray()
            async for part in response.aiter_bytes():
                *lines, read = (read + part).split(b"\n")
                if len(read) > _MAX_LINE_BYTES:
                    raise incomplete_answer_error(self.name, f"a line of it has more than {_MAX_LINE_BYTES >> 20} MB")
                for line in filter(None, lines):
                    yield self._redact(line.decode(errors="replace"))
            if read:
                yield self._redact(read.decode(errors="replace"))

    @asynccontextmanager
    async def _open(self, path: str, body: object) -> AsyncGenerator[Response]:
        """The answer, whose body is not read yet; ProviderError if it does not come or breaks off."""
        content, headers = msgspec.json.encode(body), {"content-type": "application/json"}
        try:
            async with self._client.stream("POST", self._base_url + path, content=content, headers=headers) as response:
                yield response
        except (ConnectError, ConnectTimeout, ProxyError) as error:
            raise unreachable_error(self.name, self._describe_error(error)) from error
        except TimeoutException as error:
            raise incomplete_answer_error(self.name, f"no more of it came within {self._timeout_seconds:g} seconds") from error
        except HTTPError as error:
            raise incomplete_answer_error(self.name, self._redact(str(error)).rstrip(".") or "the connection broke off") from error

    def _answer(self, response: Response, text: str) -> HttpAnswer:
        return HttpAnswer(status=response.status_code, headers=response.headers, text=self._redact(text))

    async def close(self) -> None:
        await self._client.aclose()

    async def _read_text(self, response: Response) -> str:
        """Decode as UTF-8, as JSON is, whatever charset the answer names."""
        read = bytearray()
        async for part in response.aiter_bytes():
            read += part
            if len(read) > MAX_ANSWER_BYTES:
                raise incomplete_answer_error(self.name, f"it has more than {MAX_ANSWER_BYTES >> 20} MB")
        return read.decode(errors="replace")

    def find_failure(self, answer: HttpAnswer) -> ProviderError | None:
        """The error that the answer's status or body reports, or None."""
        if answer.status != 200:
            return classify_status(self.name, answer.status, answer.text, answer.headers)
        if answer.text.lstrip().startswith("<"):
            return ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self.name} answered with a web page: {self._public_url} is not the address of its API. Set {self._setting}.",
            )
        return find_error_in_body(self.name, answer.text, answer.headers)

    def _describe_error(self, error: HTTPError) -> str:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return f"{self._public_url}: {DISTRUSTED}"
        if self._is_here and isinstance(error, ConnectError):
            return f"nothing listens at {self._public_url}. Start it, or set {self._setting} to where it runs"
        return f"{self._public_url}: {self._redact(str(error)) or 'no connection within 5 seconds'}"

    def _redact(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text
