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
    """Move the text of a log that has grown large into a second file, whose older text goes.

    The file itself stays, as whoever appends to it has it open; what is written in that moment is lost.
    """
    with suppress(FileNotFoundError):
        if file.stat().st_size > MAX_BYTES:
            shutil.copyfile(file, file.with_suffix(".log.1"))
            os.truncate(file, 0)


async def keep_logs_small(files: Sequence[Path]) -> None:
    """Look after the files until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        for file in files:
            with suppress(OSError):  # a full disk, on which the server goes on
                await asyncio.to_thread(rotate_log, file)
