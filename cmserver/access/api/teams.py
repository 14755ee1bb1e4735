"""Teams and their members, over HTTP. The only team there is, is the caller's own."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import teams, wire
from cmserver.access.api.inputs import Metadata, clean_metadata, forget
from cmserver.access.clean import Name, clean_name, clean_policy
from cmserver.access.keys import manage as manage_keys
from cmserver.access.model import GenerationPolicy, Principal, RetentionPolicy, Role
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Member, MemberChange, RemovedMember
from cmserver.access.teams import TeamChange
from cmserver.base import lookalikes
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import delete, get, patch, post, put
from cmserver.base.http.wire import answer, caller, convert, db, dependency, query, read_sized
from cmserver.base.ids import new_id
from cmserver.base.paging import Limit, page, place_by_name
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.redaction.redact import redact

RequestsPerMinute = Annotated[int, Meta(ge=1, le=1_000_000)]
EventsPerMonth = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]


class TeamIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/teams."""

    name: Name
    metadata: Metadata = {}


class TeamChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a team: what is not sent stays. `generationPolicy` is when and of what observations are made, null for nothing of
    its own; `retention` is how long what is kept, null for nothing of its own. Its name and its limits (null: none) are for keys
    with the scope `*`.
    """

    name: Name | UnsetType = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    generation_policy: GenerationPolicy | UnsetType | None = UNSET
    retention: RetentionPolicy | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    requests_per_minute: RequestsPerMinute | UnsetType | None = UNSET
    events_per_month: EventsPerMonth | UnsetType | None = UNSET


class MemberIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PUT of a member. Without `metadata`, what is noted stays."""

    role: Role
    metadata: Metadata | UnsetType | None = UNSET


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of a list."""

    limit: Limit = 50
    cursor: str | None = None


async def get_teams(request: Request) -> Response:
    """The caller's team."""
    principal = await caller(request, Principal)
    query(request, ListQuery)
    async with db(request).tenant(principal.team_id) as conn:
        team = await teams.require_team(conn, principal, str(principal.team_id))
    return answer(wire.TeamsOut(teams=[wire.team_out(team)], next_cursor=None))


async def post_team(request: Request) -> Response:
    """Make a team with its first key, which may do everything in it; whoever asks becomes its owner."""
    principal = await caller(request, Principal)
    teams.require_team_key(principal)
    body, size = await read_sized(request, TeamIn)
    name = clean_name(body.name, at="$.name")
    metadata = await clean_metadata(body.metadata, size)
    async with db(request).tenant(principal.team_id) as conn:
        has = await manage_keys.load_caller_grant(conn, principal)
    operator = msgspec.structs.replace(principal, team_id=new_id(), team_name=name)
    team, new_key = await db(request).in_tenant(
        operator.team_id,
        lambda conn: teams.create(conn, operator, has, name=name, metadata=metadata),
    )
    return answer(wire.NewTeamOut(team=wire.team_out(team), key=reshape(new_key.key, wire.KeyOut), api_key=new_key.text), 201)


async def get_team(request: Request) -> Response:
    """The caller's team, by its id or name."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        team = await teams.require_team(conn, principal, str(request.path_params["team"]))
    return answer(wire.OneTeamOut(team=wire.team_out(team)))


async def patch_team(request: Request) -> Response:
    """Change a team's notes and policy, or archive it: then its keys open nothing, and only the operator brings it back."""
    principal = await caller(request, Principal)
    body, size = await read_sized(request, TeamChangeIn)
    change = TeamChange(
        name=UNSET if body.name is UNSET else clean_name(body.name, at="$.name"),
        metadata=UNSET if body.metadata is UNSET else await clean_metadata(body.metadata, size),
        policy=UNSET if body.generation_policy is UNSET else clean_policy(body.generation_policy),
        retention=UNSET if body.retention is UNSET else body.retention or RetentionPolicy(),
        archived=body.archived,
        requests_per_minute=body.requests_per_minute,
        events_per_month=body.events_per_month,
    )
    team = await db(request).in_tenant(
        principal.team_id, lambda conn: teams.change(conn, principal, str(request.path_params["team"]), change)
    )
    forget(request, principal)
    return answer(wire.OneTeamOut(team=wire.team_out(team)))


async def get_members(request: Request) -> Response:
    """A page of a team's members, newest first: those who sign in, and names that stand on keys."""
    principal = await caller(request, Principal)
    teams.require_team_key(principal)
    params = query(request, ListQuery)
    before, after = place_by_name(params.cursor)

    async def load(conn: Conn) -> list[Member]:
        team = await teams.require_team(conn, principal, str(request.path_params["team"]))
        return await people.newest_members(conn, team.id, before=before, after=after, limit=params.limit + 1)

    rows = await dependency(request, Accounts).run(load)
    members_of_page, next_cursor = page(rows, params.limit, lambda row: (row.created_at, row.user_id))
    return answer(wire.MembersOut(members=[reshape(member, wire.MemberOut) for member in members_of_page], next_cursor=next_cursor))


async def put_member(request: Request) -> Response:
    """Add a member by name, or change a member's role. A lower role lowers what their keys may do."""
    principal = await caller(request, Principal)
    user = lookalikes.clean_name(_read_user(request))
    body, size = await read_sized(request, MemberIn)
    metadata = None if body.metadata is UNSET else await clean_metadata(body.metadata, size)

    async def put(conn: Conn) -> MemberChange:
        await teams.require_team(conn, principal, str(request.path_params["team"]))
        teams.require_team_key(principal)
        return await manage_people.put_member(conn, principal, user, body.role, metadata)

    change = await dependency(request, Accounts).run(put)
    return answer(wire.OneMemberOut(member=reshape(change.member, wire.MemberOut)), 201 if change.is_new else 200)


async def delete_member(request: Request) -> Response:
    """Remove a member from a team: their keys end, and the keys and invitations that they made. An account stays."""
    principal = await caller(request, Principal)
    user = _read_user(request)

    async def remove(conn: Conn) -> RemovedMember:
        await teams.require_team(conn, principal, str(request.path_params["team"]))
        teams.require_team_key(principal)
        return await manage_people.remove_member(conn, principal, user)

    removed = await dependency(request, Accounts).run(remove)
    forget(request, principal)
    return answer(
        wire.RemovedMemberOut(
            deleted=True,
            user_id=removed.member.user_id,
            revoked_keys=len(removed.keys),
            other_keys=[reshape(key, wire.EndedKeyOut) for key in removed.other_keys],
            withdrawn_invitations=removed.invitations,
        )
    )


def _read_user(request: Request) -> str:
    user = convert(request.path_params["user"], cast("type[str]", Name), at="$.user")
    if redact(user)[0].strip() != user or not lookalikes.clean_name(user):
        raise Invalid.at("$.user", "A user is named without spaces around it, and not by a secret, or by what nobody sees.")
    return user


routes = [
    get("/v1/teams", get_teams, "", wire.TeamsOut, query=ListQuery),
    post("/v1/teams", post_team, "*", wire.NewTeamOut, status=201, body=TeamIn),
    get("/v1/teams/{team}", get_team, "", wire.OneTeamOut),
    patch("/v1/teams/{team}", patch_team, "admin", wire.OneTeamOut, body=TeamChangeIn),
    get("/v1/teams/{team}/members", get_members, "", wire.MembersOut, query=ListQuery),
    put(
        "/v1/teams/{team}/members/{user:path}", put_member, "admin", {200: wire.OneMemberOut, 201: wire.OneMemberOut}, body=MemberIn
    ),
    delete("/v1/teams/{team}/members/{user:path}", delete_member, "admin", wire.RemovedMemberOut),
]
