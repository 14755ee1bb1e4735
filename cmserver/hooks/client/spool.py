"""What a hook client has not delivered yet: read from the files that hook.sh leaves in its folder."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec

_NAME = re.compile(r"(\d{16})-(\d{7,9})-[0-9a-f]+\.body")
_IN_FLIGHT_SECONDS = 30


class SpoolState(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in milliseconds since 1970."""

    waiting: int
    """Payloads that wait to be sent, without those that a hook is sending just now."""
    waiting_bytes: int
    oldest_epoch: int | None
    """When the first of them came in."""
    dropped: int
    """Lost, because the spool was full or they became too old."""
    refused: int
    """Payloads that the server would not take."""
    breaker_open_until: int | None
    """Until then hooks do not even try."""
    trouble: str | None
    """What the last attempt came to: `down`, `key` (the key is refused), `tools` (no curl, no python3); None when it went well."""


def look(folder: Path) -> SpoolState:
    """The state of the hook client in this folder; nothing waits in a folder that is not there."""
    now = time.time()
    waiting = sorted(_waiting(folder / "spool", now))
    failures, until, trouble = _breaker(folder / "state" / "breaker")
    return SpoolState(
        waiting=len(waiting),
        waiting_bytes=sum(size for _, size in waiting),
        oldest_epoch=waiting[0][0] if waiting else None,
        dropped=_number(folder / "state" / "dropped"),
        refused=_number(folder / "state" / "refused"),
        breaker_open_until=until * 1000 if until > now else None,
        trouble=trouble if failures else None,
    )


def _waiting(spool: Path, now: float) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for body in spool.glob("*.body"):
        name = _NAME.fullmatch(body.name)
        if name is None:
            continue
        came_at_ms = int(name[1]) // 1000
        try:
            size = body.stat().st_size
        except OSError:  # delivered meanwhile
            continue
        if size == 0:  # nothing had come when its hook was killed
            continue
        if _is_marked(body.with_suffix(".mark")) or now - came_at_ms / 1000 >= _IN_FLIGHT_SECONDS or not _lives(name[2]):
            found.append((came_at_ms, size))
    return found


def _is_marked(mark: Path) -> bool:
    try:
        return mark.stat().st_size > 0
    except OSError:
        return False


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except OSError:
        return False
    return True


def _breaker(file: Path) -> tuple[int, int, str | None]:
    words = _text(file).split()
    if len(words) != 4 or not (_is_number(words[0]) and _is_number(words[1])):
        return 0, 0, None
    return int(words[0]), int(words[1]), words[3]


def _number(file: Path) -> int:
    text = _text(file).strip()
    return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
