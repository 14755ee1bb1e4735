"""CPU time and memory of a process and its descendants, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 11, 12, 13, 14
"""Places in /proc/PID/stat after the name of the program: proc(5), from `state` on."""


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, of its descendants, and of those of them that ended and were waited for."""
    stats = _stats()
    ticks = 0
    for descendant in _descendants(pid, stats):
        fields = stats[descendant]
        ticks += sum(int(fields[place]) for place in (_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM))
    return ticks / _TICKS


def resident_mib(pid: int) -> float:
    """Resident memory of the process and its descendants, in MiB."""
    pages = 0
    for descendant in _descendants(pid, _stats()):
        try:
            pages += int(Path(f"/proc/{descendant}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * _PAGE_MIB


def pss_mib(pid: int) -> float:
    """Proportional set size of the process and its descendants, in MiB: what they share is divided by those who share it."""
    kib = 0
    for descendant in _descendants(pid, _stats()):
        try:
            lines = Path(f"/proc/{descendant}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def file_descriptors(pid: int) -> int:
    """Open file descriptors of the process and its descendants."""
    found = 0
    for descendant in _descendants(pid, _stats()):
        try:
            found += len(list(Path(f"/proc/{descendant}/fd").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def descendants(pid: int) -> list[int]:
    """The process and its descendants."""
    return _descendants(pid, _stats())


def _stats() -> dict[int, list[str]]:
    stats: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
    return stats


def _descendants(pid: int, stats: dict[int, list[str]]) -> list[int]:
    """The process itself first."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for child, fields in stats.items():
        children[int(fields[_PARENT])].append(child)
    found, queue = list[int](), [pid] if pid in stats else []
    while queue:
        found.append(parent := queue.pop())
        queue += children[parent]
    return found
