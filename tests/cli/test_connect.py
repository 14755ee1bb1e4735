"""`cmserver connect` and `disconnect`, with the real API and a home folder of their own."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path

import httpx
import msgspec
import pytest

from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.db import Db
from cmserver.cli import claude_plugin, connect, connecting, talk, with_machine
from cmserver.cli.connecting import CALLS_PER_MINUTE
from cmserver.cli.connections import AllAttached
from cmserver.cli.exits import Exit
from cmserver.cli.keys import Key, Keys
from cmserver.hooks.attach.folder import ClientFolder
from cmserver.hooks.attach.model import SCOPES, Agent
from cmserver.hooks.client import SOURCE
from tests.cli.conftest import URL, Cms, Said
from tests.conftest import Cast, mint
from tests.rows import rows

AGENTS: list[Agent] = ["claude-code", "codex", "gemini"]
FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
OTHERS = '{\n  "theme": "dark",\n  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}\n}\n'

Run = Callable[..., Coroutine[None, None, Said]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which no agent is installed, and no server."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "bin").mkdir()
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "GEMINI_CLI_HOME",
        "CLAUDE_MEM_DATA_DIR",
        "XDG_CONFIG_HOME",
        "CMSERVER_CLIENT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return folder


@pytest.fixture
def run(cms: Cms, cast: Cast, home: Path) -> Run:
    """A command as Alice, who may do everything."""

    async def call(*words: str, key: str | None = None, **environ: str | None) -> Said:
        return await cms(*words, key=cast.alice.key if key is None else key, **environ)

    return call


def folder(home: Path, agent: Agent = "claude-code") -> ClientFolder:
    return ClientFolder(home / ".config" / "cmserver" / "clients", agent)


def everything(home: Path) -> dict[str, tuple[bytes, int]]:
    """All files, with their modes."""
    return {str(path): (path.read_bytes(), path.stat().st_mode) for path in sorted(home.rglob("*")) if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def hook_keys(cms: Cms, cast: Cast) -> list[Key]:
    said = await cms("keys", "list", "--json", key=cast.alice.key)
    return [one for one in said.read(Keys).keys if one.name.startswith("Hooks of ")]


# -- connect


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_gets_hooks_and_a_key_with_the_least_scopes(run: Run, cms: Cms, cast: Cast, home: Path, agent: Agent):
    said = await run("connect", agent, "--yes")

    assert (said.code, "is connected" in said.out) == (0, True), said
    (key,) = await hook_keys(cms, cast)
    there = folder(home, agent)
    connection = there.connection()
    assert connection is not None
    assert (sorted(key.scopes), key.project_id) == (sorted(SCOPES), None)
    assert key.requests_per_minute == CALLS_PER_MINUTE
    assert connection.key_id == key.id
    assert connection.key_is_ours
    hooks = json.loads((home / FILES[agent]).read_text())["hooks"]
    commands = [handler["command"] for groups in hooks.values() for group in groups for handler in group["hooks"]]
    assert commands == [f'"{there.hook}" {event}' for event in hooks]
    assert there.hook.read_bytes() == (SOURCE / "hook.sh").read_bytes()
    assert (mode(there.path), mode(there.hook), mode(there.path / "authorization"), mode(there.path / "config")) == (
        0o700,
        0o755,
        0o600,
        0o600,
    )
    assert (there.path / "config").read_text() == f"URL='{URL}'\n"
    assert (await run("keys", "list", key=there.key())).code == Exit.NO  # it may not look after keys


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_key_stands_in_one_file_only(run: Run, home: Path, agent: Agent):
    said = await run("connect", agent, "--yes")

    key = folder(home, agent).key()
    assert key is not None
    holding = [path for path, (content, _) in everything(home).items() if key.encode() in content]
    assert holding == [str(folder(home, agent).path / "authorization")]
    assert key not in said.out + said.err


async def test_a_second_time_changes_nothing_and_makes_no_second_key(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    before = everything(home)

    said = await run("connect", "claude-code")

    assert "nothing is to be changed" in said.out
    assert everything(home) == before
    assert len(await hook_keys(cms, cast)) == 1


async def test_a_dry_run_shows_the_change_and_makes_nothing(run: Run, cms: Cms, cast: Cast, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(OTHERS)
    before = everything(home)

    said = await run("connect", "claude-code", "--dry-run", "--plugin", str(home / "market"))
    said_of_hooks = await run("connect", "claude-code", "--dry-run", "--start-with-machine")

    assert (said.code, said_of_hooks.code) == (0, 0)
    assert '+    "SessionStart": [' in said_of_hooks.out
    assert "A key is made, for every project of the team: Hooks of claude-code on " in said_of_hooks.out
    assert everything(home) == before
    assert await hook_keys(cms, cast) == []


async def test_nobody_who_can_answer_is_a_no(run: Run, cms: Cms, cast: Cast, home: Path):
    said = await run("connect", "claude-code")

    assert said.code == Exit.USAGE
    assert everything(home) == {}
    assert await hook_keys(cms, cast) == []


async def test_what_others_configured_stays_and_is_kept_beside(run: Run, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(OTHERS)
    file.chmod(0o640)

    await run("connect", "claude-code", "--yes")

    (backup,) = file.parent.glob("settings.json.cmserver-backup-*")
    assert backup.read_text() == OTHERS
    assert mode(file) == 0o640
    found = json.loads(file.read_text())
    assert found["theme"] == "dark"
    assert found["hooks"]["Stop"][0]["hooks"][0]["command"] == "say done"


async def test_a_damaged_settings_file_is_refused_before_anything_is_made(run: Run, cms: Cms, cast: Cast, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  // mine\n  "a": 1\n}')

    said = await run("connect", "claude-code", "--yes")

    assert said.code == Exit.NO
    assert "line 2, column 3" in said.err
    assert file.read_text().startswith("{\n  // mine")
    assert list(everything(home)) == [str(file)]
    assert await hook_keys(cms, cast) == []


async def test_another_settings_file_is_the_one_that_is_changed(run: Run, home: Path, tmp_path: Path):
    file = tmp_path / "orders" / ".claude" / "settings.local.json"

    await run("connect", "claude-code", "--yes", "--settings", str(file))

    assert "SessionStart" in file.read_text()
    assert not (home / ".claude").exists()


async def test_it_says_that_an_agent_seems_not_to_be_installed(run: Run, home: Path):
    assert "Codex seems not to be installed" in (await run("connect", "codex", "--yes")).err

    (home / ".gemini").mkdir()
    assert "seems not" not in (await run("connect", "gemini", "--yes")).err


async def test_the_hook_before_a_file_is_read_is_only_there_when_asked_for(run: Run, home: Path):
    def hooks() -> dict[str, list[dict[str, object]]]:
        return json.loads((home / ".claude" / "settings.json").read_text())["hooks"]

    await run("connect", "claude-code", "--yes")
    assert "PreToolUse" not in hooks()
    await run("connect", "claude-code", "--yes", "--on-file")
    assert hooks()["PreToolUse"][0]["matcher"] == "Read"
    await run("connect", "claude-code", "--yes")  # it stays as it was said
    assert "PreToolUse" in hooks()
    await run("connect", "claude-code", "--yes", "--no-on-file")
    assert "PreToolUse" not in hooks()


async def test_patterns_are_kept_until_others_are_said(run: Run, home: Path):
    await run("connect", "claude-code", "--yes", "--exclude", "~/private/*", "--exclude", "/srv")
    with (folder(home).path / "config").open("a") as file:
        file.write("SPOOL_MAX_BYTES='1000'\n")

    await run("connect", "claude-code", "--yes")
    assert folder(home).config() == {"URL": URL, "EXCLUDE": "~/private/*:/srv", "SPOOL_MAX_BYTES": "1000"}

    await run("connect", "claude-code", "--yes", "--exclude", "/other")
    assert folder(home).config() == {"URL": URL, "EXCLUDE": "/other", "SPOOL_MAX_BYTES": "1000"}


@pytest.mark.parametrize("pattern", ["a'b", "a\nb", "a:b"])
async def test_a_pattern_that_could_be_something_else_is_refused(run: Run, home: Path, pattern: str):
    assert (await run("connect", "claude-code", "--yes", "--exclude", pattern)).code == Exit.USAGE
    assert everything(home) == {}


async def test_the_clients_may_be_elsewhere(run: Run, home: Path, tmp_path: Path):
    await run("connect", "codex", "--yes", CMSERVER_CLIENT_DIR=str(tmp_path / "my clients"))

    assert (tmp_path / "my clients" / "codex" / "hook").exists()
    assert not (home / ".config").exists()
    assert (await run("connect", "codex", "--yes", CMSERVER_CLIENT_DIR="clients")).code == Exit.USAGE


async def test_an_older_hook_client_is_told_and_renewed(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    folder(home).hook.write_text("#!/bin/sh\n")
    assert "cmserver connect claude-code renews it" in (await run("connections")).err

    await run("connect", "claude-code", "--yes")

    assert folder(home).is_current()
    assert "renews" not in (await run("connections")).err


async def test_codex_says_that_hooks_must_be_trusted_and_what_keeps_them_from_running(run: Run, home: Path):
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("[features]\nhooks = false\n[[hooks.Stop]]\n")

    said = await run("connect", "codex", "--yes")

    assert "/hooks in Codex" in said.out
    assert "turns hooks off" in said.out
    assert "There are hooks in" in said.out


async def test_hooks_that_send_by_themselves_are_pointed_out(run: Run, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(
        '{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"type": "http", "url": "http://h/v1/hooks/claude-code"}]}]}}'
    )

    said = await run("connect", "claude-code", "--yes")

    assert "1 hooks that send to a cmserver by themselves" in said.out
    assert "disableAllHooks" in said.out


# -- keys


async def test_a_key_that_may_make_none_is_the_hooks_own_if_it_may_do_what_they_do(
    run: Run, cms: Cms, cast: Cast, home: Path, db: Db
):
    made, text = await mint(db, cast.alice.team_id, "alice", scopes=list(SCOPES))

    said = await run("connect", "claude-code", "--yes", key=text)

    assert "The hooks use the key that was given" in said.out
    assert folder(home).key() == text
    assert await hook_keys(cms, cast) == []
    await run("disconnect", "claude-code", "--yes")
    assert (await run("keys", "show", str(made.key_id))).out.count("active") == 1  # it was not ours to end


@pytest.mark.parametrize("lacking", SCOPES)
async def test_a_key_that_may_do_too_little_is_refused_with_what_it_lacks(run: Run, cast: Cast, home: Path, db: Db, lacking: str):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=[scope for scope in SCOPES if scope != lacking])

    said = await run("connect", "claude-code", "--yes", key=text)

    assert said.code == Exit.NO
    assert f"does not have {lacking}." in said.err
    assert everything(home) == {}


async def test_to_look_what_a_key_may_do_does_nothing(run: Run, cast: Cast, home: Path, db: Db):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=list(SCOPES), project_id=cast.alice.project.id)

    assert (await run("connect", "claude-code", "--yes", key=text)).code == 0

    assert await rows(db, "SELECT id FROM server_sessions UNION ALL SELECT id FROM agent_events") == []


async def test_a_key_that_opens_nothing_is_refused(run: Run, home: Path):
    said = await run("connect", "claude-code", "--yes", key="cms_nothing")

    assert said.code == Exit.NO
    assert everything(home) == {}


async def test_a_key_that_was_revoked_is_replaced(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    (first,) = await hook_keys(cms, cast)
    await run("keys", "revoke", first.id, "--yes")

    await run("connect", "claude-code", "--yes")

    connection = folder(home).connection()
    assert connection is not None
    assert connection.key_id not in {None, first.id}
    assert {one.state for one in await hook_keys(cms, cast)} == {"active", "revoked"}


async def test_where_no_server_was_started_it_says_how_one_is(cms: Cms, home: Path):
    said = await cms("connect", "claude-code", "--yes", CMSERVER_URL=None)

    assert (said.code, "`cmserver start`" in said.err, "--operator" in said.err) == (Exit.USAGE, True, False)
    assert everything(home) == {}


async def test_a_server_that_does_not_answer_is_a_sentence_and_nothing_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, cms: Cms
):
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))

    said = await cms("connect", "claude-code", "--yes", "--server", "http://127.0.0.1:1", key="cms_x")

    assert said.code == Exit.DATABASE
    assert everything(home) == {}


async def test_what_can_be_read_on_the_way_is_said_before_anything_is_done(run: Run):
    said = await run("connect", "claude-code", "--dry-run")

    assert "without encryption" in said.out


async def test_a_server_elsewhere_stays_the_one_until_another_is_said(run: Run, home: Path, tmp_path: Path, cast: Cast):
    await run("connect", "claude-code", "--yes")
    credentials.write(tmp_path, Credentials(url="http://127.0.0.1:1", key="cms_local", team="x"))

    said = await run("connect", "claude-code", "--yes", CMSERVER_URL=None, key="")

    assert f"connected to {URL}" in said.out
    assert "without encryption" in said.out


# -- disconnect


@pytest.mark.parametrize("agent", AGENTS)
async def test_disconnect_takes_all_of_it_away_and_nothing_else(run: Run, cms: Cms, cast: Cast, home: Path, agent: Agent):
    file = home / FILES[agent]
    file.parent.mkdir()
    file.write_text(OTHERS)
    await run("connect", agent, "--yes")

    said = await run("disconnect", agent, "--yes")

    assert "is disconnected" in said.out
    assert json.loads(file.read_text()) == json.loads(OTHERS)
    assert not folder(home, agent).path.exists()
    assert [one.state for one in await hook_keys(cms, cast)] == ["revoked"]
    assert "is not connected" in (await run("disconnect", agent, "--yes")).out


async def test_what_waits_to_be_sent_stays_unless_it_is_thrown_away(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    waiting = folder(home).path / "spool" / "1"
    waiting.parent.mkdir()
    waiting.write_text("{}")

    said = await run("disconnect", "claude-code", "--yes")
    assert "stays in" in said.out
    assert waiting.exists()
    assert folder(home).key() is None

    await run("disconnect", "claude-code", "--yes", "--purge")
    assert not folder(home).path.exists()


async def test_a_server_that_is_gone_does_not_hold_anybody(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    await run("connect", "claude-code", "--yes")
    connection = folder(home).connection()
    assert connection is not None
    over_http = talk.over_http
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    folder(home).remember(msgspec.structs.replace(connection, url="http://127.0.0.1:1"))
    assert talk.over_http is not over_http

    said = await run("disconnect", "claude-code", "--yes")

    assert (said.code, f"cmserver keys revoke {connection.key_id}" in said.err) == (0, True)
    assert not folder(home).path.exists()


async def test_one_of_two_settings_files_can_be_let_go(run: Run, cms: Cms, cast: Cast, home: Path, tmp_path: Path):
    project = tmp_path / "settings.local.json"
    await run("connect", "claude-code", "--yes")
    await run("connect", "claude-code", "--yes", "--settings", str(project))

    said = await run("disconnect", "claude-code", "--yes", "--settings", str(project))

    assert "stays connected" in said.out
    assert json.loads(project.read_text()) == {}
    assert [one.state for one in await hook_keys(cms, cast)] == ["active"]
    assert "nothing is to be changed" in (await run("connect", "claude-code", "--yes")).out


async def test_a_dry_run_of_disconnect_does_nothing(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    before = everything(home)

    said = await run("disconnect", "claude-code", "--dry-run")

    assert '-    "SessionStart": [' in said.out
    assert everything(home) == before
    assert [one.state for one in await hook_keys(cms, cast)] == ["active"]


# -- connections and status


async def test_connections_says_who_is_attached_and_what_waits(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    assert "No agent is attached" in (await run("connections")).out
    await run("connect", "claude-code", "--yes")
    spool = folder(home).path / "spool"
    spool.mkdir()
    for end in ("head", "body", "mark"):
        (spool / f"1790000000000000-0000123-ab.{end}").write_text("wait")
    (folder(home).path / "state").mkdir()
    (folder(home).path / "state" / "dropped").write_text("2\n")

    (one,) = (await run("connections", "--json")).read(AllAttached).connections
    status = await run("status")

    assert (one.agent, one.url, one.server, one.waiting, one.dropped) == ("claude-code", URL, "does not answer", 1, 2)
    assert one.settings == [str(home / ".claude" / "settings.json")]
    assert "hooks     claude-code: 1 call waiting (4 bytes, the oldest for " in status.out
    assert "2 calls dropped" in status.out


async def test_a_key_that_is_gone_is_told_and_made_anew(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    (folder(home).path / "authorization").unlink()

    gone = await run("connections")
    await run("connect", "claude-code", "--yes")

    assert "lacks its key" in gone.out
    assert "cmserver connect claude-code makes a new one" in gone.err
    assert folder(home).key() is not None


async def test_connections_says_when_claude_mem_is_not_admitted(run: Run, monkeypatch: pytest.MonkeyPatch):
    await run("connect", "claude-mem", "--yes", "--server", "http://localhost:37877")

    def refuse(*_: object, **__: object) -> httpx.Response:
        return httpx.Response(401)

    monkeypatch.setattr(httpx, "get", refuse)

    said = await run("connections")

    assert "refuses guests" in said.out
    assert "CMSERVER_TRUST_LOOPBACK" in said.err


async def test_status_says_nothing_of_hooks_when_all_is_sent(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")

    assert "hooks" not in (await run("status")).out


# -- starting with the machine


class Noted:
    """What a program that only notes it was told."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@pytest.fixture
def systemctl(home: Path, monkeypatch: pytest.MonkeyPatch) -> Noted:
    """A systemctl that only notes what it is told."""
    noted = home / "systemctl.txt"
    program = home / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\n')
    program.chmod(0o755)
    monkeypatch.setattr(with_machine.sys, "platform", "linux")
    monkeypatch.setattr(with_machine.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(with_machine, "is_a_person", lambda: False)

    def is_here(_url: str) -> bool:
        return True

    monkeypatch.setattr(connect, "is_here", is_here)
    return Noted(noted)


async def test_a_user_unit_is_written_and_enabled_when_it_is_wanted(run: Run, home: Path, systemctl: Noted, tmp_path: Path):
    await run("connect", "claude-code", "--yes")
    assert systemctl.lines == []

    said = await run("connect", "claude-code", "--yes", "--start-with-machine")

    unit = home / ".config" / "systemd" / "user" / "cmserver.service"
    assert f'Environment="CMSERVER_DATA_DIR={tmp_path}"' in unit.read_text()
    assert systemctl.lines == ["--user enable --now cmserver.service"]
    assert "loginctl enable-linger" in said.out


async def test_on_a_mac_it_is_an_agent_of_launchd(run: Run, home: Path, systemctl: Noted, monkeypatch: pytest.MonkeyPatch):
    program = home / "bin" / "launchctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {systemctl.file}\n')
    program.chmod(0o755)
    monkeypatch.setattr(with_machine.sys, "platform", "darwin")

    await run("connect", "claude-code", "--yes", "--start-with-machine")

    agent = home / "Library" / "LaunchAgents" / "cmserver.plist"
    assert b"<key>RunAtLoad</key>" in agent.read_bytes()
    assert [line.split()[0] for line in systemctl.lines] == ["bootstrap"]


async def test_as_root_no_unit_is_written(run: Run, home: Path, systemctl: Noted, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(with_machine.os, "geteuid", lambda: 0)

    said = await run("connect", "claude-code", "--yes", "--start-with-machine")

    assert "As root no unit is written" in said.out
    assert not (home / ".config" / "systemd").exists()
    assert systemctl.lines == []


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

    assert json.loads((home / ".claude" / "settings.json").read_text()) == {}
    assert (marketplace / "cmserver" / "hooks" / "hooks.json").exists()
    assert not (marketplace / "cmserver" / ".mcp.json").exists()  # this server has no such door
    assert claude.lines[-2:] == [f"plugin marketplace add {marketplace}", "plugin install cmserver@cmserver"]
    assert "nothing is to be changed" in (await run("connect", "claude-code", "--plugin")).out

    await run("connect", "claude-code", "--yes")

    assert "SessionStart" in (home / ".claude" / "settings.json").read_text()
    assert not marketplace.exists()
    assert claude.lines[-2:] == ["plugin uninstall cmserver@cmserver", "plugin marketplace remove cmserver"]


async def test_the_plugin_brings_the_mcp_server_once_there_is_one(
    run: Run, home: Path, claude: Noted, monkeypatch: pytest.MonkeyPatch
):
    await run("connect", "claude-code", "--yes", "--plugin")

    async def has_mcp(_client: httpx.AsyncClient) -> bool:
        return True

    monkeypatch.setattr(connecting, "_has_mcp", has_mcp)
    await run("connect", "claude-code", "--yes", "--plugin")

    entry = json.loads((home / ".config" / "cmserver" / "marketplace" / "cmserver" / ".mcp.json").read_text())
    there = {"type": "http", "url": f"{URL}/mcp", "headersHelper": f'"{folder(home).headers}"'}
    assert entry == {"mcpServers": {"cmserver": there}}


async def test_without_claude_it_says_what_to_type(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claude_plugin, "_claude", lambda: None)

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

    assert said.code == Exit.NO
    assert (home / "mine" / "novel.txt").exists()
    assert [one.state for one in await hook_keys(cms, cast)] in ([], ["revoked"])


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
    assert "nothing is to be changed" in (await run("connect", "claude-mem", "--server", here)).out
    await run("disconnect", "claude-mem", "--yes")
    assert file.read_text() == text


async def test_claude_mem_elsewhere_needs_a_key(run: Run, home: Path):
    assert (await run("connect", "claude-mem", "--yes")).code == Exit.USAGE
    assert (await run("connect", "claude-mem", "--yes", "--server-mode")).code == Exit.USAGE
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
    assert "nothing is to be changed" in again.out
    assert "Let it go first" in (await run("connect", "claude-mem", "--yes", "--server", "http://127.0.0.1:37877")).err
    await run("disconnect", "claude-mem", "--yes")
    assert json.loads(file.read_text()) == json.loads(text)
    assert [one.state for one in await hook_keys(cms, cast)] == ["revoked"]
