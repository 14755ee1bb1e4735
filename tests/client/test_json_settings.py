"""Our hooks go into files that belong to others, and come out again without a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmserver.client.agents import AGENTS, Agent
from cmserver.client.client_folder import ClientFolder
from cmserver.client.json_settings import (
    Json,
    UnusableSettings,
    hook_command,
    hook_group,
    install_hooks,
    parse_hook_command,
    parse_settings,
    render_diff,
    uninstall_hooks,
)
from tests.table import try_rows

FILE = Path("/home/me/.claude/settings.json")
CLAUDE_CODE = AGENTS["claude-code"]
FOLDER = ClientFolder(Path("/home/me/.config/cmserver/clients"), "claude-code")

NOTHING = "{}\n"
SMALL = '{"model": "opus", "permissions": {"allow": ["Bash(ls:*)", "Read"], "deny": []}}'
OTHERS = """\
{
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "permissions": { "allow": ["Bash(git diff:*)", "WebFetch"], "defaultMode": "plan" },
    "hooks": {
        "PostToolUse": [
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "jq -r .tool_input.file_path | xargs prettier -w"}]}
        ],
        "Stop": [{"hooks": [{"type": "command", "command": "afplay /System/Library/Sounds/Glass.aiff", "async": true}]}],
        "Notification": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:1/x"}]}]
    },
    "env": {"FOO": "b\\u00e4r", "N": 1.50, "big": 12345678901234567890}
}
"""
WITH_TABS = '{\n\t"hooks": {\n\t\t"Stop": [{"hooks": []}]\n\t},\n\t"theme": "därk"\n}'
WINDOWS = '{\r\n  "theme": "dark"\r\n}\r\n'
REAL = {"nothing": NOTHING, "small": SMALL, "others": OTHERS, "tabs": WITH_TABS, "windows": WINDOWS, "empty": "", "spaces": " \n"}


def connected(text: str | None, agent: Agent = CLAUDE_CODE) -> str:
    groups = [(hook.event, hook_group(hook_command(FOLDER.hook, hook.event), hook.timeout)) for hook in agent.hooks]
    return install_hooks(text, FILE, groups, FOLDER.is_ours)


def disconnected(text: str) -> str:
    after = uninstall_hooks(text, FILE, FOLDER.is_ours)
    assert after is not None
    return after


@try_rows("text", REAL.values(), ids=REAL)
def test_what_is_connected_and_disconnected_says_what_it_said(text: str):
    after = disconnected(connected(text))

    assert parse_settings(FILE, after) == parse_settings(FILE, text)


@try_rows("text", REAL.values(), ids=REAL)
def test_connecting_twice_is_connecting_once(text: str):
    once = connected(text)

    assert connected(once) == once


def test_everything_beside_the_hooks_stays_to_the_byte():
    after = connected(OTHERS)

    assert after.startswith(OTHERS[: OTHERS.index('"hooks"')])
    assert after.endswith(OTHERS[OTHERS.index(',\n    "env"') :])


def test_a_file_keeps_its_indent_and_its_line_ends():
    assert '\n\t\t\t{"hooks": [{"type": "command",' not in connected(SMALL)
    assert '\n\t\t\t{"hooks": [{"type": "command",' in connected(WITH_TABS)
    assert "\n" not in connected(WINDOWS).replace("\r\n", "")


def test_what_others_have_written_stays_as_it_stands_there():
    strange = '{"hooks": [\n        {"type":"command",   "command": "say done", "timeout": 1.50}\n      ]}'
    alone = '"Notification": [ {"hooks": [{"type": "http", "url": "http://127.0.0.1:1/x"}]} ]'

    after = connected(f'{{\n  "hooks": {{\n    "Stop": [\n      {strange}\n    ],\n    {alone}\n  }}\n}}\n')

    assert f"[\n      {strange},\n" in after
    assert alone in after
    assert strange in disconnected(after)
    assert alone in disconnected(after)


def test_each_hook_is_three_lines_of_what_is_shown():
    shown = render_diff(FILE, None, connected(None)).splitlines()

    assert len(shown) == 3 * len(CLAUDE_CODE.hooks) + 7


def test_a_file_that_had_no_hooks_comes_back_to_the_byte():
    assert disconnected(connected(SMALL)) == SMALL
    assert disconnected(connected(WINDOWS)) == WINDOWS


def test_others_hooks_and_their_order_stay():
    hooks = json.loads(connected(OTHERS))["hooks"]

    assert list(hooks)[:3] == ["PostToolUse", "Stop", "Notification"]
    assert [one["hooks"][0]["command"].split()[0] for one in hooks["PostToolUse"]] == ["jq", f'"{FOLDER.hook}"']


def test_an_older_hook_of_ours_is_replaced_and_one_of_no_use_taken_out():
    older = {"hooks": [{"type": "command", "command": f'"{FOLDER.hook}" Stop', "timeout": 60}]}
    other = {"type": "command", "command": "true"}
    gone = {"hooks": [{"type": "command", "command": f'"{FOLDER.hook}" PostToolBatch', "timeout": 5}, other]}

    hooks = json.loads(connected(json.dumps({"hooks": {"Stop": [older], "PostToolBatch": [gone]}})))["hooks"]

    assert hooks["Stop"] == [{"hooks": [{"type": "command", "command": f'"{FOLDER.hook}" Stop', "timeout": 5}]}]
    assert hooks["PostToolBatch"] == [{"hooks": [other]}]


@try_rows(
    "command",
    [
        "/opt/other/claude-code/hook Stop",
        '"/home/me/.config/cmserver/clients/codex/hook" Stop',
        f'"{FOLDER.hook}" Stop; rm -rf /tmp/x',
        f"{FOLDER.hook}",
        "'unclosed",
        "",
    ],
)
def test_a_command_that_only_looks_like_ours_is_left_alone(command: str):
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})

    assert disconnected(text) == text


def test_our_hook_is_known_in_a_folder_that_has_another_name(tmp_path: Path):
    elsewhere = ClientFolder(tmp_path, "claude-code")
    elsewhere.path.mkdir()
    (elsewhere.path / "connection.json").write_text("{}")

    assert FOLDER.is_ours(hook_command(elsewhere.hook, "Stop"))
    assert FOLDER.is_ours('"/home/you/.config/cmserver/clients/claude-code/hook" Stop')


@try_rows("name", ['a b"c', "$HOME", "`id`", "it's", "back\\slash", "ünï"])
def test_a_folder_may_be_called_anything(name: str):
    program = Path("/home") / name / "claude-code" / "hook"

    assert parse_hook_command(hook_command(program, "Stop")) == program


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3))
HANDLERS = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=20)})
GROUPS = st.fixed_dictionaries({"hooks": st.lists(HANDLERS, min_size=1, max_size=2)}, optional={"matcher": st.text(max_size=5)})
EVENTS = st.sampled_from(["Stop", "PreToolUse", "PostToolUse", "SessionStart", "Other"])
HOOKS = st.dictionaries(EVENTS, st.lists(GROUPS, min_size=1, max_size=3), min_size=1)


def _joined(rest: Json, hooks: Json) -> Json:
    return {**rest, **hooks}


FILES: st.SearchStrategy[Json] = st.builds(
    _joined,
    st.dictionaries(st.text(max_size=6).filter(lambda name: name != "hooks"), VALUES, max_size=4),
    st.fixed_dictionaries({}, optional={"hooks": HOOKS}),
)


@given(
    found=FILES,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    ascii_only=st.booleans(),
    agent=st.sampled_from([agent for agent in AGENTS.values() if agent.build_files is None]),
)
def test_any_settings_come_back_as_they_were(found: Json, indent: int | str | None, ascii_only: bool, agent: Agent):
    text = json.dumps(found, indent=indent, ensure_ascii=ascii_only)

    once = connected(text, agent)

    assert connected(once, agent) == once
    assert json.loads(disconnected(once)) == json.loads(text)
    assert {**json.loads(once), "hooks": None} == {**json.loads(text), "hooks": None}


@try_rows(
    ("text", "place"),
    [
        ('{\n  // mine\n  "model": "opus"\n}', "line 2, column 3"),
        ('{"a": 1,}', "line 1, column"),
        ('{"a": 1', "line 1"),
        ("[]", "JSON object"),
        ('{"a": 1, "a": 2}', '"a" twice'),
        ('{"a": NaN}', "NaN"),
        ("\ufeff{}", "line 1, column 1"),
        ('{"hooks": []}', '"hooks" is not'),
        ('{"hooks": {"Stop": {}}}', '"Stop"'),
        ("[" * 100_000, "nested too deep"),
    ],
    ids=["comment", "comma", "cut", "list", "twice", "nan", "bom", "hooks", "event", "deep"],
)
def test_what_cannot_be_kept_is_refused_with_the_place(text: str, place: str):
    with pytest.raises(UnusableSettings, match="as it is") as refused:
        connected(text)

    assert place in str(refused.value)
    assert str(FILE) in str(refused.value)


def test_the_difference_shows_no_secret_and_steers_no_terminal():
    shown = render_diff(FILE, '{"a": "cms_secret"}', '{"a": "\x1b[2Jcms_secret", "b": 1}', secrets=["cms_secret", ""])

    assert "cms_secret" not in shown
    assert "\x1b" not in shown
    assert '+{"a": "?[2J***", "b": 1}' in shown.splitlines()
