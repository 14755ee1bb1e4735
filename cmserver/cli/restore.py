"""`cmserver restore`: a backup into an empty data folder, in the place of a database, or into an empty database of one's own."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click
import psycopg

from cmserver.base import credentials
from cmserver.base.columns import render_table
from cmserver.base.credentials import PENDING_NAME, sync_folder
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.erasure_journal import FILE_NAME as JOURNAL_NAME
from cmserver.base.errors import NotFound, Unavailable
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.migrate import connect_when_ready
from cmserver.base.settings import Settings
from cmserver.base.tenant_role import TENANT_ROLE
from cmserver.cli.config import settings_option
from cmserver.cli.database import own_database
from cmserver.cli.exit_codes import ExitCode, ResourceInUse
from cmserver.cli.output import as_called
from cmserver.cli.progress import Progress
from cmserver.cli.verify import echo_sums
from cmserver.embedded.files import RESTORING, list_clusters, lock_data_dir, make_data_dir, remove_unfinished, replaced_name
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import BackupError, BackupReader, Manifest, open_backup
from cmserver.ops.backup.catalog import find_backup
from cmserver.ops.backup.replay import KnownErasures, find_erasures
from cmserver.ops.backup.repository import is_served
from cmserver.ops.backup.restore import RestoreReport, check_roles, check_version
from cmserver.ops.backup.restore import restore as fill
from cmserver.ops.doctor.database import check_credentials

_WITHOUT_KEY = (
    "The backup has no credentials file, so commands on this machine have no key: `cmserver keys create --operator --team NAME` "
    "makes one."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--replace", is_flag=True, help="Put it in the place of the data folder's database, which is moved aside, not deleted."
)
@click.option(
    "--journal", type=click.Path(path_type=Path), help=f"The journal of erasures ({JOURNAL_NAME}). [default: beside FILE]"
)
@click.option("--keep-keys", is_flag=True, help="Keep all keys although no journal says which were revoked after the backup.")
@settings_option
def restore(file: Path, settings: Settings, journal: Path | None, *, replace: bool, keep_keys: bool) -> None:
    """Restore the backup in FILE into an empty data folder, or into the empty database of CMSERVER_DATABASE_URL.

    FILE is a path, or the name of a backup in CMSERVER_BACKUP_DIR. The database is migrated to this program's schema, what was
    erased or revoked after the backup is erased again, and then it is checked, as `cmserver verify` does, that nothing is lost. On
    failure the target is left as it was. Exits 1 when the sums do not hold.
    """
    if journal is not None and not journal.is_file():
        raise NotFound(f"There is no file {journal}.")
    own = own_database(settings)
    if own is not None and replace:
        raise click.UsageError(
            "--replace is for the data folder's database. For your own, restore into a new database and set its URL."
        )
    with open_backup(find_backup(settings.backup_folder, str(file))) as reader:
        check_version(reader.manifest)
        check_roles(reader.manifest)
        erasures = _find_journal(reader.manifest, file, settings, journal)
        if own is not None:
            restored = _restore_database(settings, own.session, reader, erasures, keep_keys=keep_keys)
        else:
            restored = restore_data_dir(settings.data_dir, reader, erasures, keep_keys=keep_keys, replace=replace)
    _echo_report(reader.manifest, restored)
    if own is not None:
        asyncio.run(_echo_useless_key(own, settings.data_dir))
    elif not (settings.data_dir / credentials.FILE_NAME).exists():
        click.echo(as_called(_WITHOUT_KEY), err=True)
    if not echo_sums(restored.teams):
        sys.exit(ExitCode.FAILURE)


def restore_progress(manifest: Manifest) -> Progress:
    """Shows how many of the backup's rows are loaded."""
    return Progress("Restoring", sum(manifest.counts.values()), "rows", interrupted="Interrupted. The target is left as it was.")


def _find_journal(manifest: Manifest, file: Path, settings: Settings, journal: Path | None) -> KnownErasures:
    """The erasures of the given journal, of the ones beside the file and in the backup folder, and of the server's own."""
    beside = [journal] if journal is not None else []
    candidates = [*beside, file.absolute().parent / JOURNAL_NAME, settings.backup_folder / JOURNAL_NAME]
    return find_erasures(manifest, [*candidates, *([Path(manifest.journal)] if manifest.journal else [])])


def restore_data_dir(
    data_dir: Path, reader: BackupReader, erasures: KnownErasures | None, *, keep_keys: bool, replace: bool
) -> RestoreReport:
    """Fill a cluster beside its final place, and rename it when it is complete."""
    lock = lock_data_dir(data_dir)
    try:
        stored = reader.credentials()
        present = data_dir / credentials.FILE_NAME
        remove_unfinished(data_dir)
        clusters = list_clusters(data_dir)
        if not replace and (clusters or (present.exists() and present.read_bytes() != stored)):
            raise BackupError(
                f"The data folder {data_dir} is not empty. Set CMSERVER_DATA_DIR to an empty one, or pass --replace to move its "
                "database aside."
            )
        embedded = EmbeddedPostgres(data_dir / f"{RESTORING}{secrets.token_hex(4)}")
        try:
            embedded.start()
            # The tenant role is created by its owner, who may then assume it.
            embedded.create_roles(role for role in reader.manifest.roles if role != TENANT_ROLE)
            with restore_progress(reader.manifest) as progress:
                restored = asyncio.run(
                    fill(reader, embedded.url, embedded.data_dir, erasures, keep_keys=keep_keys, progress=progress.show)
                )
            embedded.reset_settings()
            embedded.stop()
            aside = [_move_aside(cluster) for cluster in clusters]
            _put_in_place(embedded, data_dir, stored)
        finally:
            embedded.stop()
            shutil.rmtree(embedded.sockets, ignore_errors=True)  # with a long path they are outside the data folder
            shutil.rmtree(embedded.data_dir, ignore_errors=True)
    finally:
        lock.release()
    click.echo(f"Restored into {data_dir}{'' if stored is None else ', with its credentials file'}.")
    for cluster in aside:
        click.echo(f"The database of before is in {cluster}. Delete that folder when you do not need it any more.")
    return restored


def _move_aside(cluster: Path) -> Path:
    """Rename the cluster; the next start brings it back if this process is killed before the restored one is in its place."""
    aside = cluster.with_name(replaced_name(cluster.name, datetime.now(UTC)))
    cluster.rename(aside)
    return aside


def _put_in_place(embedded: EmbeddedPostgres, data_dir: Path, stored: bytes | None) -> None:
    """Write the credentials as pending first: if this is killed in between, the next start confirms them."""
    if stored is not None:
        credentials.write_bytes(data_dir, stored, PENDING_NAME)
    embedded.cluster.rename(data_dir / embedded.cluster.name)
    sync_folder(data_dir)
    if stored is not None:
        credentials.confirm_pending(data_dir)


def _restore_database(
    settings: Settings, url: str, reader: BackupReader, erasures: KnownErasures, *, keep_keys: bool
) -> RestoreReport:
    stored = reader.credentials()
    with tempfile.TemporaryDirectory(prefix="cmserver-restore-") as folder:
        restored = asyncio.run(_fill_database(settings, url, reader, Path(folder), erasures, keep_keys=keep_keys))
    click.echo("Restored into your PostgreSQL (CMSERVER_DATABASE_URL).")
    if stored is not None:
        _restore_credentials(settings.data_dir, stored)
    return restored


async def _fill_database(
    settings: Settings, url: str, reader: BackupReader, folder: Path, erasures: KnownErasures, *, keep_keys: bool
) -> RestoreReport:
    await _connect(url, settings)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        if await is_served(conn):
            raise ResourceInUse("A cmserver is connected to this database. Stop it first.")
    with restore_progress(reader.manifest) as progress:
        return await fill(reader, url, folder, erasures, keep_keys=keep_keys, progress=progress.show)


def _restore_credentials(data_dir: Path, stored: bytes) -> None:
    present = data_dir / credentials.FILE_NAME
    if present.exists() and present.read_bytes() != stored:
        click.echo(f"{present} holds another key and stays; the backup's credentials file was not written.")
        return
    make_data_dir(data_dir)
    click.echo(f"Written: {credentials.write_bytes(data_dir, stored)}")


async def _echo_useless_key(urls: DatabaseUrls, data_dir: Path) -> None:
    """Say that this machine's commands will be refused, where the restored database does not take the data folder's key."""
    async with Db(urls, size=1) as db:
        for finding in await check_credentials(db, data_dir):
            click.echo(as_called(f"{finding.message}\n    {finding.command}"), err=True)


async def _connect(url: str, settings: Settings) -> None:
    try:
        await connect_when_ready(url, settings.database_wait_seconds)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database cannot be reached: {str(error).strip()}") from error


def _echo_report(manifest: Manifest, restored: RestoreReport) -> None:
    _echo_counts(manifest.counts, restored.counts)
    for name in restored.migrations:
        click.echo(f"Migrated: {name}")
    if restored.without_vectors:
        click.echo("This PostgreSQL has no pgvector: search uses words only. With pgvector, the server embeds everything anew.")
    if restored.erased:
        click.echo(f"Erased again what was erased or revoked after the backup: {restored.erased}.")
    for line in restored.lost_pins:
        click.echo(sanitize_line(line), err=True)
    if restored.revoked_keys:
        click.echo(
            as_called(
                f"No journal of erasures reaches back to this backup, so all keys were revoked ({restored.revoked_keys}): some may "
                "have been revoked after it. Make new ones with `cmserver keys create --operator --team NAME`. Erased observations "
                f"may be back. With the journal ({JOURNAL_NAME}) in its place, restore again with --journal; or with --keep-keys."
            ),
            err=True,
        )


def _echo_counts(expected: Mapping[str, int], restored: Mapping[str, int]) -> None:
    rows = [(name, count, restored.get(name, 0)) for name, count in sorted(expected.items()) if count]
    click.echo(render_table(("table", "rows in the backup", "rows restored"), rows, empty="No rows."))
