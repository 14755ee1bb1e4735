"""`cmserver sessions`: sessions of coding agents."""

from __future__ import annotations

import click

from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, require_answer, yes_option
from cmserver.cli.output import format_time, render_erasure, render_fields, render_table
from cmserver.ops.erasure.wire import DeletedSessionOut
from cmserver.recall.wire import ReceiptsOut
from cmserver.sessions.wire import OneSessionOut, SessionsOut


@click.group()
def sessions() -> None:
    """Sessions of coding agents."""


@sessions.command("list")
@click.option("--project", help="Only sessions of this project.")
@click.option("--active", is_flag=True, help="Only sessions that have not ended.")
@click.option("--platform", metavar="NAME", help="Only sessions of this kind of agent (claude, codex, ...).")
@limit_option
@api_command
async def list_sessions(client: ApiClient, project: str | None, platform: str | None, limit: int, *, active: bool) -> None:
    """List the team's sessions, newest first. One without a title is shown by its first prompt."""
    query = {"project": project, "active": active or None, "platform": platform}
    client.show(await client.pages("/v1/sessions", "sessions", query, limit=limit), SessionsOut, _table)


def _table(page: SessionsOut) -> str:
    return render_table(
        ("project", "platform", "title", "started", "ended", "id", "agent's id"),
        [
            (
                session.project or session.project_id,
                session.platform_source,
                session.title or session.first_prompt,
                format_time(session.started_at_epoch),
                format_time(session.ended_at_epoch),
                session.id,
                session.external_session_id,
            )
            for session in page.sessions
        ],
        empty="There are no such sessions.",
        shrink=("project", "title", "agent's id"),
        next_cursor=page.next_cursor,
    )


@sessions.command()
@click.argument("session_id")
@api_command
async def show(client: ApiClient, session_id: str) -> None:
    """Show one session."""
    client.show(await client.get(_path(session_id)), OneSessionOut, _lines)


@sessions.command()
@click.argument("session_id")
@click.argument("title", default="")
@api_command
async def rename(client: ApiClient, session_id: str, title: str) -> None:
    """Give a session a title; without TITLE it has none any more."""
    client.show(await client.patch(_path(session_id), {"title": title or None}), OneSessionOut, _lines)


@sessions.command()
@click.argument("session_id")
@limit_option
@api_command
async def context(client: ApiClient, session_id: str, limit: int) -> None:
    """List what a session was shown, newest first; with --json also the score of each line and its parts."""
    answer = await client.pages(f"{_path(session_id)}/context", "receipts", {"explain": True}, limit=limit)
    client.show(answer, ReceiptsOut, _receipts)


@sessions.command()
@click.argument("session_id")
@click.argument("project")
@yes_option
@api_command
async def move(client: ApiClient, session_id: str, project: str, *, yes: bool) -> None:
    """Move a session with all that was drawn from it to another project."""
    confirm(f"Move the session {session_id} with all that was drawn from it to {project}?", yes=yes)
    client.show(await client.post(f"{_path(session_id)}/move", {"into": project}), OneSessionOut, _lines)


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


@sessions.command()
@click.argument("session_id")
@api_command
async def end(client: ApiClient, session_id: str) -> None:
    """End a session, so that it gets its summary. Ending it again changes nothing."""
    client.show(await client.post(f"{_path(session_id)}/end", {}), OneSessionOut, _lines)


def _receipts(page: ReceiptsOut) -> str:
    return render_table(
        ("at", "because of", "tokens", "left out", "observations"),
        [
            (
                format_time(receipt.created_at_epoch),
                receipt.reason,
                f"{receipt.tokens} of {receipt.budget_tokens}" if receipt.budget_tokens else receipt.tokens,
                receipt.left_out_count,
                " ".join(f"#{number}" for number in receipt.numbers),
            )
            for receipt in page.receipts
        ],
        empty="The session was not shown anything.",
        shrink=("observations",),
        next_cursor=page.next_cursor,
    )


def _lines(result: OneSessionOut) -> str:
    session = result.session
    return render_fields(
        ("id", session.id),
        ("title", session.title),
        ("agent's id", session.external_session_id),
        ("project", session.project_id),
        ("platform", session.platform_source),
        ("agent", " ".join(filter(None, [session.agent_type, session.agent_id]))),
        ("status", session.generation_status),
        ("started", format_time(session.started_at_epoch)),
        ("ended", format_time(session.ended_at_epoch)),
        ("last observations", format_time(session.last_generated_at_epoch)),
    )


def _path(session_id: str) -> str:
    return f"/v1/sessions/{path_segment(session_id)}"
