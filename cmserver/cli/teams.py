"""`cmserver teams`: teams and their members."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from cmserver.access.wire import team_out
from cmserver.cli.client import Answer
from cmserver.cli.erased import Erased, erased_lines
from cmserver.cli.policy import Change, Policy, policy_lines, policy_options
from cmserver.cli.show import moment, pairs, table
from cmserver.cli.talk import Talk, confirm, limit_option, more, segment, talks, talks_of_teams, yes_option


class Team(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A team as the API shows it."""

    id: str
    name: str
    generation_policy: Policy
    requests_per_minute: int | None
    events_per_month: int | None
    archived_at_epoch: int | None
    created_at_epoch: int


class OneTeam(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one team."""

    team: Team


class NewTeam(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a new team; its first key is shown only now."""

    team: Team
    api_key: str


class Teams(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with teams."""

    teams: list[Team]
    next_cursor: str | None


class Member(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A member as the API shows it."""

    user_id: str
    role: str
    created_at_epoch: int


class OneMember(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one member."""

    member: Member


class Members(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with members."""

    members: list[Member]
    next_cursor: str | None


class Removed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a member's removal."""

    user_id: str
    revoked_keys: int


@click.group()
def teams() -> None:
    """Teams, which never see each other, and their members."""


@teams.command("list")
@limit_option
@talks_of_teams
async def list_teams(talk: Talk, limit: int) -> None:
    """The key's own team; with --operator and no --team all teams there are."""
    if talk.operator is not None and not talk.operator.acts:
        found = await talk.operator.all_teams()
        answer = Answer(msgspec.json.encode({"teams": [team_out(team) for team in found[:limit]], "nextCursor": None}))
    else:
        answer = await talk.api.get("/v1/teams")
    talk.tell(answer, Teams, _table)


def _table(found: Teams) -> str:
    more(found.next_cursor)
    return table(
        ("id", "name", "requests/min", "events/month", "created", "archived"),
        [
            (
                team.id,
                team.name,
                team.requests_per_minute,
                team.events_per_month,
                moment(team.created_at_epoch),
                moment(team.archived_at_epoch),
            )
            for team in found.teams
        ],
        nothing="There is no team.",
        wide=("name",),
    )


@teams.command()
@click.argument("name")
@click.option("--quiet", is_flag=True, help="Print the team's first key and nothing else.")
@talks_of_teams
async def create(talk: Talk, name: str, *, quiet: bool) -> None:
    """Make a team and show its first key, once. Only the operator makes teams, with --operator or a key of the scope *."""
    if talk.operator is not None:
        talk.operator.act_for_no_team()
    answer = await talk.api.post("/v1/teams", {"name": name})
    if quiet:
        click.echo(answer.read(NewTeam).api_key)
    else:
        talk.tell(answer, NewTeam, _new)


def _new(made: NewTeam) -> str:
    return f"{_lines(made.team)}\nfirst key, shown only now:\n{made.api_key}"


def _lines(team: Team) -> str:
    return pairs(
        ("id", team.id),
        ("name", team.name),
        ("requests/min", team.requests_per_minute),
        ("events/month", team.events_per_month),
        *policy_lines(team.generation_policy),
        ("created", moment(team.created_at_epoch)),
        ("archived", moment(team.archived_at_epoch)),
    )


@teams.command()
@click.argument("team", required=False)
@talks_of_teams
async def show(talk: Talk, team: str | None) -> None:
    """One team, by name or id; without a name the key's own."""
    await talk.for_team(team)
    talk.tell(await talk.api.get(await _path(talk, team)), OneTeam, lambda one: _lines(one.team))


@teams.command()
@click.argument("team")
@click.argument("name")
@talks_of_teams
async def rename(talk: Talk, team: str, name: str) -> None:
    """Give a team another name. Only the operator does, with --operator or a key of the scope *."""
    await _patch(talk, team, name=name)


@teams.command()
@click.argument("team")
@click.option("--requests-per-minute", type=click.IntRange(1), help="For all keys of the team together.")
@click.option("--events-per-month", type=click.IntRange(0), help="For all keys of the team together.")
@click.option("--clear", is_flag=True, help="No limits but those said beside it.")
@talks_of_teams
async def limits(talk: Talk, team: str, requests_per_minute: int | None, events_per_month: int | None, *, clear: bool) -> None:
    """Set how much a team may do. Only the operator does, with --operator or a key of the scope *."""
    said = {"requestsPerMinute": requests_per_minute, "eventsPerMonth": events_per_month}
    changed = {name: value for name, value in said.items() if clear or value is not None}
    if not changed:
        raise click.UsageError("Say --requests-per-minute, --events-per-month or --clear.")
    await _patch(talk, team, **changed)


@teams.command()
@click.argument("team")
@policy_options
@talks_of_teams
async def policy(talk: Talk, team: str, change: Change) -> None:
    """When observations are made of the events of a team's projects, and how they are worded; without options what is said now."""
    await talk.for_team(team)
    answer = await talk.api.get(await _path(talk, team))
    if not change.nothing:
        wanted = change.of(answer.read(OneTeam).team.generation_policy)
        answer = await talk.api.patch(await _path(talk, team), {"generationPolicy": wanted})
    talk.tell(answer, OneTeam, lambda one: pairs(("team", one.team.name), *policy_lines(one.team.generation_policy)))


@teams.command()
@click.argument("team")
@yes_option
@talks_of_teams
async def archive(talk: Talk, team: str, *, yes: bool) -> None:
    """Close a team: its keys are refused from now on, nothing is deleted. Only the operator opens it again."""
    confirm(f"Archive the team {team}? None of its keys will work.", yes=yes)
    await _patch(talk, team, archived=True)


@teams.command()
@click.argument("team")
@talks_of_teams
async def unarchive(talk: Talk, team: str) -> None:
    """Open an archived team again. Needs --operator: the team's own keys are refused."""
    await _patch(talk, team, archived=False)


@teams.command()
@click.argument("team")
@yes_option
@talks_of_teams
async def delete(talk: Talk, team: str, *, yes: bool) -> None:
    """Delete a team with everything that is remembered in it, for ever."""
    confirm(f"Delete the team {team}, all its projects and all their memory, for ever?", yes=yes)
    await talk.for_team(team)
    answer = await talk.api.delete(await _path(talk, team))
    talk.tell(answer, Erased, lambda gone: erased_lines(f"The team {team} is deleted.", gone))


async def _patch(talk: Talk, team: str, **changed: object) -> None:
    await talk.for_team(team)
    talk.tell(await talk.api.patch(await _path(talk, team), changed), OneTeam, lambda one: _lines(one.team))


async def _path(talk: Talk, team: str | None = None) -> str:
    """Of the team, or of the one that the key belongs to."""
    if team is None:
        own = (await talk.api.get("/v1/teams")).read(Teams)
        team = own.teams[0].id
    return f"/v1/teams/{segment(team)}"


# -- members


@teams.group()
def members() -> None:
    """The members of the key's team."""


@members.command("list")
@limit_option
@talks
async def list_members(talk: Talk, limit: int) -> None:
    """Who belongs to the team."""
    answer = await talk.api.pages(f"{await _path(talk)}/members", "members", limit=limit)
    talk.tell(answer, Members, _members)


def _members(found: Members) -> str:
    more(found.next_cursor)
    return table(
        ("user", "role", "since"),
        [(member.user_id, member.role, moment(member.created_at_epoch)) for member in found.members],
        nothing="The team has no members.",
        wide=("user",),
    )


@members.command("set")
@click.argument("user")
@click.option("--role", type=click.Choice(["owner", "member"]), default="member", show_default=True, help="What they are.")
@talks
async def set_member(talk: Talk, user: str, role: Literal["owner", "member"]) -> None:
    """Make somebody a member, or give a member another role."""
    answer = await talk.api.put(f"{await _path(talk)}/members/{segment(user)}", {"role": role})
    talk.tell(answer, OneMember, lambda one: f"{one.member.user_id} is {one.member.role} of the team.")


@members.command("remove")
@click.argument("user")
@yes_option
@talks
async def remove_member(talk: Talk, user: str, *, yes: bool) -> None:
    """Remove a member; the keys that were made for them are revoked."""
    confirm(f"Remove {user} from the team and revoke their keys?", yes=yes)
    answer = await talk.api.delete(f"{await _path(talk)}/members/{segment(user)}")
    talk.tell(answer, Removed, lambda gone: f"{gone.user_id} is removed; keys revoked: {gone.revoked_keys}.")
