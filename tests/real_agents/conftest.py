"""The real clients, installed once, and a server that remembers something for them to ask about."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.process.conftest import folder, passable_folder
from tests.process.program import Program
from tests.real_agents import install
from tests.real_agents.desk import sit
from tests.real_agents.install import Command

__all__ = ["folder", "sit"]

REMEMBERED = {
    "projectId": "orders",
    "type": "decision",
    "title": "Refunds are queued, never sent at once",
    "narrative": "The bank answers slowly on Mondays, so refunds wait in the table refund_queue.",
}


@pytest.fixture(scope="session")
def claude_program() -> Path:
    return install.claude()


@pytest.fixture(scope="session")
def inspector() -> Command:
    return install.inspector()


@pytest.fixture(scope="session")
def suites() -> dict[str, Command]:
    return install.conformance()


@pytest.fixture(scope="module")
def remembering() -> Generator[Program]:
    """The real server, with one observation of the project orders; for all tests of a file, which only read."""
    with passable_folder() as data:
        server = Program(data, "server", settings={})
        try:
            server.wait_until_ready()
            with server.http() as client:
                client.post("/v1/projects", json={"canonicalId": REMEMBERED["projectId"]}).raise_for_status()
                client.post("/v1/observations", json=REMEMBERED).raise_for_status()
            yield server
        finally:
            server.end()
