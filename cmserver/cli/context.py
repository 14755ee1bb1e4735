"""`cmserver context`: what a session sees of a project when it starts, and why."""

from __future__ import annotations

import re
import sys
from typing import get_args

import click
from msgspec import UNSET

from cmserver.base.columns import Cell, render_table
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command, as_of_option, in_current_project, known_at_option
from cmserver.recall.model import SessionStart
from cmserver.recall.wire import IndexOut, ScoredLineOut

_PARTS = ("recency", "type", "importance", "open", "files", "folders", "session", "team", "by hand")
_REASONS = {
    "budget": "no room",
    "limit": "limit reached",
    "shown": "shown before",
    "duplicate": "said already",
    "done": "is done",
    "dropped": "no longer holds",
}
_LINE = re.compile(r"(#\d+) (\S+) (.*) (~\d+)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d(, today)?")
_HEADING = re.compile(r"Newest summary, #\d+ .*|In .*, changed on this branch:|.*, the newest first")
_TAG = re.compile(r"</?cmserver-context>")
_EMPTY = "The context is empty."


@click.command()
@click.argument("project", required=False)
@click.option("--source", type=click.Choice(get_args(SessionStart)), help="How the session starts. [default: startup]")
@click.option("--session", "session_id", metavar="ID", help="Show what this session would see now.")
@click.option("--changed-files", metavar="PATHS", help="Files that the branch changes: paths from the root, separated by commas.")
@as_of_option
@known_at_option
@click.option("--explain", is_flag=True, help="Show the score of each line and its parts, and what was left out.")
@click.option("--color/--no-color", "has_color", default=None, help="Print in colours. [default: on a terminal]")
@api_command
async def context(
    client: ApiClient,
    project: str | None,
    source: str | None,
    session_id: str | None,
    changed_files: str | None,
    as_of: str | None,
    known_at: str | None,
    *,
    explain: bool,
    has_color: bool | None,
) -> None:
    """Show what a session sees of PROJECT when it starts. This leaves no receipt.

    Without PROJECT: the project of the key, of the session, or of the current folder.
    """
    query = {
        "source": source,
        "session": session_id,
        "changedFiles": changed_files,
        "format": "json",
        "explain": True,
        "asOf": as_of,
        "knownAt": known_at,
    }
    if project or session_id:
        answer = await client.get("/v1/context", {**query, "project": project})
    else:
        answer = await in_current_project(lambda here: client.get("/v1/context", {**query, "project": here}))
    color = sys.stdout.isatty() if has_color is None else has_color
    click.get_current_context().color = color  # click would strip colours where it sees no terminal
    client.show(answer, IndexOut, _explanation if explain else lambda index: _text(index, color=color))


def _text(index: IndexOut, *, color: bool) -> str:
    if not index.context:
        return _EMPTY
    lines = [sanitize_line(line) for line in index.context.splitlines()]
    return "\n".join(map(_colored, lines) if color else lines)


def _colored(line: str) -> str:
    if match := _LINE.fullmatch(line):
        number, type_, title, tokens = match.groups()
        return f"{click.style(number, fg='cyan')} {click.style(type_, fg='yellow')} {title} {click.style(tokens, dim=True)}"
    if _TAG.fullmatch(line):
        return click.style(line, dim=True)
    return click.style(line, bold=True) if _DAY.fullmatch(line) or _HEADING.fullmatch(line) else line


def _explanation(index: IndexOut) -> str:
    explained = index.explained
    assert explained is not UNSET
    lines = render_table(
        ("number", "useful", *("by type" if name == "type" else name for name in _PARTS), "left out", "type", "title"),
        [_row(line) for line in [*sorted(explained.lines, key=lambda line: -line.usefulness), *explained.left_out]],
        empty=_EMPTY,
        shrink=("title",),
    )
    counts = ", ".join(f"{count} ({_REASONS.get(why, why)})" for why, count in explained.left_out_counts.items()) or "none"
    return f"{lines}\n\n{index.tokens} of {explained.budget_tokens} tokens for {len(explained.lines)} lines; left out: {counts}"


def _row(line: ScoredLineOut) -> tuple[Cell, ...]:
    parts = (f"{line.parts[name]:.2f}" if name in line.parts else None for name in _PARTS)
    return line.number, f"{line.usefulness:.2f}", *parts, _why(line), line.type, line.title


def _why(line: ScoredLineOut) -> str | None:
    """Why it has no line: `said already, #12`."""
    reason = line.left_out and _REASONS[line.left_out]
    return f"{reason}, #{line.like}" if line.like else reason
