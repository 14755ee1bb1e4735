"""What is published is the wheel: it carries its migrations, and runs from an empty venv in any folder."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from cmserver.base.migrate import migrations, newest
from cmserver.client.client_folder import PROGRAMS
from tests.process.hostile_folder import HostileFolder
from tests.process.program import PATIENCE_SECONDS, ROOT, environment, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


def run(*words: str | Path, folder: Path, hostile: HostileFolder | None = None) -> str:
    where, env = (hostile.path, hostile.environment) if hostile else (folder, {})
    return subprocess.run(
        words, cwd=where, env={**surroundings(folder), **env}, input="", capture_output=True, text=True, check=True
    ).stdout


def surroundings(folder: Path) -> dict[str, str]:
    """As for every process test, but nothing of the checkout."""
    return {name: value for name, value in environment(folder, {}).items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, folder=folder)
    (built,) = folder.glob("cmserver-*.whl")
    return built


@pytest.fixture
def installed(wheel: Path, folder: Path) -> Path:
    """The `bin` of a venv that has the wheel and, by a path file, the packages it needs; those are not downloaded again."""
    made = folder / "venv"
    venv.create(made, with_pip=False, symlinks=True)
    python = made / "bin" / "python"
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip())
    (packages / "development.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return made / "bin"


@pytest.fixture
def hostile(folder: Path) -> HostileFolder:
    return HostileFolder(folder / "hostile")


@pytest.fixture
def server(installed: Path, folder: Path, hostile: HostileFolder) -> Generator[subprocess.Popen[bytes]]:
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [installed / "cmserver", "run"],
            cwd=hostile.path,
            env={**surroundings(folder), **hostile.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()


@pytest.mark.smoke
def test_the_wheel_holds_the_package_and_its_sql_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0].split("-")[0] for name in names} == {"cmserver"}
    for migration in migrations():
        assert f"cmserver/_sql/migrations/{migration.name}.sql" in names
    assert "cmserver/_sql/ops/retry_job.sql" in names
    assert "cmserver/providers/prices.toml" in names
    assert {f"cmserver/client/hook/{name}" for name in PROGRAMS.values()} <= set(names)


@pytest.mark.smoke
def test_the_command_of_the_wheel_runs_without_a_checkout(
    server: subprocess.Popen[bytes], installed: Path, folder: Path, hostile: HostileFolder
):
    def url() -> str | None:
        assert server.poll() is None, (folder / "err").read_text()
        match = re.search(r"ready at (\S+)", (folder / "out").read_text())
        return match[1] if match else None

    ready = httpx.get(f"{wait_for('the server of the wheel', url)}/readyz", timeout=scaled(20), trust_env=False)

    assert (ready.status_code, ready.json()["schemaVersion"]) == (200, newest())
    ask = "from cmserver.base.migrate import sql_folder; print(sql_folder())"
    assert Path(run(installed / "python", "-c", ask, folder=folder).strip()).is_relative_to(installed.parent)
    server.terminate()
    assert server.wait(scaled(PATIENCE_SECONDS)) == 0
    assert hostile.list_runs() == []


def test_nothing_of_the_working_folder_is_run(installed: Path, folder: Path, hostile: HostileFolder):
    link = folder / "cmserver"
    link.symlink_to(installed / "cmserver")  # as pipx does
    ask = "from cmserver.base.own_command import build_launcher_command; print(*build_launcher_command('connections'), sep='\\n')"
    written = run(installed / "python", "-c", ask, folder=folder).splitlines()

    for command in ([installed / "cmserver", "connections"], [link, "connections"], written):
        assert "No agent is connected" in run(*command, folder=folder, hostile=hostile)
    assert written == [str(installed / "python"), "-EP", "-m", "cmserver", "connections"]
    assert hostile.list_runs() == []
