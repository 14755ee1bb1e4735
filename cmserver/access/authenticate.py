"""Authenticates requests: finds the principal of a key, and checks its rate limit and its scope."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from cmserver.access import repository
from cmserver.access.announce import CHANNEL
from cmserver.access.keys import manage as manage_keys
from cmserver.access.limits.meter import Meter
from cmserver.access.limits.wrong_keys import SharedLookup, WrongKeys
from cmserver.access.model import Limits, Principal, StoredKey, expand_scopes
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Unauthenticated
from cmserver.base.http.address import network_of
from cmserver.base.notifications import NotificationListener, TeamCache
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape

_WRONG = "This API key is wrong, expired or revoked. Ask an owner of the team for a new one."
_CACHE_SECONDS = 2.0


class _CheckedKey(msgspec.Struct, frozen=True):
    """The principal of an existing key, and the reason to refuse it, if any."""

    principal: Principal
    expires_at: datetime | None
    refusal: str | None

    @property
    def is_current(self) -> bool:
        """False for a key that has expired since it was looked up."""
        return bool(self.refusal) or self.expires_at is None or self.expires_at > datetime.now(UTC)


class Authenticator:
    """Turns the key of a request into its principal.

    Keys are cached for two seconds, and dropped as soon as anything of their team changes, so that a revocation takes effect at
    once. For addresses that sent too many wrong keys, keys that are not cached share their look-ups.
    """

    def __init__(self, db: Db, notifications: NotificationListener, meter: Meter) -> None:
        self._db = db
        self._meter = meter
        self._denials = meter.denials
        self._cache = TeamCache[bytes, _CheckedKey](
            notifications, CHANNEL, lambda key: key.principal.team_id, seconds=_CACHE_SECONDS
        )
        self._wrong_keys = WrongKeys()
        self._shared_lookup = SharedLookup(self._find_keys)

    async def __call__(self, text: str | None, scope: str, address: str = "") -> Principal:
        """The principal of the key, if it has the scope ("" requires none). `address` is the client's.

        Unauthenticated without a key; Forbidden when it is wrong, expired or revoked, its team is archived, or the scope is
        missing; RateLimited after too many requests.
        """
        if not text:
            raise Unauthenticated("An API key is required: send `Authorization: Bearer <key>` or `X-Api-Key: <key>`.")
        fingerprint = hashlib.sha256(text.encode(errors="replace")).digest()
        key = self._cache.get(fingerprint)
        if key is None or not key.is_current:
            is_shared = fingerprint not in self._cache and self._wrong_keys.are_too_many(network_of(address))
            key = await self._cache.load(fingerprint, lambda: self._look_up(text, network_of(address), is_shared=is_shared))
        principal = key.principal
        if key.refusal:
            await self._denials.record(principal, key.refusal)
            raise Forbidden(_WRONG)
        await self._meter.admit(principal, scope)
        if scope and not principal.may(scope):
            await self._denials.require(principal, scope)  # which records the refusal
        return principal

    async def _look_up(self, text: str, address: str, *, is_shared: bool) -> _CheckedKey:
        key = await self._shared_lookup(text) if is_shared else (await self._find_keys([text])).get(text)
        if key is None:
            self._wrong_keys.count(address)
            raise Forbidden(_WRONG)
        return _CheckedKey(key_principal(key), key.expires_at, find_refusal(key))

    async def _find_keys(self, texts: Sequence[str]) -> Mapping[str, StoredKey]:
        async with self._db.system_statement() as conn:
            return await _find_keys(conn, texts)


def key_principal(key: StoredKey) -> Principal:
    """The principal that the key stands for."""
    return reshape(key, Principal, kind="key", key_id=key.id, scopes=expand_scopes(key.scopes), limits=reshape(key, Limits))


def find_refusal(key: StoredKey) -> str | None:
    """The reason to refuse the key, if any."""
    if key.revoked_at is not None:
        return "revoked"
    if key.team_archived_at is not None:
        return "team_archived"
    return "expired" if key.expired else None


async def _find_keys(conn: Conn, texts: Sequence[str]) -> dict[str, StoredKey]:
    """The existing keys by their texts."""
    parsed = {text: manage_keys.parse(text) for text in texts}
    ids = [key_id for key_id, _ in parsed.values() if key_id is not None]
    stored = await repository.find_keys(conn, ids, [key_hash for key_id, key_hash in parsed.values() if key_id is None])
    by_id = {key.id: key for key in stored}
    by_hash = {key.key_hash: key for key in stored}
    found_keys: dict[str, StoredKey] = {}
    for text, (key_id, key_hash) in parsed.items():
        key = by_hash.get(key_hash) if key_id is None else by_id.get(key_id)
        if key is not None and hmac.compare_digest(key.key_hash, key_hash):
            found_keys[text] = key
    return found_keys
