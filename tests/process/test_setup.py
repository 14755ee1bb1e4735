"""bin/setup in a checkout that several users of the machine share."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
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


def test_it_says_how_far_it_is_and_ends_with_what_pip_says_when_that_fails(checkout: Path, folder: Path):
    wheel = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo.py", "")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "")
    lock = f"--no-index\n--find-links {folder}\ndemo==1.0 --hash=sha256:"
    (checkout / "requirements.lock").write_text(f"{lock}{'0' * 64}\n")
    refused = set_up(checkout, os.environ["PATH"])
    (checkout / "requirements.lock").write_text(f"{lock}{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")

    made = set_up(checkout, os.environ["PATH"])

    assert (refused.returncode, "pip could not install" in refused.stderr) == (2, True)
    assert (made.returncode, made.stdout) == (0, "")
    assert "unpacking 1 packages" in made.stderr
