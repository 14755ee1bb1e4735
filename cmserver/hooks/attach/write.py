"""Writing into an agent's settings: whole or not at all, with the last few versions kept beside it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cmserver.base.errors import CmserverError, Conflict
from cmserver.hooks.attach import jsontext

BACKUPS = 3
_MARK = ".cmserver-backup-"


def replace(path: Path, before: str | None, after: str, *, secret: bool = False) -> Path | None:
    """Put `after` in the place of `before`, and say where that is kept. Raises Conflict when somebody else has written meanwhile.

    A link is written through: its target is replaced. The file keeps its mode, but a `secret` one is for its owner only.
    """
    target = path.resolve()
    if jsontext.read(target) != before:
        raise Conflict(f"{path} was changed meanwhile by somebody else. Nothing is written; run the command again.")
    try:
        backup = None if before is None else _keep(target, secret=secret)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(target, after, mode=_mode(target, secret=secret))
    except OSError as error:
        raise CmserverError(f"{path} cannot be written: {error.strerror or error}. It is as it was.") from error
    return backup


def write(target: Path, text: str | bytes, *, mode: int) -> None:
    """Replaces the file as a whole; nobody without a right to it can read it at any moment. Its owner stays its owner."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
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


def backups(target: Path) -> list[Path]:
    """Earlier versions, the oldest first."""
    return sorted(target.parent.glob(f"{_glob_safe(target.name)}{_MARK}*"))


def _keep(target: Path, *, secret: bool) -> Path:
    backup = target.with_name(f"{target.name}{_MARK}{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    write(backup, target.read_bytes(), mode=_mode(target, secret=secret))
    for old in backups(target)[:-BACKUPS]:
        old.unlink(missing_ok=True)
    return backup


def _mode(target: Path, *, secret: bool) -> int:
    if secret or not target.exists():
        return 0o600
    return target.stat().st_mode & 0o777


def _glob_safe(name: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)
