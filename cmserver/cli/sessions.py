"""`cmserver sessions`: sessions of coding agents."""

from __future__ import annotations

import click

from cmserver.base.columns import render_fields
from cmserver.cli.api_client import ApiClient, api_command, confirm, path_segment, require_answer, yes_option
from cmserver.ops.erasure.wire import DeletedSessionOut, render_erasure
from cmserver.sessions.wire import SESSION_LINES, OneSessionOut


@click.group()
def sessions() -> None:
    """Sessions of coding agents."""


@sessions.command()
@click.argument("session_id")
@click.argument("title", default="")
@api_command
async def rename(client: ApiClient, session_id: str, title: str) -> None:
    """Give a session a title; without TITLE it has none any more."""
    answer = await client.patch(_path(session_id), {"title": title or None})
    client.show(answer, OneSessionOut, lambda result: render_fields(*SESSION_LINES.fields(result.session)))


@sessions.command()
@click.argument("session_id")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@yes_option
@api_command
async def delete(client: ApiClient, session_id: str, *, dry_run: bool, yes: bool) -> None:
    """Delete a session for ever, with its events, turns, observations, vectors, jobs and receipts; first it says how many."""
    path = _path(session_id)
    if not dry_run:
        require_answer(yes=yes)
    counted = await client.delete(path, {"dryRun": True})
    if dry_run:
        client.show(counted, DeletedSessionOut, lambda result: render_erasure("This would be deleted:", result.counts))
        return
    if not yes:
        click.echo(render_erasure("This will be deleted:", counted.read(DeletedSessionOut).counts), err=True)
    confirm(f"Delete the session {session_id}, for ever?", yes=yes)
    answer = await client.delete(path)
    client.show(answer, DeletedSessionOut, lambda result: render_erasure("The session is deleted.", result.counts))


def _path(session_id: str) -> str:
    return f"/v1/sessions/{path_segment(session_id)}"
