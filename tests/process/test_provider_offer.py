"""The first `cmserver run` and `connect` on a terminal offer a model; without a terminal nothing is asked."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

import pytest

from tests.process.conftest import Run
from tests.process.program import ROOT, command
from tests.process.terminal import TerminalProgram

pytestmark = pytest.mark.slow

_QUESTION = "Which provider words the memory?"
_UNSET = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"), "")

_NO_CONTAINER = "from cmserver.base import process\nprocess.container_sign = lambda environ, root=None: None\n"
"""In a container nothing is asked, and the tests may run in one."""


@pytest.fixture
def settings(folder: Path) -> dict[str, str]:
    """A machine, no container, with a claude program that notes when it is started, and no Ollama."""
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {folder}/started\nexit 1\n")
    program.chmod(0o755)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_NO_CONTAINER)
    home = {
        "PYTHONPATH": f"{folder / 'site'}:{ROOT}",
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
    }
    return {"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin", "OLLAMA_HOST": "127.0.0.1:1", **home, **_UNSET}


class Open(Protocol):
    def __call__(self, *words: str) -> TerminalProgram: ...


@pytest.fixture
def terminal(folder: Path, settings: dict[str, str]) -> Generator[Open]:
    opened: list[TerminalProgram] = []

    def start(*words: str) -> TerminalProgram:
        opened.append(TerminalProgram(folder, *words, settings=settings))
        return opened[-1]

    yield start
    for program in opened:
        program.end()


def kept(folder: Path) -> dict[str, object]:
    file = folder / "data" / "config.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def test_the_first_run_asks_once_and_uses_what_is_chosen(terminal: Open, folder: Path):
    first = terminal("run")
    first.wait_for_text("or Enter: ")
    assert "[1] claude-cli (haiku)" in first.shown
    first.press("1")
    first.wait_for_text("Provider: claude-cli (haiku)")
    first.press("\x03")
    assert first.wait() == 0
    assert kept(folder) == {"provider": "claude-cli"}

    second = terminal("run")
    second.wait_for_text("Provider: claude-cli (haiku)")
    second.press("\x03")

    assert second.wait() == 0
    assert _QUESTION not in second.shown
    assert not (folder / "started").exists()
    assert ("server.started" in first.shown, "server.started" in second.shown) == (False, True)


def test_ctrl_c_at_the_question_starts_nothing_and_keeps_nothing(terminal: Open, folder: Path):
    program = terminal("run")
    program.wait_for_text("or Enter: ")

    program.press("\x03")

    assert program.wait() == 0
    assert not (folder / "data").exists()


def test_where_the_port_is_in_use_nothing_is_asked(terminal: Open, folder: Path, settings: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as other:
        program = terminal("run", "--port", str(other.getsockname()[1]))

        assert program.wait() != 0

    assert "is the port in use?" in program.shown
    assert _QUESTION not in program.shown
    assert kept(folder) == {}


def test_connect_asks_for_the_server_of_this_installation(terminal: Open, run: Run, folder: Path, settings: dict[str, str]):
    server = run("server", settings=settings)
    server.wait_until_ready()
    assert _QUESTION not in server.output  # it has no terminal
    assert "provider  offline (rules, no model)\n" in command(folder, "status", settings=settings).stdout
    assert _QUESTION not in command(folder, "connect", "claude-code", "--yes", settings=settings).stdout
    assert kept(folder) == {}

    told = terminal("connect", "claude-code", "--yes")
    assert told.wait() == 0
    asked = terminal("connect", "claude-code")
    asked.wait_for_text("or Enter: ")
    asked.press("\r")

    assert asked.wait() == 0
    assert _QUESTION not in told.shown
    assert kept(folder) == {"provider": "offline"}
    assert not (folder / "started").exists()
