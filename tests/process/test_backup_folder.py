"""The folder of backups, with the real program: kept, listed, verified, tried, restored in the place of a database; and `psql`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cmserver.base import credentials
from tests.process.conftest import Run
from tests.process.program import Program, environment, number, wait_for
from tests.process.test_backup import cmserver, elsewhere, embedded_database_of, remember, remembered, run_in, same_server

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(run: Run) -> Program:
    """A running server with some observations."""
    program = run("server")
    program.wait_until_ready()
    remember(program, 5)
    return program


def backups(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "backups").glob("*.backup"))


def test_backups_are_kept_listed_verified_and_tried(filled: Program, folder: Path):
    assert "no backup" in cmserver(folder, "backups")
    for _ in range(3):
        cmserver(folder, "backup", "--keep", "2")
    kept = backups(folder)

    assert len(kept) == 2
    listed = json.loads(cmserver(folder, "backups", "list", "--json"))
    assert [Path(row["file"]) for row in listed["backups"]] == kept[::-1]
    assert listed["lastDrill"] is None
    assert cmserver(folder, "backups", "verify").count("whole") == 2
    assert "Passed" in cmserver(folder, "backup", "drill")
    report = json.loads(cmserver(folder, "backups", "list", "--json"))["lastDrill"]
    assert (report["backup"], report["passed"]) == (kept[-1].name, True)
    assert report["rows"] == listed["backups"][0]["rows"]
    assert not list((folder / "data").glob("drill-*"))

    content = bytearray(kept[-1].read_bytes())
    content[len(content) // 2] ^= 1
    kept[-1].write_bytes(content)
    assert "damaged" in cmserver(folder, "backups", "verify", kept[-1].name, code=1)
    assert "Failed" in cmserver(folder, "backup", "drill", kept[-1].name, code=1)
    assert not json.loads(cmserver(folder, "backups", "list", "--json"))["lastDrill"]["passed"]


def test_a_backup_in_the_place_of_the_database_which_is_kept_until_it_is_deleted(filled: Program, folder: Path):
    before, key = remembered(filled), filled.key
    cmserver(folder, "backup")
    remember(filled, 2, "After the backup,")
    assert filled.stop() == 0
    (backup,) = backups(folder)

    assert "--replace" in cmserver(folder, "restore", backup.name, code=1)
    assert "database of before" in cmserver(folder, "restore", "--replace", backup.name)

    (aside,) = filled.data_dir.glob("pg*.replaced-*")
    same_server(folder, "second", {"CMSERVER_DATA_DIR": str(filled.data_dir)}, before, key)
    assert aside.is_dir()


def test_the_database_comes_back_when_a_restore_is_killed_before_the_other_is_in_its_place(filled: Program, folder: Path):
    before = remembered(filled)
    assert filled.stop() == 0
    move_aside(filled.data_dir)

    program = run_in(folder, "second", {"CMSERVER_DATA_DIR": str(filled.data_dir)})
    program.data_dir = filled.data_dir
    try:
        program.wait_until_ready()
        assert remembered(program) == before
    finally:
        program.end()


def move_aside(data_dir: Path) -> None:
    """Leave the data folder as a restore does that is killed before the other database is in its place."""
    (cluster,) = data_dir.glob("pg[0-9][0-9]")
    cluster.rename(cluster.with_name(f"{cluster.name}.replaced-20261124T000000000000Z"))


def test_upgrade_and_the_next_restore_find_the_database_that_a_killed_restore_moved_aside(filled: Program, folder: Path):
    before, key = remembered(filled), filled.key
    cmserver(folder, "backup")
    assert filled.stop() == 0
    (backup,) = backups(folder)

    move_aside(filled.data_dir)
    assert "interrupted" in cmserver(folder, "upgrade", "--check", code=1)
    assert "holds no database" not in cmserver(folder, "upgrade")
    move_aside(filled.data_dir)
    assert "database of before" in cmserver(folder, "restore", "--replace", backup.name)

    same_server(folder, "second", {"CMSERVER_DATA_DIR": str(filled.data_dir)}, before, key)


def test_a_backup_that_is_killed_leaves_no_file_and_the_next_one_works(filled: Program, folder: Path):
    for round_ in range(3):
        with (folder / "killed.out").open("wb") as out:
            backing_up = subprocess.Popen(
                [sys.executable, "-m", "cmserver", "backup", "--file", str(folder / "one.backup")],
                env=environment(folder, {}), stdout=out, stderr=out,
            )  # fmt: skip
        wait_for("its draft", lambda: list(folder.glob(".one.backup.*")))
        backing_up.send_signal(signal.SIGKILL)
        backing_up.wait()
        assert not (folder / "one.backup").exists(), round_

    cmserver(folder, "backup", "--file", str(folder / "one.backup"))

    assert not list(folder.glob(".one.backup.*"))
    cmserver(folder, "backups", "verify", str(folder / "one.backup"))


def test_a_key_that_was_revoked_after_the_backup_stays_revoked_and_the_others_work(filled: Program, folder: Path):
    with filled.http() as client:
        made = client.post("/v1/keys", json={"name": "leaked"}).json()
    cmserver(folder, "backup")
    with filled.http() as client:
        assert client.delete(f"/v1/keys/{made['id']}").is_success
    before, key = remembered(filled), filled.key
    (backup,) = backups(folder)

    said = cmserver(folder, "restore", str(backup), settings=elsewhere(folder))

    assert "Erased again" in said
    with embedded_database_of(folder / "restored") as url:
        assert number(url, "SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL") == 1
    same_server(folder, "second", elsewhere(folder), before, key)


def test_without_a_journal_all_keys_are_revoked_and_a_new_one_can_be_made(filled: Program, folder: Path):
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))
    assert filled.stop() == 0
    for journal in (folder / "data" / "backups").iterdir():
        journal.unlink()

    said = cmserver(folder, "restore", str(folder / "one.backup"), settings=elsewhere(folder))

    assert "all keys were revoked" in said
    with embedded_database_of(folder / "restored") as url:
        assert number(url, "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL") == 0
    made = cmserver(folder, "keys", "create", "--operator", "--team", "default", settings=elsewhere(folder))
    assert "cms_" in made
    assert "all keys were revoked" not in cmserver(
        folder, "restore", "--keep-keys", str(folder / "one.backup"), settings=elsewhere(folder, "third")
    )
    assert credentials.read(folder / "third") is not None


def test_psql_opens_the_database_of_a_running_server_as_its_owner(filled: Program, folder: Path):
    assert cmserver(folder, "psql", "-Atc", "SELECT current_user, count(*) FROM observations").splitlines()[-1] == "cmserver|5"
    assert "lane" in cmserver(folder, "psql", "-f", "sql/ops/lanes.sql").lower()
    cmserver(folder, "psql", "-c", "SELECT wrong FROM nothing", code=1)
