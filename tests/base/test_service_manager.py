"""sd_notify: what systemd hears."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from cmserver.base.service_manager import READY, keep_watchdog_quiet, notify_service_manager, watchdog_seconds
from tests.table import try_rows


@pytest.fixture
def manager(tmp_path: Path) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


def test_the_state_is_sent_to_the_socket_that_the_manager_names(manager: socket.socket, tmp_path: Path):
    notify_service_manager(READY, {"NOTIFY_SOCKET": str(tmp_path / "notify")})

    assert manager.recv(100) == b"READY=1"


def test_an_abstract_socket_is_found_too():
    name = f"cmserver-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(5)
        notify_service_manager(READY, {"NOTIFY_SOCKET": f"@{name}"})

        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_manager_nothing_happens(environ: dict[str, str]):
    notify_service_manager(READY, environ)


@try_rows(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 60),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_s_period_is_for_the_process_that_systemd_started(environ: dict[str, str], seconds: float | None):
    assert watchdog_seconds(environ) == seconds


async def test_the_watchdog_hears_that_the_loop_turns_until_it_does_not(manager: socket.socket, tmp_path: Path):
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"}
    quiet = asyncio.create_task(keep_watchdog_quiet(environ))

    heard = [await asyncio.to_thread(manager.recv, 100) for _ in range(3)]
    quiet.cancel()

    assert heard == [b"WATCHDOG=1"] * 3


async def test_without_a_watchdog_its_task_ends():
    await asyncio.wait_for(keep_watchdog_quiet({}), 5)
