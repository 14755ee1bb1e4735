"""Figures of a run that was interrupted: the next run of the same commit, in the same sizes, goes on there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from tests.bench.load import ROOT
from tests.bench.measure import Figure
from tests.bench.scale import Scale


class UnfinishedRun(msgspec.Struct, kw_only=True):
    """What was measured, by the name of the benchmark."""

    commit: str
    scale: Scale
    figures: dict[str, list[Figure]] = {}

    def keep(self, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(msgspec.json.encode(self))


def resume(file: Path, scale: Scale, *, is_clean: bool, commit: str) -> UnfinishedRun:
    """The run in the file, where it is of this commit, unchanged, and of these sizes; else a new one."""
    if is_clean and file.exists():
        try:
            run = msgspec.json.decode(file.read_bytes(), type=UnfinishedRun)
        except msgspec.DecodeError:
            run = None
        if run is not None and (run.commit, run.scale) == (commit, scale):
            return run
    return UnfinishedRun(commit=commit, scale=scale)


def read_commit() -> tuple[str, bool]:
    """The commit of the checkout, and whether nothing was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "HEAD"), not git("status", "--porcelain", "--untracked-files=no")
