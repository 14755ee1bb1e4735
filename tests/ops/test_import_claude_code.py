"""A folder of Claude Code, taken over: transcripts as sessions and turns, notes as observations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.ops import repository as ops
from cmserver.ops.transfer.claude_code import ClaudeCodeSource
from cmserver.ops.transfer.model import ImportReport, ObservationLine, RefusedLine
from cmserver.ops.transfer.pipeline import Importer
from tests.conftest import Cast
from tests.table import try_rows

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
SESSION = "fb927459-ad56-45c4-b02a-57879f789c4e"
FORK = "fc000000-ad56-45c4-b02a-57879f789c4e"
SUMMARY = (
    "This session is being continued from a previous conversation that ran out of context. The conversation is summarized below:\n"
    "Analysis:\nTwo requests.\n\nSummary:\n1. Primary Request and Intent:\n   Bound the cache of invoices.\n"
)
NOTE = """---
name: commit-style
description: How commits are worded here
metadata:
  type: feedback
---
Write commits in the imperative. **Why:** the changelog is made of them.
"""


def entry(kind: str, content: object, second: int, uuid: str, **fields: object) -> Mapping[str, object]:
    common = {"sessionId": SESSION, "isSidechain": False, "cwd": "/gone/orders", "version": "2.1.330"}
    message = {"role": kind, "content": content}
    return {**common, "type": kind, "uuid": uuid, "timestamp": f"2026-01-01T00:00:{second:02}.000Z", "message": message, **fields}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def use(name: str, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": fields}


ENTRIES = [
    {"type": "mode", "mode": "default", "sessionId": SESSION},
    entry("user", "<local-command-caveat>Caveat</local-command-caveat>", 0, "u0", isMeta=True),
    entry("user", "<command-name>/clear</command-name>", 1, "u1"),
    entry("user", "<ide_opened_file>src/cache.py</ide_opened_file>\nBound the cache.", 2, "u2"),
    entry("assistant", [{"type": "thinking", "thinking": "hm"}, text("I look first.")], 3, "a1"),
    entry("assistant", [use("Edit", file_path="/gone/orders/src/cache.py", old_string="a", new_string="b")], 4, "a2"),
    entry("user", [{"type": "tool_result", "tool_use_id": "toolu_Edit", "content": "ok"}], 5, "u3"),
    entry("assistant", [text("A sub-agent's words.")], 6, "a3", isSidechain=True),
    entry("assistant", [text("The cache holds 100 orders.")], 7, "a4"),
    {"type": "ai-title", "aiTitle": "Bound the cache", "sessionId": SESSION},
    entry("user", SUMMARY, 8, "u4", isCompactSummary=True),
    entry("user", [text(f"The key is {SECRET}."), text("Use it.")], 9, "u5"),
]


def write(folder: Path, session: str, entries: list[Mapping[str, object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(line) for line in entries]
    (folder / f"{session}.jsonl").write_text("\n".join([*lines, '{"type":"user","mess']))


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "-gone-orders"
    write(folder, SESSION, ENTRIES)
    write(folder, "agent-1234", [entry("user", "Look for caches.", 3, "s1")])
    memory = folder / "memory"
    memory.mkdir()
    (memory / "commit_style.md").write_text(NOTE)
    (memory / "MEMORY.md").write_text("# Memory\n\n- [Commit style](commit_style.md) - how commits are worded\n")
    (memory / "debugging.md").write_text("# Debugging the worker\n\nIts log is in /var/log/worker.\n")
    other = tmp_path / "projects" / "-nowhere-else" / "memory"
    other.mkdir(parents=True)
    (other / "lost.md").write_text("Whose is this?")
    return tmp_path


async def take(db: Db, cast: Cast, folder: Path) -> ImportReport:
    return await Importer(db, cast.alice.principal, ClaudeCodeSource(folder), journal=folder / "none").run(lambda _done: None)


async def test_turns_summaries_and_notes_are_found_shown_and_counted(
    client: httpx.AsyncClient, cast: Cast, db: Db, claude: Path, database: str
):
    report = await take(db, cast, claude)

    assert report.taken == {"project": 1, "session": 1, "prompt": 2, "observation": 3}
    assert [refusal.record for refusal in report.examples] == ["observation"]
    with psycopg.connect(database) as conn:
        turns = conn.execute("SELECT prompt, reply, files, prompt_number FROM turns ORDER BY prompt_number").fetchall()
        assert turns[0] == ("Bound the cache.", "The cache holds 100 orders.", ["src/cache.py"], 2)
        assert (turns[1][1:], SECRET in turns[1][0]) == ((None, [], 3), False)
        session = conn.execute("SELECT title, external_session_id, ended_at - started_at FROM server_sessions").fetchone()
        assert session is not None
        assert (session[0], session[1], session[2].total_seconds()) == ("Bound the cache", SESSION, 9)
    headers = cast.alice.headers
    listed = (await client.get("/v1/observations", params={"project": "/gone/orders"}, headers=headers)).json()["observations"]
    rows = {row["title"]: row for row in listed}
    rule = "Write commits in the imperative."
    assert rows.keys() == {rule, "Debugging the worker", "Bound the cache"}
    assert (rows[rule]["type"], rows[rule]["callerType"]) == ("decision", "feedback")
    assert rows["Bound the cache"]["narrative"] is None
    assert "Analysis" not in rows["Bound the cache"]["content"]
    body = {"projectId": "/gone/orders", "query": "where is the log of the worker"}
    found = (await client.post("/v1/search", json=body, headers=headers)).json()
    assert found["observations"][0]["title"] == "Debugging the worker"
    index = await client.get("/v1/context", params={"project": "/gone/orders", "format": "text"}, headers=headers)
    assert f"decision {rule}" in index.text
    async with db.system() as conn:
        assert all(team.holds for team in [*await ops.CONSERVATION.all(conn), *await ops.NUMBER_SUMS.all(conn)])


@try_rows(
    "body, title",
    [
        ("1. Never push to main.\n2. Never force-push to a branch of others.", "Never push to main."),
        ("- Never push to main\n- Or force", "Never push to main"),
        ("> Never push\n> to main.", "Never push to main."),
        ("```sh\n# push to the main branch\ngit push\n```\n\nAsk before you run this.", "Ask before you run this."),
        ("Use short names, e.g. `db`", "Use short names, e.g. `db`"),
        (
            "Never run the migration script against the\nproduction database without a backup. It broke.",
            "Never run the migration script against the production database without a backup.",
        ),
        ("No. Never force-push.", "No. Never force-push."),
        ("The user said:\n- never force-push\n- ask first", "How pushes go"),
        ("**Why:** the last one broke production.", "How pushes go"),
        ("OK.", "How pushes go"),
        ("# Never force-push\n\nIt broke twice, and took a day.", "Never force-push"),
        ("# Pushes\n\nNever force-push to main.\n## Why it is so\nIt broke.", "Never force-push to main."),
    ],
)
def test_an_instruction_is_told_by_its_rule(tmp_path: Path, body: str, title: str):
    memory = tmp_path / "projects" / "-gone-orders" / "memory"
    memory.mkdir(parents=True, exist_ok=True)
    write(memory.parent, SESSION, ENTRIES)
    (memory / "pushes.md").write_text(f"---\nname: pushes\ndescription: How pushes go\ntype: feedback\n---\n{body}\n")

    (note,) = [line for line in ClaudeCodeSource(tmp_path).lines() if isinstance(line, tuple) and line[0].endswith("pushes.md")]

    assert isinstance(note[1], ObservationLine)
    assert note[1].title == title


@try_rows(
    "fields, body, title",
    [
        ("", "# Pushes\n\nOK.", "Pushes"),
        ("name: pushes-of-others\n", "OK.", "pushes-of-others"),
    ],
)
def test_without_rule_and_description_it_is_its_heading_or_name(tmp_path: Path, fields: str, body: str, title: str):
    memory = tmp_path / "projects" / "-gone-orders" / "memory"
    memory.mkdir(parents=True, exist_ok=True)
    write(memory.parent, SESSION, ENTRIES)
    (memory / "pushes.md").write_text(f"---\n{fields}type: feedback\n---\n{body}\n")

    (note,) = [line for line in ClaudeCodeSource(tmp_path).lines() if isinstance(line, tuple) and line[0].endswith("pushes.md")]

    assert isinstance(note[1], ObservationLine)
    assert note[1].title == title


def test_a_note_of_another_type_is_told_by_what_it_says_and_keeps_its_name(tmp_path: Path):
    memory = tmp_path / "projects" / "-gone-orders" / "memory"
    memory.mkdir(parents=True)
    write(memory.parent, SESSION, ENTRIES)
    said = "Deploy only from CI, never from a laptop"
    (memory / "deploys.md").write_text(f"---\nname: deploys\ndescription: {said}\ntype: project\n---\nThe keys are there.\n")

    (note,) = [line for line in ClaudeCodeSource(tmp_path).lines() if isinstance(line, tuple) and line[0].endswith("deploys.md")]

    assert isinstance(note[1], ObservationLine)
    assert (note[1].title, note[1].subtitle, note[1].type) == (said, "deploys", "discovery")


async def test_a_later_run_takes_only_what_is_new(cast: Cast, db: Db, claude: Path, database: str):
    await take(db, cast, claude)
    again = await take(db, cast, claude)
    folder = claude / "projects" / "-gone-orders"
    later = [entry("assistant", [text("Done.")], 10, "a5"), entry("user", "And the invoices?", 11, "u6")]
    write(folder, SESSION, [*ENTRIES, *later])
    write(folder, FORK, [*ENTRIES, entry("user", "Try it otherwise.", 12, "u7")])
    (folder / "memory" / "debugging.md").write_text("# Debugging the worker\n\nIts log is in /var/log/cms.\n")
    grown = await take(db, cast, claude)

    assert again.taken == {}
    assert again.known == {"project": 1, "session": 1, "prompt": 2, "observation": 3}
    assert grown.taken == {"session": 1, "prompt": 2, "observation": 1}
    assert "prompt" not in grown.refused
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM turns WHERE prompt LIKE 'Bound%'").fetchone() == (1,)


async def test_a_session_that_hooks_reported_keeps_its_own_turns(
    client: httpx.AsyncClient, cast: Cast, db: Db, claude: Path, database: str
):
    hook = {"session_id": SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "Bound the cache.", "cwd": "/gone/orders"}
    headers = {**cast.alice.headers, "X-Cmserver-Project": "/gone/orders"}
    (await client.post("/v1/hooks/claude-code", json=hook, headers=headers)).raise_for_status()

    report = await take(db, cast, claude)

    assert (report.known["session"], report.known["prompt"]) == (1, 2)
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM server_sessions").fetchone() == (1,)
        assert conn.execute("SELECT count(*) FROM turns WHERE prompt = 'Bound the cache.'").fetchone() == (1,)


def test_a_folder_that_is_none_of_claude_code_is_refused(tmp_path: Path):
    with pytest.raises(Invalid):
        ClaudeCodeSource(tmp_path)


def test_neither_links_out_of_the_folder_nor_pipes_are_read(claude: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "private.md").write_text("Nobody else is to read this.")
    write(elsewhere, "0b1c2d3e-0000-4000-8000-000000000001", ENTRIES)
    project = claude / "projects" / "-gone-orders"
    (project / "memory" / "link.md").symlink_to(elsewhere / "private.md")
    (project / "memory" / "inside.md").symlink_to(project / "memory" / "debugging.md")
    (project / "linked.jsonl").symlink_to(elsewhere / "0b1c2d3e-0000-4000-8000-000000000001.jsonl")
    os.mkfifo(project / "memory" / "pipe.md")
    os.mkfifo(project / "pipe.jsonl")
    (claude / "projects" / "-elsewhere").symlink_to(elsewhere)

    lines = list(ClaudeCodeSource(claude).lines())

    refused = [Path(line.place).name for line in lines if isinstance(line, RefusedLine)]
    taken = [Path(line[0].partition(",")[0]).name for line in lines if not isinstance(line, RefusedLine)]
    outside = "0b1c2d3e-0000-4000-8000-000000000001.jsonl"
    assert sorted(refused) == sorted([outside, "link.md", "linked.jsonl", "lost.md", "pipe.jsonl", "pipe.md"])
    assert {"inside.md", "debugging.md"} <= set(taken)
    assert not {"link.md", "private.md", outside} & set(taken)


def test_a_transcript_of_which_no_line_can_be_read_is_refused_and_an_empty_one_is_nothing(claude: Path):
    folder = claude / "projects" / "-gone-orders"
    (folder / "broken.jsonl").write_text("{broken\n\x00\n")
    (folder / "empty.jsonl").write_text("")

    refused = [Path(line.place).name for line in ClaudeCodeSource(claude).lines() if isinstance(line, RefusedLine)]

    assert ("broken.jsonl" in refused, "empty.jsonl" in refused) == (True, False)


def test_a_folder_of_projects_may_be_a_link_itself(claude: Path, tmp_path_factory: pytest.TempPathFactory):
    """Whoever keeps `~/.claude/projects` on another disk has linked it; links in it lead no further."""
    before = [line for line in ClaudeCodeSource(claude).lines() if not isinstance(line, RefusedLine)]
    disk = tmp_path_factory.mktemp("disk")
    (claude / "projects").rename(disk / "projects")
    (claude / "projects").symlink_to(disk / "projects")
    (disk / "private.jsonl").write_text((disk / "projects" / "-gone-orders" / f"{SESSION}.jsonl").read_text())
    (disk / "projects" / "-gone-orders" / "linked.jsonl").symlink_to(disk / "private.jsonl")

    lines = list(ClaudeCodeSource(claude).lines())

    assert [line for line in lines if not isinstance(line, RefusedLine)] == before
    assert "linked.jsonl" in [Path(line.place).name for line in lines if isinstance(line, RefusedLine)]
