"""`cmserver backup` and `cmserver restore`: the whole memory and the credentials file in one file, and back."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
import psycopg

from cmserver.base import credentials
from cmserver.base.credentials import PENDING_NAME, sync_folder
from cmserver.base.errors import Unavailable
from cmserver.base.migrate import connect_when_ready
from cmserver.base.settings import Settings
from cmserver.base.tenant_role import TENANT_ROLE
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls, own_database
from cmserver.cli.exit_codes import ExitCode, ResourceInUse
from cmserver.cli.output import render_table
from cmserver.cli.verify import echo_sums
from cmserver.embedded.files import RESTORING, list_clusters, lock_data_dir, make_data_dir, remove_unfinished
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import BackupError, BackupReader, Manifest, open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.repository import is_served
from cmserver.ops.backup.restore import RestoreReport, check_roles, check_version
from cmserver.ops.backup.restore import restore as fill


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@settings_option
def backup(file: Path, settings: Settings, *, force: bool) -> None:
    """Write the whole memory and the credentials file into FILE.

    The server may run meanwhile: the backup holds the database as it was when the command started. It contains all secrets of the
    installation, so only its owner can read it.
    """
    file = file.absolute()
    if file.exists() and not force:
        raise BackupError(f"{file} exists. Choose another name, or pass --force to replace it.")
    if not file.parent.is_dir():
        raise BackupError(f"The folder {file.parent} does not exist.")
    if not settings.database_url and not list_clusters(settings.data_dir):
        raise BackupError(f"The data folder {settings.data_dir} holds no database to back up.")
    with database_urls(settings) as urls:
        manifest = asyncio.run(_back_up(urls.session, settings, file))
    rows = sum(manifest.counts.values())
    click.echo(
        f"Backed up {rows} rows of {len(manifest.counts)} tables (PostgreSQL {manifest.postgres}, migration {manifest.schema:04})."
    )
    if manifest.credentials_sha256 is None:
        click.echo("No credentials file: the data folder has none with a key of this database.")
    click.echo(f"Written: {file} ({file.stat().st_size} bytes). Keep it secret: it contains the memory and keys.")


async def _back_up(url: str, settings: Settings, file: Path) -> Manifest:
    await _connect(url, settings)
    return await back_up(url, settings.data_dir, file)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def restore(file: Path, settings: Settings) -> None:
    """Restore the backup in FILE into an empty data folder, or into the empty database of CMSERVER_DATABASE_URL.

    Then migrate it to this program's schema and check, as `cmserver verify` does, that nothing is lost. On failure the target is
    left empty. Exits 1 when the sums do not hold.
    """
    with open_backup(file) as backup_reader:
        check_version(backup_reader.manifest)
        check_roles(backup_reader.manifest)
        if (urls := own_database(settings)) is not None:
            restored = _restore_database(settings, urls.session, backup_reader)
        else:
            restored = _restore_data_dir(settings.data_dir, backup_reader)
    _echo_counts(backup_reader.manifest.counts, restored.counts)
    for name in restored.migrations:
        click.echo(f"Migrated: {name}")
    if not echo_sums(restored.teams):
        sys.exit(ExitCode.FAILURE)


def _restore_data_dir(data_dir: Path, reader: BackupReader) -> RestoreReport:
    """Fill a cluster beside its final place, and rename it when it is complete."""
    lock = lock_data_dir(data_dir)
    try:
        stored = reader.credentials()
        present = data_dir / credentials.FILE_NAME
        if list_clusters(data_dir) or (present.exists() and present.read_bytes() != stored):
            raise BackupError(
                f"The data folder {data_dir} is not empty. Set CMSERVER_DATA_DIR to an empty one, or move its content away."
            )
        remove_unfinished(data_dir)
        embedded = EmbeddedPostgres(data_dir / f"{RESTORING}{secrets.token_hex(4)}")
        try:
            embedded.start()
            # The tenant role is created by its owner, who may then assume it.
            embedded.create_roles(role for role in reader.manifest.roles if role != TENANT_ROLE)
            restored = asyncio.run(fill(reader, embedded.url, embedded.data_dir))
            embedded.reset_settings()
            embedded.stop()
            _put_in_place(embedded, data_dir, stored)
        finally:
            embedded.stop()
            shutil.rmtree(embedded.sockets, ignore_errors=True)  # with a long path they are outside the data folder
            shutil.rmtree(embedded.data_dir, ignore_errors=True)
    finally:
        lock.release()
    click.echo(f"Restored into {data_dir}{'' if stored is None else ', with its credentials file'}.")
    return restored


def _put_in_place(embedded: EmbeddedPostgres, data_dir: Path, stored: bytes | None) -> None:
    """Write the credentials as pending first: if this is killed in between, the next start confirms them."""
    if stored is not None:
        credentials.write_bytes(data_dir, stored, PENDING_NAME)
    embedded.cluster.rename(data_dir / embedded.cluster.name)
    sync_folder(data_dir)
    if stored is not None:
        credentials.confirm_pending(data_dir)


def _restore_database(settings: Settings, url: str, reader: BackupReader) -> RestoreReport:
    stored = reader.credentials()
    with tempfile.TemporaryDirectory(prefix="cmserver-restore-") as folder:
        restored = asyncio.run(_fill_database(settings, url, reader, Path(folder)))
    click.echo("Restored into your PostgreSQL (CMSERVER_DATABASE_URL).")
    if stored is not None:
        _restore_credentials(settings.data_dir, stored)
    return restored


async def _fill_database(settings: Settings, url: str, reader: BackupReader, folder: Path) -> RestoreReport:
    await _connect(url, settings)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        if await is_served(conn):
            raise ResourceInUse("A cmserver is connected to this database. Stop it first.")
    return await fill(reader, url, folder)


def _restore_credentials(data_dir: Path, stored: bytes) -> None:
    present = data_dir / credentials.FILE_NAME
    if present.exists() and present.read_bytes() != stored:
        click.echo(f"{present} holds another key and stays; the backup's credentials file was not written.")
        return
    make_data_dir(data_dir)
    click.echo(f"Written: {credentials.write_bytes(data_dir, stored)}")


async def _connect(url: str, settings: Settings) -> None:
    try:
        await connect_when_ready(url, settings.database_wait_seconds)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database cannot be reached: {str(error).strip()}") from error


def _echo_counts(expected: Mapping[str, int], restored: Mapping[str, int]) -> None:
    rows = [(name, count, restored.get(name, 0)) for name, count in sorted(expected.items()) if count]
    click.echo(render_table(("table", "rows in the backup", "rows restored"), rows, empty="No rows."))
