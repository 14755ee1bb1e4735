"""The agent may open what its index names: `connect` writes the rule for the look-up, and `disconnect` takes it out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cmserver.client.agent_files import READING_TOOLS, AgentPlace
from cmserver.client.agents import AGENTS
from cmserver.doors.mcp.tools import TOOLS
from tests.cli.attaching import folder
from tests.cli.conftest import Run

CLAUDE = ".claude/settings.json"


def allowed(home: Path) -> list[str]:
    return json.loads((home / CLAUDE).read_text())["permissions"]["allow"]


def test_only_tools_that_read_are_allowed():
    assert set(READING_TOOLS) == {tool.name for tool in TOOLS if tool.scope == "observations:read"}


async def test_claude_code_may_read_the_memory_in_a_shell_and_by_its_tools(run: Run, home: Path):
    told = await run("connect", "claude-code", "--yes")
    again = await run("connect", "claude-code", "--dry-run")

    rules = [f"Bash({folder(home, 'claude-code').hook} recall:*)", *(f"mcp__cmserver__{tool}" for tool in READING_TOOLS)]
    assert allowed(home) == rules
    assert all(f'+      "{rule}"' in told.out for rule in rules)  # in the diff, before the question
    assert "Bash(" not in again.out


@pytest.mark.parametrize(
    "before",
    [
        {"permissions": {"allow": ["Bash(ls:*)", "mcp__cmserver__observation_add"], "deny": ["Read(.env)"]}},
        {"permissions": {"defaultMode": "plan"}},
        {"model": "haiku"},
        {"permissions": {"allow": ["Bash(/old/place/clients/claude-code/hook recall:*)"]}},
    ],
    ids=["rules", "other permissions", "no permissions", "an older place"],
)
async def test_what_the_user_allowed_stays(run: Run, home: Path, before: dict[str, object]):
    (home / ".claude").mkdir()
    (home / CLAUDE).write_text(json.dumps(before, indent=4))

    await run("connect", "claude-code", "--yes")
    connected = allowed(home)
    await run("disconnect", "claude-code", "--yes")

    assert connected.count(f"Bash({folder(home, 'claude-code').hook} recall:*)") == 1
    assert len([rule for rule in connected if "recall" in rule]) == 1
    left = json.loads((home / CLAUDE).read_text())
    assert left == ({"permissions": {"allow": []}} if "/old/" in str(before) else before)


@pytest.mark.parametrize(
    ("agent", "file"), [("codex", ".codex/rules/cmserver.rules"), ("gemini", ".gemini/policies/cmserver.toml")]
)
async def test_rules_in_a_file_of_ours_come_and_go(run: Run, home: Path, agent: str, file: str):
    told = await run("connect", agent, "--yes")
    text = (home / file).read_text()
    second = await run("connect", agent, "--settings", str(home / "project.json"), "--yes")
    await run("disconnect", agent, "--settings", str(home / "project.json"), "--yes")
    is_there = (home / file).exists()
    await run("disconnect", agent, "--yes", "--purge")

    assert (told.code, second.code) == (0, 0), told.out + second.out
    assert f"{folder(home, agent).hook}" in text
    assert text.count("allow") == (1 if agent == "codex" else 2)
    assert "observation_add" not in text
    assert is_there
    assert not (home / file).exists()
    if agent == "gemini":
        shell, tools = tomllib.loads(text)["rule"]
        assert (shell["commandPrefix"], shell["decision"]) == (f"{folder(home, agent).hook} recall ", "allow")
        assert (tools["mcpName"], tools["toolName"]) == ("cmserver", list(READING_TOOLS))


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ({}, None),
        ({"permission": "ask"}, None),
        ({"permission": {"*": "ask"}}, dict.fromkeys(READING_TOOLS, "allow")),
        (
            {"permission": {"cmserver_observation_get": "deny"}},
            {tool: "allow" for tool in READING_TOOLS if tool != "observation_get"},
        ),
        ({"permission": {"bash": {"*": "ask"}}}, dict.fromkeys(READING_TOOLS, "allow")),
    ],
    ids=["no rules", "one for all", "rules", "one of ours", "rules for the shell"],
)
def test_opencode_gets_rules_only_where_there_are_some(before: dict[str, object], added: dict[str, str] | None):
    hook = Path("/home/me/clients/opencode/hook")
    place = AgentPlace(
        name="opencode",
        environ={},
        home=Path("/home/me"),
        platform="linux",
        hook=hook,
        hooks=(),
        is_our_hook=lambda _: False,
        mcp_command=("cmserver", "mcp", "--agent", "opencode"),
    )
    config = AGENTS["opencode"].files(place)[0]

    installed = config.install(json.dumps(before))
    removed = config.uninstall(installed.text, installed.made)

    permission = json.loads(installed.text or "").get("permission")
    if added is None:
        assert permission == before.get("permission")
    else:
        assert {name.removeprefix("cmserver_"): rule for name, rule in permission.items() if rule == "allow"} == added
    if "bash" in (permission or {}):
        assert permission["bash"] == {"*": "ask", f"{hook} recall *": "allow"}
    assert config.install(installed.text).text == installed.text
    assert json.loads(removed or "") == before
