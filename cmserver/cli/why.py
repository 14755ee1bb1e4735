"""`cmserver why`: why a line of a file is as it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import msgspec

from cmserver.base.columns import format_time
from cmserver.base.errors import CmserverError, Invalid, NotFound
from cmserver.base.http.frame import PATH_NOT_FOUND
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli import api_client
from cmserver.cli.output import as_called, render_json
from cmserver.client import git_blame
from cmserver.client.client_folder import read_project
from cmserver.recall.why import LATER
from cmserver.recall.wire import WhyOut

_LINE = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL)
_HASH_CHARS = 7
_DID = {"wrote": "Written in", "committed": "Nobody knows who wrote it. Committed in"}


class CommitReason(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A commit as git tells it, None where the line is in none yet, and what the server knows of it."""

    commit: git_blame.FileCommit | None
    why: WhyOut


class FileReasons(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What is printed with --json."""

    file: str
    line: int | None
    text: str | None
    reasons: list[CommitReason]


@click.command()
@click.argument("place", metavar="FILE[:LINE]")
@click.option("--project", help="The project. [default: what hooks call the file's folder]")
@api_client.api_command
async def why(client: api_client.ApiClient, place: str, project: str | None) -> None:
    """Show why a line is as it is: its commit, the turn that wrote it, what was said there, and what came later.

    FILE is in a git repository on this machine, which is only read; the server may be elsewhere. Without LINE it shows the newest
    commits of the file.
    """
    file, number = _parse_place(place)
    try:
        found = git_blame.find_file(file)
        line = git_blame.read_line(found, number) if number is not None else None
    except git_blame.NoSuchLine as error:
        raise click.UsageError(str(error)) from error
    name = project or read_project(file.parent)
    if name is None:
        raise Invalid("The project of this file has no name. Name it with --project.")
    commits = [line.commit] if line else git_blame.read_commits(found) if found.blob else []
    if not commits:
        raise NotFound(as_called(f"{sanitize_line(place)} is in no commit yet. Name a line: `cmserver why FILE:LINE`."))
    reasons = [CommitReason(commit=commit, why=await _ask(client, name, found, line, commit)) for commit in commits]
    told = FileReasons(file=found.path, line=number, text=line.text if line else None, reasons=reasons)
    click.echo(render_json(msgspec.json.encode(told)) if client.as_json else _render(told))


def _parse_place(place: str) -> tuple[Path, int | None]:
    """The file and the line's number. What is a file as a whole has no line in its name."""
    match = None if os.path.isfile(place) else _LINE.fullmatch(place)  # noqa: PTH113 - no name is an error
    if match is None:
        return Path(place), None
    if int(match[2]) == 0:
        raise click.UsageError("Lines are counted from 1.")
    return Path(match[1]), int(match[2])


async def _ask(
    client: api_client.ApiClient,
    project: str,
    found: git_blame.RepositoryFile,
    line: git_blame.FileLine | None,
    commit: git_blame.FileCommit | None,
) -> WhyOut:
    # A commit with which a shallow clone begins has lines of all that came before it.
    is_known = commit is not None and not commit.is_edge
    body = {
        "projectId": project,
        "file": found.path,
        "otherPaths": sorted({str(found.top / found.path), *([commit.path] if commit else [])} - {found.path}),
        "text": line.text if line else None,
        "occurrences": line.occurrences if line else None,
        "commit": commit.hash if commit and (is_known or line is None) else None,
        "writtenAtEpoch": commit.authored_at_epoch if commit else None,
    }
    try:
        return (await client.post("/v1/why", api_client.present(body))).read(WhyOut)
    except NotFound as error:
        if str(error) != PATH_NOT_FOUND:
            raise
        raise CmserverError("The server is older than this command and cannot answer it. Upgrade the server.") from error


def _render(told: FileReasons) -> str:
    place = told.file if told.line is None else f"{told.file}:{told.line}"
    head = f"{place}  {told.text.strip()}" if told.text else place
    return "\n\n".join([sanitize_line(head), *("\n".join(map(sanitize_line, _describe(reason))) for reason in told.reasons)])


def _describe(reason: CommitReason) -> list[str]:
    commit, answer = reason.commit, reason.why
    if commit is None:
        lines = ["In no commit yet."]
    else:
        known = f" (#{answer.history})" if answer.history else ""
        lines = [f"{commit.hash[:_HASH_CHARS]} {_day(commit.authored_at_epoch)} {commit.author}: {commit.subject}{known}"]
        lines += ["The clone is shallow and begins here: the line may be older."] if commit.is_edge else []
    if answer.turn is None:
        return [*lines, "No turn of an agent is known that wrote it."]
    by = f" by {answer.turn.actor_id}" if answer.turn.actor_id else ""
    did = _DID[answer.how or "committed"]
    lines.append(f"{did} #{answer.turn.number} {_day(answer.turn.created_at_epoch)}{by}: {answer.line}")
    lines += [f"Later {LATER[it.how]} #{it.number} {_day(it.created_at_epoch)}: {it.line}" for it in answer.later]
    return lines


def _day(epoch: int) -> str:
    return (format_time(epoch) or "")[:10]
