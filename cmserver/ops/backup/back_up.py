"""Writes a snapshot of the whole database into one file."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow

from cmserver import __version__
from cmserver.access.bootstrap import is_key
from cmserver.base import credentials
from cmserver.base.credentials import BadCredentials
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn
from cmserver.embedded.tools import dump, find_tools
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import BackupError, Manifest, new_backup


async def back_up(url: str, data_dir: Path, file: Path) -> Manifest:
    """Back up the database at `url`, and the data folder's credentials when their key is of that database.

    Servers may write meanwhile; the backup holds what was committed before it began.
    """
    try:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            return await _back_up(conn, url, data_dir, file)
    except psycopg.OperationalError as error:
        raise Unavailable(f"The database could not be read to the end: {str(error).strip()}") from error


async def _back_up(conn: AsyncConnection[TupleRow], url: str, data_dir: Path, file: Path) -> Manifest:
    if not await repository.is_cmserver(conn):
        raise BackupError("The database has no tables of cmserver: there is nothing to back up.")
    server = conn.info.server_version // 10_000
    tools = find_tools(server, encrypted=conn.pgconn.ssl_in_use)
    await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await conn.set_read_only(True)
    async with conn.transaction():
        await repository.disable_idle_timeout(conn)
        summary = await repository.export(conn)
        roles = await repository.grantees(conn)
        counts = await repository.counts(conn)
        credentials_file = await _read_credentials(conn, data_dir)
        with new_backup(file) as writer:
            with writer.dump() as write:
                length, digest = await asyncio.to_thread(dump, tools, url, summary.snapshot, write)
            if credentials_file is not None:
                writer.credentials(credentials_file)
            manifest = Manifest(
                version=__version__,
                created_at=summary.created_at,
                schema=summary.schema,
                postgres=server,
                dumped_by=tools.major,
                vectors=summary.vectors,
                roles=roles,
                installation=summary.installation,
                counts=counts,
                dump_bytes=length,
                dump_sha256=digest,
                credentials_sha256=hashlib.sha256(credentials_file).hexdigest() if credentials_file is not None else None,
            )
            writer.manifest(manifest)
    return manifest


async def _read_credentials(conn: Conn, data_dir: Path) -> bytes | None:
    """Return the content of the credentials file; None when there is none, or its key is not of this database."""
    try:
        stored = credentials.read(data_dir)
    except BadCredentials:
        return None
    if stored is None or not await is_key(conn, stored.key):
        return None
    return (data_dir / credentials.FILE_NAME).read_bytes()
