"""An agent that can be connected is known wherever else agents are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmserver.client.agents import AGENTS, RULES, Agent
from cmserver.doors.hooks.api import ADAPTERS
from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.read import read_tool_use
from tests.table import try_rows

RECORDED = pytest.mark.parametrize("agent", [agent for agent in AGENTS.values() if agent.records], ids=lambda agent: agent.name)


@RECORDED
def test_the_server_takes_its_hooks(agent: Agent):
    assert ADAPTERS[agent.name].platform == agent.name


@RECORDED
def test_the_server_gives_its_model_context_where_the_client_counts_on_it(agent: Agent):
    adapter = ADAPTERS[agent.name]

    assert {agent.prompt_event} - {""} <= set(adapter.context_hooks)
    assert agent.starts_with_prompt == adapter.starts_with_prompt


@RECORDED
def test_reading_memory_with_its_hook_client_is_no_news(agent: Agent):
    command = f"/home/me/.config/cmserver/clients/{agent.name}/hook recall 12"

    assert reads_own_memory(read_tool_use("Bash", {"command": command}))


def test_the_documentation_shows_the_rules_as_they_are():
    page = Path(__file__).parents[2] / "docs" / "howto" / "attach-editors.md"

    assert RULES.strip() in page.read_text()


@try_rows(
    ("name", "environ", "expected"),
    [
        ("claude-code", {}, "/home/me/.claude/settings.json"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "/x"}, "/x/settings.json"),
        ("codex", {}, "/home/me/.codex/hooks.json"),
        ("codex", {"CODEX_HOME": "/x"}, "/x/hooks.json"),
        ("gemini", {}, "/home/me/.gemini/settings.json"),
        ("gemini", {"GEMINI_CLI_HOME": "/x"}, "/x/.gemini/settings.json"),
    ],
)
def test_its_settings_are_where_it_looks_for_them(name: str, environ: dict[str, str], expected: str):
    assert AGENTS[name].settings_file(environ, Path("/home/me")) == Path(expected)
