"""The real OpenCode, and Kilo, which is made of it, connected by `cmserver connect`: recorded, and told. The model is played."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.models.providers.fake.server import Asked, FakeProvider, Reply, fake_in_a_thread
from tests.process import program
from tests.process.program import Program, wait_for
from tests.real_agents import install
from tests.real_agents.coder import PROJECT, REMOTE, call, words
from tests.real_agents.messages_api import failed, is_for_the_model, streamed, text
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

RUN_SECONDS = 120.0
MODEL = "played/claude-haiku-5-5"
REMEMBERED = {
    "projectId": PROJECT,
    "type": "decision",
    "title": "Refunds are queued, never sent at once",
    "narrative": "The bank answers slowly on Mondays, so refunds wait in the table refund_queue.",
}
_STORED = """
    SELECT e.event_type, e.payload->>'tool_name' AS tool, e.payload->>'prompt' AS prompt,
           e.payload->>'last_assistant_message' AS reply
      FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id
     WHERE s.platform_source = %(agent)s ORDER BY e.id
"""


class Played:
    """A model that plays its lines to whoever offers it tools, and names a session for anybody else."""

    def __init__(self) -> None:
        self.lines: list[Reply] = []
        self.heard: list[Asked] = []
        self.others: list[Asked] = []
        """Requests without tools, such as for the session's title."""

    def __call__(self, asked: Asked) -> Reply:
        if not is_for_the_model(asked):
            return failed(404, "not_found_error", "Not found")
        if not asked.json.get("tools"):
            self.others.append(asked)
            return streamed(text("Refunds"))
        self.heard.append(asked)
        return self.lines.pop(0) if self.lines else streamed(text("All done."))


class Desk:
    """Somebody with the agent, a repository, and a cmserver that remembers something of it."""

    def __init__(self, folder: Path, agent: str, server: Program, api: FakeProvider, model: Played) -> None:
        self.folder, self.agent, self.server, self.model = folder, agent, server, model
        self.home, self.project = folder / "home", folder / "orders"
        self.config = self.home / ".config" / agent / f"{agent}.json"
        self._program = install.program(agent)
        self.config.parent.mkdir(parents=True)
        self.project.mkdir()
        options = {"baseURL": f"{api.url}/v1", "apiKey": "sk-played"}
        models = {MODEL.partition("/")[2]: {"name": "Played"}}
        provider = {"played": {"npm": "@ai-sdk/anthropic", "name": "Played", "options": options, "models": models}}
        self.config.write_text(json.dumps({"share": "disabled", "autoupdate": False, "provider": provider}, indent=2))
        for command in (["init", "--quiet", "--initial-branch=main"], ["remote", "add", "origin", REMOTE]):
            subprocess.run(["git", *command], cwd=self.project, env=self.env(), check=True, capture_output=True)

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "LC_ALL": "C.UTF-8",
            **{f"{self.agent.upper()}_DISABLE_{name}": "1" for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")},
        }

    def cmserver(self, *words: str) -> str:
        done = program.command(self.folder, *words, settings=self.env())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str) -> str:
        """What the agent's program prints, with the messages about it."""
        done = subprocess.run(
            [self._program, *words],
            cwd=self.project,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(RUN_SECONDS),
            check=False,
        )
        assert done.returncode == 0, f"{self.agent} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr


@pytest.fixture(params=["opencode", "kilo"])
def desk(folder: Path, request: pytest.FixtureRequest) -> Generator[Desk]:
    model = Played()
    server = Program(folder, "server", settings={})
    with fake_in_a_thread(model) as api:
        try:
            server.wait_until_ready()
            with server.http() as client:
                client.post("/v1/projects", json={"canonicalId": PROJECT}).raise_for_status()
                client.post("/v1/observations", json=REMEMBERED).raise_for_status()
            desk = Desk(folder, cast("str", request.param), server, api, model)
            desk.cmserver("connect", desk.agent, "--yes")
            yield desk
        finally:
            server.end()


def test_it_connects_to_our_server_and_no_longer_after_disconnecting(desk: Desk):
    listed = desk.run("mcp", "list")
    desk.cmserver("disconnect", desk.agent, "--yes")
    listed_after = desk.run("mcp", "list")

    assert "cmserver" in listed
    assert "connected" in listed
    assert "failed" not in listed
    assert "cmserver" not in listed_after
    assert not (desk.config.parent / "plugins" / "cmserver.js").exists()


def test_a_session_is_told_what_is_known_searches_it_and_is_recorded(desk: Desk):
    desk.model.lines = [
        streamed(call("cmserver_observation_search", query="refunds")),
        streamed(call("bash", command="echo paid", description="Pays")),
        streamed(call("read", filePath=str(desk.project / "missing.py"))),
        streamed(text("Refunds wait in refund_queue, since the bank is slow.")),
    ]

    desk.run("run", "--model", MODEL, "Why are refunds slow?")

    first, last = words(desk.model.heard[0]), words(desk.model.heard[-1])
    assert "<cmserver-context>" in first
    assert REMEMBERED["title"] in first
    assert "Memory of earlier sessions (cmserver)" in first
    assert last.count(REMEMBERED["title"]) > first.count(REMEMBERED["title"])  # the tool's answer
    stored = wait_for("the end of the session", lambda: _stored(desk, "session_end"))
    assert [event["event_type"] for event in stored] == [
        "session_start",
        "user_prompt",
        "tool_use",
        "tool_use_failure",
        "assistant_message",
        "session_end",
    ]
    assert stored[1]["prompt"] == "Why are refunds slow?"  # `run` puts it into quotes
    # What it asks besides, as for a title: the program may end before it does.
    assert not any("cmserver" in words(asked) for asked in desk.model.others)
    assert [event["tool"] for event in stored[2:4]] == ["bash", "read"]
    assert "refund_queue" in cast("str", stored[4]["reply"])


def _stored(desk: Desk, last: str) -> list[dict[str, object]] | None:
    stored = program.rows(EmbeddedPostgres(desk.server.data_dir).url, _STORED, agent=desk.agent)
    return stored if any(event["event_type"] == last for event in stored) else None
