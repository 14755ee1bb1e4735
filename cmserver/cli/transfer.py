"""`cmserver export` and `cmserver import`: a team's memory as JSON Lines, and the memory of other programs."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click
import msgspec

from cmserver.access import projects
from cmserver.access import repository as access
from cmserver.access.model import Principal, Team
from cmserver.base.atomic_file import replace_file
from cmserver.base.columns import render_table
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import parse_id
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.migrate import MigrationError, newest
from cmserver.base.settings import Settings
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.git import import_git
from cmserver.cli.operator import ACTOR, OTHER_SCHEMA
from cmserver.cli.output import render_json
from cmserver.cli.progress import Progress
from cmserver.ops import repository as ops
from cmserver.ops.transfer.batches import add_report, make_batches
from cmserver.ops.transfer.claude_code import ClaudeCodeSource
from cmserver.ops.transfer.claude_mem import ClaudeMemSource
from cmserver.ops.transfer.contextify import ContextifySource
from cmserver.ops.transfer.export import export_team
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer, Source
from cmserver.ops.transfer.wire import ImportIn, SourceName

team_option = click.option("--team", help="The team, by name or id. [default: the only one]")


@click.command("export")
@team_option
@click.option("--project", "project_names", multiple=True, help="Only this project; may be repeated. [default: all]")
@click.option("--to", "file", type=click.Path(path_type=Path), help="The file. [default: standard output]")
@settings_option
def export(settings: Settings, team: str | None, project_names: tuple[str, ...], file: Path | None) -> None:
    """Write everything that a team or a project remembers, as JSON Lines.

    Sessions, events, prompts, observations with their history and links, and the projects' settings; no keys and no members. The
    server may run meanwhile. `cmserver import jsonl` reads it.
    """
    with database_urls(settings) as urls:
        if file is None:
            counts = asyncio.run(_export(urls, team, project_names, sys.stdout.buffer))
        else:
            with replace_file(file.absolute(), mode=0o600) as out:
                counts = asyncio.run(_export(urls, team, project_names, out))
    click.echo(f"Exported, lines by record: {_in_words(counts)}.{'' if file is None else f' Written: {file}'}", err=True)


async def _export(urls: DatabaseUrls, team: str | None, project_names: tuple[str, ...], out: BinaryIO) -> dict[str, int]:
    async with Db(urls, size=1) as db:
        principal = await _operator_of(db, team)
        project_ids = [await _find_project(db, principal, name) for name in project_names] or None
    return await export_team(urls.session, principal.team_id, project_ids, out.write)


@click.group("import")
def import_group() -> None:
    """Take over the memory of another server or program.

    Secrets and private passages are removed, as from every event. A run that was interrupted is repeated: nothing is taken twice.
    """


_dry_run_option = click.option("--dry-run", is_flag=True, help="Store nothing; say what would be taken.")


@import_group.command("jsonl")
@click.argument("file", type=click.Path(path_type=Path))
@team_option
@_dry_run_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@settings_option
def import_jsonl(settings: Settings, file: Path, team: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Take over an export of cmserver.

    Ids, numbers and times are kept; where another observation of the team has a number, a new one is given. A project that the team
    has already gets what it lacks. Needs no server and no key, only access to the database.
    """
    source = JsonlSource(file)
    with _progress(source) as progress, database_urls(settings) as urls:
        report = asyncio.run(_run(urls, settings, source, team, progress, dry_run=dry_run))
    click.echo(render_json(msgspec.json.encode(report)) if as_json else _render(report, dry_run=dry_run))


@import_group.command("claude-mem")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_dry_run_option
@api_command
async def import_claude_mem(client: ApiClient, file: Path | None, *, dry_run: bool) -> None:
    """Take over the database of claude-mem: sessions, prompts, observations and summaries, with their times.

    FILE is its SQLite database, of any version from 3 on, which is only read. [default: ~/.claude-mem/claude-mem.db] The server may
    be elsewhere. The key needs the scopes observations:write, events:write and sessions:write.
    """
    await _send(
        client, "claude-mem", lambda: ClaudeMemSource(file or Path.home() / ".claude-mem" / "claude-mem.db"), dry_run=dry_run
    )


@import_group.command("contextify")
@click.argument("source_url", metavar="URL")
@_dry_run_option
@api_command
async def import_contextify(client: ApiClient, source_url: str, *, dry_run: bool) -> None:
    """Take over the memories of Contextify, and how they relate, with their times.

    URL is the address of its PostgreSQL, which is only read: postgresql://USER@HOST/contextify. Its password may stand in
    ~/.pgpass or in PGPASSWORD, where the list of processes does not show it. The server may be elsewhere. The key needs the scopes
    observations:write, events:write and sessions:write.
    """
    await _send(client, "contextify", lambda: ContextifySource(source_url), dry_run=dry_run)


@import_group.command("claude-code")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@_dry_run_option
@api_command
async def import_claude_code(client: ApiClient, folder: Path | None, *, dry_run: bool) -> None:
    """Take over what Claude Code keeps: the notes of its auto-memory, and what its transcripts say of each turn.

    FOLDER is its own folder, which is only read. [default: CLAUDE_CONFIG_DIR, or ~/.claude] The server may be elsewhere. The key
    needs the scopes observations:write, events:write and sessions:write.
    """
    own_folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    await _send(client, "claude-code", lambda: ClaudeCodeSource(folder or own_folder), dry_run=dry_run)


import_group.add_command(import_git)


async def _send(client: ApiClient, name: SourceName, open_source: Callable[[], Source], *, dry_run: bool) -> None:
    """Send the lines, a part at a time; an interrupted import is repeated."""
    began, done, report = time.monotonic(), 0, ImportReport()
    await client.post("/v1/import", ImportIn(source=name, dry_run=True))  # whether the key may, before much is read
    source = open_source()
    with _progress(source) as progress:
        batches = make_batches(source, report)
        batch = next(batches)
        while True:
            following = next(batches, None)
            body = ImportIn(
                source=name,
                context=batch.sorted_context,
                lines=batch.lines,
                dry_run=dry_run,
                is_last=following is None,
            )
            add_report(report, (await client.post("/v1/import", body)).read(ImportReport))
            done += len(batch.lines)
            progress.show(done)
            if following is None:
                break
            batch = following
    report.seconds = round(time.monotonic() - began, 1)
    click.echo(render_json(msgspec.json.encode(report)) if client.as_json else _render(report, dry_run=dry_run))


def _progress(source: Source) -> Progress:
    kept = "Interrupted. What was taken stays; run it again, and it goes on there."
    return Progress("Importing", source.count(), "lines", interrupted=kept)


async def _run(
    urls: DatabaseUrls, settings: Settings, source: Source, team: str | None, progress: Progress, *, dry_run: bool
) -> ImportReport:
    async with Db(urls, size=2) as db:
        principal = await _operator_of(db, team)
        journal = ErasureJournal(settings.backup_folder).file
        return await Importer(db, principal, source, journal=journal, dry_run=dry_run).run(progress.show)


async def _operator_of(db: Db, name: str | None) -> Principal:
    """The operator, acting for the team of that name or id, or for the only one."""
    async with db.system() as conn:
        if (await ops.SCHEMA.one(conn)).number != newest():
            raise MigrationError(OTHER_SCHEMA)
        teams = [team for team in await access.all_teams(conn) if team.archived_at is None]
    team = _choose_team(teams, name)
    return Principal.of_server(team.id, actor_id=ACTOR, team_name=team.name)


def _choose_team(teams: list[Team], name: str | None) -> Team:
    if name is None:
        if len(teams) != 1:
            raise Conflict(f"There are {len(teams)} teams: name one with --team.")
        return teams[0]
    for team in teams:
        if team.name == name or team.id == parse_id(name):
            return team
    raise NotFound(f"There is no team {name!r}. `cmserver teams list --operator` lists all teams.")


async def _find_project(db: Db, principal: Principal, name: str) -> UUID:
    async with db.tenant(principal.team_id) as conn:
        return (await projects.require_project(conn, principal, name)).id


def _render(report: ImportReport, *, dry_run: bool) -> str:
    records = list(dict.fromkeys([*report.taken, *report.known, *report.erased, *report.refused]))
    columns = ("kind", "would be taken" if dry_run else "taken", "known already", "erased here before", "refused")
    counts = (report.taken, report.known, report.erased, report.refused)
    rows = [(record, *(count.get(record, 0) for count in counts)) for record in records]
    lines = [render_table(columns, rows, empty="The source is empty.")]
    if report.redactions:
        lines.append(f"Removed: {_in_words(report.redactions)}.")
    if report.renumbered:
        lines.append(f"{report.renumbered} observations have new numbers: others of the team have theirs.")
    if report.examples:
        lines.append(f"Refused, the first {len(report.examples)}:")
        lines += [sanitize_line(f"  {refusal.record}, {refusal.place}: {refusal.reason}") for refusal in report.examples]
    lines += map(sanitize_line, report.lost_pins)
    total = sum(report.taken.values())
    lines.append(f"{total} lines {'would be ' if dry_run else ''}taken in {report.seconds:g} s.")
    return "\n".join(lines)


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
