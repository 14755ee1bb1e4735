"""The file `server.json` in the data folder: which process serves here, and where.

It is stale when no process with that pid and that start time is there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from cmserver.base.atomic_file import write_file

FILE_NAME = "server.json"


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers at `url`. Written by itself when it is ready, removed by itself when it stops."""

    pid: int
    started: str
    """When the process began, as the system counts it. Another process with the same pid has another value."""
    url: str
    role: str
    since_epoch: int
    """When it was ready, in milliseconds since 1970."""
    background: bool
    """Made by `cmserver start`, and so for `cmserver stop` to end."""


def announce(data_dir: Path, url: str, role: str, *, background: bool) -> None:
    """Write the file for this process. Raises OSError when it cannot be written; `data_dir` must exist."""
    pid = os.getpid()
    state = ServerState(
        pid=pid,
        started=_started(pid) or "",
        url=url,
        role=role,
        since_epoch=time.time_ns() // 1_000_000,
        background=background,
    )
    write_file(data_dir / FILE_NAME, msgspec.json.encode(state) + b"\n", mode=0o600)


def withdraw(data_dir: Path) -> None:
    """Remove the file of this process. That of another one stays."""
    server = _read(data_dir)
    if server is not None and server.pid == os.getpid() and server.started == _started(server.pid):
        with suppress(OSError):
            (data_dir / FILE_NAME).unlink()


def running(data_dir: Path) -> ServerState | None:
    """The server of this data folder, if the process that wrote the file is alive."""
    server = _read(data_dir)
    return server if server is not None and alive(server) else None


def alive(server: ServerState) -> bool:
    """Whether exactly that process is still there."""
    return server.started != "" and _started(server.pid) == server.started


def terminate(server: ServerState) -> None:
    """SIGTERM to exactly that process; nothing happens when it is gone, whoever has its pid now. PermissionError if not ours."""
    with suppress(ProcessLookupError):
        if sys.platform != "linux":
            if alive(server):
                os.kill(server.pid, signal.SIGTERM)
            return
        # The descriptor stays that of the checked process, even if it ends now and its pid is given away.
        pidfd = os.pidfd_open(server.pid)
        try:
            if alive(server):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        finally:
            os.close(pidfd)


def _read(data_dir: Path) -> ServerState | None:
    try:
        return msgspec.json.decode((data_dir / FILE_NAME).read_bytes(), type=ServerState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _started(pid: int) -> str | None:
    """When the process began; None when there is none, or only a zombie."""
    if pid <= 0:
        return None
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in {b"Z", b"X"} else fields[19].decode()  # fields 3 and 22; its name may hold spaces
    shown = subprocess.run(["/bin/ps", "-p", str(pid), "-o", "lstart="], capture_output=True, check=False)  # noqa: S603
    return shown.stdout.decode(errors="replace").strip() or None
