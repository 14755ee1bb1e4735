"""Who needs a provider's key, and who does without."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import command, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


def test_a_process_without_a_worker_needs_no_key_of_a_provider_and_tells_of_the_chain(run: Run):
    program = run("api", "--role", "api", settings={"CMSERVER_PROVIDER": "anthropic,offline"})
    program.wait_until_ready()

    answer = httpx.get(f"{program.url}/v1/providers", headers={"X-Api-Key": program.key}, timeout=scaled(20), trust_env=False)

    assert answer.status_code == 200, answer.text
    assert [provider["name"] for provider in answer.json()["providers"]] == ["anthropic", "offline"]


@pytest.mark.parametrize(
    ("role", "provider", "named"),
    [("all", "anthropic", "ANTHROPIC_API_KEY"), ("api", "anthropic,oflfine", "'oflfine'")],
    ids=["a missing key", "a wrong name"],
)
def test_what_a_process_needs_of_its_providers_is_asked_for_at_the_start(folder: Path, role: str, provider: str, named: str):
    refused = command(folder, "run", "--role", role, settings={"CMSERVER_PROVIDER": provider})

    assert refused.returncode == 2
    assert "CMSERVER_PROVIDER" in refused.stderr
    assert named in refused.stderr


def test_a_model_that_is_chosen_while_the_server_runs_is_used_by_all_its_processes(run: Run):
    program = run("all", settings={"CMSERVER_API_PROCESSES": "2"})
    program.wait_until_ready()
    program.wait_for_log("process.ready")
    given = {"provider": "ollama", "model": "tiny", "baseUrl": "http://127.0.0.1:9/v1"}

    with program.http() as client:
        chosen = client.put("/v1/model", json=given)
    again = program.wait_for_log("process.ready", 2)

    with program.http() as client:
        shown = client.get("/v1/model").json()
    worker = wait_for("the worker", lambda: program.logged("worker.started")[-1]["providers"] == ["ollama"] or None)
    assert chosen.status_code == 200, chosen.text
    assert again
    assert (shown["provider"], shown["pending"]) == ("ollama", False)
    assert worker
    assert program.stop() == 0


def test_the_doctor_needs_neither_server_nor_database(folder: Path):
    output = command(folder, "doctor", "provider")

    assert (output.returncode, output.stderr) == (0, "")
    assert output.stdout.startswith("offline (rules) answered in ")
