"""`cmserver replay`: begins one, after its costs are said, and shows what it finds."""

from __future__ import annotations

import asyncio

import click

from cmserver.base.columns import Cell, render_fields
from cmserver.cli.api_client import ApiClient, api_command, confirm, present, yes_option
from cmserver.cli.output import as_called
from cmserver.cli.progress import POLL_SECONDS, Progress
from cmserver.client.server_api import ApiAnswer
from cmserver.replays.api import render_lines, render_replay
from cmserver.replays.wire import ReplayEstimateOut, ReplayLinesOut, ReplayOut

_LINES = 50


@click.command()
@click.option("--project", metavar="PROJECT", help="Only sessions of this project. [default: all that the key sees]")
@click.option("--since", metavar="TIME", help="Only sessions that began then or later: ISO 8601 with a zone.")
@click.option("--provider", metavar="NAME", help="Who words the events: a provider of the server. [default: offline, the rules]")
@click.option("--no-wait", is_flag=True, help="Only begin it: `cmserver replays show` says how far it is.")
@yes_option
@api_command
async def replay(
    client: ApiClient, *, project: str | None, since: str | None, provider: str | None, no_wait: bool, yes: bool
) -> None:
    """Run stored events again, and show what would be remembered otherwise. Nothing that agents are told changes by it.

    By today's rules it costs nothing. What a model would cost is said before, and asked about.
    """
    body = present({"projectId": project, "since": since, "provider": provider})
    measured = (await client.post("/v1/replays/estimate", body)).read(ReplayEstimateOut)
    if measured.calls:
        click.echo(_render_estimate(measured), err=True)
        confirm(f"Ask {measured.provider} for that?", yes=yes)
    answer = await client.post("/v1/replays", body)
    begun = answer.read(ReplayOut)
    if no_wait:
        client.show(answer, ReplayOut, render_replay)
        return
    ended = await _wait(client, answer)
    client.show(ended, ReplayOut, render_replay)
    if not client.as_json and ended.read(ReplayOut).state == "done":
        page = await client.get(f"/v1/replays/{begun.number}/lines", {"limit": _LINES})
        click.echo(_render_first(page.read(ReplayLinesOut), begun.number))


async def _wait(client: ApiClient, answer: ApiAnswer) -> ApiAnswer:
    begun = answer.read(ReplayOut)
    interrupted = as_called(f"Interrupted. It goes on in the server: `cmserver replays stop {begun.number}` stops it.")
    with Progress("Replaying", begun.events, "events", interrupted=interrupted) as progress:
        while (replayed := answer.read(ReplayOut)).state == "running":
            progress.show(replayed.events_done)
            await asyncio.sleep(POLL_SECONDS)
            answer = await client.get(f"/v1/replays/{begun.number}")
    return answer


def _render_estimate(measured: ReplayEstimateOut) -> str:
    cost: Cell = "unknown: no price is known" if measured.cost_usd is None else f"at most ${measured.cost_usd:,.2f}"
    return render_fields(
        ("sessions", measured.sessions),
        ("events", measured.events),
        ("model", f"{measured.provider} {measured.model or ''}".strip()),
        ("calls", measured.calls),
        ("tokens", f"{measured.input_tokens:,} in, {measured.output_tokens:,} out at most"),
        ("cost", cost),
    )


def _render_first(page: ReplayLinesOut, number: int) -> str:
    if page.next_cursor is None:
        return render_lines(page)
    shown = ReplayLinesOut(lines=page.lines, next_cursor=None)
    return f"{render_lines(shown)}\n" + as_called(f"There are more: `cmserver replays lines {number} --cursor {page.next_cursor}`.")
