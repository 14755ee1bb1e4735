"""Cursors of lists that go from the newest to the oldest, by time and id. Whoever has one knows no more than the list has shown."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar
from uuid import UUID

from msgspec import Meta

from cmserver.base.errors import Invalid

T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=200)]
"""How many of a list are given at once."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def page(rows: Sequence[T], limit: int, place_of: Callable[[T], tuple[datetime, UUID | str]]) -> tuple[list[T], str | None]:
    """One page of the rows, and the cursor of the next one where there is more. Whoever reads the rows asks for `limit + 1`."""
    shown = list(rows[:limit])
    return shown, cursor(*place_of(shown[-1])) if len(rows) > limit else None


def cursor(moment: datetime, last: UUID | str) -> str:
    """Where a page has ended."""
    name = last.bytes if isinstance(last, UUID) else last.encode()
    return base64.urlsafe_b64encode(((moment - _EPOCH) // _MICROSECOND).to_bytes(8, signed=True) + name).decode()


def place(cursor: str | None) -> tuple[datetime, UUID] | tuple[None, None]:
    """Where the next page begins; Invalid when it is no cursor."""
    if cursor is None:
        return None, None
    moment, name = _taken_apart(cursor)
    if len(name) != 16:
        raise no_cursor()
    return moment, UUID(bytes=name)


def place_by_name(cursor: str | None) -> tuple[datetime, str] | tuple[None, None]:
    """Like `place`, of a list whose things have names, not ids."""
    if cursor is None:
        return None, None
    moment, name = _taken_apart(cursor)
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise no_cursor() from error
    if not text or "\x00" in text:
        raise no_cursor()
    return moment, text


def _taken_apart(cursor: str) -> tuple[datetime, bytes]:
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        return _EPOCH + int.from_bytes(raw[:8], signed=True) * _MICROSECOND, raw[8:]
    except (binascii.Error, ValueError, OverflowError) as error:
        raise no_cursor() from error


def no_cursor() -> Invalid:
    """What is said of a cursor that is none."""
    return Invalid.at(
        "$.cursor", "This is not a cursor of this list. Leave it out to start at the newest, or send `nextCursor` as it came."
    )
