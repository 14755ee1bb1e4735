"""While a backup of ours reads its snapshot, retention takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.embedded.tools import dump
from cmserver.ops.backup import back_up as module
from cmserver.ops.backup.back_up import back_up
from cmserver.retention import repository


async def test_a_backup_holds_retention_off_until_it_is_done(
    db: Db, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[bool] = []

    def look_and_dump(tools: object, url: str, snapshot: str, write: Callable[[bytes], object], stop: object) -> tuple[int, str]:
        with psycopg.connect(database) as conn:
            row = conn.execute(repository.IS_HELD_OFF.text).fetchone()
        assert row
        seen.append(row[0])
        return dump(tools, url, snapshot, write)  # pyright: ignore[reportArgumentType] - as it came

    monkeypatch.setattr(module, "dump", look_and_dump)

    await back_up(database, Settings(data_dir=tmp_path), tmp_path / "file.backup")

    assert seen == [True]
    async with db.system() as conn:
        assert not await repository.IS_HELD_OFF.one(conn)
