"""Settings are written whole, with what was there kept, and with the rights that they had."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cmserver.base.errors import CmserverError, Conflict
from cmserver.client.json_settings import BACKUPS, list_backups, replace_settings


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("had", [0o644, 0o600, 0o664])
def test_a_file_keeps_its_mode_and_its_backup_has_it_too(tmp_path: Path, had: int):
    file = tmp_path / "settings.json"
    file.write_text("{}")
    file.chmod(had)

    backup = replace_settings(file, "{}", '{"a": 1}')

    assert backup is not None
    assert (file.read_text(), backup.read_text()) == ('{"a": 1}', "{}")
    assert (mode(file), mode(backup)) == (had, had)
    assert sorted(tmp_path.iterdir()) == sorted([file, backup])


def test_what_holds_a_secret_is_for_its_owner_only(tmp_path: Path):
    file = tmp_path / "settings.json"
    file.write_text("{}")
    file.chmod(0o644)

    backup = replace_settings(file, "{}", "secret", secret=True)

    assert backup is not None
    assert (mode(file), mode(backup)) == (0o600, 0o600)


def test_a_file_that_was_not_there_is_made_with_its_folder(tmp_path: Path):
    file = tmp_path / "new" / ".claude" / "settings.json"

    assert replace_settings(file, None, "{}") is None

    assert file.read_text() == "{}"
    assert mode(file) == 0o600


def test_a_link_is_written_through(tmp_path: Path):
    target = tmp_path / "dotfiles" / "claude.json"
    target.parent.mkdir()
    target.write_text("{}")
    link = tmp_path / "settings.json"
    link.symlink_to(Path("dotfiles") / "claude.json")

    backup = replace_settings(link, "{}", "new")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert backup is not None
    assert backup.parent == target.parent


def test_only_the_newest_backups_are_kept(tmp_path: Path):
    file = tmp_path / "settings [1].json"
    file.write_text("0")

    for at in range(BACKUPS + 2):
        replace_settings(file, str(at), str(at + 1))

    assert [path.read_text() for path in list_backups(file)] == ["2", "3", "4"]


def test_what_somebody_else_has_written_meanwhile_is_not_overwritten(tmp_path: Path):
    file = tmp_path / "settings.json"
    file.write_text("theirs")

    with pytest.raises(Conflict):
        replace_settings(file, "{}", "ours")

    assert file.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_in_the_place_of_the_file_is_a_sentence(tmp_path: Path):
    file = tmp_path / "settings.json"
    file.mkdir()

    with pytest.raises(CmserverError, match="cannot be read"):
        replace_settings(file, None, "{}")
