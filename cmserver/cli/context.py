"""`cmserver context`: what a session is told of a project when it starts, and why that."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import get_args

import click
import msgspec

from cmserver.base.errors import Invalid, NotFound
from cmserver.cli.show import plain, table
from cmserver.cli.talk import Talk, talks
from cmserver.hooks.client import project_of
from cmserver.recall.model import Start

_PARTS = ("recency", "type", "files", "folders", "session", "team", "by hand")
_WHY = {"budget": "no room", "limit": "enough of them", "shown": "shown before", "duplicate": "said already"}
_LINE = re.compile(r"(#\d+) (\d\d:\d\d) (\S+) (.*) (~\d+)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d(, today)?")
_HEADING = re.compile(r"Newest summary, #\d+ .*|In .*, changed on this branch:")
_TAG = re.compile(r"</?cmserver-context>")


class Judged(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What has a line, or why it has none, and how useful it was judged by what."""

    number: int
    type: str
    title: str
    usefulness: float
    parts: dict[str, float]
    left_out: str | None


class Explained(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How the index came about."""

    lines: list[Judged]
    left_out: list[Judged]
    left_out_counts: dict[str, int]
    budget_tokens: int


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The index."""

    context: str
    tokens: int
    explained: Explained


@click.command()
@click.argument("project", required=False)
@click.option("--source", type=click.Choice(get_args(Start)), help="How the session starts. [default: startup]")
@click.option("--session", "session_id", metavar="ID", help="What this session would be told, as it is now.")
@click.option("--changed-files", metavar="PATHS", help="Files that the branch changes, from the root, between commas.")
@click.option("--explain", is_flag=True, help="Show how useful each line is and by what, and what was left out.")
@click.option("--color/--no-color", "is_coloured", default=None, help="[default: on a terminal]")
@talks
async def context(
    talk: Talk,
    project: str | None,
    source: str | None,
    session_id: str | None,
    changed_files: str | None,
    *,
    explain: bool,
    is_coloured: bool | None,
) -> None:
    """What a session is told of PROJECT when it starts. Looking leaves no receipt.

    Without PROJECT it is that of the key, of the session, or of the folder in which the command is run.
    """
    asked = {
        "project": project,
        "source": source,
        "session": session_id,
        "changedFiles": changed_files,
        "format": "json",
        "explain": True,
    }
    try:
        answer = await talk.api.get("/v1/context", asked)
    except Invalid:
        if project or session_id or (here := project_of(Path.cwd())) is None:
            raise
        try:
            answer = await talk.api.get("/v1/context", {**asked, "project": here})
        except NotFound:
            raise NotFound(f"Nothing has been recorded of {plain(here)} yet.") from None
    coloured = sys.stdout.isatty() if is_coloured is None else is_coloured
    click.get_current_context().color = coloured  # else click takes colours away again where it sees no terminal
    talk.tell(answer, Told, _explanation if explain else lambda told: _text(told, coloured=coloured))


def _text(told: Told, *, coloured: bool) -> str:
    if not told.context:
        return "There is nothing to tell."
    lines = [plain(line) for line in told.context.splitlines()]
    return "\n".join(map(_coloured, lines) if coloured else lines)


def _coloured(line: str) -> str:
    if found := _LINE.fullmatch(line):
        number, at, type_, title, tokens = found.groups()
        number, type_ = click.style(number, fg="cyan"), click.style(type_, fg="yellow")
        return f"{number} {click.style(at, dim=True)} {type_} {title} {click.style(tokens, dim=True)}"
    if _TAG.fullmatch(line):
        return click.style(line, dim=True)
    return click.style(line, bold=True) if _DAY.fullmatch(line) or _HEADING.fullmatch(line) else line


def _explanation(told: Told) -> str:
    explained = told.explained
    lines = table(
        ("number", "useful", *("by type" if name == "type" else name for name in _PARTS), "left out", "type", "title"),
        [_row(one) for one in [*sorted(explained.lines, key=lambda one: -one.usefulness), *explained.left_out]],
        nothing="There is nothing to tell.",
        wide=("title",),
    )
    counts = ", ".join(f"{count} ({_WHY.get(why, why)})" for why, count in explained.left_out_counts.items()) or "none"
    return f"{lines}\n\n{told.tokens} of {explained.budget_tokens} tokens for {len(explained.lines)} lines; left out: {counts}"


def _row(one: Judged) -> tuple[str | int | None, ...]:
    parts = (f"{one.parts[name]:.2f}" if name in one.parts else None for name in _PARTS)
    why = _WHY.get(one.left_out, one.left_out) if one.left_out else None
    return one.number, f"{one.usefulness:.2f}", *parts, why, one.type, one.title
