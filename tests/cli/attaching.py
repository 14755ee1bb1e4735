"""What the tests of connecting share: whose settings are where, and what lies in a home folder afterwards."""

from __future__ import annotations

import stat
from pathlib import Path

from cmserver.access.wire import KeyOut, KeysOut
from cmserver.client.client_folder import ClientFolder
from tests.cli.conftest import Cms
from tests.conftest import Cast

FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
OTHERS = '{\n  "theme": "dark",\n  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}\n}\n'


def folder(home: Path, agent: str = "claude-code") -> ClientFolder:
    return ClientFolder(home / ".config" / "cmserver" / "clients", agent)


def everything(home: Path) -> dict[str, tuple[bytes, int]]:
    """All files, with their modes."""
    return {str(path): (path.read_bytes(), path.stat().st_mode) for path in sorted(home.rglob("*")) if path.is_file()}


def paths(home: Path) -> list[Path]:
    """All files and folders."""
    return sorted(home.rglob("*"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def hook_keys(cms: Cms, cast: Cast) -> list[KeyOut]:
    said = await cms("keys", "list", "--json", key=cast.alice.key)
    return [one for one in said.read(KeysOut).keys if one.name.startswith("Hooks of ")]


class Noted:
    """What a program that only notes it was told."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []
