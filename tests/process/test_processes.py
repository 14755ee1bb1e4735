"""The processes of `cmserver run`: the worker beside the API, and several of the API. One is started, and one is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.otlp_collector import Collector, attributes
from tests.process.conftest import Run
from tests.process.program import Program, embedded_database, environment, number, wait_for, wait_until_gone
from tests.process.slow_provider import Gate
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

WRITE = {"tool_name": "Write", "tool_input": {"file_path": "/home/alice/src/orders/note.txt", "content": "kept\n"}}


def post_event(program: Program, source_id: str) -> None:
    event = {"projectId": "orders", "eventType": "tool_use", "contentSessionId": "s1", "sourceEventId": source_id, "payload": WRITE}
    with program.http() as client:
        client.post("/v1/events", json=event).raise_for_status()


def pids(program: Program, process: str) -> list[int]:
    """The processes of that name that were started so far."""
    return [cast("int", record["pid"]) for record in program.logged("process.started") if record["process"] == process]


def children(program: Program) -> list[int]:
    """The processes below it, oldest first."""
    return [int(pid) for pid in Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()]


def completed(program: Program) -> int:
    with program.http() as client:
        return client.get("/v1/info").raise_for_status().json()["queue"]["completed"]


def test_a_worker_that_is_killed_is_started_again_and_does_what_was_in_hand(run: Run, gate: Gate):
    settings = {**gate.settings, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0", "CMSERVER_LEASE_SECONDS": f"{scaled(2):g}"}
    settings |= {"CMSERVER_HEARTBEAT_SECONDS": f"{scaled(0.5):g}"}
    program = run("server", settings=settings)
    program.wait_until_ready()
    program.wait_for_log("worker.started")
    post_event(program, "1")
    wait_for("the provider to be asked", gate.asked)
    (worker,) = pids(program, "worker")

    os.kill(worker, signal.SIGKILL)
    restarting = program.wait_for_log("process.restarting")
    gate.open()

    wait_for("the job to be done", lambda: completed(program) == 1)
    assert (restarting["process"], restarting["code"]) == ("worker", -signal.SIGKILL)
    assert "nothing is lost" in str(restarting["hint"])
    assert len(pids(program, "worker")) == 2
    assert program.stop() == 0
    wait_until_gone(pids(program, "worker")[1])


def test_the_worker_shares_what_is_imported_and_keeps_nothing_of_the_api(run: Run):
    program = run("server")
    program.wait_until_ready()
    program.wait_for_log("worker.started")
    (worker,) = pids(program, "worker")
    lines = [line.split() for line in Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()[1:]]
    kib = {words[0]: int(words[1]) for words in lines}
    with program.http() as client:
        port = client.base_url.port
    assert port is not None

    os.kill(worker, signal.SIGSTOP)
    program.send(signal.SIGKILL)
    program.process.wait()
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody listens there any more
    os.kill(worker, signal.SIGCONT)

    wait_until_gone(worker)
    assert kib["Private_Clean:"] + kib["Private_Dirty:"] < kib["Rss:"] / 2


def test_a_worker_that_ends_where_no_log_can_be_written_harms_nobody(run: Run):
    to_full_disk = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"]
    settings = {"CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0", "PYTHONUNBUFFERED": ""}  # a buffer fails again at the end
    program = run("server", "--api-processes", "2", settings=settings, prefix=to_full_disk)
    program.wait_until_ready()
    post_event(program, "1")
    wait_for("the job to be done", lambda: completed(program) == 1)
    worker = children(program)[0]

    os.kill(worker, signal.SIGTERM)
    wait_until_gone(worker)
    post_event(program, "2")

    wait_for("the job to be done by another one", lambda: completed(program) == 2)


def test_other_processes_keep_nothing_open_that_the_first_one_was_started_with(run: Run, folder: Path):
    lock = folder / "lock"
    program = run("server", "--api-processes", "2", prefix=["sh", "-c", f'exec 9>"{lock}"; exec "$@"', "sh"])
    program.wait_until_ready()
    program.wait_for_log("process.started", count=2)

    opened = [Path(f"/proc/{pid}/fd/9").resolve() for pid in [program.pid, *pids(program, "worker"), *pids(program, "api")]]

    assert [path == lock.resolve() for path in opened] == [True, False, False]


INTERRUPTED_IN_A_FORK = """
import os, signal, socket
from cmserver.cli.children import fork_children
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
fork_children(socket.socket(), "all", 1)
"""


def test_ctrl_c_in_the_moment_of_a_fork_is_heard(folder: Path):
    words = [sys.executable, "-c", INTERRUPTED_IN_A_FORK]

    ended = subprocess.run(words, env=environment(folder, {}), capture_output=True, text=True, timeout=scaled(60), check=False)

    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_an_order_whose_end_is_missing_is_none(folder: Path):
    words = [sys.executable, "-m", "cmserver", "--child", "worker"]
    ended = subprocess.run(
        words, env=environment(folder, {}), input='{"role": "wor', capture_output=True, text=True, timeout=scaled(60), check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_killed_server_leaves_no_process_running(run: Run):
    program = run("server", "--api-processes", "2", settings={"CMSERVER_LEASE_SECONDS": "10"})
    program.wait_until_ready()
    program.wait_for_log("worker.started")
    program.wait_for_log("process.started", count=2)

    program.send(signal.SIGKILL)
    program.process.wait()

    for pid in [*pids(program, "worker"), *pids(program, "api")]:
        wait_until_gone(pid)


def test_several_processes_answer_on_one_port_and_one_that_dies_is_replaced(run: Run, folder: Path):
    program = run("server", "--api-processes", "3")
    program.wait_until_ready()
    program.wait_for_log("process.ready", count=2)
    first, second = pids(program, "api")
    post_event(program, "1")

    os.kill(first, signal.SIGKILL)
    program.wait_for_log("process.ready", count=3)
    for place in range(12):  # each over a connection of its own
        post_event(program, f"again-{place}")

    assert program.stop() == 0
    for pid in [second, *pids(program, "api"), *pids(program, "worker")]:
        wait_until_gone(pid)
    with embedded_database(folder) as url:
        assert number(url, "SELECT count(*) FROM agent_events") == 13
        assert number(url, "SELECT sum(amount)::int FROM usage_counters WHERE kind = 'events'") in {12, 13}  # one was killed


def test_a_provider_that_cannot_be_used_stops_the_server_with_one_sentence(run: Run):
    program = run(
        "server",
        settings={
            "CMSERVER_PROVIDER": "anthropic",
            "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef",
            "CMSERVER_BASE_URL": "http://[::1",
        },
    )

    assert program.process.wait(scaled(60)) == 2

    assert "CMSERVER_BASE_URL holds an address that cannot be used" in program.errors
    assert "Traceback" not in program.errors


def test_the_processes_send_one_trace_and_the_metrics_of_all(run: Run):
    with Collector() as collector:
        export = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "200"}
        program = run("server", settings={**export, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
        program.wait_until_ready()
        post_event(program, "1")
        wait_for("the job to be done", lambda: completed(program) == 1)
        wait_for("the worker's metric", lambda: "cmserver_apply_duration_seconds" in collector.metrics)
        assert program.stop() == 0

    spans = {span.name: span for span in collector.spans}
    assert spans["batch"].parent_span_id == spans["POST /v1/events"].span_id
    assert spans["store"].parent_span_id == spans["batch"].span_id
    assert len({span.trace_id for span in (spans["batch"], spans["POST /v1/events"], spans["store"])}) == 1
    assert len({attributes(resource)["service.instance.id"] for resource in collector.resources}) == 2


def test_a_collector_that_is_away_holds_up_neither_events_nor_the_end(run: Run):
    gone = socket.create_server(("127.0.0.1", 0))  # takes connections, and never answers
    program = run("server", settings={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{gone.getsockname()[1]}"})
    program.wait_until_ready()
    post_event(program, "1")

    assert program.stop() == 0
    assert not program.logged("process.killed")
    gone.close()
