"""Checks of the folder of backups: that there are some, that one was tried, and that the next one fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cmserver.base.settings import Settings
from cmserver.ops.backup.catalog import DRILL_DAYS, StoredBackup, last_drill, list_backups
from cmserver.ops.backup.replay import created_at
from cmserver.ops.doctor.model import DoctorFinding, find

_MAX_DAYS = 7
"""A backup by hand that is older is too old."""
_SPARE = 1.2


def check_backups(settings: Settings, first_start: datetime, *, has_archive: bool = False) -> Iterator[DoctorFinding]:
    """`first_start` is when the database was made. Whose PostgreSQL archives its log (`has_archive`) backs up by other means."""
    now, folder = datetime.now(UTC), settings.backup_folder
    try:
        stored = list_backups(folder)
    except OSError as error:
        yield find("backup.damaged", f"The folder of backups {folder} cannot be read: {error.strerror or error}.")
        return
    whole = [backup for backup in stored if backup.manifest is not None]
    if damaged := [backup.file.name for backup in stored if backup.manifest is None]:
        yield find("backup.damaged", f"These backups in {folder} cannot be read: {', '.join(damaged)}.")
    most = timedelta(hours=2 * settings.backup_every_hours) if settings.backup_every_hours else timedelta(days=_MAX_DAYS)
    if not whole:
        if now - first_start > most and (not has_archive or settings.backup_every_hours):
            yield find("backup.old", f"There is no backup in {folder}, {(now - first_start).days} days after the first start.")
        return
    times = [created_at(backup.manifest) for backup in whole if backup.manifest is not None]
    if now - max(times) > most:
        yield find("backup.old", f"The newest backup in {folder} is {(now - max(times)) / timedelta(hours=1):.0f} hours old.")
    yield from _check_drill(settings, now, min(times))
    yield from _check_room(whole[0])


def _check_drill(settings: Settings, now: datetime, first_backup: datetime) -> Iterator[DoctorFinding]:
    report = last_drill(settings.backup_folder)
    if report is not None and not report.passed:
        yield find("backup.failed", f"The last drill failed: {report.backup} cannot be restored. {report.problem or ''}".strip())
    elif now - (first_backup if report is None else report.at) > timedelta(days=DRILL_DAYS):
        yield find("backup.unverified", f"No backup was tried for {DRILL_DAYS} days.")


def _check_room(newest: StoredBackup) -> Iterator[DoctorFinding]:
    folder = newest.file.parent
    free = shutil.disk_usage(folder).free
    if free < newest.size_bytes * _SPARE:
        sizes = f"{free / 1e6:.0f} MB left, and the newest backup has {newest.size_bytes / 1e6:.0f} MB"
        yield find("backup.room", f"The next backup does not fit into {folder}: {sizes}.", folder=folder)
