"""Replaces a file as a whole, so that it is never half written and never readable by others in between."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write_file(target: Path, content: str | bytes, *, mode: int) -> None:
    """Replace the file as a whole. It keeps its owner, and at no moment can others read it than `mode` says."""
    with replace_file(target, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replace_file(target: Path, *, mode: int) -> Generator[BinaryIO]:
    """Yields a file that takes the place of `target` when the block has ended without an error; see `write_file`."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            with suppress(OSError):  # when root writes into somebody's folder
                owner = target.stat() if target.exists() else target.parent.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
