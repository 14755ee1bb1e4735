"""The file of a backup by itself: what is refused before it is unpacked, and what a killed backup leaves."""

from __future__ import annotations

import fcntl
import zipfile
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cmserver.ops.backup.archive import CREDENTIALS, DUMP, MANIFEST, BackupError, Manifest, new_backup, open_backup
from cmserver.ops.backup.restore import check_roles

MADE = Manifest(
    version="0.1.0", created_at="2026-11-22T00:00:00Z",
    schema=1, postgres=18, dumped_by=18, vectors=False, roles=["cmserver_tenant"],
    installation=UUID(int=1), counts={}, dump_bytes=4, dump_sha256="0" * 64, credentials_sha256="0" * 64,
)  # fmt: skip
BOMB = b" " * (8 << 20)


def forged(file: Path, *, compression: int = zipfile.ZIP_STORED, **contents: bytes) -> Path:
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(DUMP, contents.get("dump", b"dump"))
        archive.writestr(CREDENTIALS, contents.get("credentials", b"{}"))
        archive.writestr(MANIFEST, msgspec.json.encode(MADE) + contents.get("padding", b""))
    return file


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_manifest_larger_than_any_is_not_read(tmp_path: Path, compression: int):
    file = forged(tmp_path / "one.backup", compression=compression, padding=BOMB)

    with pytest.raises(BackupError, match=r"manifest\.json"), open_backup(file):
        pass


def test_credentials_and_a_dump_larger_than_they_may_be_are_not_read(tmp_path: Path):
    file = forged(tmp_path / "one.backup", credentials=BOMB, dump=BOMB)

    with open_backup(file) as found:
        with pytest.raises(BackupError, match=r"credentials has"):
            found.credentials()
        with pytest.raises(BackupError, match=r"database\.dump has"):
            found.copy_dump(tmp_path / "dump")

    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize("role", ["", "a\0b", "pg_execute_server_program", "a" * 64])
def test_a_role_that_no_backup_names_is_refused(role: str):
    check_roles(MADE)

    with pytest.raises(BackupError):
        check_roles(msgspec.structs.replace(MADE, roles=[role]))


def test_the_next_backup_removes_what_a_killed_one_has_left_but_not_what_is_being_written(tmp_path: Path):
    file = tmp_path / "one.backup"
    left, busy, other = (tmp_path / name for name in (".one.backup.0123abcd", ".one.backup.89abcdef", ".two.backup.0123abcd"))
    for path in (left, busy, other):
        path.write_bytes(b"half")

    with busy.open("rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with new_backup(file) as writer:
            writer.manifest(MADE)

    assert {path.name for path in tmp_path.iterdir()} == {file.name, busy.name, other.name}
