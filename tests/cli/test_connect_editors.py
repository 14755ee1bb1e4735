"""`cmserver connect` of the programs that have several files: their MCP server, their rules, and their hooks if they have any."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs

from cmserver.access.api.keys import key_state
from cmserver.access.wire import KeysOut
from cmserver.base.db import Db
from cmserver.base.own_command import build_launcher_command
from cmserver.base.settings import Settings
from cmserver.cli.exit_codes import ExitCode
from cmserver.client.agents import AGENTS, RULES
from cmserver.client.hook_key import SCOPES
from cmserver.client.json_settings import Json
from tests.cli.attaching import everything, folder, mode
from tests.cli.conftest import URL, Cms, Run
from tests.conftest import Cast, mint

CONFIG = ".config"
MCP = {
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "antigravity": (".gemini/config/mcp_config.json", "mcpServers"),
    "claude-desktop": (f"{CONFIG}/Claude/claude_desktop_config.json", "mcpServers"),
    "vscode": (f"{CONFIG}/Code/User/mcp.json", "servers"),
    "opencode": (f"{CONFIG}/opencode/opencode.json", "mcp"),
    "kilo": (f"{CONFIG}/kilo/kilo.json", "mcp"),
    "copilot": (".copilot/mcp-config.json", "mcpServers"),
    "cline": (".cline/data/settings/cline_mcp_settings.json", "mcpServers"),
}
MORE = {
    "cursor": [".cursor/hooks.json"],
    "windsurf": [".codeium/windsurf/memories/global_rules.md"],
    "antigravity": [".gemini/GEMINI.md"],
    "claude-desktop": [],
    "vscode": [".copilot/instructions/cmserver.instructions.md"],
    "opencode": [f"{CONFIG}/opencode/plugins/cmserver.js"],
    "kilo": [f"{CONFIG}/kilo/plugins/cmserver.js"],
    "copilot": [".copilot/hooks/cmserver.json", ".copilot/copilot-instructions.md"],
    "cline": [".cline/rules/cmserver.md"],
}
EACH = pytest.mark.parametrize("agent", MCP)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Of a server that knows its name, so that its MCP server answers."""
    return structs.replace(settings, allowed_hosts="cmserver")


def mcp_file(home: Path, agent: str) -> Path:
    return home / MCP[agent][0]


def entry(home: Path, agent: str) -> Json:
    servers = cast("dict[str, Json]", json.loads(mcp_file(home, agent).read_text())[MCP[agent][1]])
    return servers["cmserver"]


def agent_files(home: Path, agent: str) -> dict[str, tuple[bytes, int]]:
    """All files but those of the client folder and backups."""
    clients = str(folder(home, agent).path)
    return {name: kept for name, kept in everything(home).items() if not name.startswith(clients) and "backup" not in name}


def with_others(home: Path, agent: str) -> dict[Path, str]:
    """Files in which others have written before: as text, by path."""
    texts = {mcp_file(home, agent): f'{{\n   "theme":"dark",\n   "{MCP[agent][1]}": {{"other": {{"command":"x"}} }}\n}}'}
    if agent == "cursor":
        texts[home / MORE[agent][0]] = '{"version": 1, "hooks": {"stop": [ {"command": "say done"} ]}}\n'
    if agent in {"windsurf", "antigravity", "copilot"}:
        texts[home / MORE[agent][-1]] = "Always answer in French."
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return texts


def test_these_are_all_programs_with_several_files():
    assert sorted(MCP) == sorted(agent.name for agent in AGENTS.values() if agent.build_files is not None)


@EACH
async def test_the_bridge_is_its_mcp_server_and_the_key_stands_in_one_file_only(
    run: Run, cms: Cms, cast: Cast, home: Path, agent: str
):
    said = await run("connect", agent, "--yes")

    command = build_launcher_command("mcp", "--agent", agent)
    found = entry(home, agent)
    words = found["command"] if agent in {"opencode", "kilo"} else [found["command"], *cast_list(found["args"])]
    there = folder(home, agent)
    key = there.key() or ""
    holding = [path for path, (content, _) in everything(home).items() if key.encode() in content]
    assert said.code == 0, said.err
    assert words == [*command, "--folder", "${workspaceFolder}"] if agent in {"cursor", "vscode"} else words == command
    assert (holding, mode(there.path / "authorization")) == ([str(there.path / "authorization")], 0o600)
    assert there.config()["URL"] == URL
    assert there.config()["TOOLS"] == "mcp"
    assert all((home / name).exists() for name in MORE[agent])


def cast_list(value: object) -> list[object]:
    return cast("list[object]", value)


@EACH
async def test_its_key_may_do_no_more_than_it_needs(run: Run, cms: Cms, cast: Cast, home: Path, db: Db, agent: str):
    needed = SCOPES if AGENTS[agent].records else ("observations:read",)
    _, enough = await mint(db, cast.alice.team_id, "alice", scopes=list(needed))
    _, too_little = await mint(db, cast.alice.team_id, "alice", scopes=["jobs:read"])

    refused = await run("connect", agent, "--yes", key=too_little)
    said = await run("connect", agent, "--yes", key=enough)

    assert (refused.code, "does not have" in refused.err) == (ExitCode.FAILURE, True)
    assert (said.code, folder(home, agent).key()) == (0, enough)


@EACH
async def test_a_second_time_changes_nothing(run: Run, home: Path, agent: str):
    with_others(home, agent)
    await run("connect", agent, "--yes")
    before = everything(home)

    said = await run("connect", agent)

    assert "Nothing to change" in said.out
    assert everything(home) == before


@EACH
async def test_a_dry_run_shows_each_file_and_writes_none(run: Run, home: Path, agent: str):
    with_others(home, agent)
    before = everything(home)

    said = await run("connect", agent, "--dry-run")

    assert said.code == 0
    assert all(str(home / name) in said.out for name in (MCP[agent][0], *MORE[agent]))
    assert "--agent" in said.out
    assert everything(home) == before


@EACH
async def test_what_others_have_written_comes_back_byte_for_byte(run: Run, cms: Cms, cast: Cast, home: Path, agent: str):
    with_others(home, agent)
    before = agent_files(home, agent)
    await run("connect", agent, "--yes")
    assert json.loads(mcp_file(home, agent).read_text())["theme"] == "dark"

    said = await run("disconnect", agent, "--yes")

    states = [
        key_state(key) for key in (await cms("keys", "list", "--json", key=cast.alice.key)).read(KeysOut).keys if agent in key.name
    ]
    assert "is disconnected" in said.out
    assert agent_files(home, agent) == before
    assert sorted(states) == ["expired", "revoked"]
    assert not folder(home, agent).path.exists()
    assert "is not connected" in (await run("disconnect", agent, "--yes")).out


@EACH
async def test_files_that_were_not_there_are_gone_again(run: Run, home: Path, agent: str):
    await run("connect", agent, "--yes")
    await run("connect", agent, "--yes", "--allow-writing")

    await run("disconnect", agent, "--yes")

    assert agent_files(home, agent) == {}


@EACH
async def test_a_dry_run_of_disconnect_changes_nothing(run: Run, home: Path, agent: str):
    await run("connect", agent, "--yes")
    before = everything(home)

    said = await run("disconnect", agent, "--dry-run")

    assert '"cmserver"' in said.out
    assert everything(home) == before


@EACH
@pytest.mark.parametrize(
    "text", ['{\n  // mine\n  "a": 1\n}', '{"SERVERS": []}', '{"SERVERS": {"cmserver": {"url": "http://x/mcp"}}}']
)
async def test_a_file_that_cannot_be_edited_is_named_and_stays(run: Run, cms: Cms, cast: Cast, home: Path, agent: str, text: str):
    file = mcp_file(home, agent)
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("SERVERS", MCP[agent][1]))
    before = everything(home)

    said = await run("connect", agent, "--yes")

    assert (said.code, str(file) in said.err) == (ExitCode.FAILURE, True)
    assert everything(home) == before
    assert agent not in (await cms("keys", "list", key=cast.alice.key)).out


@pytest.mark.parametrize("agent", ["vscode", "opencode", "kilo", "cline"])
async def test_a_foreign_file_in_our_place_stays(run: Run, home: Path, agent: str):
    file = home / MORE[agent][-1]
    file.parent.mkdir(parents=True)
    file.write_text("mine")

    said = await run("connect", agent, "--yes")

    assert (said.code, str(file) in said.err) == (ExitCode.FAILURE, True)
    assert list(everything(home)) == [str(file)]


async def test_cursors_hooks_call_the_hook_client_in_its_project(run: Run, home: Path):
    await run("connect", "cursor", "--yes")

    hooks = json.loads((home / ".cursor" / "hooks.json").read_text())
    there = folder(home, "cursor")
    commands = {event: entry["command"] for event, (entry,) in hooks["hooks"].items()}
    assert hooks["version"] == 1
    assert commands.pop("sessionStart") == f'"{there.hook}" SessionStart'  # the hook client knows it by this name
    assert commands == {
        event: f'"{there.hook}" {event}'
        for event in ("beforeSubmitPrompt", "postToolUse", "postToolUseFailure", "preCompact", "afterAgentResponse", "sessionEnd")
    }
    assert there.config()["FOLDER_VARIABLE"] == "CURSOR_PROJECT_DIR"


async def test_cursor_is_told_where_claude_codes_hooks_would_run_in_it_too(run: Run, home: Path):
    assert "recorded twice" not in (await run("connect", "cursor", "--yes")).out
    await run("connect", "claude-code", "--yes")

    assert "recorded twice" in (await run("connect", "cursor", "--yes")).out


@pytest.mark.parametrize("agent", ["opencode", "kilo"])
async def test_a_plugin_calls_the_hook_client_and_gives_the_rules(run: Run, home: Path, agent: str):
    await run("connect", agent, "--yes")

    lines = (home / MORE[agent][0]).read_text().splitlines()
    assert f"const HOOK = {json.dumps(str(folder(home, agent).hook))}" in lines
    assert f"const RULES = {json.dumps(RULES)}" in lines
    assert f"`cmserver disconnect {agent}`" in lines[0]


async def test_copilots_hooks_are_those_whose_payloads_are_understood(run: Run, home: Path):
    await run("connect", "copilot", "--yes")

    hooks = json.loads((home / MORE["copilot"][0]).read_text())
    there = folder(home, "copilot")
    assert hooks["version"] == 1
    assert {event: entry for event, (entry,) in hooks["hooks"].items()} == {
        event: {"command": f'"{there.hook}" {event}', "timeout": 10 if event == "SessionEnd" else 5}
        for event in (
            *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure"),
            *("SubagentStop", "PreCompact", "Stop", "SessionEnd"),
        )
    }
    assert there.config()["FOLDER_VARIABLE"] == "COPILOT_PROJECT_DIR"


async def test_copilots_files_follow_its_own_variable(run: Run, home: Path, tmp_path: Path):
    await run("connect", "copilot", "--yes", COPILOT_HOME=str(tmp_path / "moved"))

    assert {path.name for path in (tmp_path / "moved").iterdir()} == {"hooks", "mcp-config.json", "copilot-instructions.md"}
    assert not (home / ".copilot").exists()


async def test_rules_stand_below_those_of_the_user_and_for_all_files(run: Run, home: Path):
    with_others(home, "windsurf")
    await run("connect", "windsurf", "--yes")
    await run("connect", "vscode", "--yes")

    windsurf, vscode = ((home / MORE[agent][0]).read_text() for agent in ("windsurf", "vscode"))
    assert windsurf.startswith("Always answer in French.\n")
    assert RULES.strip() in windsurf
    assert vscode.startswith('---\ndescription: Memory of earlier sessions\napplyTo: "**"\n---\n')
    assert vscode.endswith(RULES)


@EACH
async def test_it_says_whether_what_it_does_is_recorded(run: Run, agent: str):
    said = await run("connect", agent, "--yes")

    assert ("not recorded" in said.out) is not AGENTS[agent].records
    assert "add the memory's tools" not in said.out


async def test_files_follow_the_users_folder_for_settings(run: Run, home: Path, tmp_path: Path):
    elsewhere = tmp_path / "config"

    for agent in ("opencode", "vscode", "claude-desktop"):
        await run("connect", agent, "--yes", XDG_CONFIG_HOME=str(elsewhere))

    assert (elsewhere / "opencode" / "opencode.json").exists()
    assert (elsewhere / "Code" / "User" / "mcp.json").exists()
    assert (elsewhere / "Claude" / "claude_desktop_config.json").exists()
    assert not (home / CONFIG).exists()


async def test_on_a_mac_desktop_programs_have_theirs_in_the_library(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))

    for agent in MCP:
        await run("connect", agent, "--yes")

    library = home / "Library" / "Application Support"
    assert (library / "Code" / "User" / "mcp.json").exists()
    assert (library / "Claude" / "claude_desktop_config.json").exists()
    assert (home / "xdg" / "opencode" / "opencode.json").exists()
    assert (home / ".cursor" / "mcp.json").exists()
