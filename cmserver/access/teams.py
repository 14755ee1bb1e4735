"""Makes, changes and archives teams."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access import announce, audit, repository
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys.model import KeyGrant, NewKey
from cmserver.access.model import GenerationPolicy, Principal, RetentionPolicy, Team, WordsFor
from cmserver.access.people import repository as people
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.sql import Conn

NO_SUCH = "Team not found."


class TeamChange(msgspec.Struct, frozen=True, kw_only=True):
    """The fields to change; UNSET ones stay."""

    name: str | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    policy: GenerationPolicy | UnsetType = UNSET
    retention: RetentionPolicy | UnsetType = UNSET
    approves_rules: bool | UnsetType = UNSET
    untold_share: int | UnsetType = UNSET
    words: WordsFor | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    requests_per_minute: int | UnsetType | None = UNSET
    events_per_month: int | UnsetType | None = UNSET


async def create(
    conn: Conn,
    operator: Principal,
    caller_grant: KeyGrant,
    *,
    name: str,
    metadata: Mapping[str, object],
) -> tuple[Team, NewKey]:
    """A team, its first key, and its first owner: `operator`, who signs in to it if it is a person.

    The key has at most `caller_grant`'s expiry and limits.
    """
    team = await repository.insert_team(conn, operator.team_id, name, metadata)
    await audit.record(conn, operator, "team.created", "team", team.id, name=team.name)
    await people.insert_member(conn, team.id, operator.actor_id, "owner", account_id=operator.user_id)
    await audit.record(conn, operator, "member.set", "team_member", operator.actor_id, role="owner")
    first = KeyGrant(
        scopes=["admin"],
        project_id=None,
        actor_id=operator.actor_id,
        expires_at=caller_grant.expires_at,
        requests_per_minute=manage_keys.min_limit(manage_keys.USUAL_REQUESTS_PER_MINUTE, caller_grant.requests_per_minute),
        events_per_month=caller_grant.events_per_month,
    )
    new_key = await manage_keys.make(conn, team.id, first, name="first key")
    await audit.record(conn, operator, "key.created", "api_key", new_key.id, scopes=first.scopes, actor=first.actor_id)
    return team, new_key


async def require_team(conn: Conn, principal: Principal, reference: str) -> Team:
    """The caller's team, by its id or name; NotFound for any other."""
    team = await repository.team(conn, principal.team_id, archived=True)
    if team is None or reference not in (str(team.id), team.name):
        raise NotFound(NO_SUCH)
    return team


async def change(conn: Conn, principal: Principal, reference: str, changes: TeamChange) -> Team:
    """Change a team. Only the operator may set its limits and its name, whose conflicts reveal other teams; else Forbidden."""
    require_team_key(principal)
    await require_team(conn, principal, reference)
    for field, value in (("requestsPerMinute", changes.requests_per_minute), ("eventsPerMonth", changes.events_per_month)):
        if value is not UNSET and not principal.may("*"):
            raise Forbidden(f"{field} of a team is set by the operator of this server, with a key that has the scope *.")
    team = await repository.lock_team(conn, principal.team_id)
    if changes.name not in (UNSET, team.name) and not principal.may("*"):
        raise Forbidden("Only the operator of this server can rename a team, with a key that has the scope *.")
    values = {field: value for field in TeamChange.__struct_fields__ if (value := getattr(changes, field)) is not UNSET}
    archived = bool(values.pop("archived", team.archived_at is not None))
    changed = await repository.update_team(conn, msgspec.structs.replace(team, **values), archived=archived)
    action = "team.archived" if changed.archived_at and not team.archived_at else "team.updated"
    await audit.record(conn, principal, action, "team", team.id, name=changed.name, fields=sorted(values))
    await announce.drop_cached(conn, principal.team_id)
    return changed


def require_team_key(principal: Principal) -> None:
    """Raise Forbidden when the key is bound to a project."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project. Use a key of the whole team to see or change the team and its members.")
