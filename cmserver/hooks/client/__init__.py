"""What lies beside a coding agent: its hook in POSIX sh, a sender for machines without curl, and a look at what waits there."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent
"""The hook client as this version of cmserver has it."""

_FILES = ("hook", "project.sh", "drain.sh", "recall.sh", "headers.sh", "send.py")
PROGRAMS = {name: f"{name}.sh" if name == "hook" else name for name in _FILES}
"""Name in an agent's client folder -> name here."""


def project_of(folder: Path) -> str | None:
    """What hooks call the project of a folder; None where nothing can be found out."""
    asked = subprocess.run(["/bin/sh", SOURCE / "hook.sh", "project"], cwd=folder, capture_output=True, check=False)  # noqa: S603
    return asked.stdout.decode(errors="replace").removesuffix("\n") or None
