"""Log files that processes append to: the server's own in the background, and the embedded PostgreSQL's."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LOG_NAME = "cmserver.log"
"""In the data folder: the log of a server in the background."""
MAX_BYTES = 10_000_000
CHECK_SECONDS = 600.0


def rotate_log(file: Path) -> None:
    """Rename a log that has grown large, in place of the one that was renamed before. Nobody may have it open."""
    with suppress(FileNotFoundError):
        if file.stat().st_size > MAX_BYTES:
            file.replace(_older(file))


def rotate_open_log(file: Path) -> None:
    """Move the text of a log that has grown large into a second file, where the disk has room for it twice.

    The file itself stays, as whoever appends to it has it open; what is written in that moment is lost.
    """
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return
    if size <= MAX_BYTES or shutil.disk_usage(file.parent).free < 2 * size:
        return
    copy = file.with_suffix(".log.new")
    try:
        shutil.copy(file, copy)  # with its mode
        copy.replace(_older(file))
    finally:
        copy.unlink(missing_ok=True)
    os.truncate(file, 0)


def _older(file: Path) -> Path:
    return file.with_suffix(".log.1")


async def keep_logs_small(files: Sequence[Path]) -> None:
    """Look after the files until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        for file in files:
            with suppress(OSError):  # a full disk, on which the server goes on
                await asyncio.to_thread(rotate_open_log, file)
