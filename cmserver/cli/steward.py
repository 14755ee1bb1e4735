"""`cmserver steward`: what is more than its verb; the other commands are rows of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click

from cmserver.base.columns import Columns
from cmserver.cli.api_client import ApiClient, api_command, path_segment, present
from cmserver.cli.output import as_called
from cmserver.steward import wire as steward_wire
from cmserver.steward.api import render_status
from cmserver.steward.model import JOB_TYPES, Mode

_MOVED = {"jobs": "cmserver jobs list --source steward", "retry": "cmserver jobs retry JOB", "cancel": "cmserver jobs cancel JOB"}


class _Group(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if instead := _MOVED.get(cmd_name):
            ctx.fail(as_called(f"The steward's jobs are those of the queue: use `{instead}`."))
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def steward() -> None:
    """The steward: merges, marks and derives observations as far as the team lets it."""


@steward.command()
@click.argument("mode", required=False, type=click.Choice(get_args(Mode)))
@click.option("--pause/--resume", "paused", default=None, help="Stop for now, or go on.")
@click.option("--executor", "executors", multiple=True, type=click.Choice(JOB_TYPES), help="What it may do; repeat for several.")
@click.option("--project", help="Narrow the executors of this project only.")
@click.option("--no-executors", is_flag=True, help="It may do nothing (in the project).")
@api_command
async def mode(
    client: ApiClient,
    mode: str | None,
    paused: bool | None,
    executors: Sequence[str],
    project: str | None,
    *,
    no_executors: bool,
) -> None:
    """Switch it off, to a dry run (it decides and writes nothing), or to writing. Needs the scope admin."""
    chosen = [] if no_executors else list(executors) or None
    body = present({"mode": mode, "paused": paused, "executors": chosen, "project": project})
    client.show(await client.put("/v1/steward/mode", body), steward_wire.StewardStatusOut, render_status)


@steward.command()
@click.option("--rollback", metavar="KEY", help="Take back the last change of this threshold.")
@api_command
async def policies(client: ApiClient, rollback: str | None) -> None:
    """Show the thresholds and their changes, or take one back."""
    if rollback is not None:
        answer = await client.post(f"/v1/steward/policies/{path_segment(rollback)}/rollback", {})
        client.show(
            answer, steward_wire.OnePolicyChangeOut, lambda one: f"{one.change.policy_key} is {one.change.new_value:g} again."
        )
        return
    client.show(await client.get("/v1/steward/policies"), steward_wire.PoliciesOut, _policy_lines)


_POLICY_COLUMNS = Columns(
    steward_wire.PolicyOut,
    "policy=key, value, usual, bounds, meaning",
    value=lambda policy: f"{policy.value:g}",
    usual=lambda policy: f"{policy.usual:g}",
    bounds=lambda policy: f"{policy.least:g} to {policy.most:g}",
)
_CHANGE_COLUMNS = Columns(
    steward_wire.PolicyChangeOut,
    "when=created, policy=policy_key, from=prior, to=new, why=reason, sample=sample_size, by=changed_by",
    prior=lambda change: f"{change.prior_value:g}",
    new=lambda change: f"{change.new_value:g}",
)


def _policy_lines(page: steward_wire.PoliciesOut) -> str:
    history = _CHANGE_COLUMNS.table(page.history, empty="No threshold was changed.", shrink=("why",))
    return f"{_POLICY_COLUMNS.table(page.policies, empty='', shrink=('meaning',))}\n\n{history}"
