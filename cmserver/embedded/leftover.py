"""Stops a PostgreSQL that an earlier process left running, and clears its stale lock files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cmserver.base.logs import get_logger
from cmserver.embedded.files import PORT

log = get_logger(__name__)

PATIENCE_SECONDS = {signal.SIGINT: 10.0, signal.SIGQUIT: 8.0}
"""How long a fast and an immediate shutdown may take. In the latter PostgreSQL itself kills its processes after 5 seconds."""
_PROGRAM = "postgres"


class Leftover:
    """Stops a leftover PostgreSQL with ever harder signals, because a shutdown can hang. Requires the data folder's lock."""

    def __init__(self, cluster: Path, sockets: Path) -> None:
        self._cluster = cluster
        self._locks = (cluster / "postmaster.pid", sockets / f".s.PGSQL.{PORT}.lock")
        self._pressed: signal.Signals | None = None
        self._pressed_at = 0.0

    def forget(self) -> None:
        """Start again with the mildest signal."""
        self._pressed = None

    def press(self) -> None:
        """Send the signal that is due: fast shutdown, immediate shutdown, kill. Call it repeatedly until it has ended."""
        sign = self._next_sign()
        if sign is None:
            return
        # Without their parent its processes end by themselves, unless they hang as well.
        pids = [*self._postmaster(), *(_processes() if sign is signal.SIGKILL else ())]
        signalled = [pid for pid in dict.fromkeys(pids) if _send(pid, self._cluster, sign)]
        if signalled and sign is not signal.SIGINT:
            log.warning("postgres.leftover_slow_to_stop", pid=signalled[0], processes=len(signalled), signal=sign.name)

    def _next_sign(self) -> signal.Signals | None:
        """The next signal to send; None while the last one may still take effect."""
        now = time.monotonic()
        if self._pressed is None:
            sign = signal.SIGINT
        elif self._pressed is signal.SIGKILL:
            return signal.SIGKILL
        elif now < self._pressed_at + PATIENCE_SECONDS[self._pressed]:
            return None
        else:
            sign = signal.SIGQUIT if self._pressed is signal.SIGINT else signal.SIGKILL
        self._pressed, self._pressed_at = sign, now
        return sign

    def _postmaster(self) -> list[int]:
        """The pid in the cluster's lock file, if there is one."""
        try:
            first = self._locks[0].read_bytes().partition(b"\n")[0]
        except OSError:
            return []
        return [int(first)] if first.isdigit() else []

    def release_stale_locks(self) -> None:
        """Write our pid into lock files whose pid is no server of this cluster; else postgres would refuse to start for ever.

        After a reboot or in a new container any program may have that pid. We hold the data folder's lock, so no other cmserver
        starts one meanwhile. Postgres ignores its parent's pid, and still checks that no old backend is left.
        """
        for path in self._locks:
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                first, _, rest = os.pread(fd, 4096, 0).partition(b"\n")
                if first.isdigit() and not serves(int(first), self._cluster):
                    content = str(os.getpid()).encode() + b"\n" + rest
                    os.pwrite(fd, content, 0)
                    os.ftruncate(fd, len(content))
            finally:
                os.close(fd)


def serves(pid: int, cluster: Path) -> bool:
    """Whether the process may be a postgres of this cluster; True when that is not permitted to be read."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").samefile(cluster)  # postgres works in its cluster's folder
        except FileNotFoundError:  # gone, or a zombie
            return False
        except PermissionError:
            return True
    return os.fsencode(cluster) in _command(pid)


def _is_surely(pid: int, cluster: Path) -> bool:
    """Whether the process is certainly a postgres of this cluster; False when that is not permitted to be read."""
    if sys.platform == "linux":
        try:
            program = Path(f"/proc/{pid}/exe").readlink().name.removesuffix(" (deleted)")  # as after an upgrade
            return program == _PROGRAM and Path(f"/proc/{pid}/cwd").samefile(cluster)
        except OSError:
            return False
    program, _, words = _command(pid).partition(b" -D ")
    return program.endswith(b"/" + _PROGRAM.encode()) and words.startswith(os.fsencode(cluster) + b" ")


def _send(pid: int, cluster: Path, sign: signal.Signals) -> bool:
    """Send the signal if the process is a postgres of the cluster; never to another process that takes over the pid."""
    if sys.platform != "linux":
        if signalled := _is_surely(pid, cluster):
            with suppress(ProcessLookupError):
                os.kill(pid, sign)
        return signalled
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _is_surely(pid, cluster):
                signal.pidfd_send_signal(pidfd, sign)
                return True
        finally:
            os.close(pidfd)
    return False


def _processes() -> Iterator[int]:
    if sys.platform == "linux":
        yield from (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())


def _command(pid: int) -> bytes:
    return subprocess.run(["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, check=False).stdout  # noqa: S603
