"""`cmserver teams`: teams and their members."""

from __future__ import annotations

from typing import get_args

import click
import msgspec

from cmserver.access import wire as access_wire
from cmserver.access.model import Role
from cmserver.access.people.wire import format_removed
from cmserver.base.columns import Columns, render_fields
from cmserver.cli import api_client
from cmserver.cli import policy as cli_policy
from cmserver.cli.output import render_erasure
from cmserver.client.server_api import ApiAnswer
from cmserver.ops.erasure.wire import DeletedTeamOut


@click.group()
def teams() -> None:
    """Teams, which never see each other, and their members."""


@teams.command("list")
@api_client.limit_option
@api_client.team_command
async def list_teams(client: api_client.ApiClient, limit: int) -> None:
    """List the key's own team; with --operator and no --team all teams."""
    if client.operator is not None and not client.operator.has_team:
        teams = (await client.operator.all_teams())[:limit]
        answer = ApiAnswer(
            msgspec.json.encode(access_wire.TeamsOut(teams=[access_wire.team_out(team) for team in teams], next_cursor=None))
        )
    else:
        answer = await client.get("/v1/teams")
    client.show(answer, access_wire.TeamsOut, _table)


_LIMITS = "requests/min=requests_per_minute, events/month=events_per_month"
_COLUMNS = Columns(access_wire.TeamOut, f"id, name, {_LIMITS}, created, archived")


def _table(page: access_wire.TeamsOut) -> str:
    return _COLUMNS.table(page.teams, page.next_cursor, empty="There is no team.", shrink=("name",))


@teams.command()
@click.argument("name")
@click.option("--quiet", is_flag=True, help="Print only the team's first key.")
@api_client.team_command
async def create(client: api_client.ApiClient, name: str, *, quiet: bool) -> None:
    """Create a team and print its first key, once. Operator only: --operator, or a key with the scope *."""
    if client.operator is not None:
        client.operator.act_for_no_team()
    answer = await client.post("/v1/teams", {"name": name})
    if quiet:
        click.echo(answer.read(access_wire.NewTeamOut).api_key)
    else:
        client.show(
            answer, access_wire.NewTeamOut, lambda result: f"{_lines(result.team)}\nfirst key, shown only now:\n{result.api_key}"
        )


def _lines(team: access_wire.TeamOut) -> str:
    return render_fields(
        *Columns(access_wire.TeamOut, f"id, name, {_LIMITS}").fields(team),
        *cli_policy.policy_fields(team.generation_policy),
        *Columns(access_wire.TeamOut, "created, archived").fields(team),
    )


@teams.command()
@click.argument("team", required=False)
@api_client.team_command
async def show(client: api_client.ApiClient, team: str | None) -> None:
    """Show one team, by name or id. [default: the key's own]"""
    await client.act_for_team(team)
    client.show(await client.get(await _path(client, team)), access_wire.OneTeamOut, lambda result: _lines(result.team))


@teams.command()
@click.argument("team")
@click.argument("name")
@api_client.team_command
async def rename(client: api_client.ApiClient, team: str, name: str) -> None:
    """Rename a team. Operator only: --operator, or a key with the scope *."""
    await _patch(client, team, name=name)


@teams.command()
@click.argument("team")
@click.option("--requests-per-minute", type=click.IntRange(1), help="For all keys of the team together.")
@click.option("--events-per-month", type=click.IntRange(0), help="For all keys of the team together.")
@click.option("--clear", is_flag=True, help="Remove the limits that no other option sets.")
@api_client.team_command
async def limits(
    client: api_client.ApiClient, team: str, requests_per_minute: int | None, events_per_month: int | None, *, clear: bool
) -> None:
    """Set a team's limits. Operator only: --operator, or a key with the scope *."""
    limits = {"requestsPerMinute": requests_per_minute, "eventsPerMonth": events_per_month}
    changes = limits if clear else api_client.present(limits)
    if not changes:
        raise click.UsageError("Pass --requests-per-minute, --events-per-month or --clear.")
    await _patch(client, team, **changes)


async def _find_path(client: api_client.ApiClient, team: str) -> str:
    await client.act_for_team(team)
    return await _path(client, team)


cli_policy.add_policy_commands(
    teams,
    "team",
    ("in a team's projects", "what is kept in a team's projects"),
    api_client.team_command,
    _find_path,
    access_wire.OneTeamOut,
    lambda found: found.team,
)


@teams.command()
@click.argument("team")
@api_client.yes_option
@api_client.team_command
async def archive(client: api_client.ApiClient, team: str, *, yes: bool) -> None:
    """Archive a team: its keys stop working, nothing is deleted. Only the operator can undo it."""
    api_client.confirm(f"Archive the team {team}? None of its keys will work.", yes=yes)
    await _patch(client, team, archived=True)


@teams.command()
@click.argument("team")
@api_client.team_command
async def unarchive(client: api_client.ApiClient, team: str) -> None:
    """Restore an archived team. Needs --operator: the team's own keys do not work."""
    await _patch(client, team, archived=False)


@teams.command()
@click.argument("team")
@api_client.yes_option
@api_client.team_command
async def delete(client: api_client.ApiClient, team: str, *, yes: bool) -> None:
    """Delete a team with its projects and their memory for ever."""
    api_client.confirm(f"Delete the team {team}, all its projects and all their memory, for ever?", yes=yes)
    await client.act_for_team(team)
    answer = await client.delete(await _path(client, team))
    client.show(answer, DeletedTeamOut, lambda result: render_erasure(f"The team {team} is deleted.", result.counts))


async def _patch(client: api_client.ApiClient, team: str, **changes: object) -> None:
    await client.act_for_team(team)
    client.show(await client.patch(await _path(client, team), changes), access_wire.OneTeamOut, lambda result: _lines(result.team))


async def _path(client: api_client.ApiClient, team: str | None = None) -> str:
    """The path of the team, or of the one that the key belongs to."""
    if team is None:
        team = str((await client.get("/v1/teams")).read(access_wire.TeamsOut).teams[0].id)
    return f"/v1/teams/{api_client.path_segment(team)}"


@teams.group()
def members() -> None:
    """The members of the key's team, with an account or without."""


@members.command("list")
@api_client.limit_option
@api_client.api_command
async def list_members(client: api_client.ApiClient, limit: int) -> None:
    """List the members of the team."""
    client.show(await client.pages(f"{await _path(client)}/members", "members", limit=limit), access_wire.MembersOut, _members)


def _members(page: access_wire.MembersOut) -> str:
    columns = Columns(
        access_wire.MemberOut,
        "user=user_id, role, account, since=created",
        account=lambda member: "yes" if member.account_id else "no",
    )
    return columns.table(page.members, page.next_cursor, empty="The team has no members.", shrink=("user",))


@members.command("set")
@click.argument("user")
@click.option("--role", type=click.Choice(get_args(Role)), default="member", show_default=True, help="Their role.")
@api_client.api_command
async def set_member(client: api_client.ApiClient, user: str, role: Role) -> None:
    """Add a member by name, or change a member's role. A lower role lowers what their keys may do."""
    answer = await client.put(f"{await _path(client)}/members/{api_client.path_segment(user)}", {"role": role})
    client.show(answer, access_wire.OneMemberOut, lambda result: f"{result.member.user_id} is {result.member.role} of the team.")


@members.command("remove")
@click.argument("user")
@api_client.yes_option
@api_client.api_command
async def remove_member(client: api_client.ApiClient, user: str, *, yes: bool) -> None:
    """Remove a member, and end their keys and what they made in the team."""
    api_client.confirm(f"Remove {user} from the team and revoke their keys?", yes=yes)
    answer = await client.delete(f"{await _path(client)}/members/{api_client.path_segment(user)}")
    client.show(answer, access_wire.RemovedMemberOut, lambda result: format_removed(result.user_id, result))
