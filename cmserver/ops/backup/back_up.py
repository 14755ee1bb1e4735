"""Writes a snapshot of the whole database into one file."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow

from cmserver import __version__
from cmserver.access.bootstrap import is_key
from cmserver.base import credentials
from cmserver.base.credentials import BadCredentials
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Unavailable
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.embedded.tools import Tools, dump, find_tools
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import FORMAT, BackupError, Manifest, new_backup
from cmserver.retention import repository as retention


async def back_up(url: str, settings: Settings, file: Path) -> Manifest:
    """Back up the database as of now, and credentials whose key is of it; begins the journal of erasures if there is none."""
    try:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            return await _back_up(conn, url, settings, file)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database could not be read to the end: {str(error).strip()}") from error


async def _back_up(conn: AsyncConnection[TupleRow], url: str, settings: Settings, file: Path) -> Manifest:
    if not await repository.IS_CMSERVER.one(conn):
        raise BackupError("The database has no tables of cmserver: there is nothing to back up.")
    journal = ErasureJournal(settings.backup_folder)
    if (installation := await repository.installation(conn)) is not None:
        await asyncio.to_thread(journal.begin, installation, await repository.CLOCK.one(conn))
    server = conn.info.server_version // 10_000
    tools = find_tools(server, encrypted=conn.pgconn.ssl_in_use)
    await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await conn.set_read_only(True)
    async with conn.transaction():
        await repository.DISABLE_IDLE_TIMEOUT.run(conn)
        await retention.HOLD_OFF.run(conn)
        summary = await repository.EXPORT.one(conn)
        roles = await repository.GRANTEES.all(conn)
        counts, checksums = await repository.checksums(conn)
        credentials_file = await _read_credentials(conn, settings.data_dir)
        with new_backup(file) as writer:
            with writer.dump() as write:
                length, digest = await _dump(tools, url, summary.snapshot, write)
            if credentials_file is not None:
                writer.credentials(credentials_file)
            manifest = Manifest(
                format=1 if summary.is_before_squash else FORMAT,
                version=__version__,
                created_at=summary.created_at,
                schema=summary.schema,
                postgres=server,
                dumped_by=tools.major,
                vectors=summary.vectors,
                roles=roles,
                installation=summary.installation,
                counts=counts,
                checksums=checksums,
                snapshot=summary.transactions,
                cluster=summary.cluster,
                journal=str(journal.file),
                dump_bytes=length,
                dump_sha256=digest,
                credentials_sha256=hashlib.sha256(credentials_file).hexdigest() if credentials_file is not None else None,
            )
            writer.manifest(manifest)
    return manifest


async def _dump(tools: Tools, url: str, snapshot: str, write: Callable[[bytes], object]) -> tuple[int, str]:
    """Dump in a thread, which ends soon when this task is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(dump, tools, url, snapshot, write, stop)
    except asyncio.CancelledError:
        stop.set()
        raise


async def _read_credentials(conn: Conn, data_dir: Path) -> bytes | None:
    """Return the content of the credentials file; None when there is none, or its key is not of this database."""
    try:
        stored = credentials.read(data_dir)
    except BadCredentials:
        return None
    if stored is None or not await is_key(conn, stored.key):
        return None
    return (data_dir / credentials.FILE_NAME).read_bytes()
