"""Restores a backup into an empty database and checks that it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from cmserver.base.errors import Unavailable
from cmserver.base.migrate import MigrationError, ensure_tenant_role, migrate, newest
from cmserver.embedded.tools import find_tools, load
from cmserver.ops import repository as ops
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import BackupError, BackupReader, Manifest
from cmserver.ops.repository import Conservation

_ROLE_BYTES = 63
"""PostgreSQL's longest name."""


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the restored database."""

    counts: Mapping[str, int]
    """Rows per table, before the migrations that came after the backup."""
    migrations: list[str]
    teams: list[Conservation]


async def restore(backup: BackupReader, url: str, folder: Path) -> RestoreReport:
    """Restore the backup into the empty database at `url`; `folder` holds the dump meanwhile. A failure leaves the database empty.

    A database that holds exactly this backup, from a restore that was killed at its end, is accepted.
    """
    check_version(backup.manifest)
    try:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            await _check_target(conn, backup.manifest)
            if await _holds_backup(conn, backup.manifest):
                return await _migrate(conn, url)
            await _load_dump(conn, backup, url, folder)
            try:
                await _check_counts(conn, backup.manifest)
                return await _migrate(conn, url)
            except BaseException:
                await _drop_restored(conn)
                raise
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database was lost while it was being restored: {str(error).strip()}") from error


def check_version(manifest: Manifest) -> None:
    """MigrationError when the backup is of a newer program."""
    if manifest.schema > newest():
        raise MigrationError(
            f"The backup is of a newer cmserver ({manifest.version}, migration {manifest.schema:04}; this program knows up to "
            f"{newest():04}). Upgrade this program, then restore."
        )


def check_roles(manifest: Manifest) -> None:
    """BackupError when the manifest names a role that no cmserver backup can name."""
    for role in manifest.roles:
        if not role or "\0" in role or role.startswith("pg_") or len(role.encode(errors="replace")) > _ROLE_BYTES:
            raise BackupError(f"The backup is damaged: there is no role {role!r}. Nothing was restored.")


async def _check_target(conn: AsyncConnection[TupleRow], manifest: Manifest) -> None:
    """Raise BackupError when the database cannot take the backup: too old, without pgvector, not empty, or roles missing."""
    server = conn.info.server_version // 10_000
    if server < manifest.postgres:
        raise BackupError(
            f"The backup is of PostgreSQL {manifest.postgres}, and this database is PostgreSQL {server}: a dump goes to the same "
            "version or a newer one."
        )
    if manifest.vectors and not await repository.has_vectors(conn):
        raise BackupError(
            "The backup holds vectors of pgvector, which this database does not have. Install pgvector, and let a superuser "
            "execute in this database: CREATE EXTENSION vector;"
        )
    if not await repository.is_empty(conn) and not await _holds_backup(conn, manifest):
        raise BackupError("The database is not empty. Restore into one that is: make a new database, or an empty data folder.")
    await ensure_tenant_role(conn)
    if missing := await repository.missing_roles(conn, manifest.roles):
        statements = "".join(f'\n  CREATE ROLE "{role}" NOLOGIN;' for role in missing)
        raise BackupError(
            f"Roles that have rights in the backup are missing. Ask whoever runs the database to execute:{statements}"
        )


async def _holds_backup(conn: AsyncConnection[TupleRow], manifest: Manifest) -> bool:
    """Whether the database is the backup's installation, with the same number of rows in each table."""
    if await repository.installation(conn) != manifest.installation:
        return False
    present = await repository.counts(conn)
    # Migrations that came after the backup may have been applied already.
    return all(
        present[table] == count for table, count in manifest.counts.items() if table in present and table != "schema_migrations"
    )


async def _load_dump(conn: AsyncConnection[TupleRow], backup: BackupReader, url: str, folder: Path) -> None:
    """Copy the dump out of the backup and load it into the database."""
    manifest = backup.manifest
    server = conn.info.server_version // 10_000
    tools = find_tools(max(server, manifest.dumped_by), encrypted=conn.pgconn.ssl_in_use)
    dump = folder / "database.dump"
    try:
        await asyncio.to_thread(backup.copy_dump, dump)
        await asyncio.to_thread(load, tools, dump, url)
    except OSError as error:
        raise BackupError(f"{dump} cannot be written: {error.strerror or error}.") from error
    finally:
        dump.unlink(missing_ok=True)


async def _check_counts(conn: AsyncConnection[TupleRow], manifest: Manifest) -> None:
    if not await _holds_backup(conn, manifest):
        raise BackupError("What was restored is not what was backed up: the numbers of rows differ.")


async def _migrate(conn: AsyncConnection[TupleRow], url: str) -> RestoreReport:
    counts = await repository.counts(conn)
    applied = await migrate(url)
    async with conn.transaction():
        teams = await ops.conservation(conn)
    return RestoreReport(counts=counts, migrations=applied, teams=teams)


async def _drop_restored(conn: AsyncConnection[TupleRow]) -> None:
    """Drop the restored tables, unless a server was started on them meanwhile."""
    if not await repository.is_served(conn):
        async with conn.transaction():
            await repository.drop_all(conn)
