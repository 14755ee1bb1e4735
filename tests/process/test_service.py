"""What a service manager hears of the real program."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.process.conftest import Run
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
        assert program.stop() == 0
        manager.settimeout(0)
        heard_at_last: list[bytes] = []
        while b"STOPPING=1" not in heard_at_last:
            heard_at_last.append(manager.recv(100))

    assert {*heard, *heard_at_last} == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}
