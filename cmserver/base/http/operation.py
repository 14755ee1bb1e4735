"""A route that says what goes in and what comes out: one method of one path. What it says is what docs/ and OpenAPI tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.routing import Match, Route
from starlette.types import Scope

from cmserver.base.http.wire import Handler

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Text(msgspec.Struct, frozen=True):
    """An answer, or a form of one, that is not JSON."""

    media_type: str
    description: str


Answer = type[msgspec.Struct] | type[Sequence[msgspec.Struct]] | Text


class Operation(Route):
    """One method of one path.

    `scope` is what the caller's key must have: None asks for no key, "" for any key. With `key_optional` none is asked for, and one
    that is sent is looked at. `query` and `body` are the Structs that the handler reads (the body may be a list of them). `answers`
    are its answers by status, the forms of one status in a tuple; refusals are the same for all and stand in base.http.wire.

    A name with slashes in the middle of a path is sent with each of them as `%2F`: then `/projects/x%2Fmemory` is the project
    `x/memory`, and not the memory of `x`. Sent with plain slashes it cannot be told from that, and the longer route has it.
    """

    def __init__(
        self,
        method: Method,
        path: str,
        endpoint: Handler,
        *,
        scope: str | None,
        answers: Mapping[int, Answer | tuple[Answer, ...]],
        query: type[msgspec.Struct] | None = None,
        body: object = None,
        key_optional: bool = False,
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.scope = scope
        self.answers = answers
        self.query = query
        self.body = body
        self.key_optional = key_optional
        _, name_with_slashes, after = path.rpartition(":path}/")
        self._last = after.encode() if name_with_slashes else None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Like any route; the handler's request carries the operation along (see `base.http.wire.caller`)."""
        match, inner = super().matches(scope)
        if match is not Match.NONE and self._last is not None and not self._is_last(scope):
            return Match.NONE, {}
        if match is Match.FULL:
            inner["needs"] = self.scope
        return match, inner

    def _is_last(self, scope: Scope) -> bool:
        """Whether the path's last segment is the route's own also as it was sent, where `%2F` is no slash."""
        raw: bytes | None = scope.get("raw_path")
        return raw is None or unquote_to_bytes(raw.rpartition(b"/")[2]) == self._last
