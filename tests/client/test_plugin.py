"""The plugin's folder: complete, without the key, and to Claude Code's liking."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cmserver.client import plugin
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import ClientFolder
from tests.real_agents import install
from tests.timeouts import ENOUGH_SECONDS

HOOKS = AGENTS["claude-code"].hooks
KEY = "cms_0123456789abcdef"
END = "END-0123456789abcdef0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> ClientFolder:
    """A client folder with a key, and a hook that says how it was called."""
    made = ClientFolder(tmp_path / "my clients", "claude-code")
    made.install({"URL": "http://127.0.0.1:1"}, KEY)
    made.hook.write_text('#!/bin/sh\necho "$1: $(cat)"\n')
    return made


def files(folder: ClientFolder, mcp_url: str | None = None) -> dict[str, str]:
    return plugin.build_files(HOOKS, folder.path, mcp_url=mcp_url, delimiter=END)


def test_every_hook_is_in_it_and_the_key_is_not(folder: ClientFolder):
    made = files(folder, "http://127.0.0.1:1/mcp")

    hooks = json.loads(made["cmserver/hooks/hooks.json"])["hooks"]
    assert list(hooks) == [hook.event for hook in HOOKS]
    assert hooks["Stop"] == [{"hooks": [{"type": "command", "command": '"${CLAUDE_PLUGIN_ROOT}/hook" Stop', "timeout": 5}]}]
    assert KEY not in "".join(made.values())


def test_the_skill_says_how_to_fetch_with_what_there_is(folder: ClientFolder):
    by_command = files(folder)
    by_tools = files(folder, "http://127.0.0.1:1/mcp")

    assert f'"{folder.hook}" recall search' in by_command["cmserver/skills/memory/SKILL.md"]
    said = by_tools["cmserver/skills/memory/SKILL.md"]
    assert [one for one in ("observation_search", "observation_timeline", "observation_get") if f"`{one}`" not in said] == []
    assert "@" not in by_command["cmserver/skills/memory/SKILL.md"] + by_tools["cmserver/skills/memory/SKILL.md"]
    assert "cmserver/.mcp.json" not in by_command


def test_its_script_calls_the_hook_client_and_is_silent_without_one(folder: ClientFolder, tmp_path: Path):
    plugin.write_marketplace(tmp_path / "market", files(folder))
    script = tmp_path / "market" / "cmserver" / "hook"

    def call() -> tuple[int, str, str]:
        done = subprocess.run([script, "Stop"], input="{}", capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert call() == (0, "Stop: {}\n", "")
    folder.hook.unlink()
    assert call() == (0, "", "")


def test_the_command_for_the_headers_takes_the_folder_as_text_and_never_as_a_command(tmp_path: Path):
    made = ClientFolder(tmp_path / "my $(clients)", "claude-code")
    made.install({"URL": "http://127.0.0.1:1"}, KEY)
    work = tmp_path / '$(touch oops) `touch oops` "; touch oops; "' / "'; touch oops; '"
    work.mkdir(parents=True)
    command = plugin.headers_helper(made.headers, END).replace("${CLAUDE_PROJECT_DIR}", str(work))

    said = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path, env={"PATH": "/bin:/usr/bin"}
    )

    headers = json.loads(said.stdout)
    assert headers == {"Authorization": f"Bearer {KEY}", "X-Cmserver-Project": str(work)}
    assert not list(tmp_path.rglob("oops"))


def test_what_ends_the_folder_in_that_command_is_a_secret_of_each_marketplace_and_stays(folder: ClientFolder, tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    ends = [plugin.find_delimiter(place) for place in (one, other)]
    for place, end in zip((one, other), ends, strict=True):
        plugin.write_marketplace(place, plugin.build_files(HOOKS, folder.path, mcp_url="http://127.0.0.1:1/mcp", delimiter=end))

    assert ends[0] != ends[1]
    assert [plugin.find_delimiter(place) for place in (one, other)] == ends
    assert ends[0] in json.loads((one / "cmserver" / ".mcp.json").read_text())["mcpServers"]["cmserver"]["headersHelper"]


def test_what_was_made_is_current_until_something_is_changed(folder: ClientFolder, tmp_path: Path):
    market = tmp_path / "market"
    plugin.write_marketplace(market, files(folder, "http://127.0.0.1:1/mcp"))
    assert not plugin.is_current(market, files(folder))

    plugin.write_marketplace(market, files(folder))
    assert plugin.is_current(market, files(folder))

    (market / "cmserver" / "hook").write_text("")
    assert not plugin.is_current(market, files(folder))
    plugin.remove_marketplace(market)
    assert not market.exists()


# -- with the real client


Seen = tuple[str | None, str | None]
"""The key and the project that a request came with."""


class _Mcp(BaseHTTPRequestHandler):
    """Notes the headers and refuses."""

    def do_POST(self) -> None:
        seen = (self.headers.get("Authorization"), self.headers.get("X-Cmserver-Project"))
        self.server.seen.append(seen)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self.server.asked.set()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - its caller names it

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - as its class calls it


@pytest.fixture
def mcp() -> Generator[tuple[str, list[Seen], threading.Event]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Mcp)
    seen: list[Seen] = []
    asked = threading.Event()
    server.seen, server.asked = seen, asked  # pyright: ignore[reportAttributeAccessIssue]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcp", seen, asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_claude_code_validates_installs_and_uses_it(
    folder: ClientFolder, tmp_path: Path, mcp: tuple[str, list[Seen], threading.Event]
):
    claude = install.claude()
    url, seen, _ = mcp
    market = tmp_path / "market"
    folder.install(folder.config(), KEY)  # with a hook that is one
    plugin.write_marketplace(market, files(folder, url))
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    work = tmp_path / "home" / "Bestellungen 注文"
    work.mkdir(parents=True)

    def run(*words: str) -> str:
        done = subprocess.run(
            [claude, *words],
            capture_output=True,
            text=True,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
            cwd=work,
            timeout=ENOUGH_SECONDS,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    assert "Validation passed" in run("plugin", "validate", str(market))
    assert "Validation passed" in run("plugin", "validate", str(market / "cmserver"))
    run("plugin", "marketplace", "add", str(market))
    run("plugin", "install", plugin.FULL_NAME)
    assert plugin.FULL_NAME in run("plugin", "list")
    run("mcp", "list")
    assert (f"Bearer {KEY}", str(work).encode().decode("latin-1")) in seen
    installed = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert installed == []
    run("plugin", "uninstall", plugin.FULL_NAME)
    assert plugin.FULL_NAME not in run("plugin", "list")
