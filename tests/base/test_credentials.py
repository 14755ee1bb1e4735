from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cmserver.base import credentials
from cmserver.base.credentials import BadCredentials, Credentials

ALICE = Credentials(url="http://127.0.0.1:37877", key="cms_01890a5d_s3cret", team="default")


def test_what_was_written_is_read_back(tmp_path: Path):
    path = credentials.write(tmp_path, ALICE)

    assert path == tmp_path / "credentials"
    assert credentials.read(tmp_path) == ALICE


def test_where_nothing_was_written_there_are_none(tmp_path: Path):
    assert credentials.read(tmp_path) is None
    assert credentials.read(tmp_path / "absent") is None


def test_nobody_else_can_read_the_file_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modes: list[int] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        modes.extend(stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", watched)
    umask = os.umask(0)
    try:
        credentials.write(tmp_path, ALICE)
    finally:
        os.umask(umask)

    assert modes == [0o600, 0o600]  # the draft before its rename, the file after


def test_a_wider_mode_is_not_inherited_from_the_file_before(tmp_path: Path):
    (tmp_path / "credentials").write_text("{}")
    (tmp_path / "credentials").chmod(0o644)

    credentials.write(tmp_path, ALICE)

    assert stat.S_IMODE((tmp_path / "credentials").stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_file_before_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    credentials.write(tmp_path, ALICE)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        credentials.write(tmp_path, Credentials(url="http://elsewhere", key="k", team="t"))

    assert credentials.read(tmp_path) == ALICE
    assert [file.name for file in tmp_path.iterdir()] == ["credentials"]


@pytest.mark.parametrize("content", [b"", b'{"url": "http://x", "key": "s3cret"}', b'{"key": "s3cret', b'"\xff"'])
def test_a_damaged_file_is_one_sentence_without_the_key(tmp_path: Path, content: bytes):
    (tmp_path / "credentials").write_bytes(content)

    with pytest.raises(BadCredentials) as caught:
        credentials.read(tmp_path)

    assert str(caught.value).startswith(f"{tmp_path}/credentials is damaged: it must hold ")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    (tmp_path / "credentials").mkdir()

    with pytest.raises(BadCredentials, match=r"credentials is not a file"):
        credentials.read(tmp_path)


def test_the_key_is_not_in_the_repr():
    assert "s3cret" not in repr(ALICE)
    assert "s3cret" not in str(ALICE.__rich_repr__())
