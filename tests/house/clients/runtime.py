"""A client of cmserver: a method for each of its routes, named for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, Self, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from msgspec import UNSET

P = ParamSpec("P")
T = TypeVar("T")


class Issue(msgspec.Struct, frozen=True):
    """One wrong field: its path in what was sent (`$.title`), and what is wrong with it."""

    path: str
    message: str


class _Refusal(msgspec.Struct, frozen=True, rename="camel"):
    error: str = ""
    message: str = "This is no answer of cmserver."
    request_id: str = ""
    issues: list[Issue] = []


class ApiError(Exception):
    """A refusal: `code` is its name for programs, empty where a proxy answered; `message` is for people."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            refusal = msgspec.json.decode(response.content, type=_Refusal)
        except msgspec.DecodeError:
            refusal = _Refusal()
        super().__init__(f"{response.status_code} {refusal.error}: {refusal.message}")
        self.status, self.code, self.message = response.status_code, refusal.error, refusal.message
        self.issues, self.request_id = refusal.issues, refusal.request_id


def segment(text: str) -> str:
    """The text as one segment of a path: `github.com/acme/orders` is one."""
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} names nothing.")
    return quote(text, safe="")


def write(method: str, path: str, query: Mapping[str, object], body: object) -> dict[str, Any]:
    if isinstance(body, dict):
        body = {name: value for name, value in cast("dict[str, object]", body).items() if value is not UNSET}
    given = {name: value for name, value in query.items() if value is not UNSET and value is not None}
    return {"method": method, "url": path, "params": given, "content": b"" if body is None else msgspec.json.encode(body)}


def read(response: httpx.Response, answers: Mapping[int, type[T]]) -> T:
    try:
        return msgspec.json.decode(response.content, type=answers[response.status_code])
    except (KeyError, msgspec.DecodeError):
        raise ApiError(response) from None


class Client:
    """A connection to the server at `url`. `transport` is httpx's: for proxies, certificates, tests."""

    def __init__(self, url: str, key: str, *, timeout_seconds: float = 60, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json", "Content-Type": "application/json"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_seconds, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _send(self, answers: Mapping[int, type[T]], method: str, path: str, query: Mapping[str, object], body: object) -> T:
        return read(self._http.request(**write(method, path, query, body)), answers)

    def pages(self, method: Callable[P, T], *args: P.args, **given: P.kwargs) -> Iterator[T]:
        """The pages of a list: `client.pages(client.get_observations, limit=100)`."""
        more = True
        while more:
            page = method(*args, **given)
            yield page
            given["cursor"] = more = getattr(page, "next_cursor", None)
