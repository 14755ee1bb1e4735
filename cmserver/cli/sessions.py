"""`cmserver sessions`: sessions of coding agents."""

from __future__ import annotations

import click

from cmserver.base.columns import Columns, render_fields
from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, require_answer, yes_option
from cmserver.ops.erasure.wire import DeletedSessionOut, render_erasure
from cmserver.recall.wire import ReceiptOut, ReceiptsOut
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


_RECEIPT_COLUMNS = Columns(
    ReceiptOut,
    "at=created, because of=reason, tokens, left out=left_out_count, observations",
    tokens=lambda receipt: f"{receipt.tokens} of {receipt.budget_tokens}" if receipt.budget_tokens else receipt.tokens,
    observations=lambda receipt: " ".join(f"#{number}" for number in receipt.numbers),
)


def _receipts(page: ReceiptsOut) -> str:
    empty = "The session was not shown anything."
    return _RECEIPT_COLUMNS.table(page.receipts, page.next_cursor, empty=empty, shrink=("observations",))


def _lines(result: OneSessionOut) -> str:
    return render_fields(*SESSION_LINES.fields(result.session))


def _path(session_id: str) -> str:
    return f"/v1/sessions/{path_segment(session_id)}"
