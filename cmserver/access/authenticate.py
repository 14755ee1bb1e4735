"""Who may come in: the key of a request becomes its principal, within its rate limit and with the scope that is asked for."""

from __future__ import annotations

import hashlib
import hmac
import time
from datetime import UTC, datetime

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access import announce, keys, repository
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Limits, Principal, StoredKey, meaning
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Unauthenticated
from cmserver.base.live import Hub
from cmserver.base.sql import Conn

log: FilteringBoundLogger = structlog.get_logger(__name__)

_WRONG = "This API key is wrong, expired or revoked. Ask an owner of the team for a new one."
_REMEMBERED_SECONDS = 2.0
_REMEMBERED_KEYS = 10_000


class _Known(msgspec.Struct, frozen=True):
    """A key that was good when it was looked up."""

    principal: Principal
    expires_at: datetime | None
    until: float


class Authenticator:
    """Turns the key of a request into its principal. One per process.

    It remembers a key for two seconds, so that a burst costs one look-up, and forgets it as soon as anything of its team changes: a
    revocation is effective at once. A process that cannot hear of changes remembers nothing.
    """

    def __init__(self, db: Db, hub: Hub, meter: Meter) -> None:
        self._db = db
        self._hub = hub
        self._meter = meter
        self._denials = meter.denials
        self._remembered: dict[bytes, _Known] = {}
        self._changes = 0
        hub.on(announce.CHANNEL, self._forget)

    async def __call__(self, text: str | None, scope: str) -> Principal:
        """Whoever the key stands for, when it has the scope ("" asks for none).

        Unauthenticated without a key; Forbidden when it is wrong, expired or revoked, when its team is gone, or the scope missing;
        RateLimited when it asks too often.
        """
        if not text:
            raise Unauthenticated("This needs an API key: send it as `Authorization: Bearer <key>` or `X-Api-Key: <key>`.")
        fingerprint = hashlib.sha256(text.encode(errors="replace")).digest()
        principal = self._recalled(fingerprint) or await self._looked_up(text, fingerprint)
        await self._meter.admit(principal, scope)
        if scope:
            await self._denials.require(principal, scope)
        return principal

    def _recalled(self, fingerprint: bytes) -> Principal | None:
        known = self._remembered.get(fingerprint)
        if known is None or not self._hub.listening.is_set():
            return None
        is_over = known.expires_at is not None and known.expires_at <= datetime.now(UTC)
        return known.principal if known.until > time.monotonic() and not is_over else None

    async def _looked_up(self, text: str, fingerprint: bytes) -> Principal:
        changes = self._changes
        async with self._db.system_statement() as conn:
            key = await _stored(conn, text)
        if key is None:
            log.info("access.denied", reason="unknown_key")
            raise Forbidden(_WRONG)
        principal = _principal(key)
        if reason := _why_not(key):
            await self._denials.record(principal, reason)
            raise Forbidden(_WRONG)
        # A change that was heard while we looked may be younger than what we have seen.
        if self._hub.listening.is_set() and changes == self._changes:
            if len(self._remembered) >= _REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[fingerprint] = _Known(principal, key.expires_at, time.monotonic() + _REMEMBERED_SECONDS)
        return principal

    def _forget(self, team: str) -> None:
        """What is known of the team's keys, or of all when it is the empty string."""
        self._changes += 1
        kept = {mark: one for mark, one in self._remembered.items() if str(one.principal.team_id) != team} if team else {}
        self._remembered = kept


def _principal(key: StoredKey) -> Principal:
    return Principal(
        team_id=key.team_id,
        team_name=key.team_name,
        project_id=key.project_id,
        key_id=key.id,
        counts_as=key.counts_as,
        actor_id=key.actor_id,
        scopes=meaning(key.scopes),
        limits=Limits(
            requests_per_minute=key.requests_per_minute,
            events_per_month=key.events_per_month,
            team_requests_per_minute=key.team_requests_per_minute,
            team_events_per_month=key.team_events_per_month,
        ),
    )


def _why_not(key: StoredKey) -> str | None:
    if key.revoked_at is not None:
        return "revoked"
    if key.team_archived_at is not None:
        return "team_archived"
    return "expired" if key.expired else None


async def _stored(conn: Conn, text: str) -> StoredKey | None:
    key_id, key_hash = keys.parse(text)
    if key_id is None:
        return await repository.key_by_hash(conn, key_hash)
    key = await repository.key_by_id(conn, key_id)
    return key if key and hmac.compare_digest(key.key_hash, key_hash) else None
