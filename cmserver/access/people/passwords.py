"""Hashes passwords (argon2id), a few at a time in threads: each takes 64 MiB of memory and some hundredths of a second."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from cmserver.base.errors import RateLimited
from cmserver.base.fair_threads import FairThreads

T = TypeVar("T")

_THREADS = 2
MAX_WAITING = 12
"""How many hashes run or wait at once; one more is refused, except from a browser that is known."""
MAX_WAITING_OF_ONE = 5
"""How many of these one holder may have."""
KNOWN = "known "
"""The beginning of a holder that is a browser in which the person signed in before."""


class Passwords:
    """Hashes and verifies passwords without blocking the event loop. Holders, such as addresses, take turns.

    RateLimited when too many wait.
    """

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._threads = FairThreads(_THREADS, "passwords")
        self._dummy: str | None = None
        self._waiting: Counter[str] = Counter()

    async def hash(self, password: str, *, holder: str = "") -> str:
        """The hash to store."""
        return await self._run(holder, lambda: self._hasher.hash(password))

    async def verify(self, stored: str | None, password: str, *, holder: str = "") -> bool:
        """Whether it is the password. Without a stored hash it takes as long, and is not."""
        if stored is None:
            if self._dummy is None:
                self._dummy = await self.hash(secrets.token_hex(), holder=holder)
            stored, password = self._dummy, ""
        return await self._run(holder, lambda: self._verify(stored, password))

    async def _run(self, holder: str, function: Callable[[], T]) -> T:
        is_full = self._waiting.total() >= MAX_WAITING and not holder.startswith(KNOWN)
        if is_full or self._waiting[holder] >= MAX_WAITING_OF_ONE:
            message = "Too many passwords are being checked at this moment. Try again in a second."
            raise RateLimited(message, 1.0, limit=MAX_WAITING, full_after_seconds=1.0)
        self._waiting[holder] += 1
        try:
            return await asyncio.wrap_future(self._threads.submit(holder, function))
        finally:
            self._waiting[holder] -= 1
            if not self._waiting[holder]:
                del self._waiting[holder]

    def _verify(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


def new_token() -> str:
    """A secret of 256 bits for a cookie or a link."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What is stored of a token: it has so much entropy that a plain hash hides it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
