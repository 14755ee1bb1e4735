"""`cmserver export` and `cmserver import`, with the real program: beside a running server, killed in the middle, and repeated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.claude_mem_databases import make_v13
from tests.process.conftest import Run
from tests.process.program import environment, wait_for
from tests.process.test_backup import cmserver, embedded_database_of, number

pytestmark = pytest.mark.slow


def test_an_import_beside_a_running_server_that_is_killed_goes_on_and_its_export_comes_in_elsewhere(run: Run, folder: Path):
    program = run("server")
    program.wait_until_ready()
    database = make_v13(folder / "claude-mem.db", observations=4000)
    log_line = "SELECT count(*) FROM observations"
    with (folder / "killed.out").open("wb") as out:
        importing = subprocess.Popen(
            [sys.executable, "-m", "cmserver", "import", "claude-mem", str(database)],
            env=environment(folder, {}), stdout=out, stderr=out,
        )  # fmt: skip
    wait_for("some observations", lambda: "t" in cmserver(folder, "psql", "-Atc", f"SELECT ({log_line}) > 0"))
    importing.send_signal(signal.SIGKILL)
    importing.wait()

    report = json.loads(cmserver(folder, "import", "claude-mem", str(database), "--json"))
    again = json.loads(cmserver(folder, "import", "claude-mem", str(database), "--json"))

    assert report["known"].get("observation", 0) + report["taken"].get("observation", 0) == 4002
    assert (again["taken"], again["known"]["observation"]) == ({}, 4002)
    assert "observation 4002" in cmserver(folder, "export", "--to", "memory.jsonl")
    cmserver(folder, "verify")
    with program.http() as client:
        body = {"projectId": "shop", "query": "worker waits between its tries"}
        assert client.post("/v1/search", json=body).raise_for_status().json()["observations"]
    assert program.stop() == 0

    elsewhere = {"CMSERVER_DATA_DIR": str(folder / "other")}
    second = run("second", settings=elsewhere)
    second.data_dir = folder / "other"
    second.wait_until_ready()
    cmserver(folder, "import", "jsonl", "memory.jsonl", settings=elsewhere)
    cmserver(folder, "export", "--to", "again.jsonl", settings=elsewhere)
    assert second.stop() == 0
    assert (folder / "again.jsonl").read_text() == (folder / "memory.jsonl").read_text()
    with embedded_database_of(folder / "other") as url:
        assert number(url, "SELECT count(*) FROM observation_generation_jobs") == 0
