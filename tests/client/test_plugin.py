"""The plugin: complete, without a key, and what `connect` installs is what the repository has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmserver import __version__
from cmserver.base.errors import Conflict
from cmserver.client import plugin
from cmserver.client.agent_files import READING_TOOLS
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import ClientFolder, build_config
from tests.house.house import ROOT

HOOKS = AGENTS["claude-code"].hooks
KEY = "cms_0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> ClientFolder:
    """A client folder with a key, and a hook that says how it was called."""
    made = ClientFolder(tmp_path / "my clients", "claude-code")
    made.install({"URL": "http://127.0.0.1:1"}, KEY)
    made.hook.write_text('#!/bin/sh\necho "$0 $1: $(cat)"\n')
    (made.path / "connection.json").write_text('{"plugin":"/somewhere"}')
    return made


def files(folder: ClientFolder, *, has_mcp: bool = True) -> dict[str, str]:
    return plugin.build_files(HOOKS, folder.path.parent, has_mcp=has_mcp)


def call(root: Path, *words: str, text: str = "{}", **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["sh", root / "plugin" / "hook", *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root / "home"), **environ},
    )
    return done.returncode, done.stdout, done.stderr


def test_what_is_installed_is_what_the_repository_has_and_where_the_client_is(folder: ClientFolder):
    made = files(folder)

    assert made.pop("plugin/clients") == f"{folder.path.parent}\n"
    tracked = subprocess.run(
        ["git", "ls-files", "plugin", plugin.MARKETPLACE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(made) == {name for name in tracked.stdout.split() if not name.startswith("plugin/evals/")}
    assert {name for name, text in made.items() if (ROOT / name).read_text(encoding="utf-8") != text} == set()
    assert KEY not in "".join(made.values())
    hooks = json.loads(made[plugin.HOOKS])["hooks"]
    assert list(hooks) == [*(hook.event for hook in HOOKS), "PreToolUse"]
    assert "plugin/.mcp.json" not in files(folder, has_mcp=False)
    assert json.loads(made["plugin/.codex-plugin/plugin.json"])["version"] == __version__


def test_its_tools_that_read_may_be_called_without_asking_and_no_others():
    (group,) = json.loads(plugin.render_hooks(HOOKS))["hooks"]["PreToolUse"]

    said = subprocess.run(["sh", "-c", group["hooks"][0]["command"]], input="{}", capture_output=True, text=True, check=True).stdout

    assert group["matcher"].split("|") == [f"mcp__plugin_cmserver_cmserver__{tool}" for tool in READING_TOOLS]
    assert json.loads(said)["hookSpecificOutput"] == {"hookEventName": "PreToolUse", "permissionDecision": "allow"}


def test_its_script_calls_the_hook_client_and_is_silent_where_the_settings_have_hooks(folder: ClientFolder, tmp_path: Path):
    market = tmp_path / "market"
    plugin.write_marketplace(market, files(folder))

    assert call(market, "Stop") == (0, f"{folder.hook} Stop: {{}}\n", "")
    (folder.path / "connection.json").write_text('{"plugin":null}')
    assert call(market, "Stop") == (0, "", "")


def test_a_clone_on_windows_has_the_line_ends_that_a_shell_takes(tmp_path: Path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitattributes").write_bytes((ROOT / ".gitattributes").read_bytes())
    names = [path.relative_to(ROOT) for path in (ROOT / "plugin").rglob("*") if path.is_file() and "evals" not in path.parts]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "other.txt").write_bytes(b"a\n")
    git = ["git", "-C", tmp_path, "-c", "core.autocrlf=true"]
    subprocess.run([*git, "add", "."], check=True, capture_output=True)
    for name in (*names, "other.txt"):
        (tmp_path / name).unlink()

    subprocess.run([*git, "checkout", "-q", "--", "."], check=True)

    assert [name for name in names if b"\r" in (tmp_path / name).read_bytes()] == []
    assert (tmp_path / "other.txt").read_bytes() == b"a\r\n"


def test_without_a_server_it_says_so_once_and_has_no_tools(tmp_path: Path):
    data = {"CLAUDE_PLUGIN_DATA": str(tmp_path / "data")}
    first = call(ROOT, "SessionStart", **data)

    assert first[0] == 0
    assert "cmserver connect claude-code --plugin" in json.loads(first[1])["systemMessage"]
    assert call(ROOT, "SessionStart", **data) == call(ROOT, "Stop", **data) == call(ROOT, "SessionStart") == (0, "", "")
    asked = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
    ]
    asked += [{"id": "a", "method": "tools/list"}, {"id": 2, "method": "ping"}]
    answers = [json.loads(line) for line in call(ROOT, "mcp", text="\n".join(map(json.dumps, asked)))[1].splitlines()]
    assert [answer["id"] for answer in answers] == [0, "a", 2]
    assert answers[0]["result"]["capabilities"] == {}
    assert answers[1]["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("server", "key", "is_made"),
    [
        ("http://127.0.0.1:1", KEY, True),
        ("https://memory.example.com/", KEY, True),
        ("http://127.0.0.1:1", "", False),
        ("file:///etc/passwd", KEY, False),
        ("http://a'\nURL='b", KEY, False),
        ("http://127.0.0.1:1", f"{KEY}\nX: y", False),
    ],
)
def test_its_settings_make_a_client_folder_of_its_own(tmp_path: Path, server: str, key: str, is_made: bool):
    data = tmp_path / "data"
    options = {"CLAUDE_PLUGIN_DATA": str(data), "CLAUDE_PLUGIN_OPTION_SERVER": server, "CLAUDE_PLUGIN_OPTION_KEY": key}

    code, _, err = call(ROOT, "Stop", **options)

    made = ClientFolder(data, "claude-code")
    assert (code, err, made.key()) == (0, "", KEY if is_made else None)
    if is_made:
        assert made.config() == build_config(AGENTS["claude-code"], {}, server.rstrip("/"), [], has_tools=True)
        assert (made.path / "authorization").stat().st_mode & 0o777 == 0o600
        assert made.hook.read_bytes() == (ROOT / "plugin" / "client" / "hook").read_bytes()
        call(ROOT, "Stop", **{**options, "CLAUDE_PLUGIN_OPTION_KEY": "cms_other"})
        assert made.key() == "cms_other"


def test_what_was_made_is_current_until_something_is_changed_and_only_that_is_removed(folder: ClientFolder, tmp_path: Path):
    market = tmp_path / "market"
    plugin.write_marketplace(market, files(folder))
    assert not plugin.is_current(market, files(folder, has_mcp=False))

    plugin.write_marketplace(market, files(folder, has_mcp=False))
    assert plugin.is_current(market, files(folder, has_mcp=False))

    (market / "plugin" / "hook").write_text("")
    assert not plugin.is_current(market, files(folder, has_mcp=False))
    (market / "plugin" / "mine.txt").write_text("mine")
    plugin.remove_marketplace(market)
    assert [path.name for path in market.rglob("*") if path.is_file()] == ["mine.txt"]
    (market / "plugin" / "mine.txt").unlink()


def test_a_clone_of_cmserver_is_not_taken_for_a_marketplace_of_connect(folder: ClientFolder, tmp_path: Path):
    clone = tmp_path / "clone"
    for name, text in {**plugin.generate_files(HOOKS, __version__), "cmserver/app.py": "x = 1\n"}.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text, encoding="utf-8")
    before = {path: path.read_bytes() for path in clone.rglob("*") if path.is_file()}

    with pytest.raises(Conflict):
        plugin.write_marketplace(clone, files(folder))
    plugin.remove_marketplace(clone)

    assert {path: path.read_bytes() for path in clone.rglob("*") if path.is_file()} == before


def test_a_mark_cannot_name_what_is_outside_of_its_folder(tmp_path: Path):
    market, mine = tmp_path / "market", tmp_path / "mine.txt"
    market.mkdir()
    mine.write_text("mine")
    (market / ".written-by-cmserver-connect").write_text(f"../mine.txt\n{mine}\n")

    plugin.remove_marketplace(market)

    assert mine.read_text() == "mine"


def test_the_mcp_server_of_the_hook_client_passes_calls_on(tmp_path: Path):
    """Against nothing that listens: the client is told so, by the id of its request."""
    made = ClientFolder(tmp_path / "clients", "claude-code")
    made.install({"URL": "http://127.0.0.1:1"}, KEY)

    done = subprocess.run(
        ["sh", made.hook, "mcp"],
        input='{"id": 7, "method": "initialize"}\nno JSON\n[]\n{"id": 8, "method": "server/discover"}\n',
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"},
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(7, -32603), (8, -32601)]
