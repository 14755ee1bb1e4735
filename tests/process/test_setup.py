"""bin/setup in a checkout that several users of the machine share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.program import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")]

NOBODY = 65_534


@pytest.fixture
def checkout(folder: Path) -> Path:
    """A checkout that needs no packages, in a folder that everybody can enter."""
    folder.chmod(0o755)
    made = folder / "checkout"
    (made / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "setup", made / "bin" / "setup")
    (made / "requirements.lock").write_text("")
    return made


@pytest.fixture
def closed(folder: Path) -> Path:
    """A folder with a Python that only root can reach, as one of pyenv in root's home."""
    made = folder / "closed"
    made.mkdir(mode=0o700)
    shutil.copy(Path(getattr(sys, "_base_executable", sys.executable)).resolve(), made / "python3.11")
    return made


def set_up(checkout: Path, path: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run([checkout / "bin" / "setup"], env={"PATH": path}, user=user, capture_output=True, text=True, check=False)


def test_another_user_learns_that_the_python_of_the_venv_is_in_a_folder_that_he_cannot_enter(checkout: Path, closed: Path):
    only_closed = f"{closed}:/usr/bin:/bin"
    assert set_up(checkout, only_closed).returncode == 0
    (checkout / ".venv" / "bin" / "python").unlink()
    (checkout / ".venv" / "bin" / "python").symlink_to(closed / "python3.11")
    (checkout / ".venv" / ".python").write_text(f"{closed}/python3.11\n")

    refused = set_up(checkout, "/usr/bin:/bin", NOBODY)

    assert refused.returncode == 2
    assert f"The Python of {checkout}/.venv is {closed}/python3.11, which you cannot enter." in refused.stderr
    assert set_up(checkout, only_closed).returncode == 0


def test_root_takes_a_python_that_others_can_reach_where_they_can_reach_the_checkout(checkout: Path, closed: Path):
    if subprocess.run(["/usr/bin/python3", "-Ic", "import ensurepip"], check=False).returncode != 0:
        pytest.skip("the system's Python makes no venv")
    path = f"{closed}:/usr/bin:/bin"

    assert set_up(checkout, path).returncode == 0
    assert set_up(checkout, path, NOBODY).returncode == 0
    assert (checkout / ".venv" / ".python").read_text().startswith("/usr/bin/")

    shutil.rmtree(checkout / ".venv")
    checkout.chmod(0o700)
    assert set_up(checkout, path).returncode == 0
    assert (checkout / ".venv" / ".python").read_text() == f"{closed}/python3.11\n"
