"""Teams and the people in them, over HTTP. The only team there is, is the caller's own."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import members, repository, teams
from cmserver.access.api.given import Metadata, Name, clean_metadata, clean_name, clean_policy, forget, read_sized
from cmserver.access.keys import grant
from cmserver.access.model import GenerationPolicy, Principal, Role
from cmserver.access.teams import Change
from cmserver.access.wire import KeyOut, MemberOut, TeamOut, key_out, member_out, team_out
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, convert, db, query
from cmserver.base.ids import new_id
from cmserver.base.paging import Limit, page, place_by_name
from cmserver.base.redaction.redact import redact
from cmserver.base.settings import Settings

RequestsPerMinute = Annotated[int, Meta(ge=1, le=1_000_000)]
EventsPerMonth = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]


class TeamIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/teams."""

    name: Name
    metadata: Metadata = {}


class TeamChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a team: what is not sent stays. Its name and its limits (null: none) are for keys with the scope `*`."""

    name: Name | UnsetType = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    generation_policy: GenerationPolicy | UnsetType | None = UNSET
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


class TeamsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The one team that a key knows; `nextCursor` is always null."""

    teams: list[TeamOut]
    next_cursor: str | None


class OneTeamOut(msgspec.Struct, frozen=True, kw_only=True):
    """One team."""

    team: TeamOut


class NewTeamOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A new team with its first key, whose text is shown only now."""

    team: TeamOut
    key: KeyOut
    api_key: str


class MembersOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    members: list[MemberOut]
    next_cursor: str | None


class OneMemberOut(msgspec.Struct, frozen=True, kw_only=True):
    """One member."""

    member: MemberOut


class RemovedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who was removed, and how many of their keys were revoked with it."""

    deleted: bool
    user_id: str
    revoked_keys: int


async def get_teams(request: Request) -> Response:
    """The caller's team."""
    who = await caller(request, Principal)
    query(request, ListQuery)
    async with db(request).tenant(who.team_id) as conn:
        team = await teams.one(conn, who, str(who.team_id))
    return answer(TeamsOut(teams=[team_out(team)], next_cursor=None))


async def post_team(request: Request) -> Response:
    """Make a team with its first key, which may do everything in it; whoever asks becomes its owner."""
    who = await caller(request, Principal)
    teams.whole_team(who)
    asked, size = await read_sized(request, TeamIn)
    name = clean_name(asked.name, at="$.name")
    metadata = await clean_metadata(request, asked.metadata, size)
    usual = cast("Settings", request.app.state.settings).key_requests_per_minute
    async with db(request).tenant(who.team_id) as conn:
        has = await grant.own(conn, who)
    operator = msgspec.structs.replace(who, team_id=new_id(), team_name=name)
    team, made = await db(request).in_tenant(
        operator.team_id,
        lambda conn: teams.create(conn, operator, has, name=name, metadata=metadata, usual_requests_per_minute=usual),
    )
    return answer(NewTeamOut(team=team_out(team), key=key_out(made.key), api_key=made.text), 201)


async def get_team(request: Request) -> Response:
    """The caller's team, by its id or name."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        team = await teams.one(conn, who, str(request.path_params["team"]))
    return answer(OneTeamOut(team=team_out(team)))


async def patch_team(request: Request) -> Response:
    """Change a team's notes and policy, or archive it: then its keys open nothing, and only the operator brings it back."""
    who = await caller(request, Principal)
    asked, size = await read_sized(request, TeamChangeIn)
    change = Change(
        name=UNSET if asked.name is UNSET else clean_name(asked.name, at="$.name"),
        metadata=UNSET if asked.metadata is UNSET else await clean_metadata(request, asked.metadata, size),
        policy=UNSET if asked.generation_policy is UNSET else clean_policy(asked.generation_policy),
        archived=asked.archived,
        requests_per_minute=asked.requests_per_minute,
        events_per_month=asked.events_per_month,
    )
    team = await db(request).in_tenant(who.team_id, lambda conn: teams.change(conn, who, str(request.path_params["team"]), change))
    forget(request, who)
    return answer(OneTeamOut(team=team_out(team)))


async def get_members(request: Request) -> Response:
    """A page of a team's members, newest first."""
    who = await caller(request, Principal)
    teams.whole_team(who)
    asked = query(request, ListQuery)
    before, after = place_by_name(asked.cursor)
    async with db(request).tenant(who.team_id) as conn:
        team = await teams.one(conn, who, str(request.path_params["team"]))
        rows = await repository.members(conn, team.id, before=before, after=after, limit=asked.limit + 1)
    shown, more = page(rows, asked.limit, lambda one: (one.created_at, one.user_id))
    return answer(MembersOut(members=[member_out(one) for one in shown], next_cursor=more))


async def put_member(request: Request) -> Response:
    """Make somebody an owner or a member of a team."""
    who = await caller(request, Principal)
    user = _user(request)
    asked, size = await read_sized(request, MemberIn)
    metadata = None if asked.metadata is UNSET else await clean_metadata(request, asked.metadata, size)
    named = str(request.path_params["team"])
    member, is_new = await db(request).in_tenant(
        who.team_id, lambda conn: members.put(conn, who, named, user, asked.role, metadata)
    )
    return answer(OneMemberOut(member=member_out(member)), 201 if is_new else 200)


async def delete_member(request: Request) -> Response:
    """Take somebody out of a team, and revoke their keys."""
    who = await caller(request, Principal)
    user = _user(request)
    named = str(request.path_params["team"])
    revoked = await db(request).in_tenant(who.team_id, lambda conn: members.remove(conn, who, named, user))
    forget(request, who)
    return answer(RemovedOut(deleted=True, user_id=user, revoked_keys=revoked))


def _user(request: Request) -> str:
    user = convert(request.path_params["user"], cast("type[str]", Name), at="$.user")
    if redact(user)[0].strip() != user:
        raise Invalid.at("$.user", "A user is named without spaces around it, and not by a secret.")
    return user


routes = [
    Operation("GET", "/v1/teams", get_teams, scope="", query=ListQuery, answers={200: TeamsOut}),
    Operation("POST", "/v1/teams", post_team, scope="*", body=TeamIn, answers={201: NewTeamOut}),
    Operation("GET", "/v1/teams/{team}", get_team, scope="", answers={200: OneTeamOut}),
    Operation("PATCH", "/v1/teams/{team}", patch_team, scope="admin", body=TeamChangeIn, answers={200: OneTeamOut}),
    Operation("GET", "/v1/teams/{team}/members", get_members, scope="", query=ListQuery, answers={200: MembersOut}),
    Operation(
        "PUT",
        "/v1/teams/{team}/members/{user:path}",
        put_member,
        scope="admin",
        body=MemberIn,
        answers={200: OneMemberOut, 201: OneMemberOut},
    ),
    Operation("DELETE", "/v1/teams/{team}/members/{user:path}", delete_member, scope="admin", answers={200: RemovedOut}),
]
