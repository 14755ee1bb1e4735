"""Offers to start the server with the machine, when an agent is attached to a server that runs here."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from cmserver.base import credentials
from cmserver.base.configuration import CONFIG_FILE
from cmserver.base.settings import Settings
from cmserver.cli import state
from cmserver.cli.service import LOG_NAME
from cmserver.cli.talk import is_a_person
from cmserver.hooks.attach import units
from cmserver.hooks.attach.write import write


def offer(settings: Settings, environ: Mapping[str, str], home: Path, *, wanted: bool | None) -> None:
    """Write the unit when it is wanted, or when a person says so; say nothing more once it is there."""
    mac = sys.platform == "darwin"
    path = units.launchd_path(home) if mac else units.systemd_path(environ, home)
    is_ours = (settings.data_dir / credentials.FILE_NAME).exists()  # it may also be a container's, with a published port
    if wanted is False or (wanted is None and (path.exists() or not is_ours or not is_a_person())):
        return
    start = units.program(sys.executable, "run")
    if os.geteuid() == 0:
        if wanted:
            click.echo(
                "As root no unit is written: a system service should be a user of its own. Write one for your service manager "
                f"that runs {shlex.join(start)} as that user."
            )
        return
    if not mac and shutil.which("systemctl") is None:
        if wanted:
            click.echo(f"There is no systemd here. Let your service manager run {shlex.join(start)}.")
        return
    if wanted is None and not click.confirm("Start the server with the machine?", default=False, err=True):
        return
    told = {"CMSERVER_DATA_DIR": str(settings.data_dir)}
    if environ.get(CONFIG_FILE):
        told[CONFIG_FILE] = str(Path(environ[CONFIG_FILE]).resolve())
    if mac:
        _write(path, units.launchd(start, told, settings.data_dir / LOG_NAME))
        _run("launchctl", "bootstrap", f"gui/{os.getuid()}", str(path))
    else:
        _write(path, units.systemd(start, told))
        # With --now a server that runs already would be in its way.
        now = [] if state.running(settings.data_dir) else ["--now"]
        _run("systemctl", "--user", "enable", *now, f"{units.LABEL}.service")
        if not now:
            click.echo("A server runs already, so the unit starts one only next time.")
        click.echo("It runs while you are logged in. To run it from the machine's start: loginctl enable-linger")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text, mode=0o644)
    click.echo(f"Written: {path}")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - a fixed program
    if done.returncode != 0:
        click.echo(f"{shlex.join(words)} has failed: {(done.stderr or done.stdout).strip()}. Run it yourself.", err=True)
