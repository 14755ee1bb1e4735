"""The server as a whole, for its operator: versions, sizes and growth."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms_or_none
from cmserver.base.migrate import newest
from cmserver.base.process import resident_bytes
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.ops import repository
from cmserver.ops.backup.catalog import last_drill, list_backups
from cmserver.ops.backup.replay import created_at
from cmserver.ops.repository import MonthTotals, TableSize

_SHOWN_TABLES = 12


class LastDrill(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The last time that a backup was restored to try it. `atEpoch` is when it was tried; `backup` is the name of its file;
    `problem` is what was wrong with it, or null.
    """

    at_epoch: int
    backup: str
    passed: bool
    problem: str | None


class BackupFolder(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The folder of backups of the machine that answers. `lastDrill` is the last time that one was restored to try it, null for
    never.
    """

    folder: str
    backups: int
    damaged: int
    size_bytes: int
    newest_at_epoch: int | None
    last_drill: LastDrill | None


class Deployment(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server and its database. `tables` are the largest tables; `months` are the months of all teams, newest first; `workers`
    is how many workers run; `memoryBytes` is the memory of the process that answers; `teams` is how many teams there are, without
    archived ones.
    """

    version: str
    schema_version: int
    newest_schema_version: int
    postgres_version: str
    is_embedded: bool
    has_vectors: bool
    workers: int
    memory_bytes: int | None
    database_bytes: int
    teams: int
    tables: list[TableSize]
    months: list[MonthTotals]
    backups: BackupFolder


async def read_deployment(db: Db, settings: Settings) -> Deployment:
    """The state of the server now."""
    async with db.system() as conn:
        schema = await repository.SCHEMA.one(conn)
        sizes = await repository.SIZES.one(conn)
        tables = (await repository.TABLE_SIZES.all(conn))[:_SHOWN_TABLES]
        months = await repository.MONTH_TOTALS.all(conn)
    return Deployment(
        version=__version__,
        schema_version=schema.number,
        newest_schema_version=newest(),
        postgres_version=schema.postgres,
        is_embedded=settings.database_url is None,
        has_vectors=schema.vectors,
        workers=schema.workers,
        memory_bytes=resident_bytes(),
        database_bytes=sizes.database_bytes,
        teams=sizes.teams,
        tables=tables,
        months=months,
        backups=await asyncio.to_thread(read_backups, settings.backup_folder),
    )


def read_backups(folder: Path) -> BackupFolder:
    """A folder that cannot be read has none."""
    try:
        stored, drill = list_backups(folder), last_drill(folder)
    except OSError:
        stored, drill = [], None
    newest_at = max((created_at(backup.manifest) for backup in stored if backup.manifest), default=None)
    return BackupFolder(
        folder=str(folder),
        backups=len(stored),
        damaged=sum(backup.manifest is None for backup in stored),
        size_bytes=sum(backup.size_bytes for backup in stored),
        newest_at_epoch=epoch_ms_or_none(newest_at),
        last_drill=reshape(drill, LastDrill) if drill else None,
    )
