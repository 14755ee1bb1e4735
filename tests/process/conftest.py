"""Folders, users and programs for the tests that start the real thing; whatever they start has ended when they end."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.process.postgres_nodes import STANDBY, Node, reachable_programs
from tests.process.program import ROOT, Program, User
from tests.process.slow_provider import Gate

_ORDINARY_USER = "cmserver-test-user"


@contextmanager
def passable_folder() -> Generator[Path]:
    """Unlike tmp_path one that other users can pass through, and with a short name."""
    folder_path = Path(tempfile.mkdtemp(prefix="cms-"))
    folder_path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    try:
        yield folder_path
    finally:
        shutil.rmtree(folder_path, ignore_errors=True)


@pytest.fixture
def folder() -> Generator[Path]:
    with passable_folder() as folder_path:
        yield folder_path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    (built,) = folder.glob("cmserver-*.whl")
    return built


@pytest.fixture(scope="session")
def fresh_python(wheel: Path) -> Generator[str]:
    """The Python of a venv that was empty: pip has installed the wheel in it, and what the wheel says that it needs, from PyPI.

    The versions are those of requirements.lock: what is newer is not tested here.
    """
    with passable_folder() as folder:
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        python = folder / "venv" / "bin" / "python"
        lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
        locked = re.findall(r"^[\w.-]+==[^\s;]+", lock, re.MULTILINE)
        (folder / "constraints.txt").write_text("\n".join(locked), encoding="utf-8")
        words = [python, "-I", "-m", "pip", "install", "-q", "-c", folder / "constraints.txt", f"{wheel}[local]"]
        subprocess.run(words, check=True, capture_output=True)
        yield str(python)


@pytest.fixture
def gate(folder: Path) -> Gate:
    return Gate(folder / "gate")


class Run(Protocol):
    """Starts `cmserver run <words>` in the test's folder; its output is kept under the label."""

    def __call__(
        self,
        label: str,
        *words: str,
        settings: Mapping[str, str] | None = None,
        user: User | None = None,
        prefix: Sequence[str] = (),
    ) -> Program: ...


@pytest.fixture
def run(folder: Path) -> Generator[Run]:
    started: list[Program] = []

    def start(
        label: str,
        *words: str,
        settings: Mapping[str, str] | None = None,
        user: User | None = None,
        prefix: Sequence[str] = (),
    ) -> Program:
        program = Program(folder, label, *words, settings=settings or {}, user=user, prefix=prefix)
        started.append(program)
        return program

    yield start
    for program in reversed(started):
        program.end()


@pytest.fixture(scope="session")
def account() -> Generator[pwd.struct_passwd]:
    """Of the whole session: a user can be removed only when all of its programs have ended."""
    made = False
    try:
        account_entry = pwd.getpwnam(_ORDINARY_USER)
    except KeyError:
        subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _ORDINARY_USER], check=True)
        account_entry, made = pwd.getpwnam(_ORDINARY_USER), True
    yield account_entry
    if made:
        subprocess.run(["userdel", _ORDINARY_USER], check=False, capture_output=True)


@pytest.fixture
def ordinary_user(request: pytest.FixtureRequest, folder: Path) -> User:
    """Somebody without rights, owner of the test's folder. Only root needs (and can make) one."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already: the other cases are this one")
    account_entry: pwd.struct_passwd = request.getfixturevalue("account")
    for python in _pythons(folder):
        user = User(uid=account_entry.pw_uid, gid=account_entry.pw_gid, python=python)
        if _can_run(user):
            os.chown(folder, user.uid, user.gid)
            return user
    pytest.skip(f"no other user can read this checkout or its Python ({ROOT}), so none can run the program from it")


def _pythons(folder: Path) -> Generator[str]:
    """Ours; where that is root's alone, the system's of the same version in a venv with our packages."""
    yield sys.executable
    for place in ("/usr/bin", "/usr/local/bin"):
        system_python = Path(place, "python{}.{}".format(*sys.version_info))
        if system_python.exists():
            venv = folder / "venv"
            subprocess.run([system_python, "-I", "-m", "venv", "--without-pip", "--clear", venv], check=True)
            (packages,) = venv.glob("lib/*/site-packages")
            (packages / "ours.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
            yield str(venv / "bin" / "python")


def _can_run(user: User) -> bool:
    try:
        seen = subprocess.run(
            [user.python, "-c", "import cmserver.cli.main"],
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return seen.returncode == 0


@pytest.fixture
def nodes() -> Generator[tuple[Node, Node]]:
    """A primary with an empty database, and its synchronous standby."""
    with passable_folder() as folder:
        programs = reachable_programs(folder)
        primary, standby = Node(folder / "one", programs), Node(folder / "two", programs)
        try:
            primary.make_primary()
            primary.start()
            primary.execute(
                "CREATE ROLE cmserver LOGIN",
                "CREATE ROLE cmserver_tenant NOLOGIN",
                "GRANT cmserver_tenant TO cmserver",
                "CREATE ROLE cmserver_request LOGIN",
                "GRANT cmserver_tenant TO cmserver_request",
                "CREATE DATABASE cmserver OWNER cmserver",
            )
            standby.make_standby(primary)
            standby.start()
            primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'", "SELECT pg_reload_conf()")
            primary.wait_for_standby()
            yield primary, standby
        finally:
            primary.stop()
            standby.stop()
