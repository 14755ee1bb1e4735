"""Ids and times as they go over the wire: UUIDs of version 7, and epoch milliseconds."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from structlog.contextvars import get_contextvars

from cmserver.base.errors import NotFound

EpochMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""A moment of the years 1970 to 9999, as it comes over the wire."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_last_tick = 0
_lock = threading.Lock()


def new_id() -> UUID:
    """A UUID of version 7 (RFC 9562): each one greater than the one before in this process.

    The 12 bits after the milliseconds are the fraction of the millisecond (method 3 of section 6.2); the other 62 are
    random, so that a forked process, which inherits the clock, does not make the same ids.
    """
    global _last_tick  # noqa: PLW0603 - the order within a process needs a memory
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    tick = milliseconds << 12 | (nanoseconds << 12) // 1_000_000
    with _lock:
        # A clock that stands still or goes back does not break the order: time goes on from the last id.
        _last_tick = tick = max(tick, _last_tick + 1)
    random = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=(tick >> 12) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62 | random)


def request_id() -> str | None:
    """The id of the request that is being answered, for logs, audit rows and jobs."""
    value = get_contextvars().get("request_id")
    return value if isinstance(value, str) else None


def parse_id(text: str) -> UUID | None:
    """The UUID that is written in exactly this way (lower case, with hyphens), or None."""
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text else None


def named_id(text: str) -> UUID | None:
    """The UUID that a reference to a thing spells with hyphens, in upper or lower case; None when it is none, but a name."""
    return parse_id(text.lower())


def require_id(text: str, no_such: str) -> UUID:
    """The UUID that the text spells, as `named_id` has it; NotFound with that sentence where it is none."""
    found = named_id(text)
    if found is None:
        raise NotFound(no_such)
    return found


def epoch_ms(moment: datetime) -> int:
    """Whole milliseconds since 1970, rounded down; a `datetime` without a time zone is a TypeError."""
    since = moment - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def epoch_ms_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else epoch_ms(moment)


def from_epoch_ms(milliseconds: int) -> datetime:
    """The moment in UTC, of milliseconds since 1970; OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def iso(at: datetime) -> str:
    """The time in ISO 8601 as JavaScript writes it: UTC, milliseconds, `Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_iso(text: str) -> datetime:
    """A time in ISO 8601, in UTC where it names no zone; ValueError for anything else."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
