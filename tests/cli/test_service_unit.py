"""`cmserver service`: the files for systemd and launchd, and what is called. Where systemd is installed, it checks its file."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from cmserver.base.errors import CmserverError, NotFound
from cmserver.cli import service_unit
from cmserver.cli.main import cli
from cmserver.cli.service_unit import (
    ServiceUnit,
    find_left_behind,
    name_what_stays,
    render_launchd_plist,
    render_systemd_unit,
)

UNIT = ServiceUnit(
    command=["/opt/cm server/bin/python", "-m", "cmserver", "run"],
    folder=Path("/opt/cm server"),
    data_dir=Path("/var/lib/cmserver"),
    environment={"CMSERVER_DATA_DIR": "/var/lib/cmserver", "NOTE": '50 % of "$HOME"'},
    stop_seconds=38,
    is_system=True,
    user="cmserver",
)


def test_a_service_of_the_machine_may_write_where_backups_are(tmp_path: Path):
    unit = msgspec.structs.replace(UNIT, backup_folder=Path("/mnt/disk two/cmserver"))

    assert 'ReadWritePaths="/var/lib/cmserver" "-/mnt/disk two/cmserver"\n' in render_systemd_unit(unit)
    assert 'ReadWritePaths="/var/lib/cmserver"\n' in render_systemd_unit(UNIT)


@pytest.mark.parametrize(
    "file",
    [render_systemd_unit(UNIT), render_launchd_plist(UNIT).decode()],
    ids=["systemd", "launchd"],
)
def test_removing_a_service_names_what_stays(file: str):
    assert name_what_stays(file) == "What is remembered stays in /var/lib/cmserver, and the user cmserver who owns it."


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands that the service manager got: a systemctl and a journalctl that only write them down."""
    programs, called = tmp_path / "programs", tmp_path / "called"
    programs.mkdir()
    called.touch()
    for name in ("systemctl", "journalctl"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "{called}"\n[ ! -e "{tmp_path}/{name}.fails" ]\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return called


def cmserver(tmp_path: Path, *words: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"CMSERVER_DATA_DIR": str(tmp_path / "data"), "CMSERVER_CONFIG": "", **environ})


def test_a_user_s_service_is_installed_started_shown_and_removed(tmp_path: Path, calls: Path):
    file = tmp_path / "config" / "systemd" / "user" / "cmserver.service"

    installed = cmserver(tmp_path, "service", "install", "--user")

    assert installed.exit_code == 0, installed.output
    unit = file.read_text()
    assert f'ExecStart="{sys.executable}" "-EP" "{Path(service_unit.__file__).parents[1]}/__main__.py" "run"' in unit
    assert f'Environment="CMSERVER_DATA_DIR={tmp_path}/data"' in unit
    assert "WantedBy=default.target" in unit
    assert "ProtectSystem" not in unit
    assert file.stat().st_mode & 0o777 == 0o644
    assert "enable-linger" in installed.output
    assert cmserver(tmp_path, "service", "status", "--user").exit_code == 0
    assert cmserver(tmp_path, "logs", "--user", "-n", "5").exit_code == 0
    removed = cmserver(tmp_path, "service", "remove", "--user")
    assert removed.exit_code == 0, removed.output
    assert not (tmp_path / "config").exists()
    assert f"What is remembered stays in {tmp_path}/data." in removed.output
    assert calls.read_text().splitlines() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable cmserver.service",
        "systemctl --user restart cmserver.service",
        "systemctl --user status --no-pager cmserver.service",
        "journalctl --user --unit cmserver.service --lines 5 --no-pager",
        "systemctl --user disable --now cmserver.service",
        "systemctl --user daemon-reload",
    ]


@pytest.mark.parametrize("embedder", ["none", "voyage"])
def test_variables_of_the_shell_that_the_service_will_not_have_are_named_without_their_values(
    tmp_path: Path, calls: Path, embedder: str
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.toml").write_text(f'embedder = "{embedder}"\n')
    given = {
        "ANTHROPIC_API_KEY": "sk-secret",
        "CMSERVER_PORT": "4000",
        "CLAUDE_CODE_PATH": "/opt/claude",
        "VOYAGE_API_KEY": "sk-secret-2",
    }

    installed = cmserver(tmp_path, "service", "install", "--user", **given)

    assert "ANTHROPIC_API_KEY, CLAUDE_CODE_PATH, CMSERVER_PORT, VOYAGE_API_KEY: write" in installed.output
    assert str(tmp_path / "data" / "environment") in installed.output
    assert "sk-secret" not in installed.output + calls.read_text()


def test_print_changes_nothing(tmp_path: Path, calls: Path):
    printed = cmserver(tmp_path, "service", "install", "--user", "--print")

    assert printed.output.startswith("[Unit]\n")
    assert calls.read_text() == ""
    assert not (tmp_path / "config").exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", [["status"], ["remove"]])
def test_what_is_not_installed_is_said_with_the_command_that_does(tmp_path: Path, calls: Path, words: list[str]):
    result = cmserver(tmp_path, "service", *words, "--user")

    assert isinstance(result.exception, CmserverError)
    assert "service install" in str(result.exception)
    assert calls.read_text() == ""


def test_a_failing_service_manager_fails_the_command_and_nothing_is_left(tmp_path: Path, calls: Path):
    (tmp_path / "systemctl.fails").touch()
    file = tmp_path / "config" / "systemd" / "user" / "cmserver.service"

    result = cmserver(tmp_path, "service", "install", "--user")

    assert isinstance(result.exception, CmserverError)
    assert str(result.exception).startswith("`systemctl --user daemon-reload` failed (exit code 1). Nothing was installed. ")
    assert not (tmp_path / "config").exists()

    file.parent.mkdir(parents=True)
    file.write_text("[Unit]\n")
    again = cmserver(tmp_path, "service", "install", "--user")
    assert "is as it was before" in str(again.exception)
    assert file.read_text() == "[Unit]\n"


def test_a_service_is_removed_also_when_its_manager_fails(tmp_path: Path, calls: Path):
    file = tmp_path / "config" / "systemd" / "user" / "cmserver.service"
    assert cmserver(tmp_path, "service", "install", "--user").exit_code == 0
    (tmp_path / "systemctl.fails").touch()

    removed = cmserver(tmp_path, "service", "remove", "--user")

    assert removed.exit_code == 0, removed.output
    assert f"Removed {file}" in removed.output
    assert "`systemctl --user disable --now cmserver.service` failed" in removed.output
    assert not file.exists()


@pytest.mark.parametrize("gone", ["program", "data"])
def test_a_service_whose_program_or_data_folder_is_gone_is_found(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, gone: str
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "systemd" / "user" / "cmserver.service"
    assert cmserver(tmp_path, "service", "install", "--user").exit_code == 0
    (tmp_path / "data").mkdir()
    assert find_left_behind() == []

    if gone == "data":
        (tmp_path / "data").rmdir()
        missing = str(tmp_path / "data")
    else:
        missing = "/nowhere/bin/python"
        file.write_text(file.read_text().replace(sys.executable, missing))

    assert find_left_behind() == [(file, missing, False)]


def test_without_systemd_the_command_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    result = cmserver(tmp_path, "service", "install", "--user")

    assert isinstance(result.exception, CmserverError)
    assert "cmserver start" in str(result.exception)


def test_only_root_installs_a_service_of_the_machine(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = cmserver(tmp_path, "service", "install", "--system")

    assert isinstance(result.exception, CmserverError)
    assert calls.read_text() == ""


def test_a_service_of_the_machine_refuses_a_program_that_its_user_cannot_reach(tmp_path: Path):
    python = tmp_path / "private" / "python"
    python.parent.mkdir(mode=0o700)
    python.touch(mode=0o755)

    with pytest.raises(CmserverError, match="cannot get through"):
        service_unit._check_others_can_run(python, Path("/usr"), "cmserver")  # pyright: ignore[reportPrivateUsage]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("is_system", [True, False])
def test_systemd_accepts_the_unit(tmp_path: Path, is_system: bool):
    file = tmp_path / "cmserver.service"
    program = tmp_path / "a $program of 50 %"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    odd = tmp_path / "50 % of $HOME"
    odd.mkdir()
    changes = {"command": [str(program), "run"], "folder": odd, "data_dir": odd, "is_system": is_system}
    file.write_text(render_systemd_unit(msgspec.structs.replace(UNIT, user="root" if is_system else None, **changes)))

    checked = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_the_unit_of_the_machine_little_exposed(tmp_path: Path):
    file = tmp_path / "cmserver.service"
    file.write_text(render_systemd_unit(msgspec.structs.replace(UNIT, user="cmserver", is_system=True)))

    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=35", file]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout[-200:]


def test_signs_of_systemd_in_values_are_taken_literally():
    text = render_systemd_unit(UNIT)

    assert 'Environment="NOTE=50 %% of \\"$HOME\\""' in text
    assert 'ExecStart="/opt/cm server/bin/python" "-m" "cmserver" "run"' in text


def test_each_directive_takes_its_value_literally_by_its_own_rules():
    odd = Path("/srv/50 % of $HOME [new]")
    text = render_systemd_unit(
        msgspec.structs.replace(UNIT, command=[str(odd / "python"), str(odd)], folder=odd, data_dir=odd, backup_folder=odd / "b")
    )

    assert 'ExecStart="/srv/50 %% of $HOME [new]/python" "/srv/50 %% of $$HOME [new]"\n' in text
    assert "WorkingDirectory=/srv/50 %% of $HOME [new]\n" in text
    assert "EnvironmentFile=-/srv/50 %% of $HOME \\[new]/environment\n" in text
    assert 'ReadWritePaths="/srv/50 %% of $HOME [new]" "-/srv/50 %% of $HOME [new]/b"\n' in text


@pytest.mark.parametrize("name", ["a\nExecStartPre=/bin/sh", "a\rb", "a\x85b", "a\\"])
def test_a_folder_that_would_add_lines_to_the_unit_is_refused(tmp_path: Path, calls: Path, name: str):
    done = cmserver(tmp_path, "service", "install", "--user", "--print", CMSERVER_DATA_DIR=str(tmp_path / name))

    assert done.exit_code != 0
    assert "[Service]" not in done.output


def test_launchd_gets_a_property_list():
    plist = plistlib.loads(render_launchd_plist(UNIT))

    assert plist["ProgramArguments"] == list(UNIT.command)
    assert plist["UserName"] == "cmserver"
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert plist["StandardErrorPath"] == "/var/lib/cmserver/cmserver.log"


def test_without_a_service_the_log_is_that_of_the_server_in_the_background(
    tmp_path: Path, calls: Path, capfd: pytest.CaptureFixture[str]
):
    nothing = cmserver(tmp_path, "logs", "--user")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cmserver.log").write_text("one\ntwo\nthree\n")
    shown = cmserver(tmp_path, "logs", "--user", "-n", "2")

    assert isinstance(nothing.exception, NotFound)
    assert (shown.exit_code, capfd.readouterr().out) == (0, "two\nthree\n")
    (tmp_path / "data" / "config.toml").write_text("port = 'abc'")
    with_bad_setting = cmserver(tmp_path, "logs", "--user", "-n", "1")
    assert (with_bad_setting.exit_code, capfd.readouterr().out) == (0, "three\n")
