"""`cmserver list`, `close` and `edit`: people see what is remembered, and correct it. `cmserver undo` takes each change back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import get_args

import click

from cmserver.base.columns import Cell, format_time, render_table
from cmserver.base.errors import Forbidden
from cmserver.cli.api_client import (
    ApiClient,
    api_command,
    as_of_option,
    in_chosen_project,
    known_at_option,
    limit_option,
    path_segment,
    present,
    project_options,
)
from cmserver.cli.observations import (
    expires_after_option,
    explain_scope,
    headline_of_answer,
    lifetime_seconds,
    path_of,
    render_turn,
)
from cmserver.observations.model import ListedState, ObservationState, ObservationType
from cmserver.observations.plain import one_line
from cmserver.observations.wire import ObservationOut, ObservationsOut, OneObservationOut, type_shown
from cmserver.recall.search.wire import TITLE_CHARS
from cmserver.sessions.turns.wire import OneTurnOut


@click.command("list")
@project_options
@click.option("--type", "type_", type=click.Choice(get_args(ObservationType)), help="Only of this type.")
@click.option(
    "--state", type=click.Choice(get_args(ListedState)), help="Only what is open, done, dropped, or expired and not purged yet."
)
@as_of_option
@known_at_option
@limit_option
@api_command
async def list_observations(
    client: ApiClient,
    project: str | None,
    type_: ObservationType | None,
    state: ListedState | None,
    limit: int,
    as_of: str | None,
    known_at: str | None,
    *,
    all_projects: bool,
) -> None:
    """List what is remembered, newest first. `--state open` lists what is still to be done, `--type decision` what was decided.

    `--state expired` lists what is shown no longer, until it is purged: `cmserver undo NUMBER` brings it back.
    """
    query = {"type": type_, "state": state, "asOf": as_of, "knownAt": known_at}
    answer = await in_chosen_project(
        client,
        lambda name: client.pages("/v1/observations", "observations", {**query, "project": name}, limit=limit),
        project,
        all_projects=all_projects,
    )
    client.show(answer, ObservationsOut, _table)


def _table(page: ObservationsOut) -> str:
    return render_table(
        ("number", "at", "type", "state", "by", "title"),
        [_row(observation) for observation in page.observations],
        empty="There are no such observations.",
        shrink=("title",),
        next_cursor=page.next_cursor,
    )


def _row(observation: ObservationOut) -> tuple[Cell, ...]:
    title = one_line(observation.title or observation.narrative or observation.content, TITLE_CHARS)
    type_ = type_shown(observation.observation_kind, observation.type, observation.origin, observation.caller_type)
    at = format_time(observation.created_at_epoch)
    return observation.number, at, type_, observation.state, observation.agent, title


@click.command()
@click.argument("observation_id", metavar="NUMBER...", nargs=-1, required=True)
@click.option("--dropped", is_flag=True, help="It will not be done, or no longer holds.")
@click.option("--open", "is_open", is_flag=True, help="Open it again.")
@api_command
async def close(client: ApiClient, observation_id: tuple[str, ...], *, dropped: bool, is_open: bool) -> None:
    """Close open ends that are done, or with --dropped rules and open ends that no longer hold: no session starts with them.

    They stay in search, with their state. `cmserver undo NUMBER` takes it back. The key needs the scope observations:write.
    """
    if dropped and is_open:
        raise click.UsageError("--dropped and --open exclude each other.")
    state: ObservationState = "open" if is_open else "dropped" if dropped else "done"
    await _correct(client, observation_id, {"state": state}, _CLOSED[state])


@click.command()
@click.argument("observation_id", metavar="NUMBER")
@click.option("--title", help="The new title; empty for none.")
@click.option("--line", help="Of a turn: what sessions are told of it; empty for nothing, - for its own words again.")
@click.option("--text", help="The new text; - reads it from standard input.")
@click.option("--fact", "facts", multiple=True, help="A fact; given once or more, they replace all facts.")
@click.option("--type", "type_", type=click.Choice(get_args(ObservationType)), help="What it is.")
@click.option("--importance", type=click.FloatRange(0, 1), help="0 to 1; from 0.8 on it never expires.")
@click.option(
    "--current-on", metavar="MATTER", help="It is the current word on this matter, of which there is one; empty for none."
)
@expires_after_option
@api_command
async def edit(
    client: ApiClient,
    observation_id: str,
    title: str | None,
    line: str | None,
    text: str | None,
    facts: tuple[str, ...],
    type_: ObservationType | None,
    importance: float | None,
    current_on: str | None,
    expires_after: int | None,
) -> None:
    """Correct an observation, or with --line the line of a turn.

    `cmserver history NUMBER` shows what an observation was before, `cmserver undo NUMBER` takes it back.

    The key needs the scope observations:write.
    """
    narrative = sys.stdin.read().strip() if text == "-" else text
    change = present(
        {
            "type": type_,
            "narrative": narrative,
            "facts": list(facts) or None,
            "importance": importance,
            "ttlSeconds": lifetime_seconds(expires_after),
        }
    )
    if title is not None:
        change["title"] = title or None
    if current_on is not None:
        change["currentOn"] = current_on or None
    if line is not None:
        if change:
            raise click.UsageError("--line is of turns, the other options are of observations.")
        await _set_line(client, observation_id, None if line == "-" else line)
        return
    if not change:
        raise click.UsageError("Nothing to change: --help lists the options.")
    await _correct(client, [observation_id], change)


_CLOSED: dict[ObservationState, str] = {"done": "Done: ", "dropped": "Dropped: ", "open": "Open again: "}


async def _correct(client: ApiClient, names: Sequence[str], change: dict[str, object], done: str = "") -> None:
    """Make the change of each; prints it with what was done before it."""
    for name in dict.fromkeys(name.removeprefix("#") for name in names):
        try:
            answer = await client.patch(path_of(name), change)
        except Forbidden as error:
            raise explain_scope(error) from error
        client.show(answer, OneObservationOut, lambda result: f"{done}{headline_of_answer(result)}")


async def _set_line(client: ApiClient, name: str, line: str | None) -> None:
    try:
        answer = await client.patch(f"/v1/turns/{path_segment(name.removeprefix('#'))}", {"ownLine": line})
    except Forbidden as error:
        raise explain_scope(error) from error
    client.show(answer, OneTurnOut, render_turn)
