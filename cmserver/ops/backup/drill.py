"""Tries a backup: restores it into a scratch PostgreSQL, compares counts and checksums, and keeps the result."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cmserver.base.errors import CmserverError
from cmserver.base.tenant_role import TENANT_ROLE
from cmserver.embedded.files import DataDirInUse, lock_data_dir, make_data_dir
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.catalog import DrillReport, keep_drill
from cmserver.ops.backup.replay import created_at
from cmserver.ops.backup.restore import check_roles, restore

_SCRATCH = "drill-"


def run_drill(
    file: Path, data_dir: Path, backup_folder: Path, progress: Callable[[int], object] = lambda _rows: None
) -> DrillReport:
    """Restore the backup into a PostgreSQL of its own, removed afterwards; the report is kept. From the main thread."""
    began = time.monotonic()
    with open_backup(file) as backup:
        manifest = backup.manifest
        check_roles(manifest)
        problem = None
        rows = 0
        make_data_dir(data_dir)
        _remove_scratch(data_dir)
        embedded = EmbeddedPostgres(data_dir / f"{_SCRATCH}{secrets.token_hex(4)}", durable=False)
        try:
            embedded.start()
            embedded.create_roles(role for role in manifest.roles if role != TENANT_ROLE)
            restored = asyncio.run(restore(backup, embedded.url, embedded.data_dir, progress=progress))
            rows = sum(restored.counts.values())
            if lost := [team.team for team in restored.teams if not team.holds]:
                problem = f"The sums of these teams do not hold: {', '.join(lost)}."
        except CmserverError as error:
            problem = str(error)
        finally:
            embedded.stop()
            shutil.rmtree(embedded.sockets, ignore_errors=True)  # with a long path they are outside the data folder
            shutil.rmtree(embedded.data_dir, ignore_errors=True)
    report = DrillReport(
        at=datetime.now(UTC),
        backup=file.name,
        backup_created_at=created_at(manifest),
        passed=problem is None,
        problem=problem,
        rows=rows,
        seconds=round(time.monotonic() - began, 1),
    )
    keep_drill(backup_folder, report)
    return report


def _remove_scratch(data_dir: Path) -> None:
    """Remove what killed drills left. One that runs has locked its folder."""
    for folder in data_dir.iterdir():
        if re.fullmatch(rf"{_SCRATCH}[0-9a-f]{{8}}", folder.name):
            with suppress(DataDirInUse):
                lock = lock_data_dir(folder)
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()
