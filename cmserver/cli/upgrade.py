"""`cmserver upgrade`: brings the data to what this program has, its PostgreSQL and its schema, or says what that would be."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import click

from cmserver import __version__
from cmserver.base.erasure_journal import make_backup_folder
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.migrate import Migration, find_missing, migrate
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.output import as_called
from cmserver.cli.restore import restore_data_dir
from cmserver.embedded import files as embedded_files
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.catalog import new_name, newest
from cmserver.pins.guard import check_upgrade, describe_loss
from cmserver.pins.model import PinResult

_OFFER = "What its rules would remember otherwise is shown by `cmserver replay`, which changes nothing."


@click.command()
@click.option("--check", is_flag=True, help="Change nothing: say what would be done. Exits 1 when there is something to do.")
@settings_option
def upgrade(settings: Settings, *, check: bool) -> None:
    """Bring the data to what this program has: its major version of the embedded PostgreSQL, and its schema.

    The schema is also brought up to date by each start of the server. A database of another PostgreSQL is backed up and restored
    into the new one; the old one is moved aside, not deleted. Stop the server for that.

    Pins that held at their last check are checked by this program: what it would lose is printed, and where a pin refuses that, the
    schema stays as it was.
    """
    is_own = settings.database_url is not None
    if not is_own and not check and embedded_files.find_set_aside(settings.data_dir):
        lock = embedded_files.lock_data_dir(settings.data_dir)
        try:
            embedded_files.remove_unfinished(settings.data_dir)
        finally:
            lock.release()
    if not is_own and embedded_files.find_set_aside(settings.data_dir):
        click.echo(as_called("A restore was interrupted: `cmserver upgrade` and the next start bring the database of before back."))
        sys.exit(ExitCode.FAILURE)
    if not is_own and not embedded_files.list_clusters(settings.data_dir):
        click.echo(f"The data folder {settings.data_dir} holds no database: the first start makes it.")
        return
    old = None if is_own else _find_old(settings)
    if not check and old is not None:
        _take_over(settings, old)
        old = None
    with database_urls(settings, old) as urls:
        if not check:
            lost: list[PinResult] = []

            async def check_pins(conn: Conn) -> None:
                lost.extend(await check_upgrade(conn))

            for name in asyncio.run(migrate(urls.session, check_pins)):
                click.echo(f"Migrated: {name}")
            for result in lost:
                click.echo(sanitize_line(describe_loss(result)))
            click.echo(f"The data is as cmserver {__version__} has it.")
            return
        missing = asyncio.run(find_missing(urls.session))
    lines = [*_describe(old, missing)]
    if not lines:
        click.echo(as_called(f"Nothing to do: the data is as cmserver {__version__} has it. {_OFFER}"))
        return
    click.echo("\n".join(lines))
    backup = newest(settings.backup_folder)
    made = f"The newest backup is {backup.file}." if backup is not None else "There is no backup."
    click.echo(as_called(f"{made} Make one with `cmserver backup`, then run `cmserver upgrade`. {_OFFER}"))
    sys.exit(ExitCode.FAILURE)


def _find_old(settings: Settings) -> embedded_files.Binaries | None:
    """The programs of the data folder's PostgreSQL, when new ones would run it. SetupError when they are not installed."""
    major = embedded_files.other_major(settings.data_dir)
    if major is None:
        return None
    binaries = embedded_files.binaries_of(major)
    if binaries is None:
        raise embedded_files.SetupError(
            f"The data folder {settings.data_dir} holds a database of PostgreSQL {major}, which is not installed. Install it "
            f"for the upgrade, on Debian: apt-get install postgresql-{major}."
        )
    return binaries


def _describe(old: embedded_files.Binaries | None, missing: list[Migration]) -> Iterator[str]:
    if old is not None:
        new = embedded_files.find_binaries()
        yield f"PostgreSQL {old.major} becomes {new.major}: the database is backed up, and restored into the new one."
    for migration in missing:
        what, duration = _read_comment(migration.text)
        yield f"Migration {migration.name}: {what}{f' {duration}' if duration else ''}"


def _read_comment(text: str) -> tuple[str, str]:
    """What a migration says of itself in its first line, and how long it takes."""
    lines = [line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")]
    duration = next((line for line in lines if line.startswith("How long")), "")
    return next(iter(lines), ""), duration


def _take_over(settings: Settings, old: embedded_files.Binaries) -> None:
    """Back up the database with its own programs, and restore it into a cluster of the new ones."""
    make_backup_folder(settings.backup_folder)
    file = new_name(settings.backup_folder)
    embedded = EmbeddedPostgres(settings.data_dir, old)
    embedded.start()
    try:
        asyncio.run(back_up(embedded.url, settings, file))
    finally:
        embedded.stop()
    click.echo(f"Backed up: {file}")
    with open_backup(file) as reader:
        restore_data_dir(settings.data_dir, reader, None, keep_keys=True, replace=True)
