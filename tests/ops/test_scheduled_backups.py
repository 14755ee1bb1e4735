"""Backups that the worker makes by itself: when the newest is too old, and so many are kept."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.ops.backup import scheduled
from cmserver.ops.backup.archive import Manifest
from cmserver.ops.backup.catalog import list_backups, remove_old, verify_backup
from cmserver.ops.backup.scheduled import back_up_when_due


@pytest.fixture
def due(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(scheduled, "KEPT", 2)
    return msgspec.structs.replace(settings, backup_every_hours=1.0)


def names(folder: Path) -> list[str]:
    return [backup.file.name for backup in list_backups(folder)]


async def test_a_backup_is_made_when_there_is_none_and_not_again_while_it_is_fresh(db: Db, due: Settings):
    assert await back_up_when_due(db, due)
    assert not await back_up_when_due(db, due)

    (name,) = names(due.backup_folder)
    assert verify_backup(due.backup_folder / name) is None


async def test_none_is_made_unless_the_setting_says_so(db: Db, settings: Settings):
    assert not await back_up_when_due(db, settings)
    assert names(settings.backup_folder) == []


async def test_the_oldest_go_but_not_what_has_another_name_or_is_of_another_installation(db: Db, due: Settings):
    often = msgspec.structs.replace(due, backup_every_hours=1e-9)
    assert await back_up_when_due(db, often)
    (first,) = list_backups(due.backup_folder)
    precious = first.file.rename(due.backup_folder / "precious.backup")
    made: list[Manifest | None] = []
    for _ in range(3):
        assert await back_up_when_due(db, often)
        made.append(list_backups(due.backup_folder)[0].manifest)

    kept = list_backups(due.backup_folder)
    assert [backup.manifest for backup in kept] == [made[2], made[1], first.manifest]
    assert kept[-1].file == precious
    assert remove_old(due.backup_folder, 1, UUID(int=7)) == []


async def test_a_folder_that_cannot_be_written_is_no_error_of_the_worker(db: Db, due: Settings, tmp_path: Path):
    (tmp_path / "file").write_text("no folder")

    assert not await back_up_when_due(db, msgspec.structs.replace(due, backup_dir=tmp_path / "file"))
