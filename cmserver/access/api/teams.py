"""Teams and their members, over HTTP. The only team there is, is the caller's own."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.access import teams, verb, wire
from cmserver.access.api.inputs import Metadata, clean_metadata
from cmserver.access.clean import Name, clean_name, clean_policy
from cmserver.access.keys import manage as manage_keys
from cmserver.access.model import READERS_OF_WORDS, GenerationPolicy, RetentionPolicy, Role, WordsFor
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Member, MemberChange, RemovedMember
from cmserver.access.people.wire import format_removed
from cmserver.access.teams import TeamChange
from cmserver.access.verb import VerbCall, command, option
from cmserver.base import lookalikes
from cmserver.base.columns import Columns, render_fields
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from cmserver.base.paging import Limit, page, place_by_name
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.redaction.redact import redact

RequestsPerMinute = Annotated[int, Meta(ge=1, le=1_000_000)]
EventsPerMonth = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
UntoldShare = Annotated[int, Meta(ge=0, le=50)]


class TeamIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/teams."""

    name: Name
    metadata: Metadata = {}


class TeamChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a team: what is not sent stays. `generationPolicy` is when and of what observations are made, null for nothing of
    its own; `retention` is how long what is kept, null for nothing of its own; `approvesRules` is whether a rule that a model or an
    agent's tool writes counts only after a person's yes; `untoldShare` is how many of a hundred new sessions are told nothing, to
    be compared with the others: 0 to 50; `words` is who reads what others of the team and their agents said: `members`, `owners`,
    or `nobody` but the person. Its name and its limits (null: none) are for keys with the scope `*`.
    """

    team: str
    name: Name | UnsetType = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    generation_policy: GenerationPolicy | UnsetType | None = UNSET
    retention: RetentionPolicy | UnsetType | None = UNSET
    approves_rules: bool | UnsetType = UNSET
    untold_share: UntoldShare | UnsetType = UNSET
    words: WordsFor | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    requests_per_minute: RequestsPerMinute | UnsetType | None = UNSET
    events_per_month: EventsPerMonth | UnsetType | None = UNSET


class MemberIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PUT of a member. Without `metadata`, what is noted stays."""

    team: str
    user: Name
    role: Role
    metadata: Metadata | UnsetType | None = UNSET


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of a list."""

    limit: Limit = 50
    cursor: str | None = None


class MembersQuery(ListQuery, kw_only=True, forbid_unknown_fields=True):
    """A page of a team's members."""

    team: str


class MemberName(msgspec.Struct, kw_only=True):
    """The path of a member."""

    team: str
    user: Name


_LIMITS = "requests/min=requests_per_minute, events/month=events_per_month"
TEAM_COLUMNS = Columns(wire.TeamOut, f"id, name, {_LIMITS}, created, archived")


def render_team(team: wire.TeamOut) -> str:
    return render_fields(
        *Columns(wire.TeamOut, f"id, name, {_LIMITS}").fields(team),
        *wire.policy_fields(team.generation_policy),
        ("rules of models and tools", "count after a person's yes" if team.approves_rules else "count at once"),
        ("sessions told nothing", f"{team.untold_share} %" if team.untold_share else "none"),
        ("others' words", READERS_OF_WORDS[team.words]),
        *Columns(wire.TeamOut, "created, archived").fields(team),
    )


def render_one_team(result: wire.OneTeamOut, _: object = None) -> str:
    return render_team(result.team)


@verb.get("/v1/teams", "")
async def get_teams(call: VerbCall, given: ListQuery) -> wire.TeamsOut:
    """The caller's team."""
    place_by_name(given.cursor)
    async with call.read() as conn:
        team = await teams.require_team(conn, call.principal, str(call.principal.team_id))
    return wire.TeamsOut(teams=[wire.team_out(team)], next_cursor=None)


@verb.post("/v1/teams", "*", status=201, whole_team=True)
async def post_team(call: VerbCall, given: TeamIn) -> wire.NewTeamOut:
    """Make a team with its first key, which may do everything in it; whoever asks becomes its owner."""
    name = clean_name(given.name, at="$.name")
    metadata = await clean_metadata(given.metadata, call.size_bytes)
    async with call.read() as conn:
        has = await manage_keys.load_caller_grant(conn, call.principal)
    operator = msgspec.structs.replace(call.principal, team_id=new_id(), team_name=name)
    team, new_key = await call.dependency(Db).in_tenant(
        operator.team_id,
        lambda conn: teams.create(conn, operator, has, name=name, metadata=metadata),
    )
    return wire.NewTeamOut(team=wire.team_out(team), key=reshape(new_key.key, wire.KeyOut), api_key=new_key.text)


@command("teams show", render_one_team, text="Show one team, by name or id. [default: the key's own]")
@option("[TEAM]")
@verb.get("/v1/teams/{team}", "")
async def get_team(call: VerbCall, given: str) -> wire.OneTeamOut:
    """The caller's team, by its id or name."""
    async with call.read() as conn:
        return wire.OneTeamOut(team=wire.team_out(await teams.require_team(conn, call.principal, given)))


@command(
    "teams archive",
    render_one_team,
    text="Archive a team: its keys stop working, nothing is deleted. Only the operator can undo it.",
    confirm=lambda typed: f"Archive the team {typed['team']}? None of its keys will work.",
    sets={"archived": True},
)
@option("TEAM")
@command(
    "teams unarchive",
    render_one_team,
    text="Restore an archived team. Needs --operator: the team's own keys do not work.",
    sets={"archived": False},
)
@option("TEAM")
@command(
    "teams approve-rules",
    render_one_team,
    text="Let a rule that a model or an agent's tool writes count only after a person's yes: `cmserver rules pending`.",
    sets={"approves_rules": True},
)
@option("TEAM")
@command(
    "teams trust-rules", render_one_team, text="Let every rule count at once, as without a setting.", sets={"approves_rules": False}
)
@option("TEAM")
@command(
    "teams words",
    render_one_team,
    text="Say who reads what others of the team and their agents said: members, owners, or nobody but the person. Whoever does not "
    "is told how many files they changed, how checks ended, and commits.",
)
@option("TEAM")
@option("WHO", field="words")
@command("teams rename", render_one_team, text="Rename a team. Operator only: --operator, or a key with the scope *.")
@option("TEAM")
@option("NAME")
@verb.patch("/v1/teams/{team}", "admin", whole_team=True)
async def patch_team(call: VerbCall, given: TeamChangeIn) -> wire.OneTeamOut:
    """Change a team's notes and policy, or archive it: then its keys open nothing, and only the operator brings it back."""
    change = TeamChange(
        name=UNSET if given.name is UNSET else clean_name(given.name, at="$.name"),
        metadata=UNSET if given.metadata is UNSET else await clean_metadata(given.metadata, call.size_bytes),
        policy=UNSET if given.generation_policy is UNSET else clean_policy(given.generation_policy),
        retention=UNSET if given.retention is UNSET else given.retention or RetentionPolicy(),
        approves_rules=given.approves_rules,
        untold_share=given.untold_share,
        words=given.words,
        archived=given.archived,
        requests_per_minute=given.requests_per_minute,
        events_per_month=given.events_per_month,
    )
    team = await call.write(lambda conn: teams.change(conn, call.principal, given.team, change))
    call.drop_cached()
    return wire.OneTeamOut(team=wire.team_out(team))


_MEMBERS = Columns(
    wire.MemberOut,
    "user=user_id, role, account, since=created",
    account=lambda member: "yes" if member.account_id else "no",
)


@command(
    "teams members list",
    _MEMBERS.page("members", "The team has no members.", shrink=("user",)),
    text="List the members of the team.",
)
@verb.get("/v1/teams/{team}/members", "", whole_team=True)
async def get_members(call: VerbCall, given: MembersQuery) -> wire.MembersOut:
    """A page of a team's members, newest first: those who sign in, and names that stand on keys."""
    before, after = place_by_name(given.cursor)

    async def load(conn: Conn) -> list[Member]:
        team = await teams.require_team(conn, call.principal, given.team)
        return await people.newest_members(conn, team.id, before=before, after=after, limit=given.limit + 1)

    rows = await call.dependency(Accounts).run(load)
    members_of_page, next_cursor = page(rows, given.limit, lambda row: (row.created_at, row.user_id))
    return wire.MembersOut(members=[reshape(member, wire.MemberOut) for member in members_of_page], next_cursor=next_cursor)


@command("teams members set", lambda result, _: f"{result.member.user_id} is {result.member.role} of the team.")
@option("USER")
@option("--role", "Their role.", default="member")
@verb.put("/v1/teams/{team}/members/{user:path}", "admin", whole_team=True)
async def put_member(call: VerbCall, given: MemberIn) -> tuple[wire.OneMemberOut, bool]:
    """Add a member by name, or change a member's role. A lower role lowers what their keys may do."""
    user = lookalikes.clean_name(_clean_user(given.user))
    metadata = None if given.metadata is UNSET else await clean_metadata(given.metadata, call.size_bytes)

    async def put(conn: Conn) -> MemberChange:
        await teams.require_team(conn, call.principal, given.team)
        return await manage_people.put_member(conn, call.principal, user, given.role, metadata)

    change = await call.dependency(Accounts).run(put)
    return wire.OneMemberOut(member=reshape(change.member, wire.MemberOut)), change.is_new


@command(
    "teams members remove",
    lambda result, _: format_removed(result.user_id, result),
    text="Remove a member, and end their keys and what they made in the team.",
    confirm=lambda typed: f"Remove {typed['user']} from the team and revoke their keys?",
)
@option("USER")
@verb.delete("/v1/teams/{team}/members/{user:path}", "admin", whole_team=True)
async def delete_member(call: VerbCall, given: MemberName) -> wire.RemovedMemberOut:
    """Remove a member from a team: their keys end, and the keys and invitations that they made. An account stays."""
    user = _clean_user(given.user)

    async def remove(conn: Conn) -> RemovedMember:
        await teams.require_team(conn, call.principal, given.team)
        return await manage_people.remove_member(conn, call.principal, user)

    removed = await call.dependency(Accounts).run(remove)
    call.drop_cached()
    return wire.RemovedMemberOut(
        deleted=True,
        user_id=removed.member.user_id,
        revoked_keys=len(removed.keys),
        other_keys=[reshape(key, wire.EndedKeyOut) for key in removed.other_keys],
        withdrawn_invitations=removed.invitations,
    )


def _clean_user(user: str) -> str:
    if redact(user)[0].strip() != user or not lookalikes.clean_name(user):
        raise Invalid.at("$.user", "A user is named without spaces around it, and not by a secret, or by what nobody sees.")
    return user


routes = [get_teams, post_team, get_team, patch_team, get_members, put_member, delete_member]
