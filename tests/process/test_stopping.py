"""How the program ends: asked to, it finishes what it has begun; killed, it leaves nothing running."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import Program, embedded_database, life_of, number, rows, wait_for, wait_until_gone
from tests.process.slow_provider import Gate
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

WRITE = {"tool_name": "Write", "tool_input": {"file_path": "/home/alice/src/orders/note.txt", "content": "kept\n"}}
EVENT = {"projectId": "orders", "eventType": "tool_use", "contentSessionId": "s1", "payload": WRITE}


def post_event(program: Program) -> str:
    """The id of the event's job."""
    with program.http() as client:
        return client.post("/v1/events", json=EVENT).raise_for_status().json()["generationJob"]["id"]


def is_refused(url: str) -> bool:
    """Whether nobody listens there, soon after now."""
    until = time.monotonic() + scaled(5)
    while time.monotonic() < until:
        try:
            httpx.get(f"{url}/livez", timeout=1, trust_env=False)
        except httpx.ConnectError:
            return True
        except httpx.HTTPError:
            time.sleep(0.05)
    return False


@pytest.mark.parametrize("sign", [pytest.param(signal.SIGTERM, marks=pytest.mark.smoke), signal.SIGINT])
def test_asked_to_stop_it_finishes_the_batch_in_hand(run: Run, gate: Gate, folder: Path, sign: signal.Signals):
    program = run("server", settings={**gate.settings, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    program.wait_until_ready()
    postgres, url = program.postgres_pid, program.url
    job = post_event(program)
    wait_for("the provider to be asked", gate.asked)

    program.send(sign)
    program.wait_for_log("server.stopping")
    assert is_refused(url), "else callers wait for what nobody answers"
    gate.open()

    assert program.process.wait(scaled(60)) == 0
    wait_until_gone(postgres)
    assert not (program.data_dir / "server.json").exists()
    assert len(gate.asked()) == 1
    with embedded_database(folder) as url:
        assert life_of(url, job) == ["queued", "processing", "completed"]
        assert number(url, "SELECT count(*) FROM observations") == 1
        assert number(url, "SELECT count(*) FROM procrastinate_workers") == 0


def test_asked_to_stop_it_writes_down_first_what_was_used(run: Run, folder: Path):
    program = run("server")
    program.wait_until_ready()
    with program.http() as client:
        for place in range(3):
            client.post("/v1/events?generate=false", json={**EVENT, "sourceEventId": str(place)}).raise_for_status()

    program.send(signal.SIGTERM)
    assert program.process.wait(scaled(60)) == 0

    with embedded_database(folder) as url:
        assert number(url, "SELECT sum(amount)::int FROM usage_counters WHERE kind = 'events'") == 3


def test_a_batch_that_does_not_finish_in_time_is_put_back_without_losing_an_attempt(run: Run, gate: Gate, folder: Path):
    settings = {**gate.settings, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0", "CMSERVER_LEASE_SECONDS": "10"}
    program = run("server", settings=settings)
    program.wait_until_ready()
    job = post_event(program)
    wait_for("the provider to be asked", gate.asked)

    assert program.stop() == 0
    with embedded_database(folder) as url:
        assert life_of(url, job) == ["queued", "processing", "retry_scheduled"]
        assert rows(url, "SELECT status, attempts FROM observation_generation_jobs") == [{"status": "queued", "attempts": 0}]
        assert rows(url, "SELECT worker_id, due_at <= now() AS due FROM generation_lanes") == [{"worker_id": None, "due": True}]


@pytest.mark.speed
def test_asked_to_stop_while_it_waits_for_a_database_it_goes_at_once(run: Run):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        program = run("server", settings={"CMSERVER_DATABASE_URL": f"postgresql://nobody@127.0.0.1:{port}/nothing"})
        mute.settimeout(scaled(60))
        connection, _ = mute.accept()  # it looks for its database, and will for 30 s

        asked_to_stop = time.monotonic()
        code = program.stop()

        assert code == 0
        assert time.monotonic() - asked_to_stop < scaled(10)
        connection.close()


@pytest.mark.smoke
def test_killed_it_leaves_no_postgres_behind_and_starts_again(run: Run, folder: Path):
    first = run("first")
    first.wait_until_ready()
    postgres = first.postgres_pid
    job = post_event(first)

    first.send(signal.SIGKILL)
    first.process.wait()

    wait_until_gone(postgres)
    second = run("second")
    second.wait_until_ready()
    with second.http() as client:
        wait_for("the work of the first to be done", lambda: client.get("/v1/info").json()["queue"]["completed"] == 1)
    second.stop()
    with embedded_database(folder) as url:
        assert life_of(url, job)[-1] == "completed"
