"""Hashes passwords (argon2id), a few at a time in threads: each takes 64 MiB of memory and some hundredths of a second."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

_THREADS = 2


class Passwords:
    """Hashes and verifies passwords without blocking the event loop."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="passwords")
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        """The hash to store."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._hasher.hash, password)

    async def verify(self, stored: str | None, password: str) -> bool:
        """Whether it is the password. Without a stored hash it takes as long, and is not."""
        if stored is None:
            if self._dummy is None:
                self._dummy = await self.hash(secrets.token_hex())
            stored, password = self._dummy, ""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, stored, password)

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
