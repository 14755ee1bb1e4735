"""The headers of an agent's own calls to the MCP server: the key, and the project where it can be told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cmserver.client.client_folder import ClientFolder
from tests.client.hook.agent import KEY, Agent
from tests.client.hook.recorder import Recorder

ONLY_THE_KEY = {"Authorization": KEY.partition(": ")[2]}


def headers(agent: Agent, folder: Path | str | None = None, *, cwd: Path | None = None, **env: str) -> Mapping[str, str]:
    """What is printed in a session of that folder, or else in that of the process."""
    process = agent.start("headers", cwd=cwd, env=env if folder is None else {**env, "CLAUDE_PROJECT_DIR": str(folder)})
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.isascii()
    return json.loads(out)


def project(said: Mapping[str, str]) -> str | None:
    """As it comes over HTTP, where each character is a byte."""
    found = said.get("X-Cmserver-Project")
    return None if found is None else found.encode("latin-1").decode()


def checkout(folder: Path, url: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    return folder


def test_the_project_is_that_of_the_folder_that_is_told(agent: Agent):
    inside = checkout(agent.home / "repo", "https://me:pw@github.com/acme/orders.git") / "src"
    inside.mkdir()

    said = headers(agent, inside)

    assert said == {**ONLY_THE_KEY, "X-Cmserver-Project": "https://github.com/acme/orders.git"}


def test_it_is_what_hooks_call_the_folder(agent: Agent):
    named = agent.home / "named"
    named.mkdir()
    (named / ".cmserver.toml").write_text('project = "Bestellungen \\"für\\" alle 注文"\n')
    for folder in (agent.work, named, checkout(agent.home / "repo", "git@github.com:acme/orders.git")):
        out, _ = agent.start("project", cwd=folder).communicate()

        assert project(headers(agent, folder)) == out.decode().removesuffix("\n")


def test_without_being_told_it_is_the_folder_of_the_process_or_of_the_session(agent: Agent):
    other = agent.home / "other"
    other.mkdir()

    assert project(headers(agent)) == str(agent.work)
    assert project(headers(agent, other)) == str(other)


def test_the_folders_of_claude_code_are_nobodys_project(agent: Agent):
    own = agent.home / ".claude"
    own.mkdir()

    assert headers(agent, cwd=own) == ONLY_THE_KEY
    assert headers(agent, CLAUDE_PLUGIN_ROOT=str(agent.work)) == ONLY_THE_KEY
    assert headers(agent, cwd=agent.work, CLAUDE_CONFIG_DIR=str(agent.work)) == ONLY_THE_KEY


@pytest.mark.parametrize("told", ["/", "${CLAUDE_PROJECT_DIR}", "work", "/nowhere/at all", "/dev/null"])
def test_where_the_project_cannot_be_told_there_is_still_the_key(agent: Agent, told: str):
    assert headers(agent, told) == ONLY_THE_KEY


def test_a_name_cannot_begin_another_header(agent: Agent):
    (agent.work / ".cmserver.toml").write_text("project = 'a\rX-Evil: b\tc\\'\n")

    assert project(headers(agent, agent.work)) == "a?X-Evil: b?c\\"


def test_a_folder_of_which_nothing_is_sent_is_not_named(agent: Agent):
    agent.configure(URL="http://127.0.0.1:1", EXCLUDE="~/work")

    assert headers(agent, agent.work) == ONLY_THE_KEY


def test_without_a_key_there_is_nothing_to_say(agent: Agent):
    (agent.folder / "authorization").unlink()

    assert headers(agent, agent.work) == {}


def test_no_program_is_started_for_a_plain_name(agent: Agent):
    agent.tools()

    assert project(headers(agent, agent.work)) == str(agent.work)


def test_the_program_beside_the_hook_says_the_same(agent: Agent):
    made = ClientFolder(agent.home / "attached", "claude-code")
    made.install({"URL": "http://127.0.0.1:1"}, ONLY_THE_KEY["Authorization"].removeprefix("Bearer "))

    out = subprocess.run(
        [made.headers], env={**os.environ, "CLAUDE_PROJECT_DIR": str(agent.work)}, capture_output=True, check=True
    ).stdout

    assert json.loads(out) == headers(agent, agent.work)


def test_a_private_session_says_so_whether_its_folder_is_told_or_not(agent: Agent):
    hidden = agent.home / "hidden"
    hidden.mkdir()
    (hidden / ".cmserver.toml").write_text("private = true\n")
    elsewhere = agent.home / "gone"

    said = [headers(agent, hidden), headers(agent, elsewhere, CMSERVER_PRIVATE="1"), headers(agent, elsewhere), headers(agent)]

    assert [one.get("X-Cmserver-Private") for one in said] == ["1", "1", None, None]


def test_so_does_the_mcp_server_that_it_starts(agent: Agent, server: Recorder):
    for env in ({"CMSERVER_PRIVATE": "1"}, {}):
        agent.start("mcp", env=env).communicate(b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}\n')

    assert [sent.headers.get("x-cmserver-private") for sent in server.sent] == ["1", None]
