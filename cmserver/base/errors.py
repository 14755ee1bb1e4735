"""Errors of requests. Messages are sentences for people; HTTP, MCP and the command line decide how to show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec


class Issue(msgspec.Struct, frozen=True):
    """One wrong field: its path in the input (`$.events[3].payload`) and what is wrong with it."""

    path: str
    message: str


class CmserverError(Exception):
    """Base of every refusal. `str(error)` is a sentence that the caller may see."""


class Invalid(CmserverError):
    """The input is not valid; nothing was changed."""

    def __init__(self, message: str, issues: Sequence[Issue] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)

    @classmethod
    def at(cls, path: str, message: str) -> Self:
        """The error for one wrong field: `path` is where it is, the message what is wrong."""
        return cls(message, [Issue(path, message)])


class Unauthenticated(CmserverError):
    """No key was sent."""


class Forbidden(CmserverError):
    """The key is wrong, expired or revoked, or lacks the scope."""


class NoPerson(Forbidden):
    """The key is nobody's, and what is asked for belongs to a person: `issues` say which field, or the key."""

    def __init__(self, message: str, issues: Sequence[Issue] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)


class Misdirected(CmserverError):
    """The request names a host that is not this server."""


class NotFound(CmserverError):
    """It does not exist, or the caller may not know that it does. Something named in a body has an issue that says where."""

    def __init__(self, message: str, issues: Sequence[Issue] = ()) -> None:
        super().__init__(message)
        self.issues = list(issues)


class Gone(NotFound):
    """It was there and is not shown any more; `superseded_by` is the number of what is shown in its place."""

    def __init__(self, message: str, superseded_by: int | None = None) -> None:
        super().__init__(message)
        self.superseded_by = superseded_by


class Conflict(CmserverError):
    """The request contradicts the present state."""


class RequestTimeout(CmserverError):
    """The request took too long to arrive; nothing was changed."""


class TooLarge(CmserverError):
    """The body is over the limit."""


class HeadersTooLarge(CmserverError):
    """The request line and the headers are over the limit."""


class RateLimited(CmserverError):
    """Too many requests of the `limit` a minute; `retry_after_seconds` says when the next may come."""

    def __init__(self, message: str, retry_after_seconds: float, *, limit: int, full_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.limit = limit
        self.full_after_seconds = full_after_seconds
        """When the full limit of requests is available again."""


class QuotaExceeded(CmserverError):
    """An agreed amount is used up."""


class Unavailable(CmserverError):
    """The database or a provider is away; try again later."""

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DatabaseExhausted(Unavailable):
    """The database has run out of disk, memory or connections, or may not write; nothing was changed. It needs an operator."""


class StatementTimeout(Unavailable):
    """A query of the request ran longer than the setting allows and was ended; nothing was changed."""
