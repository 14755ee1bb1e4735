"""Workers of one database: what one of them holds when it dies or falls silent is done by another, once."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import QUICK_LEASE, Program, command, life_of, measured, number, rows, wait_for, wait_until_settled
from tests.process.slow_provider import WORK, Gate
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

SESSIONS = 40
EVENTS_A_SESSION = 50


def tool_use(session: int, event: int) -> dict[str, object]:
    written = {"file_path": f"/src/orders/s{session}/f{event}.py", "content": f"limit = {event}\n"}
    read = {"file_path": f"/src/orders/s{session}/f{event}.py"}
    payload = {"tool_name": "Write", "tool_input": written} if event % 2 else {"tool_name": "Read", "tool_input": read}
    return {
        "projectId": "orders",
        "eventType": "tool_use",
        "contentSessionId": f"session-{session}",
        "sourceEventId": f"{session}-{event}",
        "payload": payload,
    }


def post(api: Program, event: dict[str, object]) -> str:
    """The id of its job."""
    with api.http() as client:
        return client.post("/v1/events", json=event).raise_for_status().json()["generationJob"]["id"]


@pytest.fixture
def worker(run: Run, database: str, gate: Gate) -> Callable[[str], Program]:
    """Starts a worker that lives on a short lease and asks behind the gate."""

    def start(label: str) -> Program:
        settings = {"CMSERVER_DATABASE_URL": database, **QUICK_LEASE, **gate.settings}
        program = run(label, "--role", "worker", settings=settings)
        program.wait_until_working()
        return program

    return start


@pytest.fixture
def api(run: Run, database: str) -> Program:
    program = run("api", "--role", "api", settings={"CMSERVER_DATABASE_URL": database, **QUICK_LEASE})
    program.wait_until_ready()
    return program


def assert_done_once_by_the_second(url: str, job: str) -> None:
    assert life_of(url, job) == ["queued", "processing", "retry_scheduled", "processing", "completed"]
    assert number(url, "SELECT count(*) FROM observations") == 1
    assert rows(url, "SELECT status, attempts FROM observation_generation_jobs") == [{"status": "completed", "attempts": 2}]


def test_the_job_of_a_killed_worker_is_done_by_the_other_one_and_only_once(
    api: Program, worker: Callable[[str], Program], gate: Gate, database: str
):
    workers = {program.pid: program for program in (worker("one"), worker("two"))}
    job = post(api, tool_use(1, 1))
    (holder,) = wait_for("a worker to ask its provider", gate.asked)

    killed = time.monotonic()
    workers[holder].send(signal.SIGKILL)
    gate.open()

    wait_until_settled(database)
    measured(f"done again {time.monotonic() - killed:.2f} s after the kill, with a lease of 2 s")
    assert_done_once_by_the_second(database, job)
    assert {pid for pid in gate.asked() if pid != holder} == workers.keys() - {holder}


def test_a_worker_that_was_paused_past_its_lease_writes_nothing_and_comes_back_as_another(
    api: Program, worker: Callable[[str], Program], gate: Gate, database: str
):
    paused = worker("paused")
    job = post(api, tool_use(1, 1))
    wait_for("its provider to be asked", gate.asked)
    other = worker("other")

    paused.send(signal.SIGSTOP)
    gate.open()
    wait_until_settled(database)
    assert_done_once_by_the_second(database, job)
    paused.send(signal.SIGCONT)

    paused.wait_for_log("lease.lost")
    paused.wait_for_log("worker.lost")
    paused.wait_for_log("worker.restarting")
    assert_done_once_by_the_second(database, job)
    calls = rows(database, "SELECT status, count(*) AS n FROM generation_runs GROUP BY status ORDER BY status")
    assert calls == [{"status": "applied", "n": 1}, {"status": "lost", "n": 1}], "both were paid, and one counts"
    assert other.stop() == 0
    next_job = post(api, tool_use(1, 3))
    wait_until_settled(database)
    assert life_of(database, next_job) == ["queued", "processing", "completed"]
    assert len(set(holders(database, paused))) == 2, "its first id, and a new one"


def holders(url: str, program: Program) -> list[str]:
    """As whom that process has claimed jobs, in order."""
    question = """
        SELECT details ->> 'by' AS by FROM observation_generation_job_events
         WHERE event_type = 'processing' AND details ->> 'by' LIKE %(like)s ORDER BY id
    """
    return [str(row["by"]) for row in rows(url, question, like=f"%:{program.pid}:%")]


OVERLAPS = """
    WITH work AS (
        SELECT j.lane, (p.details ->> 'claim')::bigint AS claim, p.created_at AS began,
               (SELECT min(e.created_at) FROM observation_generation_job_events e
                 WHERE e.generation_job_id = p.generation_job_id AND e.id > p.id) AS ended
          FROM observation_generation_job_events p JOIN observation_generation_jobs j ON j.id = p.generation_job_id
         WHERE p.event_type = 'processing'
    ), batches AS (
        SELECT lane, claim, min(began) AS began, max(ended) AS ended FROM work GROUP BY lane, claim
    )
    SELECT count(*) FROM batches a JOIN batches b ON b.lane = a.lane AND b.claim > a.claim AND b.began < a.ended
"""


def test_that_jobs_wait_for_too_long_is_said_also_when_no_worker_runs(api: Program, run: Run, database: str):
    job = post(api, tool_use(1, 1))
    rows(database, "UPDATE observation_generation_jobs SET updated_at = now() - interval '1 hour' RETURNING id")
    rows(database, "UPDATE generation_lanes SET due_at = now() - interval '1 hour' RETURNING lane")

    run("another", "--role", "api", settings={"CMSERVER_DATABASE_URL": database, **QUICK_LEASE}).wait_for_log("queue.behind")

    assert life_of(database, job) == ["queued"]


def test_two_workers_do_two_thousand_events_once_each_and_lanes_never_overlap(run: Run, folder: Path, database: str):
    url = {"CMSERVER_DATABASE_URL": database}
    api = run("api", "--role", "api", settings={**url, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    api.wait_until_ready()
    busy = {"CMSERVER_PROVIDER": "tests.process.slow_provider:make", WORK: "0.02"}
    workers = [run(label, "--role", "worker", settings={**url, **busy}) for label in ("one", "two")]
    for program in workers:
        program.wait_until_working()
    events = [tool_use(session, event) for event in range(EVENTS_A_SESSION) for session in range(SESSIONS)]
    random.Random(7).shuffle(events)

    began = time.monotonic()
    with api.http() as client:
        for start in range(0, len(events), 100):
            client.post("/v1/events/batch", json=events[start : start + 100]).raise_for_status()
        client.post("/v1/events/batch", json=events[:100]).raise_for_status()  # once more: they are known
    wait_until_settled(database)
    measured(f"{len(events)} events posted and done in {time.monotonic() - began:.2f} s by two workers")

    lives = rows(
        database,
        """
        SELECT count(*) AS jobs, life FROM (
            SELECT string_agg(event_type, ' ' ORDER BY id) AS life
              FROM observation_generation_job_events GROUP BY generation_job_id) lives
         GROUP BY life
        """,
    )
    assert lives == [{"jobs": len(events), "life": "queued processing completed"}]
    assert number(database, "SELECT count(*) FROM observation_sources") == number(
        database, "SELECT count(*) FROM observation_generation_jobs WHERE outcome = 'observed'"
    )
    assert all(holders(database, program) for program in workers), "both have worked"
    assert number(database, OVERLAPS) == 0

    holds = command(folder, "verify", settings=url)
    assert holds.returncode == 0, holds.stderr
    assert holds.stdout.splitlines()[1].split()[:3] == ["default", "2000", "2000"]
    assert "The sums hold" in holds.stdout

    # The two proofs above see what they should: one lane that took longer than it did, one job that was lost.
    rows(
        database,
        """
        UPDATE observation_generation_job_events SET created_at = created_at + interval '1 hour'
         WHERE id = (SELECT min(id) FROM observation_generation_job_events WHERE event_type = 'completed') RETURNING id
        """,
    )
    assert number(database, OVERLAPS) > 0
    rows(
        database,
        """
        DELETE FROM observation_generation_jobs
         WHERE id = (SELECT id FROM observation_generation_jobs WHERE outcome = 'skipped' LIMIT 1) RETURNING id
        """,
    )
    broken = command(folder, "verify", settings=url)
    assert broken.returncode == 1
    assert "1 events have no job" in broken.stderr


def test_a_worker_with_a_port_tells_how_it_is_there_and_nothing_else(run: Run, database: str, api: Program):
    settings = {"CMSERVER_DATABASE_URL": database, "CMSERVER_METRICS_TOKEN": "seen", **QUICK_LEASE}
    worker = run("worker", "--role", "worker", "--port", "0", settings=settings)
    url = wait_for("its address", lambda: (re.findall(r"metrics are at (\S+)", worker.output) or [None])[0])
    post(api, tool_use(1, 1))
    wait_until_settled(database)

    with httpx.Client(base_url=url, timeout=scaled(5), trust_env=False) as client:
        answers = {path: client.get(path).status_code for path in ("/livez", "/healthz", "/metrics", "/v1/info", "/")}
        metrics = client.get("/metrics", headers={"Authorization": "Bearer seen"}).text
        claims = re.search(r"^cmserver_claim_duration_seconds_count (\S+)$", metrics, re.MULTILINE)
        worker.send(signal.SIGSTOP)
        with pytest.raises(httpx.TimeoutException):
            client.get("/livez", timeout=1)
        worker.send(signal.SIGCONT)

    assert answers == {"/livez": 200, "/healthz": 200, "/metrics": 401, "/v1/info": 404, "/": 404}
    assert claims is not None
    assert float(claims[1]) > 0
    assert worker.stop() == 0
