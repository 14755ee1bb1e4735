"""The moments of time travel, and how they are written."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.ids import from_epoch_ms

_FORM = "ISO 8601 with a zone (2026-03-01T09:00:00Z), or milliseconds since 1970"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What held at `as_of`, by what was known at `known_at`; None is now. `at` are the paths of both, for errors."""

    as_of: datetime | None = None
    known_at: datetime | None = None
    at: tuple[str, str] = ("$.asOf", "$.knownAt")

    @property
    def earliest(self) -> datetime:
        """The time that it is there."""
        return min(time for time in (self.as_of, self.known_at) if time is not None)


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The time by the database, and of the first thing that was recorded; None where nothing is."""

    now: datetime
    first_at: datetime | None


def read_moment(as_of: str | None, known_at: str | None, at: tuple[str, str] = ("$.asOf", "$.knownAt")) -> Moment | None:
    """The moment that these texts name; None without either. Invalid for one that is no time or has no zone (`at`)."""
    if as_of is None and known_at is None:
        return None
    return Moment(as_of=_read_time(as_of, at[0]), known_at=_read_time(known_at, at[1]), at=at)


def _read_time(text: str | None, at: str) -> datetime | None:
    if text is None:
        return None
    text = text.strip()
    try:
        moment = from_epoch_ms(int(text)) if text.isdecimal() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise Invalid.at(at, f"That is no time. Write {_FORM}.") from error
    if moment.tzinfo is None:
        raise Invalid.at(at, f"That time has no zone: nobody knows whose {moment:%H:%M} it is. Write {_FORM}.")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise Invalid.at(at, f"That is no time. Write {_FORM}.") from error


def check_moment(moment: Moment, clock: Clock) -> None:
    """Raise Invalid, with the path, for a time in the future, or before anything was recorded."""
    for time, at in zip((moment.as_of, moment.known_at), moment.at, strict=True):
        if time is None:
            continue
        if time > clock.now:
            raise Invalid.at(at, f"That time is in the future: it is {clock.now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} now.")
        if clock.first_at is None:
            raise Invalid.at(at, "Nothing is recorded here yet.")
        if time < clock.first_at:
            first = f"{clock.first_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
            raise Invalid.at(at, f"Nothing is known of that time: the first that was recorded here is of {first}.")
