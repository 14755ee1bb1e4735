"""Cursors of lists, newest first, by time and id."""

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
"""Page size of a list."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def page(rows: Sequence[T], limit: int, place_of: Callable[[T], tuple[datetime, UUID | str]]) -> tuple[list[T], str | None]:
    """One page of the rows, and the cursor of the next page, if there is one. `rows` are up to `limit + 1`."""
    page_rows = list(rows[:limit])
    return page_rows, cursor(*place_of(page_rows[-1])) if len(rows) > limit else None


def cursor(moment: datetime, last: UUID | str) -> str:
    """The cursor of the page after this row."""
    name = last.bytes if isinstance(last, UUID) else last.encode()
    return base64.urlsafe_b64encode(((moment - _EPOCH) // _MICROSECOND).to_bytes(8, signed=True) + name).decode()


def place(cursor: str | None) -> tuple[datetime, UUID] | tuple[None, None]:
    """The time and id after which the page begins; Invalid when it is no cursor."""
    if cursor is None:
        return None, None
    moment, name = _decode(cursor)
    if len(name) != 16:
        raise no_cursor()
    return moment, UUID(bytes=name)


def place_by_name(cursor: str | None) -> tuple[datetime, str] | tuple[None, None]:
    """The time and name after which the page begins, in lists ordered by these; Invalid when it is no cursor."""
    if cursor is None:
        return None, None
    moment, name = _decode(cursor)
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise no_cursor() from error
    if not text or "\x00" in text:
        raise no_cursor()
    return moment, text


def _decode(cursor: str) -> tuple[datetime, bytes]:
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        return _EPOCH + int.from_bytes(raw[:8], signed=True) * _MICROSECOND, raw[8:]
    except (binascii.Error, ValueError, OverflowError) as error:
        raise no_cursor() from error


def no_cursor() -> Invalid:
    """The error for a malformed cursor."""
    return Invalid.at(
        "$.cursor", "This is not a cursor of this list. Leave it out to start at the newest, or send `nextCursor` as it came."
    )
