"""`cmserver upgrade`, with the real program: to a newer major version of PostgreSQL, and beside a newer cmserver."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import psycopg
import pytest

from cmserver.base import credentials
from cmserver.embedded.files import WHEEL_FOLDERS, binaries_of, list_clusters
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.restore import restore
from tests.process.conftest import Run
from tests.process.test_backup import PROJECT, cmserver, elsewhere, remember, remembered

pytestmark = pytest.mark.slow


def test_the_wheel_has_the_versions_that_its_folders_are_known_for():
    for major in WHEEL_FOLDERS:
        binaries = binaries_of(major)
        assert binaries is not None
        printed = subprocess.run([binaries.bin / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        assert f" {major}." in printed


def test_a_data_folder_of_an_older_postgresql_is_taken_over(run: Run, folder: Path):
    program = run("server")
    program.wait_until_ready()
    remember(program, 3)
    before = remembered(program)
    assert program.stop() == 0
    assert "Nothing to do" in cmserver(folder, "upgrade", "--check")
    cmserver(folder, "backup", "--file", "now.backup")
    older = elsewhere(folder, "older")
    _restore_into_16(folder / "now.backup", folder / "older")

    refused = cmserver(folder, "verify", code=3, settings=older)
    checked = cmserver(folder, "upgrade", "--check", code=1, settings=older)
    assert "cmserver upgrade" in refused
    assert "PostgreSQL 16 becomes 18" in checked
    assert [path.name for path in list_clusters(folder / "older")] == ["pg16"]
    cmserver(folder, "upgrade", settings=older)

    assert [path.name for path in list_clusters(folder / "older")] == ["pg18"]
    assert "Nothing to do" in cmserver(folder, "upgrade", "--check", settings=older)
    upgraded = run("upgraded", settings=older)
    upgraded.data_dir = folder / "older"
    upgraded.wait_until_ready()
    assert remembered(upgraded) == before  # and so with its old key
    assert upgraded.stop() == 0


def _restore_into_16(file: Path, data_dir: Path) -> None:
    embedded = EmbeddedPostgres(data_dir, binaries_of(16))
    embedded.start()
    try:
        with open_backup(file) as reader:
            asyncio.run(restore(reader, embedded.url, embedded.data_dir))
            stored = reader.credentials()
    finally:
        embedded.stop()
    assert stored is not None
    credentials.write_bytes(data_dir, stored)


def test_a_running_server_goes_on_when_a_newer_one_has_migrated_the_database(run: Run, folder: Path):
    program = run("server")
    program.wait_until_ready()
    remember(program, 1)
    with psycopg.connect(EmbeddedPostgres(program.data_dir).url, autocommit=True) as conn:
        conn.execute("INSERT INTO schema_migrations (number, name, checksum) VALUES (9999, '9999_later', 'x')")
        conn.execute("ALTER TABLE observations ADD COLUMN later text")
        conn.execute("ALTER TABLE agent_events ADD COLUMN later text NOT NULL DEFAULT ''")
        conn.execute("CREATE TABLE later_things (id uuid PRIMARY KEY, team_id uuid NOT NULL)")

    remember(program, 2, "After the other one's migration, bound the cache of")
    with program.http() as client:
        event = {
            "projectId": PROJECT,
            "eventType": "tool_use",
            "payload": {
                "tool_name": "Edit",
                "tool_input": {"file_path": "src/cache.py", "old_string": "a = 1", "new_string": "a = 2"},
                "tool_response": {"filePath": "src/cache.py"},
            },
        }
        assert client.post("/v1/events", params={"wait": "true"}, json=event, timeout=60).is_success
    assert len(remembered(program)) >= 3
    assert "9999_later" in cmserver(folder, "upgrade", "--check", code=4)
    assert "schema.newer" in cmserver(folder, "doctor", code=1)
    assert program.stop() == 0
    assert "newer cmserver" in cmserver(folder, "run", code=4)
