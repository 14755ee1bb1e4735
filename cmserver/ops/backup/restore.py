"""Restores a backup into an empty database and checks that it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from cmserver.access.keys import repository as keys
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.migrate import (
    LAST_COMMIT_BEFORE_SQUASH,
    SQUASHED,
    MigrationError,
    check_locale,
    check_server,
    ensure_tenant_role,
    migrate,
    newest,
)
from cmserver.embedded.tools import VECTOR_TABLES, find_tools, load
from cmserver.ops import repository as ops
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import BackupError, BackupReader, Manifest
from cmserver.ops.backup.replay import KnownErasures, replay
from cmserver.ops.repository import Conservation
from cmserver.pins.guard import describe_loss, report_all

log = get_logger(__name__)

_ROLE_BYTES = 63
"""PostgreSQL's longest name."""


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the restored database."""

    counts: Mapping[str, int]
    """Rows per table, before the migrations and erasures that came after the backup."""
    migrations: list[str]
    teams: list[Conservation]
    erased: int = 0
    """How many erasures that came after the backup were repeated."""
    revoked_keys: int = 0
    """How many keys were revoked because no journal says which of them were."""
    without_vectors: bool = False
    """Whether the database has no pgvector, so that the backup's vectors were left out."""
    lost_pins: list[str] = []
    """What is pinned, and held when it was backed up."""


async def restore(
    backup: BackupReader,
    url: str,
    folder: Path,
    erasures: KnownErasures | None = None,
    *,
    keep_keys: bool = False,
    progress: Callable[[int], object] = lambda _rows: None,
) -> RestoreReport:
    """Restore the backup into the empty database at `url`; `folder` holds the dump meanwhile. A failure leaves the database empty.

    The erasures are repeated; where they are not complete, all keys are revoked unless `keep_keys`. Without `erasures`, as for a
    drill, nothing is erased. A database that this backup was loaded into by a restore that was killed is accepted. `progress` is
    told about how many rows are loaded.
    """
    manifest = backup.manifest
    check_version(manifest)
    try:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            await _check_target(conn, manifest)
            with_vectors = not manifest.vectors or await repository.HAS_VECTORS.one(conn)
            if not await _is_loaded(conn, manifest):
                await _load_dump(conn, backup, url, folder, with_vectors=with_vectors, progress=progress)
            try:
                counts = await _check_contents(conn, manifest, with_vectors=with_vectors)
                report = await _finish(conn, url, manifest, counts, erasures, keep_keys=keep_keys)
            except BaseException:
                await _drop_restored(conn)
                raise
            return msgspec.structs.replace(report, without_vectors=not with_vectors, lost_pins=await _report_pins(conn))
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database was lost while it was being restored: {str(error).strip()}") from error


def check_version(manifest: Manifest) -> None:
    """MigrationError when the backup is of a newer program, or of a time whose migrations this one does not have."""
    if manifest.format == 1:
        if manifest.schema != SQUASHED:
            raise MigrationError(
                f"The backup is of the time before the first release (migration {manifest.schema:04}). Restore it with cmserver's "
                f"commit {LAST_COMMIT_BEFORE_SQUASH}, and make another backup there, which this program can restore."
            )
        return
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


async def check_restore_ended(url: str) -> None:
    """Raise BackupError for a database into which a restore was begun and not ended: erasures may not be repeated yet."""
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        if await repository.UNFINISHED.first(conn) is not None:
            raise BackupError(
                "A restore into this database was not ended, so what was erased after the backup may still be in it. Run "
                "`cmserver restore` with the same file again."
            )


async def _check_target(conn: AsyncConnection[TupleRow], manifest: Manifest) -> None:
    """MigrationError for a server, encoding or locale that cmserver cannot use, BackupError when it has rows or lacks roles."""
    check_server(conn)
    await check_locale(conn)
    if not await repository.IS_EMPTY.one(conn) and not await _is_loaded(conn, manifest):
        raise BackupError("The database is not empty. Restore into one that is: make a new database, or an empty data folder.")
    await ensure_tenant_role(conn)
    if missing := await repository.missing_roles(conn, manifest.roles):
        statements = "".join(f'\n  CREATE ROLE "{role}" NOLOGIN;' for role in missing)
        raise BackupError(
            f"Roles that have rights in the backup are missing. Ask whoever runs the database to execute:{statements}"
        )


async def _is_loaded(conn: AsyncConnection[TupleRow], manifest: Manifest) -> bool:
    """Whether a restore that did not end has loaded this backup."""
    return await repository.UNFINISHED.first(conn) == manifest.dump_sha256


async def _load_dump(
    conn: AsyncConnection[TupleRow],
    backup: BackupReader,
    url: str,
    folder: Path,
    *,
    with_vectors: bool,
    progress: Callable[[int], object],
) -> None:
    """Copy the dump out of the backup and load it into the database."""
    manifest = backup.manifest
    tools = find_tools(conn.info.server_version // 10_000, encrypted=conn.pgconn.ssl_in_use, restricted=True)
    script_tools = tools if tools.major >= manifest.dumped_by else find_tools(manifest.dumped_by, restricted=True)
    dump = folder / "database.dump"
    # The digest is hexadecimal: `copy_dump` has compared it.
    prologue = (
        f"CREATE TABLE public.restore_unfinished (); COMMENT ON TABLE public.restore_unfinished IS '{manifest.dump_sha256}';\n"
    )
    is_cancelled = False

    def report(rows: int) -> None:
        if is_cancelled:
            raise BackupError("The restore was interrupted.")  # which ends psql
        progress(rows)

    try:
        await asyncio.to_thread(backup.copy_dump, dump)
        loading = asyncio.create_task(
            asyncio.to_thread(
                load, script_tools, tools, dump, url, prologue=prologue.encode(), with_vectors=with_vectors, progress=report
            )
        )
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            is_cancelled = True
            (error,) = await asyncio.gather(loading, return_exceptions=True)
            if error is None:
                await _drop_restored(conn)  # the thread had loaded all of it
            raise
    except OSError as error:
        raise BackupError(f"{dump} cannot be written: {error.strerror or error}.") from error
    finally:
        dump.unlink(missing_ok=True)


async def _check_contents(conn: AsyncConnection[TupleRow], manifest: Manifest, *, with_vectors: bool) -> dict[str, int]:
    """Compare the rows of each table, and their checksums, with the manifest's; returns the rows of each table."""
    async with conn.transaction():
        counts, checksums = await repository.checksums(conn)
    left_out = set[str]() if with_vectors else set(VECTOR_TABLES)
    wrong = [table for table, count in manifest.counts.items() if table not in left_out and counts.get(table) != count]
    if wrong:
        raise BackupError(f"What was restored is not what was backed up: the numbers of rows differ ({', '.join(wrong)}).")
    wrong = [table for table, checksum in manifest.checksums.items() if table not in left_out and checksums.get(table) != checksum]
    if wrong:
        raise BackupError(f"What was restored is not what was backed up: the checksums differ ({', '.join(wrong)}).")
    return {table: count for table, count in counts.items() if table in manifest.counts}


async def _finish(
    conn: AsyncConnection[TupleRow],
    url: str,
    manifest: Manifest,
    counts: dict[str, int],
    erasures: KnownErasures | None,
    *,
    keep_keys: bool,
) -> RestoreReport:
    """Migrate, repeat the erasures in one transaction, and check the sums."""
    applied = await migrate(url)
    erased = revoked = 0
    async with conn.transaction():
        if erasures is not None:
            erased = await replay(conn, manifest, erasures.erasures)
            if not erasures.is_complete and not keep_keys:
                revoked = await keys.revoke_all(conn)
        await repository.finish(conn)
        teams = await ops.CONSERVATION.all(conn)
    return RestoreReport(counts=counts, migrations=applied, teams=teams, erased=erased, revoked_keys=revoked)


async def _report_pins(conn: AsyncConnection[TupleRow]) -> list[str]:
    """What is pinned and held when it was backed up; what is restored does not depend on it."""
    try:
        async with conn.transaction():
            return [describe_loss(result) for result in await report_all(conn, "restore")]
    except psycopg.Error as error:
        log.exception("pins.unchecked", exc_info=error)
        return []


async def _drop_restored(conn: AsyncConnection[TupleRow]) -> None:
    """Drop the restored tables, unless a server was started on them meanwhile."""
    if not await repository.is_served(conn):
        async with conn.transaction():
            await repository.drop_all(conn)
