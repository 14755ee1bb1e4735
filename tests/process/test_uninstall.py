"""Removing cmserver as docs/howto/uninstall.md says leaves the home folder as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.process.program import ROOT
from tests.process.test_backup import cmserver

pytestmark = pytest.mark.slow


def listing(folder: Path) -> dict[str, bytes]:
    """Files with their contents, and folders."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def test_nothing_is_left_of_it(folder: Path):
    page = (ROOT / "docs" / "howto" / "uninstall.md").read_text()
    commands = page.split("```sh\n")[1].split("```")[0].splitlines()
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text('{"model": "opus"}\n')
    home = {"CMSERVER_DATA_DIR": str(folder / ".local" / "share" / "cmserver")}
    for parent in (".local/share", ".config"):
        (folder / parent).mkdir(parents=True, exist_ok=True)
    before = listing(folder)

    cmserver(folder, "start", settings=home)
    cmserver(folder, "connect", "claude-code", "--yes", settings=home)
    during = listing(folder)
    assert b"cmserver" in during[".claude/settings.json"]
    for command in commands:
        match command.split():
            case ["cmserver", *words]:
                cmserver(folder, *words, *(["--yes"] if words[0] == "disconnect" else []), settings=home)
            case ["rm", "-r", *folders]:
                for name in folders:
                    shutil.rmtree(folder / name.removeprefix("~/"))
            case words:
                assert words == ["pipx", "uninstall", "cmserver"]

    left = listing(folder)
    copies = {name for name in left if ".cmserver-backup-" in name}
    assert ".cmserver-backup-" in page
    assert {name: content for name, content in left.items() if name not in copies} == before
