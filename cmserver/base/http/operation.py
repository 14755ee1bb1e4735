"""A route with its scope, inputs and answers: one method of one path. OpenAPI and the docs are generated from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from cmserver.base.errors import CmserverError, NotFound
from cmserver.base.http.wire import Handler, report_ignored

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class TextAnswer(msgspec.Struct, frozen=True):
    """An answer, or a form of one, that is not JSON."""

    media_type: str
    description: str


Answer = type[msgspec.Struct] | type[Sequence[msgspec.Struct]] | type[None] | TextAnswer


class Operation(Route):
    """One method of one path.

    `scope` is what the caller's key must have: None requires no key, "" any key; with `key_optional` a key is checked when it is
    sent. `query` and `body` are the Structs that the handler reads (the body may be a list of them). `answer` is its answer of this
    `status`, several of one in a tuple, or its answers by status; refusals are the same for all (base.http.wire), but for those in
    `refusals`.

    Slashes of a name in the middle of a path are sent as `%2F`: `/projects/x%2Fmemory` is the project `x/memory`, and
    `/projects/x/memory` the memory of `x`.
    """

    def __init__(
        self,
        method: Method,
        path: str,
        endpoint: Handler,
        scope: str | None,
        answer: Answer | tuple[Answer, ...] | Mapping[int, Answer | tuple[Answer, ...]],
        *,
        status: int = 200,
        query: type[msgspec.Struct] | None = None,
        body: object = None,
        key_optional: bool = False,
        refusals: Sequence[type[CmserverError]] = (),
    ) -> None:
        # Answers on the paths of claude-mem keep their format.
        super().__init__(path, report_ignored(endpoint) if path.startswith("/v1/") else endpoint, methods=[method])
        self.method = method
        self.scope = scope
        self.answers = answer if isinstance(answer, Mapping) else {status: answer}
        self.query = query
        self.body = body
        self.key_optional = key_optional
        self.refusals = refusals
        _, name_with_slashes, after = path.rpartition(":path}/")
        self._last = after.encode() if name_with_slashes else None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any route does, and put the required scope into the request (see `base.http.wire.caller`)."""
        match, inner = super().matches(scope)
        if match is not Match.NONE and self._last is not None and not self._is_last(scope):
            return Match.NONE, {}
        if match is Match.FULL:
            inner["needs"] = self.scope
        return match, inner

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle as any route does; NotFound for path parameters that no name can have, such as those with NUL."""
        if scope["path_params"] and not _can_be_a_name(scope):
            raise NotFound("Not found: names contain neither NUL nor invalid UTF-8.")
        await super().handle(scope, receive, send)

    def _is_last(self, scope: Scope) -> bool:
        """Whether the last segment of the path as sent, in which `%2F` is no slash, is the route's."""
        raw: bytes | None = scope.get("raw_path")
        return raw is None or unquote_to_bytes(raw.rpartition(b"/")[2]) == self._last


get, post, put = partial(Operation, "GET"), partial(Operation, "POST"), partial(Operation, "PUT")
patch, delete = partial(Operation, "PATCH"), partial(Operation, "DELETE")


def _can_be_a_name(scope: Scope) -> bool:
    """Whether the path is UTF-8 without NUL."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return "\x00" not in scope["path"]
    if b"%" not in raw:
        return True
    try:
        return "\x00" not in unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
