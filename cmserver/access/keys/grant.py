"""A key gives nothing that it does not have itself."""

from __future__ import annotations

from cmserver.access.keys import repository
from cmserver.access.keys.model import Grant, granted
from cmserver.access.model import Principal, meaning
from cmserver.base.errors import Forbidden
from cmserver.base.sql import Conn


async def own(conn: Conn, principal: Principal) -> Grant:
    """What the caller's key is allowed; nobody ends it meanwhile. The operator, who comes without one, has no bounds."""
    if principal.key_id is None:
        return Grant(
            scopes=sorted(principal.scopes),
            project_id=principal.project_id,
            actor_id=principal.actor_id,
            expires_at=None,
            requests_per_minute=None,
            events_per_month=None,
        )
    key = await repository.lock(conn, principal.team_id, principal.key_id)
    if key is None or key.revoked_at is not None or key.expired:  # since it was let in
        raise Forbidden("This key is over; it can make and end no others.")
    return granted(key)


def check(principal: Principal, has: Grant, wanted: Grant) -> None:
    """Forbidden, with the reason, when a key that is allowed what is wanted would be more than the caller's, which `has` that."""
    covers(principal, has, wanted)
    if _more(wanted.requests_per_minute, has.requests_per_minute):
        raise Forbidden(f"This key has {has.requests_per_minute} requests per minute, and the other one more.")
    if _more(wanted.events_per_month, has.events_per_month):
        raise Forbidden(f"This key has {has.events_per_month} events per month, and the other one more.")
    if has.expires_at is not None and (wanted.expires_at is None or wanted.expires_at > has.expires_at):
        raise Forbidden("This key expires sooner than the other one would.")


def covers(principal: Principal, has: Grant, other: Grant) -> None:
    """Forbidden when the other key may do more than the caller's, however often and long either may: enough to end it."""
    _check_scopes(principal, other)
    if has.project_id is not None and other.project_id != has.project_id:
        raise Forbidden("This key is bound to a project; the other one reaches beyond it.")
    if other.actor_id != principal.actor_id and not principal.may("admin"):
        raise Forbidden("Only a key with the scope admin may make, rotate or revoke the keys of another actor.")


def _check_scopes(principal: Principal, wanted: Grant) -> None:
    missing = sorted(scope for scope in meaning(wanted.scopes) if not principal.may(scope))
    if missing:
        raise Forbidden(
            f"This key does not have the scopes of the other one ({', '.join(missing)}), and a key can give only what it has. "
            "Ask an owner of the team for a key that has it."
        )


def _more(wanted: int | None, has: int | None) -> bool:
    return has is not None and (wanted is None or wanted > has)


def least(first: int | None, second: int | None) -> int | None:
    """The narrower of two limits; None is no limit."""
    return min((limit for limit in (first, second) if limit is not None), default=None)
