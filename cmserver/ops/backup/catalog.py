"""The backups in a folder: which there are, whether they are whole, which may go, and when one was last tried."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.base.atomic_file import write_file
from cmserver.base.errors import NotFound
from cmserver.ops.backup.archive import BackupError, Manifest, open_backup
from cmserver.ops.backup.replay import created_at

SUFFIX = ".backup"
DRILL_FILE = "drill.json"
DRILL_DAYS = 30
"""After so many days without a drill one should be made."""
_OWN_NAME = re.compile(r"cmserver-\d{8}T\d{6}Z(-\d+)?\.backup")


class StoredBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the folder of backups. `manifest` is None where it cannot be read, and `problem` says why."""

    file: Path
    size_bytes: int
    manifest: Manifest | None
    problem: str | None = None


class DrillReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The last time that a backup was restored to try it."""

    at: datetime
    backup: str
    """The file's name."""
    backup_created_at: datetime
    passed: bool
    problem: str | None = None
    rows: int
    seconds: float


def new_name(folder: Path) -> Path:
    """A file name for a backup of now, which no file in the folder has."""
    name = datetime.now(UTC).strftime("cmserver-%Y%m%dT%H%M%SZ")
    names = (folder / f"{name}{ending}{SUFFIX}" for ending in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(file for file in names if not file.exists())


def list_backups(folder: Path) -> list[StoredBackup]:
    """The backups in the folder, the newest first; damaged ones at the end."""
    if not folder.is_dir():
        return []
    backups = [_stored(file) for file in folder.iterdir() if file.suffix == SUFFIX and file.is_file() and file.name[0] != "."]
    return sorted(
        backups, key=lambda backup: (backup.manifest.created_at if backup.manifest else "", backup.file.name), reverse=True
    )


def newest(folder: Path, installation: UUID | None = None) -> StoredBackup | None:
    """The newest readable backup, of that installation if one is given."""
    for backup in list_backups(folder):
        if backup.manifest is not None and installation in {None, backup.manifest.installation}:
            return backup
    return None


def find_backup(folder: Path, name: str) -> Path:
    """The file that the name says: a path, or the name of a backup in the folder. NotFound when there is neither."""
    for file in (Path(name), folder / name):
        if file.is_file():
            return file.absolute()
    raise NotFound(f"There is no backup {name}, nor one of that name in {folder}. `cmserver backups list` lists them.")


def verify_backup(file: Path) -> str | None:
    """Read the whole file and compare it with its checksums; returns what is wrong with it, or None."""
    try:
        with open_backup(file) as backup:
            backup.check_dump()
            backup.credentials()
    except BackupError as error:
        return str(error)
    return None


def remove_old(folder: Path, keep: int, installation: UUID) -> list[Path]:
    """Remove the oldest backups of the installation that were named by `new_name`, but for the newest `keep`."""
    own = [
        backup.file
        for backup in list_backups(folder)
        if backup.manifest is not None and backup.manifest.installation == installation and _OWN_NAME.fullmatch(backup.file.name)
    ]
    old = own[max(1, keep) :]
    for file in old:
        file.unlink(missing_ok=True)
    return old


def last_drill(folder: Path) -> DrillReport | None:
    """The report of the last drill; None when there was none."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((folder / DRILL_FILE).read_bytes(), type=DrillReport)
    return None


def keep_drill(folder: Path, report: DrillReport) -> None:
    """Keep the report beside the backups."""
    write_file(folder / DRILL_FILE, msgspec.json.format(msgspec.json.encode(report)) + b"\n", mode=0o600)


def _stored(file: Path) -> StoredBackup:
    size = file.stat().st_size
    try:
        with open_backup(file) as backup:
            created_at(backup.manifest)
            return StoredBackup(file=file, size_bytes=size, manifest=backup.manifest)
    except (BackupError, ValueError) as error:
        return StoredBackup(file=file, size_bytes=size, manifest=None, problem=str(error))
