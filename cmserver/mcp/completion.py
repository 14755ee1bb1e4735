"""How what a user has begun to type may go on: numbers, sessions and projects that the key may read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import mcp_types as types

from cmserver.access import repository as access
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.text import KEY_MOST, UNSTORABLE
from cmserver.mcp.call import Call
from cmserver.mcp.prompts import NAME
from cmserver.mcp.resources import CONTEXT, OBSERVATION, SCOPE, SUMMARY
from cmserver.observations import repository as observations

_MOST = 100
"""As many values as the protocol lets an answer have."""

_DIGITS = 18
_NUMBER = re.compile(r"#?[Ss]?([1-9][0-9]{0,17})?")
_ID = re.compile(r"[0-9a-f]{0,32}")

Find = Callable[[Conn, Call, str], Awaitable[Sequence[object]]]
"""What begins so, the likeliest first: one more than an answer may have, where there are more."""


async def completed(call: Call, ref: str, argument: str, begun: str) -> types.Completion:
    """What the argument of that template or prompt may be. `total` is told only where nothing is left out: else nobody counts."""
    finds = _FINDS.get(ref)
    if finds is None or argument not in finds:
        raise Invalid("There is no such prompt or resource template, or it has no such argument.")
    find = finds[argument]
    if find is None or not call.who.may(SCOPE) or len(begun) > KEY_MOST or UNSTORABLE.search(begun):
        return types.Completion(values=[], total=0, has_more=False)
    async with call.verbs.db.tenant(call.who.team_id) as conn:
        found = await find(conn, call, begun)
    has_more = len(found) > _MOST
    return types.Completion(values=[str(one) for one in found[:_MOST]], total=None if has_more else len(found), has_more=has_more)


async def _numbers(conn: Conn, call: Call, begun: str) -> Sequence[object]:
    """Of observations, the newest first."""
    written = _NUMBER.fullmatch(begun.strip())
    if written is None:
        return []
    return await observations.numbers_within(
        conn, call.who.team_id, _spans(written[1] or ""), project_id=call.who.project_id, limit=_MOST + 1
    )


def _spans(digits: str) -> list[tuple[int, int]]:
    """From where to where the numbers go that begin with the digits: 12, 120 to 129, 1200 to 1299, ..."""
    if not digits:
        return [(1, 10**_DIGITS - 1)]
    first = int(digits)
    return [(first * 10**more, (first + 1) * 10**more - 1) for more in range(_DIGITS - len(digits) + 1)]


async def _summed_up(conn: Conn, call: Call, begun: str) -> Sequence[object]:
    """Of sessions that have a summary, the newest first."""
    digits = begun.strip().lower().replace("-", "")
    if not _ID.fullmatch(digits):
        return []
    return await observations.sessions_summed_up(
        conn,
        call.who.team_id,
        first=UUID(digits.ljust(32, "0")),
        last=UUID(digits.ljust(32, "f")),
        project_id=call.who.project_id,
        limit=_MOST + 1,
    )


async def _projects(conn: Conn, call: Call, begun: str) -> Sequence[object]:
    """By their canonical id; what people call them is enough to find them."""
    return await access.names_begun(conn, call.who.team_id, begun.strip(), only=call.who.project_id, limit=_MOST + 1)


_FINDS: Mapping[str, Mapping[str, Find | None]] = {
    OBSERVATION: {"number": _numbers},
    SUMMARY: {"id": _summed_up},
    CONTEXT: {"project": _projects},
    NAME: {"topic": None, "project": _projects},
}
