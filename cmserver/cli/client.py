"""Our own HTTP API, as the commands ask it: answers, pages, and refusals that are raised again as what they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import httpx
import msgspec

from cmserver.base.errors import CmserverError, Invalid, Issue, RateLimited
from cmserver.base.http.wire import STATUS
from cmserver.cli.exits import Unreachable
from cmserver.cli.show import plain

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]
"""Parameters of a query; None is not sent."""

PAGE = 100
"""What is asked for at once; every list of the API gives so many."""

_PATIENCE = httpx.Timeout(300.0, connect=5.0)
"""Erasing a large project takes its time."""

_KINDS = {name: kind for kind, (_, name) in STATUS.items()}


class Answer(msgspec.Struct, frozen=True):
    """What the server said, as JSON that nobody has read yet."""

    raw: bytes

    def read(self, type_: type[T]) -> T:
        """The part of it that the Struct names."""
        try:
            return msgspec.json.decode(self.raw, type=type_)
        except msgspec.DecodeError as error:
            raise CmserverError(
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
    """Asks the API. Whatever is refused is raised, with the API's sentence."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, query: Query | None = None) -> Answer:
        return await self._ask("GET", path, query=query)

    async def post(self, path: str, body: object = None) -> Answer:
        return await self._ask("POST", path, body)

    async def put(self, path: str, body: object = None) -> Answer:
        return await self._ask("PUT", path, body)

    async def patch(self, path: str, body: object) -> Answer:
        return await self._ask("PATCH", path, body)

    async def delete(self, path: str, query: Query | None = None) -> Answer:
        return await self._ask("DELETE", path, query=query)

    async def pages(self, path: str, name: str, query: Query | None = None, *, limit: int) -> Answer:
        """The list `name`, page after page until there are `limit` of it. The rest of the answer is the last page's."""
        asked: Query = query or {}
        kept: list[msgspec.Raw] = []
        cursor: str | None = None
        while True:
            answer = await self.get(path, {**asked, "limit": min(limit - len(kept), PAGE), "cursor": cursor})
            page = answer.read(dict[str, msgspec.Raw])
            found = Answer(bytes(page.get(name, b"null"))).read(list[msgspec.Raw])
            kept += found
            cursor = answer.read(_Page).next_cursor
            if cursor is None or not found or len(kept) >= limit:
                return Answer(msgspec.json.encode({**page, name: kept[:limit]}))

    async def _ask(
        self,
        method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
        path: str,
        body: object = None,
        *,
        query: Query | None = None,
    ) -> Answer:
        content = None if body is None else msgspec.json.encode(body)
        params = {name: _as_text(value) for name, value in (query or {}).items() if value is not None}
        headers = {"Content-Type": "application/json"} if content else None
        try:
            answer = await self._client.request(
                method, path, content=content, params=params or None, headers=headers, timeout=_PATIENCE
            )
        except httpx.InvalidURL as error:
            raise Unreachable(f"{self._client.base_url} is no address of a server ({error}).") from error
        except httpx.HTTPError as error:
            raise unreachable(self._client, error) from error
        if not answer.is_success:
            raise refusal(answer)
        return Answer(answer.content)


def _as_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def unreachable(client: httpx.AsyncClient, error: httpx.HTTPError) -> Unreachable:
    """What is said of a server that has not answered."""
    return Unreachable(
        f"The server at {client.base_url} does not answer ({type(error).__name__}). "
        "Is it running (`cmserver status`), and is its address right?"
    )


def refusal(answer: httpx.Response) -> CmserverError:
    """The refusal that the server has made an answer of; each wrong field stands on a line of its own."""
    try:
        told = msgspec.json.decode(answer.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return CmserverError(
            f"{answer.url.copy_with(query=None)} answered with status {answer.status_code}, and not as cmserver does: "
            "is CMSERVER_URL right?"
        )
    message = plain(told.message)
    sentence = "\n".join(
        [message, *(f"  {plain(one.path)}: {plain(one.message)}" for one in told.issues if one.path not in told.message)]
    )
    kind = _KINDS.get(told.error)
    if kind is None:
        return CmserverError(f"{sentence} The server's log says more of request {plain(told.request_id or '')}.")
    if issubclass(kind, Invalid):
        return Invalid(sentence, told.issues)
    if issubclass(kind, RateLimited):
        return CmserverError(sentence)  # nobody waits here: when to come again is in the sentence
    return kind(sentence)
