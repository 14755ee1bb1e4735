"""`cmserver import git`: a first memory from a repository's history."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from cmserver.access.projects import canonical_id
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli import api_client
from cmserver.cli.output import render_json
from cmserver.cli.progress import Progress
from cmserver.client import git_history
from cmserver.client.client_folder import read_project
from cmserver.client.git_history import UnreadableRepository
from cmserver.git import wire as git_wire

T = TypeVar("T")
_COMMITS_AT_ONCE = 200
_DOCUMENTS_AT_ONCE = 10


class HistoryReport(msgspec.Struct, rename="camel", kw_only=True):
    """What was taken, in numbers."""

    project: str
    commits: int = 0
    known: int = 0
    left_out: int = 0
    """By bots, or without a message."""
    skipped: int = 0
    documents: int = 0
    gone_documents: int = 0
    unread_documents: list[str] = []
    """Paths of those that are not in this clone, or damaged."""
    damage: list[str] = []
    """Why the rest was not read."""


@click.command("git")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option(
    "--commits",
    "limit",
    type=click.IntRange(0, git_history.MAX_COMMITS),
    default=300,
    show_default=True,
    help="How many of the newest commits are looked at.",
)
@click.option("--project", help="The project. [default: what hooks call the folder]")
@click.option("--undo", is_flag=True, help="Delete what was taken over of the repository.")
@api_client.api_command
async def import_git(client: api_client.ApiClient, folder: Path, limit: int, project: str | None, *, undo: bool) -> None:
    """Take over what a repository says: the messages of its commits, README, CONTRIBUTING, AGENTS.md and decision records.

    FOLDER is a clone on this machine, which is only read. [default: the working folder] The server may be elsewhere. Merges and
    commits of bots are left out. Again, it takes what is new. The key needs the scope observations:write.
    """
    name = project or read_project(folder)
    if name is None:
        raise Invalid("The project of this folder has no name. Name it with --project.")
    if undo:
        answer = await client.delete("/v1/history", {"project": name})
        client.show(answer, git_wire.RemovedHistoryOut, lambda removed: f"Removed: {removed.removed} commits and documents.")
        return
    if git_history.find_head(folder) is None:
        raise Invalid(f"There is no history in {sanitize_line(str(folder))} yet: no commit is checked out.")
    report = HistoryReport(project=canonical_id(name))
    try:
        total = git_history.count_commits(folder, limit) if limit else 0
    except UnreadableRepository:
        total = 0  # it is read as far as it can be
    interrupted = "Interrupted. What was taken stays; run it again, and it takes the rest."
    with Progress("Importing", total, "commits", interrupted=interrupted) as progress:
        await _send_documents(client, folder, name, report)
        if limit:
            async for looked_at in _send_commits(client, folder, limit, name, report):
                progress.show(looked_at)
    click.echo(render_json(msgspec.json.encode(report)) if client.as_json else _render(report))
    if report.damage:
        raise UnreadableRepository(f"What comes behind was not read: {report.damage[0]}")


async def _send_documents(client: api_client.ApiClient, folder: Path, project: str, report: HistoryReport) -> None:
    """Send the documents that are new or have changed since they were sent, and which are gone."""
    try:
        found = git_history.list_documents(folder)
    except UnreadableRepository as error:  # which ones are gone is not known either
        report.damage.append(str(error))
        return
    known: dict[str, str] = {}
    try:
        answer = (await client.get("/v1/history", {"project": project})).read(git_wire.RepositoryHistoryOut)
        known = {document.path: document.blob for document in answer.documents}
    except NotFound:
        pass
    changed = _read_documents(folder, {path: blob for path, blob in found.items() if known.get(path) != blob}, report)
    for documents in _chunks(changed, _DOCUMENTS_AT_ONCE):
        await _send(client, report, {"projectId": project, "documents": documents})
    gone = sorted(known.keys() - found.keys())
    report.gone_documents = len(gone)
    if gone:
        await _send(client, report, {"projectId": project, "goneDocuments": gone})


def _read_documents(folder: Path, blobs: Mapping[str, str], report: HistoryReport) -> Iterator[git_history.DocumentText]:
    """The documents with a text, by path and blob id; those that cannot be read are named in the report."""
    for path, blob in blobs.items():
        try:
            text = git_history.read_document(folder, path, blob)
        except UnreadableRepository:
            report.unread_documents.append(path)
            continue
        if text is not None:
            yield text


def _until_damage(commits: Iterator[T], report: HistoryReport) -> Iterator[T]:
    """All that can be read; why the rest cannot is said in the report."""
    try:
        yield from commits
    except UnreadableRepository as error:
        report.damage.append(str(error))


async def _send_commits(
    client: api_client.ApiClient, folder: Path, limit: int, project: str, report: HistoryReport
) -> AsyncGenerator[int]:
    """Send the commits, newest first; gives how many were looked at so far."""
    looked_at = 0
    for commits in _chunks(_until_damage(git_history.read_commits(folder, limit), report), _COMMITS_AT_ONCE):
        looked_at += len(commits)
        sent = [commit for commit in commits if commit is not None]
        report.left_out += len(commits) - len(sent)
        if sent:
            await _send(client, report, {"projectId": project, "commits": sent})
        yield looked_at


async def _send(client: api_client.ApiClient, report: HistoryReport, body: object) -> None:
    taken = (await client.post("/v1/history", body)).read(git_wire.HistoryImportOut)
    report.commits += taken.taken
    report.known += taken.known
    report.documents += taken.documents
    report.skipped += len(taken.skipped)


def _render(report: HistoryReport) -> str:
    lines = [
        f"{report.project}: {report.commits} commits and {report.documents} documents taken, {report.known} commits known already."
    ]
    if report.left_out:
        lines.append(f"Left out: {report.left_out} commits by bots or without a message.")
    if report.skipped:
        lines.append(f"Skipped: {report.skipped} commits that are dated before 1970 or in the future.")
    if report.gone_documents:
        lines.append(f"Removed: {report.gone_documents} documents that the repository has no longer.")
    if report.unread_documents:
        paths = ", ".join(map(sanitize_line, report.unread_documents))
        lines.append(f"Not read, for git cannot read them in this clone: {paths}.")
    return "\n".join(lines)


def _chunks(items: Iterator[T], size: int) -> Iterator[Sequence[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
