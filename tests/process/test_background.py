"""`cmserver start`, `status`, `restart` and `stop` with a real server in the background."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from cmserver.base import credentials
from cmserver.base.settings import Settings
from cmserver.cli import state
from cmserver.cli.state import ServerState
from tests.process.conftest import Run
from tests.process.program import command, is_there, wait_until_gone

pytestmark = pytest.mark.slow


class Cmserver(Protocol):
    """Runs `cmserver <words>`; its output when it has exited with that code."""

    def __call__(self, *words: str, code: int = 0, settings: Mapping[str, str] | None = None) -> str: ...


@pytest.fixture
def cmserver(folder: Path, database: str) -> Generator[Cmserver]:
    url = {"CMSERVER_DATABASE_URL": database}

    def run_to_its_end(*words: str, code: int = 0, settings: Mapping[str, str] | None = None) -> str:
        ended = command(folder, *words, settings={**url, **(settings or {})})
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    yield run_to_its_end
    left = state.running(folder / "data")
    if left is not None:
        with suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)
        wait_until_gone(left.pid)


def server(folder: Path) -> ServerState:
    found = state.running(folder / "data")
    assert found is not None
    return found


def test_a_server_in_the_background_is_started_once_seen_restarted_and_stopped(cmserver: Cmserver, folder: Path):
    data = folder / "data"

    started = cmserver("start")
    first, key = server(folder), credentials.read(data)
    assert key is not None
    assert first.url in started
    assert str(data / "credentials") in started
    assert key.key not in started
    assert key.key not in (data / "cmserver.log").read_text()
    for name in ("server.json", "cmserver.log", "credentials"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600
    assert os.getsid(first.pid) == first.pid, "Ctrl-C in this terminal does not reach it"
    assert httpx.get(f"{first.url}/readyz", trust_env=False).status_code == 200

    assert f"runs already in the background at {first.url}" in cmserver("start")
    assert server(folder) == first

    shown = cmserver("status")
    output = json.loads(cmserver("status", "--json"))
    assert f"ready at {first.url}" in shown
    assert f"process   {first.pid} in the background" in shown
    assert "queue     0 waiting, 0 active, 0 held, 0 failed" in shown
    assert "provider  offline" in shown
    assert (output["ready"], output["pid"], output["info"]["queue"]["failed"]) == (True, first.pid, 0)

    restarted = cmserver("restart")
    second = server(folder)
    assert second.pid != first.pid
    assert not is_there(first.pid)
    assert key.key not in restarted

    assert f"process {second.pid}) has stopped" in cmserver("stop")
    assert not is_there(second.pid)
    assert not (data / "server.json").exists()
    assert "is not running" in cmserver("stop")
    assert "is not running" in cmserver("status", code=1)


def test_a_server_in_the_foreground_is_seen_but_neither_started_again_nor_stopped(cmserver: Cmserver, run: Run, database: str):
    program = run("server", settings={"CMSERVER_DATABASE_URL": database})
    program.wait_until_ready()

    assert "runs already in the foreground" in cmserver("start")
    assert "in the foreground" in cmserver("status")
    assert "Stop it where it runs" in cmserver("stop", code=1)
    assert "Stop it where it runs" in cmserver("restart", code=1)

    assert program.process.poll() is None
    assert program.stop() == 0


def test_a_start_that_fails_says_the_servers_own_sentence_and_exits_with_its_code(cmserver: Cmserver):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        output = cmserver("start", "--port", str(port), code=5)

    assert output.splitlines() == [output.strip()]
    assert output.startswith(f"cmserver: Cannot listen on 127.0.0.1 port {port}")


def test_a_server_that_was_killed_is_not_running_and_can_be_started_again(cmserver: Cmserver, folder: Path):
    cmserver("start")
    killed = server(folder).pid
    os.kill(killed, signal.SIGKILL)
    wait_until_gone(killed)

    assert "is not running" in cmserver("status", code=1)
    assert "is not running" in cmserver("stop")
    cmserver("start")

    assert server(folder).pid != killed
    cmserver("stop")


def test_a_start_with_the_embedded_database_leaves_no_postgres_when_it_is_stopped(folder: Path):
    settings = Settings(data_dir=folder / "data")
    assert command(folder, "start").returncode == 0
    postgres = int(next(settings.data_dir.glob("pg*/postmaster.pid")).read_text().split()[0])
    assert is_there(postgres)

    assert command(folder, "stop").returncode == 0

    assert not is_there(postgres)
