"""Starts the server with the machine: a user unit of systemd, or an agent of launchd."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cmserver.base.atomic_file import write_file
from cmserver.base.configuration import CONFIG_FILE
from cmserver.base.own_command import build_own_command
from cmserver.client.dialog import Report

LABEL = "cmserver"
_CHECKOUT = Path(__file__).resolve().parents[2]


def server_command(*arguments: str) -> list[str]:
    """How this cmserver is started: by the command of its checkout, else by the Python that it is installed in."""
    launcher = _CHECKOUT / "bin" / "cmserver"
    is_checkout = (_CHECKOUT / "pyproject.toml").exists() and launcher.exists()
    return [str(launcher), *arguments] if is_checkout else build_own_command(*arguments)


def unit_path(environ: Mapping[str, str], home: Path) -> Path:
    """The file of the unit (systemd) or agent (launchd) that starts the server with this machine."""
    if sys.platform == "darwin":
        return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user" / f"{LABEL}.service"


def find_obstacle() -> str | None:
    """Why no unit can be written here."""
    command = shlex.join(server_command("run"))
    if os.geteuid() == 0:
        return (
            "No unit is written as root: a system service should run as a user of its own. Write one for your service manager that "
            f"runs {command} as that user."
        )
    if sys.platform != "darwin" and shutil.which("systemctl") is None:
        return f"This machine has no systemd. Let your service manager run {command}."
    return None


def install_unit(
    data_dir: Path, log_file: Path, environ: Mapping[str, str], home: Path, report: Report, *, is_running: bool
) -> None:
    """Write the unit and enable it. It is started at once unless the server runs already."""
    command = server_command("run")
    path = unit_path(environ, home)
    server_environ = {"CMSERVER_DATA_DIR": str(data_dir)}
    if environ.get(CONFIG_FILE):
        server_environ[CONFIG_FILE] = str(Path(environ[CONFIG_FILE]).resolve())
    is_mac = sys.platform == "darwin"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = render_launchd(command, server_environ, log_file) if is_mac else render_systemd(command, server_environ)
    write_file(path, text, mode=0o644)
    report(f"Written: {path}")
    if is_mac:
        _run(["launchctl", "bootstrap", f"gui/{os.getuid()}", str(path)], report)
        return
    _run(["systemctl", "--user", "enable", *([] if is_running else ["--now"]), f"{LABEL}.service"], report)
    if is_running:
        report("A server runs already, so the unit starts one only next time.")
    report("It runs while you are logged in. To start it with the machine: loginctl enable-linger")


def render_systemd(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """The text of the systemd unit. `environ` is set in it; other settings come from a file that people write."""
    return "\n".join(
        [
            "[Unit]",
            "Description=cmserver, memory for coding agents",
            "",
            "[Service]",
            f"ExecStart={' '.join(_quote(word).replace('$', '$$') for word in command)}",
            *(f"Environment={_quote(f'{name}={value}')}" for name, value in environ.items()),
            "# NAME=value lines: CMSERVER_PROVIDER, its key, and whatever else is not the default.",
            "EnvironmentFile=-%h/.config/cmserver/environment",
            "Restart=on-failure",
            "RestartSec=5",
            "KillMode=mixed",
            "TimeoutStopSec=30",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def render_launchd(command: Sequence[str], environ: Mapping[str, str], log_file: Path) -> str:
    """The launchd agent's property list."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "EnvironmentVariables": dict(environ),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardOutPath": str(log_file),
            "StandardErrorPath": str(log_file),
        },
        sort_keys=False,
    ).decode()


def _quote(text: str) -> str:
    """One word of a unit file, without specifiers."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _run(command: list[str], report: Report) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - a fixed program
    if done.returncode != 0:
        report(f"{shlex.join(command)} has failed: {(done.stderr or done.stdout).strip()}. Run it yourself.", err=True)
