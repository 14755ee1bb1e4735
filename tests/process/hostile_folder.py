"""A folder of a stranger: whatever a Python that looks there imports first notes that it was run."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


class HostileFolder:
    """Holds a module of each name that Python's library and any installed package use, and a package `cmserver`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note = path / "RAN"
        # posix, because the first modules come before open().
        text = (
            "import posix\n"
            f"note = posix.open({str(self._note)!r}, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND)\n"
            "posix.write(note, __name__.encode() + b'\\n')\n"
            "raise ImportError('of a stranger')\n"
        )
        path.mkdir()
        packages = {"cmserver", "logging", "queue", "calendar"}
        installed = {entry.name.partition(".")[0] for entry in Path(sysconfig.get_path("purelib")).iterdir()}
        for name in {*sys.stdlib_module_names, *installed, "sitecustomize", "usercustomize"} - packages:
            (path / f"{name}.py").write_text(text)
        for name in packages:
            (path / name).mkdir()
            (path / name / "__init__.py").write_text(text)
        (path / "cmserver" / "__main__.py").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """As of somebody whose shell names the folder, and the working folder, as a place of modules, and another Python."""
        return {"PYTHONPATH": f":{self.path}", "PYTHONHOME": str(self.path)}

    def list_runs(self) -> list[str]:
        """The modules that were run."""
        return self._note.read_text().split() if self._note.exists() else []
