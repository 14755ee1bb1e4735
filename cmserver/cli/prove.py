"""`cmserver prove`: what telling is good for; `take-out` is a row of verbs."""

from __future__ import annotations

import functools

import click

from cmserver.access.api.teams import render_one_team
from cmserver.access.wire import OneTeamOut, TeamsOut
from cmserver.base.columns import render_table
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.ops.proof.model import MAX_DAYS, USUAL_DAYS
from cmserver.ops.proof.wire import CALLED, ArmOut, ProofOut, format_interval


@click.option("--share", type=click.IntRange(0, 50), help="Tell nothing to so many of a hundred new sessions; 0 compares none.")
@click.option("--project", metavar="PROJECT", help="Only sessions of this project.")
@click.option("--days", type=click.IntRange(1, MAX_DAYS), help=f"Sessions of so many days. [default: {USUAL_DAYS}]")
@api_command
async def _compare(client: ApiClient, *, share: int | None, project: str | None, days: int | None) -> None:
    """Compare sessions that are told what the team knows with sessions that are told nothing.

    Without a share of the team's sessions that are told nothing there is nothing to compare: an owner sets it with --share.
    """
    if share is None:
        client.show(await client.get("/v1/proof", {"project": project, "days": days}), ProofOut, render_proof)
        return
    if project is not None or days is not None:
        raise click.UsageError("--share is the team's: it goes with no --project and no --days.")
    team = (await client.get("/v1/teams")).read(TeamsOut).teams[0]
    client.show(await client.patch(f"/v1/teams/{team.id}", {"untoldShare": share}), OneTeamOut, render_one_team)


@click.group("prove", invoke_without_command=True)
@functools.wraps(_compare)  # and its options
def prove(**typed: object) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        _compare(**typed)
        return
    for name in ("share", "project", "days"):
        if typed.get(name) is not None:
            raise click.UsageError(f"--{name} goes with no {context.invoked_subcommand}.")


def render_proof(proof: ProofOut) -> str:
    share = f"{proof.untold_share} of 100 new sessions are told nothing." if proof.untold_share else _OFF
    if not proof.measures:
        return share
    table = render_table(
        ("a session", f"told ({_count(proof.told)})", f"untold ({_count(proof.untold)})", "difference"),
        [
            (CALLED[row.name], format_interval(row.told), format_interval(row.untold), format_interval(row.difference))
            for row in proof.measures
        ],
        empty="",
    )
    return "\n".join((table, "", *(row.sentence for row in proof.measures), share))


_OFF = "All new sessions are told. An owner begins a comparison: cmserver prove --share 20"


def _count(arm: ArmOut) -> str:
    return f"{arm.compared} of {arm.begun} ended"
