"""`cmserver backup`, `backups` and `restore`: the whole memory and the credentials file in one file, and back."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import psycopg

from cmserver.base.columns import render_table
from cmserver.base.erasure_journal import make_backup_folder
from cmserver.base.errors import NotFound, Unavailable
from cmserver.base.migrate import connect_when_ready
from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.output import as_called, render_json
from cmserver.cli.restore import restore_progress
from cmserver.embedded.files import list_clusters
from cmserver.ops.backup import catalog
from cmserver.ops.backup.archive import BackupError, Manifest, open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.drill import run_drill


@click.group(invoke_without_command=True)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="The folder for the backup. [default: CMSERVER_BACKUP_DIR]")
@click.option("--file", type=click.Path(path_type=Path), help="Write this file instead.")
@click.option("--force", is_flag=True, help="Replace the file of --file if it exists.")
@click.option("--keep", type=click.IntRange(min=1), help="Then remove all but the newest so many backups of the folder.")
@settings_option
@click.pass_context
def backup(
    context: click.Context, folder: Path | None, file: Path | None, settings: Settings, keep: int | None, *, force: bool
) -> None:
    """Write the whole memory and the credentials file into one file.

    The server may run meanwhile: the backup holds the database as it was when the command started. It contains all secrets of the
    installation, so only its owner can read it.
    """
    context.obj = settings
    if context.invoked_subcommand is not None:
        return
    if file is not None and (folder is not None or keep is not None):
        raise click.UsageError("--file stands alone: --to and --keep are about a folder of backups.")
    if not settings.database_url and not list_clusters(settings.data_dir):
        raise BackupError(f"The data folder {settings.data_dir} holds no database to back up.")
    target = _target(folder or settings.backup_folder) if file is None else _named_file(file, force=force)
    with database_urls(settings) as urls:
        manifest = asyncio.run(_back_up(urls.session, settings, target))
    rows = sum(manifest.counts.values())
    click.echo(
        f"Backed up {rows} rows of {len(manifest.counts)} tables (PostgreSQL {manifest.postgres}, migration {manifest.schema:04})."
    )
    if manifest.credentials_sha256 is None:
        click.echo("No credentials file: the data folder has none with a key of this database.")
    click.echo(f"Written: {target} ({target.stat().st_size} bytes). Keep it secret: it contains the memory and keys.")
    for old in catalog.remove_old(target.parent, keep, manifest.installation) if keep else ():
        click.echo(f"Removed: {old}")


def _target(folder: Path) -> Path:
    """A new file in the folder, which is made."""
    try:
        make_backup_folder(folder.absolute())
    except OSError as error:
        raise BackupError(f"The folder {folder} cannot be made: {error.strerror or error}.") from error
    return catalog.new_name(folder.absolute())


def _named_file(file: Path, *, force: bool) -> Path:
    file = file.absolute()
    if file.exists() and not force:
        raise BackupError(f"{file} exists. Choose another name, or pass --force to replace it.")
    if not file.parent.is_dir():
        raise BackupError(f"The folder {file.parent} does not exist.")
    return file


async def _back_up(url: str, settings: Settings, file: Path) -> Manifest:
    try:
        await connect_when_ready(url, settings.database_wait_seconds)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database cannot be reached: {str(error).strip()}") from error
    return await back_up(url, settings, file)


@backup.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_obj
def drill(settings: Settings, name: str | None, *, as_json: bool) -> None:
    """Try a backup: restore it into a scratch database, and compare counts and checksums.

    NAME is a file or the name of a backup; without it, the newest is tried. Nothing is changed but the report, which
    `cmserver backups` shows. Exits 1 when the backup cannot be restored.
    """
    folder = settings.backup_folder
    file = _newest(folder) if name is None else catalog.find_backup(folder, name)
    click.echo(f"Restoring {file} into a scratch database ...", err=True)
    make_backup_folder(folder)
    with open_backup(file) as reader:
        manifest = reader.manifest
    with restore_progress(manifest) as progress:
        report = run_drill(file, settings.data_dir, folder, progress.show)
    if as_json:
        click.echo(render_json(msgspec.json.encode(report)))
    else:
        click.echo(_drill_sentence(report))
    if not report.passed:
        sys.exit(ExitCode.FAILURE)


def _newest(folder: Path) -> Path:
    stored = catalog.newest(folder)
    if stored is None:
        raise NotFound(f"There is no backup in {folder}. Make one with `cmserver backup`.")
    return stored.file


def _drill_sentence(report: catalog.DrillReport) -> str:
    if report.passed:
        return (
            f"Passed: {report.backup} was restored in {report.seconds:g} s; {report.rows} rows and all checksums are as backed up."
        )
    return f"Failed: {report.backup} cannot be restored. {report.problem}"


@click.group(invoke_without_command=True)
@settings_option
@click.pass_context
def backups(context: click.Context, settings: Settings) -> None:
    """List and verify the backups of the folder CMSERVER_BACKUP_DIR."""
    context.obj = settings
    if context.invoked_subcommand is None:
        context.invoke(list_command)


@backups.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_command(settings: Settings, *, as_json: bool = False) -> None:
    """List the backups, the newest first, and the last drill."""
    folder = settings.backup_folder
    stored, report = catalog.list_backups(folder), catalog.last_drill(folder)
    if as_json:
        rows = [
            {
                "file": str(backup.file),
                "sizeBytes": backup.size_bytes,
                "createdAt": backup.manifest.created_at if backup.manifest else None,
                "version": backup.manifest.version if backup.manifest else None,
                "schema": backup.manifest.schema if backup.manifest else None,
                "rows": sum(backup.manifest.counts.values()) if backup.manifest else None,
                "problem": backup.problem,
            }
            for backup in stored
        ]
        click.echo(render_json(msgspec.json.encode({"folder": str(folder), "backups": rows, "lastDrill": report})))
        return
    table = [
        (
            backup.file.name,
            f"{backup.manifest.created_at[:19]}Z" if backup.manifest else None,
            backup.size_bytes,
            sum(backup.manifest.counts.values()) if backup.manifest else None,
            backup.manifest.version if backup.manifest else "damaged",
        )
        for backup in stored
    ]
    empty = as_called(f"There is no backup in {folder}. Make one with `cmserver backup`.")
    click.echo(render_table(("backup", "made", "bytes", "rows", "version"), table, empty=empty))
    if report is None:
        click.echo(as_called("No backup was tried yet. `cmserver backup drill` restores the newest one into a scratch database."))
    else:
        days = (datetime.now(UTC) - report.at).days
        click.echo(f"Last drill, {days} days ago. {_drill_sentence(report)}")


@backups.command("verify")
@click.argument("names", nargs=-1)
@click.pass_obj
def verify_command(settings: Settings, names: tuple[str, ...]) -> None:
    """Read backups to their end and compare them with their checksums: those named, else all of the folder.

    Exits 1 when one is damaged. Whether it can be restored is what `cmserver backup drill` says.
    """
    folder = settings.backup_folder
    files = [catalog.find_backup(folder, name) for name in names] or [backup.file for backup in catalog.list_backups(folder)]
    if not files:
        raise NotFound(f"There is no file *{catalog.SUFFIX} in {folder}. Make one with `cmserver backup`.")
    problems = [problem for file in files if (problem := _verify(file)) is not None]
    if problems:
        sys.exit(ExitCode.FAILURE)


def _verify(file: Path) -> str | None:
    problem = catalog.verify_backup(file)
    click.echo(f"{file}: whole" if problem is None else problem, err=problem is not None)
    return problem
