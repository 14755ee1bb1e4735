"""`cmserver teams`: what is more than its verb; the other commands are rows of verbs."""

from __future__ import annotations

import click
import msgspec

from cmserver.access import wire as access_wire
from cmserver.access.api.teams import TEAM_COLUMNS, render_one_team, render_team
from cmserver.cli import api_client
from cmserver.cli import policy as cli_policy
from cmserver.client.server_api import ApiAnswer
from cmserver.ops.erasure.wire import DeletedTeamOut, render_erasure


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


def _table(page: access_wire.TeamsOut) -> str:
    return TEAM_COLUMNS.table(page.teams, page.next_cursor, empty="There is no team.", shrink=("name",))


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
            answer,
            access_wire.NewTeamOut,
            lambda result: f"{render_team(result.team)}\nfirst key, shown only now:\n{result.api_key}",
        )


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
    client.show(await client.patch(await _find_path(client, team), changes), access_wire.OneTeamOut, render_one_team)


async def _find_path(client: api_client.ApiClient, team: str) -> str:
    await client.act_for_team(team)
    return f"/v1/teams/{api_client.path_segment(team)}"


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
async def delete(client: api_client.ApiClient, team: str, *, yes: bool) -> None:
    """Delete a team with its projects and their memory for ever."""
    api_client.confirm(f"Delete the team {team}, all its projects and all their memory, for ever?", yes=yes)
    answer = await client.delete(await _find_path(client, team))
    client.show(answer, DeletedTeamOut, lambda result: render_erasure(f"The team {team} is deleted.", result.counts))
