"""What lies in the working folder, or where PYTHONPATH points, is never run: agents start cmserver in folders of strangers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cmserver.base.own_command import build_launcher_command
from cmserver.cli import state
from tests.process.hostile_folder import HostileFolder
from tests.process.program import PATIENCE_SECONDS, ROOT, environment, wait_for
from tests.timeouts import scaled

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


@pytest.fixture
def hostile(tmp_path: Path) -> HostileFolder:
    return HostileFolder(tmp_path / "hostile")


def run(
    hostile: HostileFolder, words: Sequence[str | Path], *, stdin: str = "", settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """In the folder of the stranger, and with his PYTHONPATH."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=hostile.path,
        env=environment(hostile.path.parent, {**hostile.environment, **(settings or {})}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=scaled(PATIENCE_SECONDS * 3),
        check=False,
    )


def test_the_folder_of_a_stranger_bites(hostile: HostileFolder):
    for words in (["-c", "import shlex"], ["-m", "cmserver"]):
        done = run(hostile, [sys.executable, *words], settings={"PYTHONHOME": "", "PYTHONPATH": ""})
        assert done.returncode != 0

    assert hostile.list_runs() == ["shlex", "importlib"]


def test_the_mcp_server_of_an_agent_runs_no_modules_of_the_working_folder(hostile: HostileFolder):
    settings = {"CMSERVER_URL": "http://127.0.0.1:1", "CMSERVER_KEY": "cms_a_b"}
    done = run(hostile, build_launcher_command("mcp"), stdin=PING, settings=settings)

    assert '"id":1' in done.stdout, done.stderr
    assert hostile.list_runs() == []


@pytest.mark.slow
def test_no_command_runs_modules_of_the_working_folder(hostile: HostileFolder):
    for words in (["status"], ["doctor"], ["search", "x"], ["connections"], ["config", "list"], ["service", "install", "--print"]):
        done = run(hostile, [ROOT / "bin" / "cmserver", *words])

        assert "Traceback" not in done.stderr
        assert hostile.list_runs() == [], words


@pytest.mark.slow
def test_neither_the_server_in_the_background_nor_its_processes_do(hostile: HostileFolder, database: str):
    settings = {"CMSERVER_DATABASE_URL": database, "CMSERVER_API_PROCESSES": "2"}
    launcher = ROOT / "bin" / "cmserver"
    try:
        started = run(hostile, [launcher, "start"], settings=settings)
        assert started.returncode == 0, started.stderr
        # The server is ready before its worker is.
        wait_for("a worker", lambda: '"workers": 1' in run(hostile, [launcher, "status", "--json"], settings=settings).stdout)
    finally:
        run(hostile, [launcher, "stop"], settings=settings)

    assert state.running(hostile.path.parent / "data") is None
    assert hostile.list_runs() == []


@pytest.mark.slow
def test_no_program_of_the_checkout_does(hostile: HostileFolder):
    programs: dict[str, list[str]] = {
        "setup": ["--dev"],
        "test": ["--collect-only", "-q", "tests/process/test_isolation.py"],
        "bench": ["--help"],
        "storm": ["--help"],
    }
    for name, words in programs.items():
        done = run(hostile, [ROOT / "bin" / name, *words])

        assert done.returncode == 0, done.stdout + done.stderr
        assert hostile.list_runs() == [], name


@pytest.mark.slow
def test_the_setup_of_a_new_checkout_does_not(hostile: HostileFolder, tmp_path: Path):
    """With a lock file that asks for nothing, so that nothing is downloaded."""
    checkout = tmp_path / "checkout"
    (checkout / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "setup", checkout / "bin")
    (checkout / "requirements.lock").write_text("")

    done = run(hostile, [checkout / "bin" / "setup"])

    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout / ".venv" / ".ready").exists()
    assert hostile.list_runs() == []
