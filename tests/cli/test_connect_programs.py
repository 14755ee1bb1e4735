"""What `cmserver connect` asks of other programs: systemd and launchd, `claude plugin`, and the stock claude-mem."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from cmserver.access.api.keys import key_state
from cmserver.base.settings import Settings
from cmserver.cli import connect, service_unit, state
from cmserver.cli.exit_codes import ExitCode
from cmserver.client import hook_key, plugin
from cmserver.client.agents import AGENTS
from cmserver.client.hook_key import McpEndpoint
from tests.cli.attaching import Noted, everything, folder, hook_keys, mode, paths
from tests.cli.conftest import URL, Cms, Run
from tests.conftest import Cast
from tests.repositories import Repository
from tests.table import try_rows


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Of a server that knows its name."""
    return structs.replace(settings, allowed_hosts=getattr(request, "param", "cmserver"))


@pytest.fixture
def systemctl(home: Path, monkeypatch: pytest.MonkeyPatch) -> Noted:
    """A systemctl that only notes what it is told."""
    noted = home / "systemctl.txt"
    program = home / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\n')
    program.chmod(0o755)
    monkeypatch.setattr(service_unit.sys, "platform", "linux")
    monkeypatch.setattr(service_unit.os, "geteuid", lambda: 1000)

    def is_local(_url: str) -> bool:
        return True

    monkeypatch.setattr(connect, "is_local", is_local)
    return Noted(noted)


async def test_a_user_unit_is_written_and_enabled_when_it_is_wanted(run: Run, home: Path, systemctl: Noted, tmp_path: Path):
    state.announce(tmp_path, URL, "all", background=True)
    told = await run("connect", "claude-code", "--yes")
    assert systemctl.lines == []
    (tmp_path / "server.json").unlink()

    said = await run("connect", "claude-code", "--yes", "--start-with-machine")

    unit = home / ".config" / "systemd" / "user" / "cmserver.service"
    assert f'Environment="CMSERVER_DATA_DIR={tmp_path}"' in unit.read_text()
    assert systemctl.lines == ["--user daemon-reload", "--user enable cmserver.service", "--user restart cmserver.service"]
    assert "loginctl enable-linger" in said.out
    assert ("cmserver service install" in told.out, "cmserver service install" in said.out) == (True, False)


async def test_the_unit_waits_while_another_server_runs_and_is_the_one_of_service_install(
    run: Run, home: Path, systemctl: Noted, tmp_path: Path
):
    settings_file = tmp_path / "own.toml"
    settings_file.write_text(f'database_url = "postgresql:///elsewhere"\ndata_dir = "{tmp_path}"\n')
    state.announce(tmp_path, URL, "all", background=True)

    await run("connect", "claude-code", "--yes", "--start-with-machine", CMSERVER_CONFIG=str(settings_file))

    assert systemctl.lines == ["--user daemon-reload", "--user enable cmserver.service"]
    unit = home / ".config" / "systemd" / "user" / "cmserver.service"
    written = unit.read_text()
    assert f'"run" "--config" "{settings_file}"' in written
    await run("service", "install", "--user", CMSERVER_CONFIG=str(settings_file))
    assert unit.read_text() == written


async def test_on_a_mac_it_is_an_agent_of_launchd(run: Run, home: Path, systemctl: Noted, monkeypatch: pytest.MonkeyPatch):
    program = home / "bin" / "launchctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {systemctl.file}\n')
    program.chmod(0o755)
    monkeypatch.setattr(service_unit.sys, "platform", "darwin")

    await run("connect", "claude-code", "--yes", "--start-with-machine")

    agent = home / "Library" / "LaunchAgents" / "cmserver.plist"
    assert b"<key>RunAtLoad</key>" in agent.read_bytes()
    assert [line.split()[0] for line in systemctl.lines] == ["bootout", "bootstrap"]


# -- the plugin


@pytest.fixture
def claude(home: Path) -> Noted:
    """A claude that only notes what it is told."""
    noted = home / "claude.txt"
    program = home / "bin" / "claude"
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\n')
    program.chmod(0o755)
    return Noted(noted)


async def test_the_plugin_takes_the_place_of_the_hooks_in_the_settings_and_gives_it_back(run: Run, home: Path, claude: Noted):
    await run("connect", "claude-code", "--yes")
    marketplace = home / ".config" / "cmserver" / "marketplace"

    await run("connect", "claude-code", "--yes", "--plugin")

    settings = json.loads((home / ".claude" / "settings.json").read_text())
    assert settings.keys() == {"permissions"}
    assert settings["permissions"]["allow"] == [f"Bash({folder(home).hook} recall:*)"]
    assert (marketplace / "plugin" / "hooks" / "hooks.json").exists()
    assert claude.lines[-2:] == [f"plugin marketplace add {marketplace}", "plugin install cmserver@cmserver"]
    assert "Nothing to change" in (await run("connect", "claude-code", "--plugin")).out

    await run("connect", "claude-code", "--yes")

    assert "SessionStart" in (home / ".claude" / "settings.json").read_text()
    assert not marketplace.exists()
    assert claude.lines[-2:] == ["plugin uninstall cmserver@cmserver", "plugin marketplace remove cmserver"]


@pytest.mark.parametrize("settings", [""], indirect=True)
async def test_why_the_tools_are_left_out_is_said_where_it_can_be_mended(run: Run, home: Path, claude: Noted):
    said = await run("connect", "claude-code", "--yes", "--plugin")

    assert "The memory's tools are left out: " in said.out
    assert "CMSERVER_ALLOWED_HOSTS" in said.out
    assert "TOOLS" not in folder(home).config()


async def test_the_plugin_brings_the_mcp_server_once_there_is_one(
    run: Run, home: Path, claude: Noted, monkeypatch: pytest.MonkeyPatch
):
    async def has_none(_client: httpx.AsyncClient) -> McpEndpoint:
        return McpEndpoint(is_open=False)

    brought = home / ".config" / "cmserver" / "marketplace" / "plugin" / ".mcp.json"
    with monkeypatch.context() as before:
        before.setattr(hook_key, "_check_mcp", has_none)
        await run("connect", "claude-code", "--yes", "--plugin")
        assert not brought.exists()
        assert "TOOLS" not in folder(home).config()

    await run("connect", "claude-code", "--yes", "--plugin")

    assert list(json.loads(brought.read_text())["mcpServers"]) == ["cmserver"]
    assert folder(home).config()["TOOLS"] == "mcp"

    await run("connect", "claude-code", "--yes")

    assert "TOOLS" not in folder(home).config()


@pytest.mark.parametrize(
    ("agent", "typed"),
    [
        ("claude-code", "claude mcp add --scope user cmserver -- {program} mcp --agent claude-code"),
        ("codex", "codex mcp add cmserver -- {program} mcp --agent codex"),
        ("gemini", "gemini mcp add --scope user cmserver {program} -- mcp --agent gemini"),
    ],
    ids=["claude-code", "codex", "gemini"],
)
async def test_without_the_plugin_it_says_what_to_type_for_the_tools(run: Run, home: Path, agent: str, typed: str):
    said = await run("connect", agent, "--yes")

    program = shlex.quote(str(Path(__file__).parents[2] / "bin" / "cmserver"))
    key = folder(home, agent).key()
    assert typed.format(program=program) in said.out
    assert key is not None
    assert key not in said.out


@try_rows(
    ("config", "has_hint"),
    [
        ("", True),
        ('[plugins."cmserver@cmserver"]\nenabled = true\n', False),
        ('[plugins."cmserver@cmserver"]\nenabled = false\n', True),
        ('[plugins."other@cmserver"]\nenabled = true\n', True),
        ('[mcp_servers.cmserver]\ncommand = "x"\n', False),
    ],
)
async def test_codex_is_told_of_the_tools_where_it_has_none(config: str, has_hint: bool, run: Run, home: Path):
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(config)

    said = await run("connect", "codex", "--yes")

    assert ("codex mcp add" in said.out) == has_hint


async def test_without_claude_it_says_what_to_type(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugin, "find_claude", lambda: None)

    said = await run("connect", "claude-code", "--yes", "--plugin", str(home / "market place"))

    assert f"claude plugin marketplace add '{home / 'market place'}'" in said.out
    assert "claude plugin install cmserver@cmserver" in said.out
    said = await run("disconnect", "claude-code", "--yes")
    assert "claude plugin uninstall cmserver@cmserver" in said.out
    assert not (home / "market place").exists()


async def test_a_folder_of_others_is_no_marketplace(run: Run, cms: Cms, cast: Cast, home: Path, claude: Noted):
    (home / "mine").mkdir()
    (home / "mine" / "novel.txt").write_text("Chapter 1")

    said = await run("connect", "claude-code", "--yes", "--plugin", str(home / "mine"))

    assert said.code == ExitCode.FAILURE
    assert (home / "mine" / "novel.txt").exists()
    assert [key_state(key) for key in await hook_keys(cms, cast)] in ([], ["revoked"])


# -- claude-mem


async def test_claude_mem_is_pointed_here_and_put_back(run: Run, home: Path):
    file = home / ".claude-mem" / "settings.json"
    file.parent.mkdir()
    text = '{\n  "CLAUDE_MEM_MODEL": "haiku",\n  "CLAUDE_MEM_WORKER_PORT": "37777"\n}\n'
    file.write_text(text)
    (file.parent / "worker.pid").write_text('{"pid": 999999999}')
    here = "http://localhost:37877"

    said = await run("connect", "claude-mem", "--yes", "--server", here)

    assert json.loads(file.read_text()) == {
        "CLAUDE_MEM_MODEL": "haiku",
        "CLAUDE_MEM_WORKER_PORT": "37877",
        "CLAUDE_MEM_WORKER_HOST": "127.0.0.1",
    }
    assert "claude-mem is connected to http://localhost:37877." in said.out
    assert "CMSERVER_TRUST_LOOPBACK" in said.out
    assert "worker.pid" in said.out
    assert "Nothing to change" in (await run("connect", "claude-mem", "--server", here)).out
    await run("disconnect", "claude-mem", "--yes")
    assert file.read_text() == text


@pytest.mark.parametrize(("commits", "has_pins"), [(0, False), (1, False), (1, True)])
async def test_what_to_type_next_is_typed_as_cmserver_was_called(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, has_pins: bool
):
    repository = Repository(tmp_path / "shop")
    for _ in range(commits):
        repository.commit("Keep orders")
    if has_pins:
        repository.write(".cmserver/pins.toml", "")
    monkeypatch.chdir(repository.folder)

    said = await run("connect", "claude-code", "--yes", CMSERVER_COMMAND="../cmserver/bin/cmserver")

    shop = repository.folder
    assert (f"`../cmserver/bin/cmserver import git {shop}`" in said.out) == bool(commits)
    assert ("`../cmserver/bin/cmserver pins load`" in said.out) == has_pins


@pytest.mark.parametrize("agent", [*AGENTS, "claude-mem"])
async def test_what_connect_has_made_goes_with_it(run: Run, home: Path, agent: str):
    (home / ".codex").mkdir()  # a person's own, with nothing in it yet
    before = paths(home)
    words = ["--server", "http://localhost:37877"] if agent == "claude-mem" else []
    connected = await run("connect", agent, "--yes", *words)
    assert paths(home) != before

    said = await run("disconnect", agent, "--yes")

    assert (connected.code, said.code) == (0, 0)
    assert paths(home) == before


async def test_claude_mem_elsewhere_needs_a_key(run: Run, home: Path):
    assert (await run("connect", "claude-mem", "--yes")).code == ExitCode.USAGE
    assert (await run("connect", "claude-mem", "--yes", "--server-mode")).code == ExitCode.USAGE
    assert everything(home) == {}


@pytest.mark.parametrize("text", ["{}", '{"env": {"A": "1"}}'], ids=["flat", "below-env"])
async def test_claude_mem_in_server_mode_gets_a_key_of_its_own(run: Run, cms: Cms, cast: Cast, home: Path, text: str):
    file = home / ".claude-mem" / "settings.json"
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o644)

    said = await run("connect", "claude-mem", "--yes", "--server-mode", "--project", "github.com/acme/orders")
    again = await run("connect", "claude-mem", "--server-mode", "--project", "github.com/acme/orders")

    found = json.loads(file.read_text())
    table = found.get("env", found)
    key = folder(home, "claude-mem").key()
    assert (table["CLAUDE_MEM_RUNTIME"], table["CLAUDE_MEM_SERVER_URL"], table["CLAUDE_MEM_SERVER_API_KEY"]) == ("server", URL, key)
    assert len(table["CLAUDE_MEM_SERVER_PROJECT_ID"]) == 36
    assert mode(file) == 0o600
    assert key is not None
    assert key not in said.out + said.err
    assert "Nothing to change" in again.out
    assert (
        "cmserver disconnect claude-mem" in (await run("connect", "claude-mem", "--yes", "--server", "http://127.0.0.1:37877")).err
    )
    await run("disconnect", "claude-mem", "--yes")
    assert json.loads(file.read_text()) == json.loads(text)
    assert {key_state(key) for key in await hook_keys(cms, cast)} == {"expired", "revoked"}
