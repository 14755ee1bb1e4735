"""Teams: made by the operator, changed by their admins, who may close them, too."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access import announce, audit, keys, repository
from cmserver.access.keys.model import Grant, Made
from cmserver.access.model import GenerationPolicy, Principal, Team
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.sql import Conn

NO_SUCH = "There is no such team."


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different; what is not said stays."""

    name: str | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    policy: GenerationPolicy | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    requests_per_minute: int | UnsetType | None = UNSET
    events_per_month: int | UnsetType | None = UNSET


async def create(
    conn: Conn, operator: Principal, has: Grant, *, name: str, metadata: Mapping[str, object], usual_requests_per_minute: int | None
) -> tuple[Team, Made]:
    """A team with its first key and its first owner, who is whoever asks. `operator` is the caller, as one of the new team.

    The key lasts no longer, and may do no more in a minute, than what the caller `has`.
    """
    team = await repository.insert_team(conn, operator.team_id, name, metadata)
    await audit.record(conn, operator, "team.created", "team", team.id, name=team.name)
    await repository.put_member(conn, team.id, operator.actor_id, "owner", {})
    await audit.record(conn, operator, "member.set", "team_member", operator.actor_id, role="owner")
    first = Grant(
        scopes=["admin"],
        project_id=None,
        actor_id=operator.actor_id,
        expires_at=has.expires_at,
        requests_per_minute=keys.least(usual_requests_per_minute, has.requests_per_minute),
        events_per_month=has.events_per_month,
    )
    made = await keys.make(conn, team.id, first, name="first key")
    await audit.record(conn, operator, "key.created", "api_key", made.key.id, scopes=first.scopes, actor=first.actor_id)
    return team, made


async def one(conn: Conn, principal: Principal, named: str) -> Team:
    """The caller's team, by its id or name; NotFound for any other."""
    team = await repository.team(conn, principal.team_id, archived=True)
    if team is None or named not in (str(team.id), team.name):
        raise NotFound(NO_SUCH)
    return team


async def change(conn: Conn, principal: Principal, named: str, wanted: Change) -> Team:
    """The team with what is different. What is the operator's to say is Forbidden for others: its limits, and its name.

    (That a name is taken tells of another team, so only the operator may try.) Archived, its keys open nothing any more.
    """
    whole_team(principal)
    await one(conn, principal, named)
    for field, value in (("requestsPerMinute", wanted.requests_per_minute), ("eventsPerMonth", wanted.events_per_month)):
        if value is not UNSET and not principal.may("*"):
            raise Forbidden(f"{field} of a team is set by the operator of this server, with a key that has the scope *.")
    team = await repository.lock_team(conn, principal.team_id)
    if wanted.name not in (UNSET, team.name) and not principal.may("*"):
        raise Forbidden("A team is renamed by the operator of this server, with a key that has the scope *.")
    different = {field: value for field in Change.__struct_fields__ if (value := getattr(wanted, field)) is not UNSET}
    archived = bool(different.pop("archived", team.archived_at is not None))
    changed = await repository.update_team(conn, msgspec.structs.replace(team, **different), archived=archived)
    action = "team.archived" if changed.archived_at and not team.archived_at else "team.updated"
    await audit.record(conn, principal, action, "team", team.id, name=changed.name, fields=sorted(different))
    await announce.changed(conn, principal.team_id)
    return changed


def whole_team(principal: Principal) -> None:
    """Forbidden for a key that is bound to a project."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project; its team and the people in it are for keys of the whole team.")
