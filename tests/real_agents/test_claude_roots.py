"""The real Claude Code tells the server in which folder it works, so that a call which names no project searches the right one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models.providers.fake.server import fake_in_a_thread
from tests.process.program import Program
from tests.real_agents.coder import Coder, Model, uses
from tests.real_agents.conftest import REMEMBERED

pytestmark = pytest.mark.slow

SEARCH = "mcp__cmserver__observation_search"
ELSEWHERE = {"projectId": "billing", "title": "Refunds of the other project"}


def test_a_search_that_names_no_project_is_one_of_the_folder_that_claude_works_in(
    claude_program: Path, remembering: Program, folder: Path
):
    with remembering.http() as http:
        http.post("/v1/projects", json={"canonicalId": ELSEWHERE["projectId"]}).raise_for_status()
        http.post("/v1/observations", json=ELSEWHERE).raise_for_status()
    server = {
        "type": "http",
        "url": f"{remembering.url}/mcp",
        "headers": {"Authorization": f"Bearer {remembering.key}"},
        "alwaysLoad": True,
    }
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"cmserver": server}}))
    model = Model()

    with fake_in_a_thread(model) as api:
        coder = Coder(folder, claude_program, api, model)
        words = ("--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", SEARCH)
        here = coder.session("Look", uses(SEARCH, query="refunds"), words=words).of_the_session[-1]
        everywhere = coder.session("Look", uses(SEARCH, query="refunds", projectId="*"), words=words).of_the_session[-1]

    assert REMEMBERED["title"] in here
    assert ELSEWHERE["title"] not in here
    assert ELSEWHERE["title"] in everywhere
