"""Claude Code's own command for plugins: installs ours and takes it out, or says what to type."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click

from cmserver.cli.show import plain
from cmserver.hooks.attach import plugin

_SECONDS = 120


def install(folder: Path) -> None:
    """Add the marketplace and install its plugin; anew, so that what Claude Code has copied is what is there."""
    steps = [["marketplace", "add", str(folder)], ["install", plugin.FULL_NAME]]
    if _claude() is None:
        _say_instead("There is no `claude` on the PATH. To install the plugin, type:", steps)
        return
    uninstall(quiet=True)
    if all(_run(step) for step in steps):
        click.echo(f"The plugin {plugin.FULL_NAME} is installed. Sessions that run already have it after /reload-plugins.")
    else:
        _say_instead("To install the plugin, type:", steps)


def uninstall(*, quiet: bool = False) -> None:
    """Take the plugin and its marketplace out. What is not there is no failure."""
    steps = [["uninstall", plugin.FULL_NAME], ["marketplace", "remove", plugin.NAME]]
    if _claude() is None:
        if not quiet:
            _say_instead("There is no `claude` on the PATH. To take the plugin out, type:", steps)
        return
    for step in steps:
        _run(step, quiet=True)


def _claude() -> str | None:
    return shutil.which("claude")


def _run(words: list[str], *, quiet: bool = False) -> bool:
    program = _claude()
    assert program is not None
    try:
        done = subprocess.run(  # noqa: S603 - the program that is attached
            [program, "plugin", *words], capture_output=True, text=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said, worked = type(error).__name__, False
    else:
        said, worked = done.stderr or done.stdout, done.returncode == 0
    if not worked and not quiet:
        click.echo(f"claude plugin {shlex.join(words)} has failed: {plain(said.strip())}", err=True)
    return worked


def _say_instead(sentence: str, steps: list[list[str]]) -> None:
    click.echo("\n".join([sentence, *(f"  claude plugin {shlex.join(step)}" for step in steps)]))
