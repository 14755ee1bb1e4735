"""Installs the programs that cmserver is measured beside, from npm, Debian and PyPI, into a cache folder. Nothing else is changed.

The versions of npm and PyPI are pinned by `package-lock.json` and `requirements.txt` beside this file; Debian's are those of the
machine's release. `CMSERVER_BENCH_CACHE` names another folder than `~/.cache/cmserver-bench`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parent
_INSTALL_SECONDS = 600
_DEBIAN = (
    "libhiredis0.14",
    "libjemalloc2",
    "liblua5.1-0",
    "libluajit-5.1-2",
    "libluajit-5.1-common",
    "liblzf1",
    "libssl3",
    "lua-bitop",
    "lua-cjson",
    "redis-tools",  # has the server's program, too
    "wrk",
)


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Where the installed programs are."""

    node_modules: Path
    root: Path
    """Debian's packages, unpacked."""
    venv: Path

    @property
    def bun(self) -> Path:
        return self.node_modules / "@oven" / "bun-linux-x64" / "bin" / "bun"

    def claude_mem(self, version: str) -> Path:
        """The folder of its worker's and its server's scripts."""
        return self.node_modules / f"claude-mem-{version}" / "plugin" / "scripts"

    @property
    def redis_server(self) -> list[str]:
        """Debian ships one program under several names, and it goes by the name it is called."""
        return [str(self.root / "usr" / "bin" / "redis-server")]

    @property
    def wrk(self) -> Path:
        return self.root / "usr" / "bin" / "wrk"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def py_spy(self) -> Path:
        return self.venv / "bin" / "py-spy"

    @property
    def library_path(self) -> str:
        """For LD_LIBRARY_PATH of Debian's programs."""
        return ":".join(str(folder) for folder in (self.root / "usr" / "lib").glob("*-linux-gnu"))


def cache_folder() -> Path:
    if named := os.environ.get("CMSERVER_BENCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cmserver-bench"


def install(cache: Path) -> Programs:
    """Install what is missing or has changed; a minute the first time. RuntimeError with the installer's last words."""
    cache.mkdir(parents=True, exist_ok=True)
    programs = Programs(node_modules=cache / "npm" / "node_modules", root=cache / "debian", venv=cache / "venv")
    lock, requirements = FOLDER / "package-lock.json", FOLDER / "requirements.txt"
    _unless_done(cache / "npm", lock.read_bytes(), _install_npm)
    _unless_done(cache / "debian", "\n".join(_DEBIAN).encode(), _install_debian)
    _unless_done(cache / "venv", requirements.read_bytes(), _install_python)
    return programs


def _unless_done(folder: Path, wanted: bytes, make: Callable[[Path], None]) -> None:
    stamp = folder / ".installed"
    digest = hashlib.sha256(wanted).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    make(folder)
    stamp.write_text(digest)


def _install_npm(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(FOLDER / name, folder)
    # claude-mem's programs are bundles; its peer dependencies contradict each other and are not needed.
    _run(["npm", "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"], folder)


def _install_debian(folder: Path) -> None:
    packages = folder / "packages"
    packages.mkdir()
    _run(["apt-get", "download", *_DEBIAN], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(folder)], folder)
    programs = folder / "usr" / "bin"
    shutil.copy(programs / "redis-check-rdb", programs / "redis-server")


def _install_python(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-qq"]
    _run([*pip, "--require-hashes", "-r", str(FOLDER / "requirements.txt")], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is needed to install the programs to measure beside, and was not found.") from error
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-2000:]}")
