"""What a service manager hears of the real program."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from cmserver.base.server_start import RELOAD_SIGNAL
from cmserver.cli.service_unit import _SYSTEM_PROTECTION  # pyright: ignore[reportPrivateUsage]
from tests.process.conftest import Run
from tests.process.program import ROOT, Program, User
from tests.process.test_processes import WRITE
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


def test_systemd_hears_that_it_is_ready_alive_and_stopping(run: Run, tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(scaled(60))
        program = run("server", settings={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"})

        heard = [manager.recv(100)]
        while b"READY=1" not in heard or heard[-1] != b"WATCHDOG=1":
            heard.append(manager.recv(100))
        with program.http() as client:
            assert client.get("/readyz").status_code == 200
        os.kill(program.pid, RELOAD_SIGNAL)
        program.wait_for_log("worker.started", 2)
        manager.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(manager.recv(100))
        logged_by_reload = program.logged("server.stopping")
        assert program.stop() == 0
        heard_at_last: list[bytes] = []
        while b"STOPPING=1" not in heard_at_last:
            heard_at_last.append(manager.recv(100))

    assert {*heard} == {b"READY=1", b"WATCHDOG=1"}
    assert {*heard_at_last} <= {b"WATCHDOG=1", b"STOPPING=1"}
    assert logged_by_reload == []


# As root, for the service's user: what of the unit's restrictions can be had without systemd. PrivateTmp hides a checkout
# in /tmp, so it is put back, read-only.
RESTRICT = """
data=$1 checkout=$2 user=$3 group=$4; shift 4
mount --bind "$data" "$data"
mount --bind "$checkout" /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$checkout"
mount --bind /mnt "$checkout"
mount -o remount,bind,ro "$checkout"
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -t tmpfs -o mode=755 tmpfs /media
mkdir /media/shm
mount --bind /dev/shm /media/shm
for device in null zero full random urandom tty; do touch /media/$device; mount --bind /dev/$device /media/$device; done
mount --move /media /dev
mount -t proc -o hidepid=invisible proc /proc
for path in /proc/sys /sys; do mount --bind $path $path; mount -o remount,bind,ro $path; done
mount -o remount,bind,ro /
exec setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
BY_SECCOMP = {
    *("RestrictSUIDSGID", "RestrictRealtime", "RestrictAddressFamilies", "RestrictNamespaces", "LockPersonality"),
    *("SystemCallArchitectures", "ProtectClock", "ProtectKernelLogs", "ProtectKernelModules"),
}
"""Restrictions that only systemd sets up: they are not tried here."""


@pytest.fixture
def library_folder() -> Generator[Path]:
    """A folder where systemd's PrivateTmp does not hide it."""
    folder = Path(tempfile.mkdtemp(prefix="cmserver-", dir="/var/lib"))
    yield folder
    shutil.rmtree(folder)


def test_the_embedded_database_survives_the_restrictions_of_the_unit(folder: Path, ordinary_user: User, library_folder: Path):
    if folder in Path(ordinary_user.python).parents:
        pytest.skip("the only Python that others can reach is in /tmp, which the unit hides")
    data = library_folder / "data"
    data.mkdir(mode=0o700)
    for path in (library_folder, data):
        os.chown(path, ordinary_user.uid, ordinary_user.gid)
    words = ["sh", "-ec", RESTRICT, "sh", str(data), str(ROOT), str(ordinary_user.uid), str(ordinary_user.gid)]
    prefix = ["unshare", "--mount", "--uts", "--propagation", "private", *words]
    program = Program(folder, "restricted", settings={"CMSERVER_DATA_DIR": str(data)}, python=ordinary_user.python, prefix=prefix)
    try:
        program.wait_until_ready()
        with program.http() as client:
            event = {"projectId": "demo", "eventType": "tool_use", "payload": WRITE}
            stored = client.post("/v1/events?wait=true", json=event).raise_for_status().json()
        root = Path(f"/proc/{program.pid}/root")
        refused: list[int | None] = []
        for path in ("etc/of-a-test", "usr/of-a-test", "proc/sys/kernel/core_pattern"):
            with pytest.raises(OSError) as error:
                (root / path).write_text("x", encoding="utf-8")
            refused.append(error.value.errno)
        assert program.stop() == 0
    finally:
        program.end()

    assert stored["observationNumbers"]
    assert set(refused) == {errno.EROFS}
    assert {line.partition("=")[0] for line in _SYSTEM_PROTECTION.splitlines()} - BY_SECCOMP == {
        *("NoNewPrivileges", "ProtectSystem", "ReadWritePaths", "PrivateTmp", "PrivateDevices"),
        *("ProtectKernelTunables", "ProtectControlGroups", "ProtectHostname", "ProtectProc"),
    }
