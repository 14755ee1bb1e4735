"""Logs stay small while a process has them open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from cmserver.base import log_files
from cmserver.base.log_files import keep_logs_small, rotate_log, rotate_open_log
from tests.timeouts import until


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_BYTES", 10)
    monkeypatch.setattr(log_files, "CHECK_SECONDS", 0.001)


def test_a_small_log_and_one_that_is_not_there_stay_as_they_are(tmp_path: Path):
    file = tmp_path / "cmserver.log"
    file.write_text("ten bytes\n")

    rotate_log(file)
    rotate_log(tmp_path / "none.log")

    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("cmserver.log", "ten bytes\n")]


def test_a_large_log_that_nobody_has_open_is_renamed(tmp_path: Path):
    file, older = tmp_path / "cmserver.log", tmp_path / "cmserver.log.1"
    older.write_text("of long ago")
    file.write_text("much more than ten bytes\n")

    rotate_log(file)

    assert (older.read_text(), file.exists()) == ("much more than ten bytes\n", False)


def test_a_log_stays_as_it_is_where_the_disk_has_no_room_for_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "cmserver.log"
    file.write_text("much more than ten bytes\n")

    def nearly_full(_folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=30)

    monkeypatch.setattr("shutil.disk_usage", nearly_full)

    rotate_open_log(file)

    assert [found.name for found in tmp_path.iterdir()] == ["cmserver.log"]
    assert file.read_text() == "much more than ten bytes\n"


async def test_who_has_a_large_log_open_goes_on_writing_into_it(tmp_path: Path):
    file, older = tmp_path / "cmserver.log", tmp_path / "cmserver.log.1"
    older.write_text("of long ago")
    file.touch(0o600)
    with file.open("a") as log:
        log.write("much more than ten bytes\n")
        log.flush()
        keeping = asyncio.create_task(keep_logs_small([tmp_path / "none.log", file]))
        await until("the log is empty", lambda: file.stat().st_size == 0, keeping)
        keeping.cancel()
        log.write("and on\n")

    assert (older.read_text(), file.read_text()) == ("much more than ten bytes\n", "and on\n")
    assert older.stat().st_mode & 0o777 == 0o600
