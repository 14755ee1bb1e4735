"""The command that runs this copy of cmserver again."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent

ISOLATED = "-EP"
"""Python's options that leave out what strangers may control: the working folder, the script's folder, PYTHONPATH and its siblings.

Not -I, which would leave out the packages that a user has installed for himself, too.
"""


def build_own_command(*arguments: str) -> list[str]:
    """By name where it is installed, so that the command stays right when Python is replaced; another copy by its path."""
    is_installed = _PACKAGE.parent.name in {"site-packages", "dist-packages"}
    program = ["-m", _PACKAGE.name] if is_installed else [str(_PACKAGE / "__main__.py")]
    return [sys.executable, ISOLATED, *program, *arguments]


def build_launcher_command(*arguments: str) -> list[str]:
    """The command of this checkout, which makes what is missing; without one, `build_own_command`."""
    launcher = _CHECKOUT / "bin" / "cmserver"
    is_checkout = (_CHECKOUT / "pyproject.toml").exists() and launcher.exists()
    return [str(launcher), *arguments] if is_checkout else build_own_command(*arguments)
