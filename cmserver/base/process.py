"""How much memory the process takes and gives back, and whether it runs in a container."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

_STATM = Path("/proc/self/statm")
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
DOCKER_FILE = "/.dockerenv"
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")

_ARENA_MAX, _TRIM_THRESHOLD, _MMAP_THRESHOLD = -8, -1, -3
"""Options of glibc's mallopt(3)."""
_RETURNED_BYTES = 131_072


def return_freed_memory() -> None:
    """Have glibc return freed memory, and threads share a heap: it would keep what the largest batch took, once a thread."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        for option, value in ((_ARENA_MAX, 1), (_TRIM_THRESHOLD, _RETURNED_BYTES), (_MMAP_THRESHOLD, _RETURNED_BYTES)):
            mallopt(option, value)


def resident_bytes() -> int:
    """How much memory this process holds now; where the system does not tell (no /proc), the most that it ever held."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def container_sign(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """The file or variable by which Docker, Podman, Kubernetes or systemd mark a container; None outside of one."""
    return next(iter(container_signs(environ, root)), None)


def container_signs(environ: Mapping[str, str], root: Path = Path("/")) -> list[str]:
    """All such files and variables."""
    files = [f"/{name}" for name in _CONTAINER_FILES if (root / name).exists()]
    return [*files, *(name for name in _CONTAINER_VARIABLES if environ.get(name))]
