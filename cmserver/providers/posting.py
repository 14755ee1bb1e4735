"""One POST of JSON to a provider's HTTP API, for the providers without a client library of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
from cmserver.providers.failures import by_status, cut_off, in_body, unreachable
from cmserver.providers.model import ANSWER_MOST_BYTES, FailureKind, ProviderError

_CONNECT_SECONDS = 5.0
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def checked_key(key: str | None, setting: str) -> str | None:
    """The key without the line end that was copied with it. Invalid for what cannot be one; its sentence does not repeat it."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise Invalid(f"{setting} has characters that no key has: was more copied than the key?")
    return key or None


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it came; where it repeats the key, that is hidden."""

    status: int
    headers: Mapping[str, str]
    """Looked up in any case."""
    text: str


class Door:
    """Where a provider is asked. One per provider: it keeps its connections.

    Redirections are not followed, since a key goes only where the operator has sent it; and what runs on this machine is asked
    without the proxy that the environment may name. `setting` is where the operator says the address.
    """

    def __init__(
        self,
        who: str,
        base_url: str,
        *,
        headers: dict[str, str],
        secret: str | None,
        timeout_seconds: float,
        setting: str = "CMSERVER_BASE_URL",
    ) -> None:
        try:
            url = URL(base_url)
        except InvalidURL as error:
            raise Invalid(f"{setting} holds an address that cannot be used for {who}: {error}.") from error
        self.who = who
        self._setting = setting
        self._base_url = base_url.rstrip("/")
        self._shown = f"{url.scheme}://{url.netloc.decode()}{url.path.rstrip('/')}"
        self._is_here = url.host in _THIS_MACHINE
        self._secret = secret
        self._timeout_seconds = timeout_seconds
        self._client = AsyncClient(
            headers=headers,
            timeout=Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)),
            follow_redirects=False,
            mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
        )

    async def post(self, path: str, body: object) -> Heard:
        """Whatever is answered; `failure` says whether it is an error. ProviderError when there is no whole answer."""
        content, headers = msgspec.json.encode(body), {"content-type": "application/json"}
        try:
            async with self._client.stream("POST", self._base_url + path, content=content, headers=headers) as response:
                text = await self._whole(response)
        except (ConnectError, ConnectTimeout, ProxyError) as error:
            raise unreachable(self.who, self._why(error)) from error
        except TimeoutException as error:
            raise cut_off(self.who, f"no more of it came within {self._timeout_seconds:g} seconds") from error
        except HTTPError as error:
            raise cut_off(self.who, self._hidden(str(error)).rstrip(".") or "the connection broke off") from error
        return Heard(status=response.status_code, headers=response.headers, text=self._hidden(text))

    async def close(self) -> None:
        await self._client.aclose()

    async def _whole(self, response: Response) -> str:
        """As UTF-8, which JSON is; a charset that the answer names could be one that cannot be read."""
        read = bytearray()
        async for part in response.aiter_bytes():
            read += part
            if len(read) > ANSWER_MOST_BYTES:
                raise cut_off(self.who, f"it has more than {ANSWER_MOST_BYTES >> 20} MB")
        return read.decode(errors="replace")

    def failure(self, heard: Heard) -> ProviderError | None:
        """What is wrong with the answer: its status, or an error in its body."""
        if heard.status != 200:
            return by_status(self.who, heard.status, heard.text, heard.headers)
        if heard.text.lstrip().startswith("<"):
            return ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self.who} answered with a web page: {self._shown} is not the address of its API. Set {self._setting}.",
            )
        return in_body(self.who, heard.text, heard.headers)

    def _why(self, error: HTTPError) -> str:
        if self._is_here and isinstance(error, ConnectError):
            return f"nothing listens at {self._shown}. Start it, or set {self._setting} to where it runs"
        return f"{self._shown}: {self._hidden(str(error)) or 'no connection within 5 seconds'}"

    def _hidden(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text
