"""A restore that is interrupted leaves the database as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.restore import restore

BACKUP = Path(__file__).parents[1] / "fixtures" / "before-0001.backup"
TABLES = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"


@pytest.mark.parametrize("waits", [True, False], ids=["while rows are loaded", "with the last of them"])
async def test_a_restore_that_is_interrupted_loads_nothing(empty_database: str, tmp_path: Path, *, waits: bool):
    loop = asyncio.get_running_loop()

    def interrupt(_rows: int) -> None:
        loop.call_soon_threadsafe(restoring.cancel)
        while waits and not restoring.cancelling():
            pass

    with open_backup(BACKUP) as backup:
        restoring = asyncio.create_task(restore(backup, empty_database, tmp_path, progress=interrupt))
        with pytest.raises(asyncio.CancelledError):
            await restoring

    with psycopg.connect(empty_database) as conn:
        assert conn.execute(TABLES).fetchone() == (0,)
