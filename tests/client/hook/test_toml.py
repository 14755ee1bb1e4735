"""A `.cmserver.toml` that is not understood lets nothing through, and its writer is told; what is understood counts."""

from __future__ import annotations

import pytest

from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder
from tests.client.hook.test_folders import build

MISREAD = {
    "no quotes": "project = acme",
    "below a table": '[cmserver]\nproject = "acme"',
    "another case": 'Project = "acme"',
    "shouted": "ENABLED = false",
    "YAML": "project: acme",
    "enabled below a table": "[cmserver]\nenabled = false",
    "a dotted key": 'cmserver.project = "acme"',
    "a table of that name": '[project]\nname = "acme"',
    "tables of that name": '[[ project ]]\nname = "acme"',
    "a part of it": 'project.name = "acme"',
    "an escape": 'project = "a\\u00e9b"',
    "no end": 'project = "acme',
    "other quotes at its end": "project = 'acme\"",
    "more behind it": 'project = "acme" "other"',
    "a number": "project = 5",
    "a list": 'project = ["acme"]',
    "three quotes": 'project = """acme"""',
    "enabled in quotes": 'enabled = "false"',
    "enabled in words": "enabled = no",
    "enabled as a number": "enabled = 0",
    "enabled as Python has it": "enabled = False",
    "nothing": "enabled =",
    "said twice": "enabled = false\nenabled = true",
    "JSON": '{"enabled": false}',
    "prose": "do not record this",
    "another value that is none": "owner = me\nenabled = false",
    "a table without its end": "[cmserver\nenabled = false",
    "hidden by a text without an end": 'notes = """\nenabled = false',
    "hidden by a long line": "enabled = false" + " " * 2000 + "# it",
    "hidden by blanks": "enabled" + " " * 50 + "= false",
    "a name that is too long": f'project = "{"a" * 600}"',
    "private in quotes": 'private = "true"',
    "private below a table": "[cmserver]\nprivate = true",
    "private, shouted": "Private = true",
    "private twice": "private = true\nprivate = true",
    "far below": "# \n" * 4001 + "enabled = false",
}
READ = {
    "plain": ('project = "acme"', "acme"),
    "in other quotes, with a remark": ("project='a # b' # ours\r", "a # b"),
    "escaped": ('project = "a \\"b\\" \\\\c"', 'a "b" \\c'),
    "beside others": (
        'owner = "x"\nsince = 2026-01-01\nlist = [\n  "project = x",\n]\n"project" = "acme"\n[other]\nkey = {a = 1}',
        "acme",
    ),
    "behind a text": ("notes = '''\nenabled = false\n'''\nproject = 'acme'", "acme"),
    "after a mark and remarks": ("\ufeff# ours\n\n   \t\nproject = 'acme'", "acme"),
    "private, too": ("private = true # mine\nproject = 'acme'", "acme"),
    "only on": ("enabled = true # yes", None),
    "empty": (" \n# nothing\n", None),
}


def test_what_is_not_understood_lets_nothing_through_and_is_told(agent: Agent, server: Recorder):
    wrong: list[tuple[str, object]] = []
    for number, (why, text) in enumerate(MISREAD.items()):
        build(agent.home, {f"{number}/.git/HEAD": "ref: refs/heads/main\n", f"{number}/.cmserver.toml": text})
        told = agent.hook("PostToolUse", cwd=agent.home / f"{number}", env={"CLAUDE_CODE_SESSION_ID": f"s{number}"})
        if f"{number}/.cmserver.toml is not understood" not in str(told.get("systemMessage")):
            wrong.append((why, told))

    assert wrong == []
    assert (server.sent, agent.left.waiting) == ([], 0)


def test_it_is_told_once_in_a_session_and_mended_at_once(agent: Agent, server: Recorder):
    build(agent.home, {"repo/.cmserver.toml": "project = acme"})
    place = agent.home / "repo"

    told = [agent.hook(event, cwd=place) for event in ("SessionStart", "PostToolUse", "Stop")]
    build(agent.home, {"repo/.cmserver.toml": "project = 'acme'"})
    agent.hook("Stop", {"number": 1}, cwd=place)

    assert ["systemMessage" in answer for answer in told] == [True, False, False]
    assert "line 1, project is one text in quotes" in str(told[0]["systemMessage"])
    assert [sent.headers["x-cmserver-project"] for sent in server.sent] == ["acme"]


def test_what_is_understood_counts(agent: Agent, server: Recorder):
    for number, (text, _) in enumerate(READ.values()):
        build(agent.home, {f"{number}/.git/HEAD": "ref: refs/heads/main\n", f"{number}/.cmserver.toml": text})
        agent.hook("Stop", {"number": number}, cwd=agent.home / f"{number}")

    named = {sent.payload["number"]: sent.headers.get("x-cmserver-project") for sent in server.sent}
    assert [(why, named.get(number, "not sent")) for number, why in enumerate(READ)] == [
        (why, name) for why, (_, name) in READ.items()
    ]


def test_one_that_is_not_understood_counts_from_above_too(agent: Agent, server: Recorder):
    build(agent.home, {"a/.cmserver.toml": "project = acme", "a/b/.cmserver.toml": "project = 'b'", "a/b/c/": ""})

    agent.hook("Stop", cwd=agent.home / "a/b/c")

    assert server.sent == []


def test_a_key_that_means_nothing_is_named_at_the_start_of_a_session(agent: Agent, server: Recorder):
    build(agent.home, {"repo/.cmserver.toml": "projct = 'acme'\nother = 1"})

    start, later = agent.hook("SessionStart", cwd=agent.home / "repo"), agent.hook("Stop", cwd=agent.home / "repo")

    assert "has the key projct" in str(start.pop("systemMessage"))
    assert start == later == {"answer": True}
    assert len(server.sent) == 2


@pytest.mark.parametrize("words", [("project",), ("recall", "search", "x")])
def test_nothing_is_read_for_a_project_that_is_not_known(agent: Agent, server: Recorder, words: tuple[str, ...]):
    build(agent.home, {"work/.cmserver.toml": "project = acme"})
    process = agent.start(*words)
    out, err = process.communicate()

    assert out.strip() == b""
    assert words == ("project",) or b"is not understood" in err
    assert server.sent == []
