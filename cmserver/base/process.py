"""How much memory the process takes, and whether it runs in a container."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

_STATM = Path("/proc/self/statm")
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")


def resident_bytes() -> int:
    """How much memory this process holds now; where the system does not tell (no /proc), the most that it ever held."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def container_sign(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """The file or variable by which Docker, Podman, Kubernetes or systemd mark a container; None outside of one."""
    files = (f"/{name}" for name in _CONTAINER_FILES if (root / name).exists())
    return next(files, None) or next((name for name in _CONTAINER_VARIABLES if environ.get(name)), None)
