"""What lies beside a coding agent: its hook in POSIX sh, a sender for machines without curl, and a look at what waits there."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parent
"""The hook client as this version of cmserver has it."""

PROGRAMS = {name: f"{name}.sh" if name == "hook" else name for name in ("hook", "project.sh", "drain.sh", "recall.sh", "send.py")}
"""Name in an agent's client folder -> name here."""
