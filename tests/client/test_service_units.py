"""What starts the server with the machine can be read by what starts it."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from cmserver.client import service_units

ODD = '/home/it\'s me/100%/a "b" $HOME'


def test_a_unit_restarts_what_fails_and_takes_words_as_they_are():
    text = service_units.render_systemd([f"{ODD}/python", "-m", "cmserver", "run"], {"CMSERVER_DATA_DIR": ODD})

    assert 'ExecStart="/home/it\'s me/100%%/a \\"b\\" $$HOME/python" "-m" "cmserver" "run"' in text.splitlines()
    assert 'Environment="CMSERVER_DATA_DIR=/home/it\'s me/100%%/a \\"b\\" $HOME"' in text.splitlines()
    assert "Restart=on-failure" in text.splitlines()


@pytest.mark.slow
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("There is no systemd-analyze here.")
    unit = tmp_path / "cmserver.service"
    unit.write_text(service_units.render_systemd(["/bin/sh", "-c", "true"], {"CMSERVER_DATA_DIR": ODD}))

    done = subprocess.run(
        [program, "verify", "--user", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )

    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr}")
    assert "cmserver.service" not in done.stderr, done.stderr


def test_a_launchd_agent_is_a_property_list():
    found = plistlib.loads(service_units.render_launchd(["/x/python", "run"], {"A": "b & c"}, Path("/x/log")).encode())

    assert found["ProgramArguments"] == ["/x/python", "run"]
    assert found["EnvironmentVariables"] == {"A": "b & c"}
    assert found["RunAtLoad"] is True


def test_it_is_where_the_system_looks_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service_units.sys, "platform", "linux")
    assert service_units.unit_path({}, Path("/home/me")) == Path("/home/me/.config/systemd/user/cmserver.service")
    assert service_units.unit_path({"XDG_CONFIG_HOME": "/x"}, Path("/home/me")) == Path("/x/systemd/user/cmserver.service")

    monkeypatch.setattr(service_units.sys, "platform", "darwin")
    assert service_units.unit_path({}, Path("/Users/me")) == Path("/Users/me/Library/LaunchAgents/cmserver.plist")


def test_this_checkout_is_started_by_its_own_command():
    assert service_units.server_command("run") == [
        str(Path(service_units.__file__).resolve().parents[2] / "bin" / "cmserver"),
        "run",
    ]
