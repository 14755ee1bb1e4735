"""The doctor on the folder of backups: fresh, used, forgotten, damaged and full."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from cmserver.base.settings import Settings
from cmserver.ops.backup.archive import Manifest
from cmserver.ops.backup.catalog import DrillReport, StoredBackup, keep_drill
from cmserver.ops.doctor import backups
from tests.table import try_rows

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def backup(folder: Path, age: timedelta, *, size_bytes: int = 1_000) -> StoredBackup:
    manifest = Manifest(
        version="0.1.0", created_at=(datetime.now(UTC) - age).isoformat(), schema=1, postgres=18, dumped_by=18, vectors=True,
        roles=[], installation=UUID(int=1), counts={}, dump_bytes=1, dump_sha256="", credentials_sha256=None,
    )  # fmt: skip
    return StoredBackup(file=folder / "one.backup", size_bytes=size_bytes, manifest=manifest)


def damaged(folder: Path) -> StoredBackup:
    return StoredBackup(file=folder / "torn.backup", size_bytes=1, manifest=None, problem="It ends too early.")


def find_only(monkeypatch: pytest.MonkeyPatch, stored: StoredBackup) -> None:
    def list_backups(_: Path) -> list[StoredBackup]:
        return [stored]

    monkeypatch.setattr(backups, "list_backups", list_backups)


def drill(folder: Path, age: timedelta, *, passed: bool = True) -> None:
    at = datetime.now(UTC) - age
    keep_drill(folder, DrillReport(at=at, backup="one.backup", backup_created_at=at, passed=passed, rows=1, seconds=1))


@try_rows(
    "stored, since_start, settings, expected",
    [
        ([], DAY, {}, []),
        ([], 8 * DAY, {}, ["backup.old"]),
        ([], 8 * DAY, {"database_url": "postgresql://own"}, ["backup.old"]),
        ([], DAY, {"backup_every_hours": 6}, ["backup.old"]),
        ([6 * DAY], 9 * DAY, {}, []),
        ([8 * DAY], 9 * DAY, {}, ["backup.old"]),
        ([13 * HOUR], 9 * DAY, {"backup_every_hours": 6}, ["backup.old"]),
        ([DAY, 31 * DAY], 40 * DAY, {}, ["backup.unverified"]),
        ([None, DAY], 2 * DAY, {}, ["backup.damaged"]),
    ],
)
def test_backups_that_are_missing_too_old_untried_or_damaged_are_found(
    stored: list[timedelta | None],
    since_start: timedelta,
    settings: Mapping[str, object],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    def list_backups(folder: Path) -> list[StoredBackup]:
        return [damaged(folder) if age is None else backup(folder, age) for age in stored]

    monkeypatch.setattr(backups, "list_backups", list_backups)
    chosen = Settings(data_dir=tmp_path, backup_dir=tmp_path, **settings)  # pyright: ignore[reportArgumentType]

    found = backups.check_backups(chosen, datetime.now(UTC) - since_start)

    assert [finding.code for finding in found] == expected


def test_who_archives_the_log_of_postgresql_needs_no_backup_here(tmp_path: Path):
    settings = Settings(data_dir=tmp_path, backup_dir=tmp_path)

    assert list(backups.check_backups(settings, datetime.now(UTC) - 8 * DAY, has_archive=True)) == []


@try_rows(
    "age, passed, expected",
    [(29 * DAY, True, []), (31 * DAY, True, ["backup.unverified"]), (HOUR, False, ["backup.failed"])],
)
def test_a_drill_that_failed_or_is_long_ago_is_found(
    age: timedelta, passed: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    find_only(monkeypatch, backup(tmp_path, HOUR))
    drill(tmp_path, age, passed=passed)

    found = backups.check_backups(Settings(data_dir=tmp_path, backup_dir=tmp_path), datetime.now(UTC) - 90 * DAY)

    assert [finding.code for finding in found] == expected


def test_a_disk_without_room_for_the_next_backup_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    size = shutil.disk_usage(tmp_path).free
    find_only(monkeypatch, backup(tmp_path, HOUR, size_bytes=size))

    (finding,) = backups.check_backups(Settings(data_dir=tmp_path, backup_dir=tmp_path), datetime.now(UTC))

    assert (finding.code, finding.command) == ("backup.room", f"df -h {tmp_path}")
