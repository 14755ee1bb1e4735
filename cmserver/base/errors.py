"""The few ways a request can be refused. Each is a sentence to a person; the doors decide how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec


class Issue(msgspec.Struct, frozen=True):
    """One wrong field: its path in the input (`$.events[3].payload`) and what is wrong with it."""

    path: str
    message: str


class CmserverError(Exception):
    """Base of every refusal. `str(error)` is a sentence that may be shown to whoever asked."""


class Invalid(CmserverError):
    """The input cannot be accepted as it is; nothing was changed."""

    def __init__(self, message: str, issues: Sequence[Issue] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)

    @classmethod
    def at(cls, path: str, message: str) -> Self:
        """One field is wrong, and the message says what is."""
        return cls(message, [Issue(path, message)])


class Unauthenticated(CmserverError):
    """No key was sent."""


class Forbidden(CmserverError):
    """The key is wrong, over, or lacks the scope."""


class Misdirected(CmserverError):
    """It was sent to a name that is not this server's."""


class NotFound(CmserverError):
    """It does not exist, or the caller may not know that it does. Something named in a body has an issue that says where."""

    def __init__(self, message: str, issues: Sequence[Issue] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)


class Conflict(CmserverError):
    """It contradicts what is already so."""


class RequestTimeout(CmserverError):
    """The body did not come in time; nothing was changed."""


class TooLarge(CmserverError):
    """The body is over the limit."""


class RateLimited(CmserverError):
    """Too many requests of the `limit` a minute; `retry_after_seconds` says when the next may come."""

    def __init__(self, message: str, retry_after_seconds: float, *, limit: int, full_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.limit = limit
        self.full_after_seconds = full_after_seconds
        """When as many requests may come at once again as the limit says."""


class QuotaExceeded(CmserverError):
    """An agreed amount is used up."""


class Unavailable(CmserverError):
    """The database or a provider is away for now; asking again later is right."""

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
