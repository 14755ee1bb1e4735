"""The end of a tool use that its own hook did not tell: over HTTP, through the rules, to what is kept."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.doors.hooks import tool_ends
from cmserver.doors.hooks.tool_ends import build_tool_end, read_command_ends, read_notifications
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.providers.model import Rules
from tests.conftest import Cast
from tests.generation.tools import Outbox
from tests.rows import rows
from tests.table import try_rows

Send = Callable[..., Awaitable[None]]
COMMON = {"session_id": "s1", "cwd": "/w/orders", "prompt_id": "p1"}


def notification(tool_use_id: str, status: str, summary: str, result: str = "") -> str:
    """As Claude Code writes it."""
    lines = ["<task-notification>", "<task-id>b1</task-id>", f"<tool-use-id>{tool_use_id}</tool-use-id>"]
    lines += ["<output-file>/w/orders/b1.output</output-file>", f"<status>{status}</status>", f"<summary>{summary}</summary>"]
    return "\n".join([*lines, *([f"<result>{result}</result>"] if result else []), "</task-notification>"])


@try_rows(
    ("prompt", "ends"),
    [
        (notification("t1", "failed", 'Background command "x" failed with exit code 2'), [("t1", 2, "")]),
        (notification("t1", "completed", 'Background command "x" completed (exit code 0)'), [("t1", 0, "")]),
        (notification("t1", "failed", 'Background command "run with exit code 0" failed with exit code 3'), [("t1", 3, "")]),
        (notification("t1", "failed", 'Background command "x" failed'), [("t1", 1, "")]),
        (notification("t1", "killed", 'Background command "x" was stopped'), []),
        (notification("t1", "completed", 'Agent "look" finished', "It is <b>here</b>.\n\n</result> is a tag."), None),
        (notification("t1", "failed", 'Agent "look" failed'), [("t1", 1, "")]),
        (notification("t1", "completed", 'Agent "x" finished', "<status>failed</status>"), [("t1", 0, "<status>failed</status>")]),
        (f"{notification('t1', 'failed', 'exit code 1')}\n{notification('t2', 'completed', 'x')}", [("t1", 1, ""), ("t2", 0, "")]),
        (f"{notification('t1', 'failed', 'exit code 1')}\nand now mend it", [("t1", 1, "")]),
        (f"what is this?\n{notification('t1', 'failed', 'exit code 1')}", []),
        ("<task-notification>\n<status>failed</status>\n</task-notification>", []),
        ("<task-notification>", []),
        ("", []),
        (None, []),
    ],
)
def test_notifications_are_read(prompt: object, ends: list[tuple[str, int, str]] | None):
    read = [(end.tool_use_id, end.exit_code, end.report) for end in read_notifications(prompt)]

    assert read == (ends if ends is not None else [("t1", 0, "It is <b>here</b>.\n\n</result> is a tag.")])


class _Counting:
    """A pattern that counts what it is given to read."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.read = pattern, 0

    def match(self, text: str, place: int) -> re.Match[str] | None:
        match = self.pattern.match(text, place)
        self.read += (match.end() if match else len(text)) - place
        return match

    def findall(self, text: str) -> list[tuple[str, str]]:
        self.read += len(text)
        return self.pattern.findall(text)

    def search(self, text: str) -> re.Match[str] | None:
        self.read += len(text)
        return self.pattern.search(text)


@try_rows(
    ("part", "closing"),
    [
        ("<result>\n", "\n</task-notification>"),  # none of them is closed
        ("<task-notification>\n", ""),
        ("<task-notification>\n<status>failed</status>\n</task-notification>", ""),
        ("<status>", "</status>\n</task-notification>"),
    ],
)
def test_each_character_of_a_notification_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch, part: str, closing: str):
    prompt = f"<task-notification>\n{part * 5_000}{closing}"
    patterns = [_Counting(getattr(tool_ends, name)) for name in ("_NOTIFICATION", "_MEMBER", "_EXIT_CODE")]
    for name, pattern in zip(("_NOTIFICATION", "_MEMBER", "_EXIT_CODE"), patterns, strict=True):
        monkeypatch.setattr(tool_ends, name, pattern)

    assert read_notifications(prompt) == []
    assert sum(pattern.read for pattern in patterns) <= 3 * len(prompt)


@try_rows(
    ("value", "ends"),
    [
        ([{"tool_use_id": "c1", "exit_code": 4, "command": ["/bin/bash", "-lc", "exit 4"]}], 1),
        ([{"tool_use_id": "c1", "exit_code": 0}], 1),
        ([{"tool_use_id": "c1", "exit_code": "4"}], 0),
        ([{"tool_use_id": "c1", "exit_code": True}], 0),
        ([{"tool_use_id": "", "exit_code": 4}], 0),
        ([{"exit_code": 4}, "x", None, 7, []], 0),
        ("text", 0),
        (None, 0),
        ({"tool_use_id": "c1", "exit_code": 4}, 0),
        ([{"tool_use_id": "c1", "exit_code": 4}] * 10_000, 200),
    ],
)
def test_command_ends_of_any_shape_are_read(value: object, ends: int):
    assert len(read_command_ends(value)) == ends


@pytest.fixture
def send(client: httpx.AsyncClient, cast: Cast) -> Send:
    async def post(event: str, agent: str = "claude-code", **fields: object) -> None:
        body = {**COMMON, "hook_event_name": event, **fields}
        response = await client.post(f"/v1/hooks/{agent}", json=body, headers=cast.alice.headers)
        assert response.status_code == 200, response.text

    return post


async def _kept(db: Db, notifier: JobNotifier, cast: Cast) -> list[tuple[object, object]]:
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await (await outbox.hand(Rules())).work()
    found = await rows(db, "SELECT title, state FROM observations WHERE kind <> 'summary' ORDER BY number")
    return [(row["title"], row["state"]) for row in found]


async def test_a_background_command_that_fails_is_open_until_it_passes(send: Send, db: Db, notifier: JobNotifier, cast: Cast):
    started = {"tool_name": "Bash", "tool_response": {"stdout": "", "stderr": "", "backgroundTaskId": "b1"}}
    command = {"command": "npm test", "description": "Run the tests", "run_in_background": True}
    summary = 'Background command "Run the tests" '

    await send("UserPromptSubmit", prompt="run the tests in the background")
    await send("PostToolUse", **started, tool_input=command, tool_use_id="t1")
    await send("Stop", last_assistant_message="I started them.")
    for _ in range(2):
        await send("UserPromptSubmit", prompt=notification("t1", "failed", f"{summary}failed with exit code 1"), prompt_id="p2")
    await send("UserPromptSubmit", prompt=notification("of another session", "failed", f"{summary}failed with exit code 1"))
    failed = await _kept(db, notifier, cast)
    await send("PostToolUse", **started, tool_input=command, tool_use_id="t2")
    await send("UserPromptSubmit", prompt=notification("t2", "completed", f"{summary}completed (exit code 0)"), prompt_id="p3")
    passed = await _kept(db, notifier, cast)

    assert failed == [("`npm test` failed: exit code 1", "open")]
    assert passed[0] == ("`npm test` failed: exit code 1", "done")
    assert await rows(db, "SELECT count(*) AS n FROM agent_events WHERE event_type = 'user_prompt'") == [{"n": 1}]
    assert await rows(db, "SELECT count(*) AS n FROM turns") == [{"n": 1}]


async def test_what_an_asynchronous_agent_found_is_kept_and_what_a_session_was_not_told_is_not(
    send: Send, db: Db, notifier: JobNotifier, cast: Cast
):
    found = "The cache key lacks the tenant's id in cache/keys.py, so tenants see each other's entries."
    started = {"isAsync": True, "status": "async_launched", "agentId": "a1", "description": "find the leak", "prompt": "look"}

    await send("UserPromptSubmit", prompt="find out why the cache leaks")
    tool = {"tool_name": "Agent", "tool_input": {"description": "find the leak", "prompt": "look"}, "tool_use_id": "t1"}
    await send("PostToolUse", **tool, tool_response=started)
    await send("SubagentStop", agent_id="a1", agent_type="general-purpose", last_assistant_message=found)
    before = await _kept(db, notifier, cast)
    await send("UserPromptSubmit", prompt=notification("t1", "completed", 'Agent "find the leak" finished', found), prompt_id="p2")

    assert before == []
    assert [str(title)[:36] for title, _ in await _kept(db, notifier, cast)] == ["find the leak: The cache key lacks t"]


async def test_codex_s_commands_end_with_the_exit_codes_of_its_rollout(send: Send, db: Db, notifier: JobNotifier, cast: Cast):
    ends = [
        {"tool_use_id": "c1", "exit_code": 4, "command": ["/bin/bash", "-lc", "./check-seal.sh"]},
        {"tool_use_id": "c2", "exit_code": 0, "command": ["/bin/bash", "-lc", "ls"]},
        {"tool_use_id": "c3", "exit_code": 3, "command": ["/bin/bash", "-lc", "./long.sh"]},
        {"tool_use_id": "c4", "exit_code": 0},
    ]
    await send("UserPromptSubmit", "codex", prompt="check it")
    for number, command in enumerate(("./check-seal.sh", "ls")):
        tool = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"c{number + 1}"}
        await send("PostToolUse", "codex", **tool, tool_response="sealed\n")
    await send("Stop", "codex", last_assistant_message="Checked.", command_ends=ends)

    assert await _kept(db, notifier, cast) == [
        ("`./check-seal.sh` failed: sealed", "open"),
        ("`./long.sh` failed: exit code 3", "open"),
    ]
    stored = await rows(
        db, "SELECT source_event_id AS id, payload ? 'command_ends' AS raw FROM agent_events ORDER BY received_at, id"
    )
    assert [row["id"] for row in stored if str(row["id"]).startswith("tool_end")] == ["tool_end:c1", "tool_end:c3"]
    assert not any(row["raw"] for row in stored)


def test_an_end_without_what_began_is_nothing():
    (end,) = read_command_ends([{"tool_use_id": "c1", "exit_code": 4}])

    assert build_tool_end(end, {}, {"session_id": "s1"}) == []
