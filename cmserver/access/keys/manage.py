"""Keys make, replace and end keys: never more than they are themselves."""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access import announce, audit
from cmserver.access.keys import grant, repository
from cmserver.access.keys.mint import known, make
from cmserver.access.keys.model import Grant, Key, Made, granted
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn

NO_SUCH = "There is no such key."


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A key as somebody asks for it. What is not said is as the asking key has it; None is no limit."""

    scopes: list[str]
    name: str = ""
    project_id: UUID | None = None
    actor_id: str | None = None
    expires_in_days: int | None = None
    requests_per_minute: int | UnsetType | None = UNSET
    events_per_month: int | UnsetType | None = UNSET


async def create(conn: Conn, principal: Principal, wanted: Wanted, *, usual_requests_per_minute: int | None) -> Made:
    """A new key; Forbidden when it would be more than the caller's. `usual_requests_per_minute` is for who says nothing of it."""
    known(wanted.scopes)
    has = await grant.own(conn, principal)
    asked = Grant(
        scopes=list(dict.fromkeys(wanted.scopes)),
        project_id=wanted.project_id or has.project_id,
        actor_id=wanted.actor_id or principal.actor_id,
        expires_at=has.expires_at if wanted.expires_in_days is None else await repository.in_days(conn, wanted.expires_in_days),
        requests_per_minute=grant.least(usual_requests_per_minute, has.requests_per_minute)
        if wanted.requests_per_minute is UNSET
        else wanted.requests_per_minute,
        events_per_month=has.events_per_month if wanted.events_per_month is UNSET else wanted.events_per_month,
    )
    grant.check(principal, has, asked)
    made = await make(conn, principal.team_id, asked, name=wanted.name)
    await audit.record(
        conn,
        principal,
        "key.created",
        "api_key",
        made.key.id,
        project_id=asked.project_id,
        scopes=asked.scopes,
        actor=asked.actor_id,
    )
    return made


async def rotate(conn: Conn, principal: Principal, key_id: UUID, *, overlap_seconds: int) -> Made:
    """A successor that is allowed the same; the old key ends after the overlap. Every key may rotate itself.

    The successor's text is as good as the old one's, so Forbidden when the old key is more than the caller's.
    """
    old = await _to_end(conn, principal, key_id)
    if old.id != principal.key_id:
        grant.check(principal, await grant.own(conn, principal), granted(old))
    if old.revoked_at is not None or old.expired:
        raise Conflict("This key is revoked or expired. Make a new one instead.")
    if old.replaced_by is not None:
        raise Conflict(f"This key has been rotated already. Its successor is {old.replaced_by}: rotate that one.")
    made = await make(conn, principal.team_id, granted(old), name=old.name)
    await repository.replace(conn, principal.team_id, old.id, successor=made.key.id, overlap_seconds=overlap_seconds)
    await audit.record(
        conn,
        principal,
        "key.rotated",
        "api_key",
        old.id,
        project_id=old.project_id,
        successor=str(made.key.id),
        overlap_seconds=overlap_seconds,
    )
    await announce.changed(conn, principal.team_id)
    return made


async def revoke(conn: Conn, principal: Principal, key_id: UUID) -> Key:
    """End a key for good, in every process; what was queued under it fails. Every key may revoke itself. Once more is no error.

    Forbidden when the key is more than the caller's.
    """
    key = await _to_end(conn, principal, key_id)
    return key if key.revoked_at is not None else await _revoke(conn, principal, key)


async def revoke_all_of(conn: Conn, principal: Principal, actor_id: str) -> int:
    """All keys of that actor, or none: Forbidden when one of them is more than the caller's."""
    # Whoever is just making one with such a key has locked that, and is waited for; then there is one more.
    await repository.lock_of_actor(conn, principal.team_id, actor_id)
    keys = await repository.lock_of_actor(conn, principal.team_id, actor_id)
    has = await grant.own(conn, principal)
    for key in keys:
        if key.id != principal.key_id:
            grant.covers(principal, has, granted(key))
    for key in keys:
        await _revoke(conn, principal, key)
    return len(keys)


async def one(conn: Conn, principal: Principal, key_id: UUID) -> Key:
    """The key, or NotFound: also when it is another team's, or beyond the project that the caller is bound to."""
    return _seen(principal, await repository.by_id(conn, principal.team_id, key_id))


def _seen(principal: Principal, key: Key | None) -> Key:
    if key is None or not principal.sees(key.project_id):
        raise NotFound(NO_SUCH)
    return key


async def _to_end(conn: Conn, principal: Principal, key_id: UUID) -> Key:
    """The key, locked, if the caller may rotate or revoke it."""
    if key_id != principal.key_id:
        principal.require("keys:write")
    key = _seen(principal, await repository.lock(conn, principal.team_id, key_id))
    if key_id != principal.key_id:
        grant.covers(principal, await grant.own(conn, principal), granted(key))
    return key


async def _revoke(conn: Conn, principal: Principal, key: Key) -> Key:
    revoked = await repository.revoke(conn, principal.team_id, key.id)
    await audit.record(conn, principal, "key.revoked", "api_key", key.id, project_id=key.project_id, actor=key.actor_id)
    await announce.changed(conn, principal.team_id)
    return revoked
