"""Starting the server with the machine: a user unit of systemd, or an agent of launchd."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path

LABEL = "cmserver"
_HERE = Path(__file__).resolve().parents[3]


def program(python: str, *words: str) -> list[str]:
    """How this very cmserver is called: by the command of its checkout, else by the Python that it is installed in."""
    launcher = _HERE / "bin" / "cmserver"
    is_checkout = (_HERE / "pyproject.toml").exists() and launcher.exists()
    return [*([str(launcher)] if is_checkout else [python, "-m", "cmserver"]), *words]


def systemd_path(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user" / f"{LABEL}.service"


def systemd(start: Sequence[str], environ: Mapping[str, str]) -> str:
    """The unit's text. `environ` is what the server is told; the rest comes from a file that people write."""
    lines = [f"Environment={_quoted(f'{name}={value}')}" for name, value in environ.items()]
    return "\n".join(
        [
            "[Unit]",
            "Description=cmserver, memory for coding agents",
            "",
            "[Service]",
            f"ExecStart={' '.join(_quoted(one).replace('$', '$$') for one in start)}",
            *lines,
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


def launchd_path(home: Path) -> Path:
    return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def launchd(start: Sequence[str], environ: Mapping[str, str], log: Path) -> str:
    """The agent's text."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(start),
            "EnvironmentVariables": dict(environ),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardOutPath": str(log),
            "StandardErrorPath": str(log),
        },
        sort_keys=False,
    ).decode()


def _quoted(text: str) -> str:
    """One word of a unit file: nothing in it is a specifier, or the end of the word."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
