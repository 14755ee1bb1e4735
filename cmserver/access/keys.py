"""API keys: `cms_<key id>_<secret>`. Minted once, stored as a hash, looked up on every request."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from cmserver.access import repository
from cmserver.access.model import OLDER_SCOPES, SCOPES, MintedKey, Principal, StoredKey
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, Unauthenticated
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn

_WRONG = "This API key is wrong, expired or revoked. Ask an owner of the team for a new one."
_REMEMBERED_SECONDS = 2.0
_REMEMBERED_KEYS = 10_000


def new_key_text() -> str:
    return f"cms_{new_id().hex}_{secrets.token_hex(24)}"


async def mint(
    conn: Conn,
    team_id: UUID,
    *,
    scopes: Iterable[str],
    actor_id: str,
    name: str = "",
    project_id: UUID | None = None,
    expires_at: datetime | None = None,
    text: str | None = None,
) -> MintedKey:
    """Make a key. `text` is for a key that an operator brought along (CMSERVER_BOOTSTRAP_KEY)."""
    wanted = list(scopes)
    for scope in wanted:
        if scope not in SCOPES and scope not in OLDER_SCOPES:
            raise Invalid(f"There is no scope {scope!r}. The scopes are: {', '.join(SCOPES)}.")
    text = text or new_key_text()
    key_id, key_hash = _parse(text)
    key_id = key_id or new_id()
    await repository.insert_key(
        conn,
        key_id=key_id,
        key_hash=key_hash,
        team_id=team_id,
        project_id=project_id,
        name=name,
        actor_id=actor_id,
        scopes=wanted,
        expires_at=expires_at,
    )
    return MintedKey(id=key_id, text=text)


class Authenticator:
    """Turns the key of a request into its principal. Remembers a key for two seconds, so that a burst costs one look-up:
    a revocation is felt by then.
    """

    def __init__(self, db: Db) -> None:
        self._db = db
        self._remembered: dict[bytes, tuple[float, Principal, datetime | None]] = {}

    async def __call__(self, text: str | None, scope: str) -> Principal:
        """Whoever the key stands for, when it has the scope ("" asks for none).

        Unauthenticated without a key; Forbidden when it is wrong, expired or revoked, when its team is gone, or the scope missing.
        """
        principal = await self._principal(text)
        if scope:
            principal.require(scope)
        return principal

    async def _principal(self, text: str | None) -> Principal:
        if not text:
            raise Unauthenticated("This needs an API key: send it as `Authorization: Bearer <key>` or `X-Api-Key: <key>`.")
        fingerprint = hashlib.sha256(text.encode(errors="replace")).digest()
        known = self._remembered.get(fingerprint)
        if known and known[0] > time.monotonic() and not _over(known[2]):
            return known[1]
        async with self._db.system_statement() as conn:
            key = await _stored(conn, text)
            team = await repository.team(conn, key.team_id) if key else None
        if key is None or team is None or key.revoked_at is not None or _over(key.expires_at):
            raise Forbidden(_WRONG)
        principal = Principal(
            team_id=key.team_id,
            team_name=team.name,
            project_id=key.project_id,
            key_id=key.id,
            actor_id=key.actor_id,
            scopes=_meaning(key.scopes),
        )
        if len(self._remembered) >= _REMEMBERED_KEYS:
            self._remembered.clear()
        self._remembered[fingerprint] = (time.monotonic() + _REMEMBERED_SECONDS, principal, key.expires_at)
        return principal


def _over(expires_at: datetime | None) -> bool:
    return expires_at is not None and expires_at <= datetime.now(UTC)


def _meaning(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(meant for scope in scopes for meant in OLDER_SCOPES.get(scope, {scope}))


def _parse(text: str) -> tuple[UUID | None, str]:
    """The key's id and the hash of its secret. A key of another form (brought along, or from claude-mem) is hashed whole."""
    parts = text.split("_", 2)
    if len(parts) == 3 and parts[0] == "cms":
        try:
            return UUID(hex=parts[1]), hashlib.sha256(parts[2].encode()).hexdigest()
        except ValueError:
            pass
    return None, hashlib.sha256(text.encode(errors="replace")).hexdigest()


async def _stored(conn: Conn, text: str) -> StoredKey | None:
    key_id, key_hash = _parse(text)
    if key_id is None:
        return await repository.key_by_hash(conn, key_hash)
    key = await repository.key_by_id(conn, key_id)
    return key if key and hmac.compare_digest(key.key_hash, key_hash) else None
