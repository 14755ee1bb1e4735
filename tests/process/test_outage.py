"""The embedded PostgreSQL dies under the running program, stays away for a while, and comes back."""

from __future__ import annotations

import os
import signal
import time

import httpx
import psycopg
import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.process.conftest import Run
from tests.process.program import Program, measured, observations, wait_for

pytestmark = pytest.mark.slow

EVENT = {"projectId": "orders", "eventType": "tool_use", "contentSessionId": "s1"}


def write(name: str) -> dict[str, object]:
    payload = {"tool_name": "Write", "tool_input": {"file_path": f"/src/orders/{name}", "content": "x\n"}}
    return {**EVENT, "sourceEventId": name, "payload": payload}


def files(client: httpx.Client) -> set[str]:
    return {file.rpartition("/")[2] for observation in observations(client, "orders") for file in observation.files_modified}


def url_of(program: Program) -> str:
    return EmbeddedPostgres(program.data_dir).url


def test_ingest_says_503_while_postgres_is_away_and_all_goes_on_when_it_is_back(run: Run):
    program = run("server", settings={"CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    program.wait_until_ready()
    with program.http() as client, psycopg.connect(url_of(program)) as conn:
        client.post("/v1/events", json=write("before.py")).raise_for_status()
        wait_for("the first observation", lambda: files(client) == {"before.py"})
        # A backend that stands still keeps the cluster's shared memory: no new postgres starts as long as we want.
        backend = conn.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            os.kill(program.postgres_pid, signal.SIGKILL)
            refused = wait_for("a refusal", lambda: _refused(client.post("/v1/events", json=write("during.py"))))
            unready = client.get("/readyz")
            alive = client.get("/healthz")
        finally:
            os.kill(backend, signal.SIGCONT)
        freed = time.monotonic()
        wait_for("the event to be taken", lambda: client.post("/v1/events", json=write("during.py")).status_code == 201)
        taken = time.monotonic() - freed
        wait_for("its observation", lambda: files(client) == {"before.py", "during.py"})
        done = time.monotonic() - freed

        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert unready.status_code == 503
        assert alive.status_code == 200
        assert client.get("/v1/info").json()["queue"]["completed"] == 2
    assert program.logged("request.failed") == []
    assert program.stop() == 0
    measured(f"events are taken {taken:.2f} s, and worked on {done:.2f} s, after postgres could start again")


def _refused(answer: httpx.Response) -> httpx.Response | None:
    assert answer.status_code in {201, 503}, answer.text
    return answer if answer.status_code == 503 else None
