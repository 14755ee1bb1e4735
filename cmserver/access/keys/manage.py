"""Makes, rotates and revokes API keys (`cms_<key id>_<secret>`, stored as a hash). A key can grant only what it has."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET

from cmserver.access import announce, audit
from cmserver.access.keys import repository
from cmserver.access.keys.model import Key, KeyGrant, KeyRequest, NewKey, RevokedKeys, read_grant
from cmserver.access.model import OLDER_SCOPES, SCOPES, Principal, expand_scopes
from cmserver.base.credentials import parse_key_id
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape

NO_SUCH = "Key not found."
USUAL_REQUESTS_PER_MINUTE = 600
"""Ten a second of a new key, and of a person: an agent that works all day sends one."""


async def create(conn: Conn, principal: Principal, request: KeyRequest, *, key_id: UUID | None = None) -> NewKey:
    """A new key; Forbidden when it would be more than the caller's, Conflict when there is one with that `key_id`."""
    check_scopes(request.scopes)
    limit = await load_caller_grant(conn, principal)
    days = request.expires_in_days
    grant = KeyGrant(
        scopes=list(dict.fromkeys(request.scopes)),
        project_id=request.project_id or limit.project_id,
        actor_id=request.actor_id or principal.actor_id,
        user_id=principal.user_id if request.personal and request.actor_id in (None, principal.actor_id) else None,
        made_by=principal.user_id or limit.made_by,
        expires_at=limit.expires_at if days is None else await repository.in_days(conn, days),
        requests_per_minute=min_limit(USUAL_REQUESTS_PER_MINUTE, limit.requests_per_minute)
        if request.requests_per_minute is UNSET
        else request.requests_per_minute,
        events_per_month=limit.events_per_month if request.events_per_month is UNSET else request.events_per_month,
    )
    check_grant(principal, limit, grant)
    new_key = await make(conn, principal.team_id, grant, name=request.name, text=new_key_text(key_id))
    await audit.record(
        conn,
        principal,
        "key.created",
        "api_key",
        new_key.id,
        project_id=grant.project_id,
        scopes=grant.scopes,
        actor=grant.actor_id,
    )
    return new_key


async def rotate(conn: Conn, principal: Principal, key_id: UUID, *, overlap_seconds: int) -> NewKey:
    """Replace a key by one of the same grant; it ends after the overlap. Forbidden when that is larger than the caller's.

    One that neither its person nor the key itself has rotated is nobody's: another one knows its text.
    """
    old_key = await _lock_to_end(conn, principal, key_id)
    if old_key.id != principal.key_id:
        check_grant(principal, await load_caller_grant(conn, principal), read_grant(old_key))
    if old_key.revoked_at is not None or old_key.expired:
        raise Conflict("This key is revoked or expired. Make a new one instead.")
    if old_key.replaced_by is not None:
        raise Conflict(f"This key has been rotated already. Its successor is {old_key.replaced_by}: rotate that one.")
    grant = read_grant(old_key)
    if principal.key_id != old_key.id and principal.user_id != old_key.user_id:
        grant = msgspec.structs.replace(grant, user_id=None)
    new_key = await make(conn, principal.team_id, grant, name=old_key.name)
    await repository.replace(conn, principal.team_id, old_key.id, successor=new_key.id, overlap_seconds=overlap_seconds)
    await audit.record(
        conn,
        principal,
        "key.rotated",
        "api_key",
        old_key.id,
        project_id=old_key.project_id,
        successor=str(new_key.id),
        overlap_seconds=overlap_seconds,
    )
    await announce.drop_cached(conn, principal.team_id)
    return new_key


async def bind(conn: Conn, person: Principal, text: str) -> Key:
    """Make a key of before the signed-in person's own, once: what is theirs alone is read with it from then on.

    Invalid for what is no working key of the team. Conflict for one that is somebody's, that a person made, for whoever else, or
    that came of a rotation, since somebody else may know its text, or that has another member's name. An operator may bind the
    server's first key.
    """
    key = await repository.lock_by_text(conn, person.team_id, *parse(text))
    if key is None or key.revoked_at is not None or key.expired:
        raise Invalid.at("$.key", "This is no working key of this team.")
    if key.user_id is not None or person.user_id is None:
        raise Conflict("This key belongs to a person already.")
    if key.made_by is not None:
        raise Conflict("This key was made for somebody else, who may know it. Make a new one while you are signed in.")
    if key.replaced_by is not None or await repository.came_of_rotation(conn, person.team_id, key.id):
        raise Conflict("This key was rotated, so somebody else may know it. Make a new one while you are signed in.")
    first = await repository.lock_first(conn, person.team_id) if person.may("*") else None
    is_first = first is not None and first.id == key.id
    if await repository.is_of_another_member(conn, person.team_id, key.actor_id, person.user_id, signs_in=is_first):
        raise Conflict(f"This key has the name of another member ({key.actor_id}). Make one of your own while you are signed in.")
    return await bind_key(conn, person, key)


async def bind_key(conn: Conn, person: Principal, key: Key) -> Key:
    """Make the locked key the person's own. It acts under their name from then on; what came by it before is shown under that."""
    assert person.user_id is not None
    bound = await repository.bind(conn, person.team_id, key.id, person.user_id, person.actor_id)
    await audit.record(conn, person, "key.bound", "api_key", key.id, project_id=key.project_id, actor=key.actor_id)
    await announce.drop_cached(conn, person.team_id)
    return bound


async def revoke(conn: Conn, principal: Principal, key_id: UUID, *, only: bool = False) -> RevokedKeys:
    """End a key in every process, and fail the jobs queued under it; also when it was revoked before.

    Whoever has a key can rotate it, so all keys of its chain of rotations end with it, except with `only`. Every key may revoke
    itself and its chain; Forbidden when the key reaches further than the caller's, Conflict when the caller's would end unnamed.
    """
    key = await _lock_to_end(conn, principal, key_id)
    chain = [key] if only else await repository.lock_chain(conn, principal.team_id, key.id)
    if key_id != principal.key_id and principal.key_id in {link.id for link in chain}:
        raise Conflict(
            "The key that you use was rotated to or from this one and would end with it. With only=true (--only) this one ends "
            "alone; to end both, revoke the one that you use."
        )
    revoked = {link.id: await _revoke(conn, principal, link) for link in chain if link.revoked_at is None}
    return RevokedKeys(key=revoked.pop(key.id, key), others=list(revoked.values()))


async def revoke_all_of(conn: Conn, principal: Principal, actor_id: str) -> list[Key]:
    """Revoke all keys of an actor, and return them. Forbidden when one of them reaches further than the caller's."""
    return [await _revoke(conn, principal, key) for key in await _lock_all_of(conn, principal, actor_id)]


async def narrow_all_of(
    conn: Conn, principal: Principal, actor_id: str, allowed: frozenset[str], *, but_made_by: UUID | None
) -> int:
    """Take from the keys of an actor what is not `allowed`, but from those that a person made; returns how many changed.

    A key without any scope left ends. Forbidden when one of them reaches further than the caller's.
    """
    keys = await _lock_all_of(conn, principal, actor_id, but_made_by=but_made_by)
    return await _narrow(conn, principal, keys, {principal.team_id: allowed})


async def _lock_all_of(conn: Conn, principal: Principal, actor_id: str, *, but_made_by: UUID | None = None) -> list[Key]:
    # Locked twice: the first call waits for transactions that make further keys with these, the second finds those keys.
    await repository.lock_of_actor(conn, principal.team_id, actor_id)
    keys = await repository.lock_of_actor(conn, principal.team_id, actor_id)
    keys = [key for key in keys if key.made_by is None or key.made_by != but_made_by]
    others = [key for key in keys if key.id != principal.key_id]
    if others:
        limit = await load_caller_grant(conn, principal)
        for key in others:
            check_reach(principal, limit, read_grant(key))
    return keys


async def revoke_all_of_maker(conn: Conn, principal: Principal, user_id: UUID) -> list[Key]:
    """Revoke all keys that a person made in the team, also for other actors: they know their secrets. Returns them."""
    return [await _revoke(conn, principal, key) for key in await repository.lock_of_maker(conn, user_id, principal.team_id)]


async def narrow_all_of_maker(
    conn: Conn, principal: Principal, user_id: UUID, allowed: Mapping[UUID, frozenset[str]], *, team_id: UUID | None = None
) -> int:
    """Take from the keys that a person made what they may do no more themselves, by team; a key without any scope left ends.

    `allowed` are the person's scopes in their teams; keys in others are left only without `*`. With `team_id` only the keys in
    that team are looked at. Returns how many changed.
    """
    return await _narrow(conn, principal, await repository.lock_of_maker(conn, user_id, team_id), allowed)


async def _narrow(conn: Conn, principal: Principal, keys: Iterable[Key], allowed: Mapping[UUID, frozenset[str]]) -> int:
    changed = 0
    for key in keys:
        scopes = narrow_scopes(key.scopes, allowed.get(key.team_id, frozenset({"admin"})))
        if scopes == key.scopes:
            continue
        changed += 1
        acting = msgspec.structs.replace(principal, team_id=key.team_id)
        if scopes:
            await repository.set_scopes(conn, key.team_id, key.id, scopes)
            await audit.record(
                conn, acting, "key.narrowed", "api_key", key.id, project_id=key.project_id, actor=key.actor_id, scopes=scopes
            )
            await announce.drop_cached(conn, key.team_id)
        else:
            await _revoke(conn, acting, key)
    return changed


def narrow_scopes(scopes: list[str], allowed: frozenset[str]) -> list[str]:
    """What of the scopes somebody with those that are `allowed` may give."""

    def may(scope: str) -> bool:
        return scope in allowed or "*" in allowed or (scope != "*" and "admin" in allowed)

    plain = expand_scopes(scopes)
    if all(map(may, plain)):
        return scopes
    is_broad = bool(plain & {"admin", "*"})  # it may do all that there is
    return [scope for scope in SCOPES if (scope in allowed if is_broad else scope in plain and may(scope))]


async def find_maker(conn: Conn, principal: Principal) -> UUID | None:
    """The person who made the caller's key; None for a key that nobody made, and without a key."""
    key = await repository.by_id(conn, principal.team_id, principal.key_id) if principal.key_id else None
    return key.made_by if key else None


async def require_key(conn: Conn, principal: Principal, key_id: UUID) -> Key:
    """The key; NotFound for other teams' keys, and for keys outside the caller's project."""
    return _require_visible(principal, await repository.by_id(conn, principal.team_id, key_id))


def _require_visible(principal: Principal, key: Key | None) -> Key:
    if key is None or not principal.sees(key.project_id):
        raise NotFound(NO_SUCH)
    return key


async def _lock_to_end(conn: Conn, principal: Principal, key_id: UUID) -> Key:
    """The key, locked, if the caller may rotate or revoke it."""
    if key_id != principal.key_id:
        principal.require("keys:write")
    key = _require_visible(principal, await repository.lock(conn, principal.team_id, key_id))
    if key_id != principal.key_id:
        check_reach(principal, await load_caller_grant(conn, principal), read_grant(key))
    return key


async def _revoke(conn: Conn, principal: Principal, key: Key) -> Key:
    revoked = await repository.revoke(conn, principal.team_id, key.id)
    await audit.record(conn, principal, "key.revoked", "api_key", key.id, project_id=key.project_id, actor=key.actor_id)
    await announce.drop_cached(conn, principal.team_id)
    return revoked


def new_key_text(key_id: UUID | None = None) -> str:
    """The text of a new key, of that id or a new one."""
    return f"cms_{(key_id or new_id()).hex}_{secrets.token_hex(24)}"


async def mint(
    conn: Conn,
    team_id: UUID,
    *,
    scopes: Iterable[str],
    actor_id: str,
    name: str = "",
    project_id: UUID | None = None,
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    events_per_month: int | None = None,
    text: str | None = None,
) -> NewKey:
    """Make a key without checking a caller's grant. `text` is the operator's own key (CMSERVER_BOOTSTRAP_KEY)."""
    grant = KeyGrant(
        scopes=list(scopes),
        project_id=project_id,
        actor_id=actor_id,
        expires_at=expires_at,
        requests_per_minute=requests_per_minute,
        events_per_month=events_per_month,
    )
    check_scopes(grant.scopes)
    return await make(conn, team_id, grant, name=name, text=text)


async def make(conn: Conn, team_id: UUID, grant: KeyGrant, *, name: str, text: str | None = None) -> NewKey:
    """Store a key with a grant that was checked before."""
    text = text or new_key_text()
    key_id, key_hash = parse(text)
    key = await repository.insert(conn, key_id or new_id(), team_id, key_hash=key_hash, name=name, grant=grant)
    return NewKey(key=key, text=text)


def check_scopes(scopes: Iterable[str]) -> None:
    """Raise Invalid for an unknown scope."""
    for scope in scopes:
        if scope not in SCOPES and scope not in OLDER_SCOPES:
            raise Invalid.at("$.scopes", f"Unknown scope {scope!r}. Use: {', '.join([*SCOPES, *OLDER_SCOPES])}.")


def parse(text: str) -> tuple[UUID | None, str]:
    """The key's id and the hash of its secret. A key of another form (an operator's, or from claude-mem) is hashed whole."""
    key_id = parse_key_id(text)
    secret = text if key_id is None else text.split("_", 2)[2]
    return key_id, hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _own_grant(principal: Principal) -> KeyGrant:
    """What somebody may do who does not call with a key."""
    limits = principal.limits
    return reshape(
        principal,
        KeyGrant,
        scopes=sorted(principal.scopes),
        expires_at=None,
        requests_per_minute=limits.requests_per_minute,
        events_per_month=limits.events_per_month,
    )


async def load_caller_grant(conn: Conn, principal: Principal) -> KeyGrant:
    """What the caller may grant; locks its key. A person's keys are limited as the person is, an operator's are not."""
    if principal.kind in ("operator", "person"):
        return _own_grant(principal)
    if principal.key_id is None:
        raise Forbidden("Only people and keys can manage keys.")
    key = await repository.lock(conn, principal.team_id, principal.key_id)
    if key is None or key.revoked_at is not None or key.expired:  # since the request was authenticated
        raise Forbidden("This key is expired or revoked and cannot manage other keys.")
    return read_grant(key)


def check_grant(principal: Principal, limit: KeyGrant, grant: KeyGrant) -> None:
    """Raise Forbidden when `grant` allows more than `limit`, the grant of the caller's key."""
    check_reach(principal, limit, grant)
    if _exceeds(grant.requests_per_minute, limit.requests_per_minute):
        raise Forbidden(f"This key has {limit.requests_per_minute} requests per minute; the other key would have more.")
    if _exceeds(grant.events_per_month, limit.events_per_month):
        raise Forbidden(f"This key has {limit.events_per_month} events per month; the other key would have more.")
    if limit.expires_at is not None and (grant.expires_at is None or grant.expires_at > limit.expires_at):
        raise Forbidden("This key expires before the other key would.")


def check_reach(principal: Principal, limit: KeyGrant, grant: KeyGrant) -> None:
    """Raise Forbidden when `grant` has scopes, projects or actors that the caller's grant `limit` does not allow."""
    missing = sorted(scope for scope in expand_scopes(grant.scopes) if not principal.may(scope))
    if missing:
        raise Forbidden(
            f"This key does not have the scopes of the other one ({', '.join(missing)}). "
            "Ask an owner of the team for a key that has them."
        )
    if limit.project_id is not None and grant.project_id != limit.project_id:
        raise Forbidden(
            "This key is bound to a project and can make or revoke keys of that project only. Use a key of the whole team."
        )
    is_persons = principal.user_id is not None and principal.user_id in (grant.user_id, grant.made_by)
    is_own = grant.actor_id == principal.actor_id and (is_persons or grant.user_id == principal.user_id)
    if not is_own and not principal.may("admin"):
        raise Forbidden("Only a key with the scope admin may make, rotate or revoke the keys of another actor.")


def find_revocable(principal: Principal, keys: Iterable[Key]) -> set[UUID]:
    """The ids of those keys that the caller may revoke."""
    limit = _own_grant(principal)
    found: set[UUID] = set()
    for key in keys:
        with suppress(Forbidden):
            check_reach(principal, limit, read_grant(key))
            found.add(key.id)
    return found


def _exceeds(value: int | None, limit: int | None) -> bool:
    return limit is not None and (value is None or value > limit)


def min_limit(first: int | None, second: int | None) -> int | None:
    """The lower of two limits; None is no limit."""
    return min((limit for limit in (first, second) if limit is not None), default=None)
