"""The plugin in the real Claude Code, whose model is played: installed by `connect`, by its own settings, and without a server."""

from __future__ import annotations

import json
import re

import pytest

from tests.house.house import ROOT
from tests.process import program
from tests.real_agents.coder import PROJECT, uses
from tests.real_agents.desk import Desk, Sit, files_with

pytestmark = pytest.mark.slow

SEARCH, ADD = "mcp__plugin_cmserver_cmserver__observation_search", "mcp__plugin_cmserver_cmserver__observation_add"
RULE = "Refunds are queued, never sent at once"


def remember(desk: Desk) -> None:
    with desk.server.http() as client:
        client.post("/v1/projects", json={"canonicalId": PROJECT}).raise_for_status()
        client.post("/v1/observations", json={"projectId": PROJECT, "type": "decision", "title": RULE}).raise_for_status()


def test_with_connect_a_session_is_told_looks_things_up_without_asking_and_keeps_what_it_is_told_to(sit: Sit):
    desk = sit(attached=False)
    desk.cmserver("connect", "claude-code", "--plugin", "--allow-writing", "--yes")
    remember(desk)

    looks = desk.coder.session("How are refunds sent?", uses("ToolSearch", query=f"select:{SEARCH}"), uses(SEARCH, query="refunds"))
    keeps = desk.coder.session(
        "/cmserver:remember We deploy on Tuesdays",
        uses("ToolSearch", query=f"select:{ADD}"),
        uses(ADD, title="We deploy on Tuesdays", type="decision"),
    )

    assert RULE in looks.of_the_session[0]
    assert (looks.results[-1].is_error, RULE in looks.results[-1].text) == (False, True)
    assert "We deploy on Tuesdays" in keeps.of_the_session[0]
    assert not keeps.results[-1].is_error, keeps.results[-1].text
    kept = "SELECT count(*) FROM observations WHERE title = 'We deploy on Tuesdays'"
    assert program.number(desk.database, kept) == 1
    assert files_with(desk.coder.home, desk.key) == {desk.authorization}


def test_by_itself_it_is_told_a_server_and_a_key(sit: Sit):
    desk = sit(attached=False)
    remember(desk)
    desk.coder.claude("plugin", "marketplace", "add", str(ROOT))
    key = desk.server.key
    desk.coder.claude("plugin", "install", "cmserver@cmserver", "--config", f"server={desk.address}", "--config", f"key={key}")

    asks = desk.coder.session("How are refunds sent?", uses("ToolSearch", query=f"select:{SEARCH}"), uses(SEARCH, query="refunds"))

    assert RULE in asks.of_the_session[0]
    assert (asks.results[-1].is_error, RULE in asks.results[-1].text) == (False, True)
    assert {"session_start", "user_prompt", "assistant_message"} <= {event.event_type for event in desk.stored(asks)}
    assert {(hook.exit_code, hook.outcome, hook.stderr) for hook in asks.hooks} == {(0, "success", "")}
    made = files_with(desk.coder.home, key)
    assert {path.name for path in made} == {"authorization", ".credentials.json"}
    assert {path.stat().st_mode & 0o077 for path in made} == {0}


def test_beside_hooks_in_the_settings_it_sends_nothing_twice(sit: Sit):
    desk = sit()
    desk.coder.claude("plugin", "marketplace", "add", str(ROOT))
    desk.coder.claude("plugin", "install", "cmserver@cmserver")

    session = desk.coder.session("Hello.")

    assert [event.event_type for event in desk.stored(session)] == [
        "session_start",
        "user_prompt",
        "assistant_message",
        "session_end",
    ]


def test_without_a_server_it_says_once_how_to_start_one(sit: Sit):
    desk = sit(attached=False)
    desk.coder.claude("plugin", "marketplace", "add", str(ROOT))
    desk.coder.claude("plugin", "install", "cmserver@cmserver")

    first, second = desk.coder.session("Hello."), desk.coder.session("Hello again.")

    (notice,) = first.notices
    assert "cmserver connect claude-code --plugin" in notice
    assert second.notices == []
    for session in (first, second):
        assert {(hook.exit_code, hook.outcome, hook.stderr) for hook in session.hooks} == {(0, "success", "")}


def test_it_is_as_the_directory_of_plugins_wants_it_and_costs_little(sit: Sit):
    desk = sit(attached=False)

    said = json.loads(desk.coder.claude("plugin", "validate", "--strict", "--profile", "directory", "--json", str(ROOT / "plugin")))
    desk.coder.claude("plugin", "validate", "--strict", str(ROOT))
    desk.coder.claude("plugin", "marketplace", "add", str(ROOT))
    desk.coder.claude("plugin", "install", "cmserver@cmserver")
    details = desk.coder.claude("plugin", "details", "cmserver")

    assert said["success"]
    (tokens,) = re.findall(r"Always-on: +~(\d+) tok", details)
    assert int(tokens) <= 100
