"""The real Copilot CLI and Cline, connected by `cmserver connect`, with a model of chat completions that is played."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.models.providers.fake.server import FakeProvider, fake_in_a_thread
from tests.process import program
from tests.process.program import Program, wait_for
from tests.real_agents import install
from tests.real_agents.chat_api import ChatModel, call
from tests.real_agents.coder import PROJECT
from tests.repositories import Repository
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

RUN_SECONDS = 180.0
TITLE = "Refunds are queued, never sent at once"
REMEMBERED = {
    "projectId": PROJECT,
    "type": "decision",
    "title": TITLE,
    "narrative": "The bank answers slowly on Mondays, so refunds wait in src/refunds.py.",
    "filesModified": ["src/refunds.py"],
}
_STORED = """
    SELECT e.event_type, e.payload->>'tool_name' AS tool, e.payload->>'prompt' AS prompt
      FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id
     WHERE s.platform_source = %(agent)s ORDER BY e.id
"""


class Desk:
    """Somebody with both agents, a repository, and a cmserver that remembers something of it."""

    def __init__(self, folder: Path, server: Program, api: FakeProvider, model: ChatModel) -> None:
        self.folder, self.server, self.model, self._api = folder, server, model, api
        self.home = folder / "home"
        self.home.mkdir()
        self.clone = Repository(folder / "orders")
        self.clone.write("src/refunds.py", "queue = []\n")
        self.clone.commit("First")
        self.clone.git("remote", "add", "origin", f"https://{PROJECT}.git")

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "LC_ALL": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "DO_NOT_TRACK": "1",
            **(more or {}),
        }

    def cmserver(self, *words: str) -> str:
        done = program.command(self.folder, *words, settings=self.env())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def copilot(self, *words: str) -> str:
        url = f"{self._api.url}/v1"
        offline = {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": url, "COPILOT_PROVIDER_API_KEY": "none"}
        return self._run("copilot", *words, env={**offline, "COPILOT_MODEL": "played", "COPILOT_AUTO_UPDATE": "false"})

    def cline(self, *words: str) -> str:
        return self._run("cline", *words)

    def cline_has_a_model(self) -> None:
        url = f"{self._api.url}/v1"
        self.cline("auth", "openai-compatible", "--apikey", "none", "--modelid", "played", "--baseurl", url)

    def _run(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            [install.program(name), *words],
            cwd=self.clone.folder,
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(RUN_SECONDS),
            check=False,
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def rows(self, question: str, **values: object) -> list[dict[str, object]]:
        return program.rows(EmbeddedPostgres(self.server.data_dir).url, question, **values)


@pytest.fixture
def desk(folder: Path) -> Generator[Desk]:
    model = ChatModel()
    server = Program(folder, "server", settings={})
    with fake_in_a_thread(model) as api:
        try:
            server.wait_until_ready()
            with server.http() as client:
                client.post("/v1/projects", json={"canonicalId": PROJECT}).raise_for_status()
                client.post("/v1/observations", json=REMEMBERED).raise_for_status()
            yield Desk(folder, server, api, model)
        finally:
            server.end()


def test_copilot_is_recorded_and_its_prompt_tells_what_commits_did(desk: Desk):
    desk.cmserver("connect", "copilot", "--yes")
    desk.copilot("-p", "Why are refunds slow?")
    first = desk.model.heard[-1]
    desk.clone.git("rm", "-q", "src/refunds.py")
    desk.rows("UPDATE observations SET created_at = created_at - interval '1 hour' RETURNING id")
    head = desk.clone.commit("Second", at=datetime.now(UTC).isoformat(timespec="seconds"))
    desk.model.lines = [call("bash", command="echo paid", description="Pays"), "Refunds wait in a queue."]

    desk.copilot("-p", "What is with refunds?", "--allow-all-tools")

    stored = wait_for("the end of the second session", lambda: _ended(desk, "copilot", 2))
    assert TITLE in first
    assert any("observation_search" in tool for tool in desk.model.tools)
    assert [event["prompt"] for event in stored if event["event_type"] == "user_prompt"] == [
        "Why are refunds slow?",
        "What is with refunds?",
    ]
    assert "tool_use" in {event["event_type"] for event in stored}
    assert "was removed in" in desk.model.heard[1]
    assert desk.rows("SELECT 1 FROM clones WHERE head = %(head)s", head=head)
    desk.cmserver("disconnect", "copilot", "--yes")
    assert "cmserver" not in desk.copilot("mcp", "list")


def test_cline_has_the_rules_and_looks_things_up(desk: Desk):
    desk.cmserver("connect", "cline", "--yes")
    desk.cline_has_a_model()
    desk.model.lines = [call("cmserver__observation_search", query="refunds"), "Refunds wait in a queue."]

    desk.cline("Why are refunds slow?", "--provider", "openai-compatible")

    assert "cmserver__observation_search" in desk.model.tools
    assert "Memory of earlier sessions (cmserver)" in desk.model.heard[0]
    assert TITLE not in desk.model.heard[0]
    assert TITLE in desk.model.heard[-1]


def _ended(desk: Desk, agent: str, sessions: int) -> list[dict[str, object]] | None:
    stored = desk.rows(_STORED, agent=agent)
    return stored if sum(event["event_type"] == "session_end" for event in stored) >= sessions else None
