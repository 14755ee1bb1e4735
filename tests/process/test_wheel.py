"""What is published is the wheel: it carries its migrations, and runs from an empty venv in any folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Generator, Mapping
from pathlib import Path

import httpx
import pytest

from cmserver.base.migrate import migrations, newest
from cmserver.client.client_folder import PROGRAMS
from tests.process.hostile_folder import HostileFolder
from tests.process.program import PATIENCE_SECONDS, ROOT, Program, environment, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


def run(*words: str | Path, folder: Path, hostile: HostileFolder | None = None, settings: Mapping[str, str] | None = None) -> str:
    where, env = (hostile.path, hostile.environment) if hostile else (folder, settings or {})
    done = subprocess.run(
        words, cwd=where, env={**surroundings(folder), **env}, input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def surroundings(folder: Path) -> dict[str, str]:
    """As for every process test, but nothing of the checkout."""
    return {name: value for name, value in environment(folder, {}).items() if name != "PYTHONPATH"}


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
    assert "cmserver/models/providers/prices.toml" in names
    assert {f"cmserver/client/hook/{name}" for name in PROGRAMS.values()} <= set(names)
    assert {"cmserver/_repository/plugin/hook", "cmserver/_repository/plugin/.mcp.json"} <= set(names)


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


def test_pip_installs_all_that_the_wheel_needs_into_an_empty_venv(fresh_python: str, folder: Path):
    program = Program(folder, "server", settings={"PYTHONPATH": ""}, python=fresh_python)
    try:
        program.wait_until_ready()
        with program.http() as client:
            client.post("/v1/projects", json={"canonicalId": "shop"}).raise_for_status()
            body = {"projectId": "shop", "title": "The retry gives up after five attempts"}
            client.post("/v1/observations", json=body).raise_for_status()
            wait_for("vectors", lambda: client.get("/v1/embeddings").json()["embeddings"]["state"] == "complete")
            search = {"projectId": "shop", "query": "How often is it tried again?"}
            found = client.post("/v1/search", json=search).raise_for_status().json()["observations"]
        assert program.stop() == 0
    finally:
        program.end()
    listed = json.loads(run(fresh_python, "-m", "cmserver", "licenses", "--json", folder=folder))
    installed = json.loads(run(fresh_python, "-m", "pip", "list", "--format", "json", folder=folder))

    assert [observation["title"] for observation in found] == ["The retry gives up after five attempts"]
    names = {part["name"].lower().replace("_", "-") for part in listed if not part["comes_in"]}
    assert names == {package["name"].lower().replace("_", "-") for package in installed} - {"pip", "setuptools"}


def test_pipx_and_uv_install_the_command_by_its_name(wheel: Path, folder: Path):
    tools = folder / "tools"
    venv.create(tools, with_pip=True, symlinks=True)
    run(tools / "bin" / "python", "-m", "pip", "install", "-q", "pipx", "uv", folder=folder)
    made = {name: str(folder / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR")}
    uv, python = tools / "bin" / "uv", ("--python", sys.executable)

    for words, command in (
        (
            (tools / "bin" / "pipx", "install", f"--pip-args=--find-links {wheel.parent}", "cmserver"),
            (folder / "PIPX_BIN_DIR" / "cmserver", "--version"),
        ),
        (
            (uv, "tool", "install", *python, "--find-links", wheel.parent, "cmserver"),
            (folder / "UV_TOOL_BIN_DIR" / "cmserver", "--version"),
        ),
        ((), (uv, "tool", "run", *python, "--find-links", wheel.parent, "cmserver", "--version")),
    ):
        if words:
            run(*words, folder=folder, settings=made)
        assert run(*command, folder=folder, settings=made).startswith("cmserver, version")

    run(tools / "bin" / "pipx", "uninstall", "cmserver", folder=folder, settings=made)
    assert not (folder / "PIPX_BIN_DIR" / "cmserver").exists()


def test_bin_build_makes_what_is_published(folder: Path):
    clone = folder / "clone"
    run("git", "clone", "-q", ROOT, clone, folder=folder)
    (clone / "bin" / "setup").write_text("#!/bin/sh\n")
    (clone / ".venv" / "bin").mkdir(parents=True)
    python = clone / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (clone / "cmserver" / "not_committed.py").write_text("")

    run(clone / "bin" / "build", folder=folder)

    (built,) = (clone / "dist").glob("cmserver-*.whl")
    assert sorted(file.suffix for file in (clone / "dist").iterdir()) == [".gz", ".gz", ".tgz", ".whl", ".whl"]
    assert "cmserver/not_committed.py" not in zipfile.ZipFile(built).namelist()
