"""Who needs a provider's key, and who does without."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import command
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


def test_the_doctor_needs_neither_server_nor_database(folder: Path):
    output = command(folder, "doctor", "provider")

    assert (output.returncode, output.stderr) == (0, "")
    assert output.stdout.startswith("offline (rules) answered in ")
