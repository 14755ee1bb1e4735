"""The steward's jobs with real workers: what one of them held when it was killed or frozen is done by another, once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.process.conftest import Run
from tests.process.program import QUICK_LEASE, Program, command, number, rows, wait_for
from tests.process.slow_provider import Gate

pytestmark = pytest.mark.slow

LEASE = QUICK_LEASE
TITLES = (
    "Deploys of orders run the migrations first",
    "Deploys of orders run the migrations first, while the operator watches the log",
)
SUGGEST = """
    INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
    SELECT gen_random_uuid(), l.team_id, l.project_id, l.id, r.id, 0.95, 'vector', 'same'
      FROM observations l JOIN observations r ON r.id > l.id ON CONFLICT DO NOTHING
"""


@pytest.fixture
def api(run: Run, database: str, gate: Gate) -> Program:
    program = run("api", "--role", "api", settings={"CMSERVER_DATABASE_URL": database, **LEASE, **gate.settings})
    program.wait_until_ready()
    return program


@pytest.fixture
def worker(run: Run, database: str, gate: Gate) -> Callable[[str], Program]:
    """Starts a worker whose provider answers once the gate is open."""

    def start(label: str) -> Program:
        program = run(label, "--role", "worker", settings={"CMSERVER_DATABASE_URL": database, **LEASE, **gate.settings})
        program.wait_until_working()
        return program

    return start


def ask_for_a_merge(api: Program, database: str) -> None:
    """Two observations, a suggestion that only a model can judge, and a steward that may write."""
    with api.http() as client:
        client.post("/v1/projects", json={"canonicalId": "orders"}).raise_for_status()
        client.patch("/v1/projects/orders", json={"consolidation": "off"}).raise_for_status()
        for title in TITLES:
            client.post("/v1/observations", json={"projectId": "orders", "title": title}).raise_for_status()
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(SUGGEST)
        client.put("/v1/steward/mode", json={"mode": "write", "executors": ["auto_merge"]}).raise_for_status()


def life(database: str) -> list[object]:
    return [row["event_type"] for row in rows(database, "SELECT event_type FROM steward_events ORDER BY id")]


def assert_merged_once_by_the_second(folder: Path, database: str) -> None:
    wait_for("the merge", lambda: number(database, "SELECT count(*) FROM steward_jobs WHERE status = 'succeeded'") == 1)
    assert life(database) == [
        "job_created",
        "job_claimed",
        "recovery_detected",
        "job_claimed",
        "model_invoked",
        "decision_made",
        "write_applied",
        "job_completed",
    ]
    assert number(database, "SELECT count(*) FROM observations WHERE superseded_at IS NULL") == 1
    assert number(database, "SELECT count(*) FROM observation_versions WHERE action = 'merged'") == 1
    assert [row["status"] for row in rows(database, "SELECT status FROM steward_runs")] == ["succeeded"]
    verified = command(folder, "verify", settings={"CMSERVER_DATABASE_URL": database})
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_job_of_a_killed_worker_is_done_by_the_other_one_and_only_once(
    folder: Path, api: Program, worker: Callable[[str], Program], gate: Gate, database: str
):
    workers = {program.pid: program for program in (worker("one"), worker("two"))}
    ask_for_a_merge(api, database)
    with api.http() as client:
        client.post("/v1/steward/run", json={})
    (holder,) = wait_for("a worker to ask its provider", gate.asked)

    workers[holder].send(signal.SIGKILL)
    gate.open()

    assert_merged_once_by_the_second(folder, database)
    assert {pid for pid in gate.asked() if pid != holder} == workers.keys() - {holder}


def test_a_worker_that_was_frozen_past_its_lease_writes_nothing(
    folder: Path, api: Program, worker: Callable[[str], Program], gate: Gate, database: str
):
    frozen = worker("frozen")
    ask_for_a_merge(api, database)
    with api.http() as client:
        client.post("/v1/steward/run", json={})
    wait_for("its provider to be asked", gate.asked)

    frozen.send(signal.SIGSTOP)
    gate.open()
    worker("second")
    assert_merged_once_by_the_second(folder, database)
    frozen.send(signal.SIGCONT)

    frozen.wait_for_log("lease.lost")
    assert number(database, "SELECT count(*) FROM observation_versions WHERE action = 'merged'") == 1
    assert number(database, "SELECT count(*) FROM steward_events WHERE event_type = 'write_applied'") == 1
