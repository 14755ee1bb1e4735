"""Why a line is as it is: hooks of sessions and a repository's commits in, the right turn or none out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox
from tests.table import try_rows

PAY, LOCK = "src/pay.py", "with lock(ledger, timeout=30):"
FIRST, SECOND, THIRD, OTHER = ("4c1e2f3" + "a" * 33, "b" * 40, "c" * 40, "9" * 40)


class Asker:
    """Works as Claude Code does, and asks why a line is as it is."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> None:
        self.agent = Agent(client, cast, outbox)
        self.client = client
        self.headers = cast.alice.headers
        self.project = cast.alice.project.canonical_id

    async def turn(self, words: str, *edits: tuple[str, str, str], commit: str = "", reply: str = "It is done.") -> None:
        await self.agent.prompt(words)
        for path, old, new in edits:
            await self.agent.edit(path, old, new)
        if commit:
            await self.agent.run("git commit -am change", f"[main {commit[:7]}] change\n 1 file changed")
        await self.agent.stop(reply)

    async def why(self, text: str | None = LOCK, commit: str | None = None, **fields: Any) -> Any:
        body = {"projectId": self.project, "file": PAY, "text": text, "commit": commit, **fields}
        answer = await self.client.post("/v1/why", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def asked(self, text: str | None = LOCK, commit: str | None = None, **fields: Any) -> tuple[str | None, str | None]:
        """What the turn did, and what was asked in it."""
        answer = await self.why(text, commit, **fields)
        return answer["how"], answer["turn"] and answer["turn"]["prompt"]


@pytest.fixture
def asker(client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> Asker:
    return Asker(client, cast, outbox)


async def age(db: Db, days: int) -> None:
    """Let all that there is be older."""
    async with db.system() as conn:
        for statement in (
            "UPDATE agent_events SET occurred_at = occurred_at - %s::interval, received_at = received_at - %s::interval",
            "UPDATE turns SET created_at = created_at - %s::interval, ended_at = ended_at - %s::interval",
        ):
            await conn.execute(statement, (f"{days} days", f"{days} days"))


async def test_a_line_leads_to_what_was_said_when_it_was_written(asker: Asker):
    await asker.turn(
        "Lock the ledger first.", (PAY, "pass", f"    {LOCK}\n        pass"), commit=FIRST, reply="Two writers lost money."
    )
    await asker.turn("Wait longer.", (PAY, "a = 1", "a = 2"))

    answer = await asker.why(commit=FIRST)

    assert (answer["how"], answer["turn"]["prompt"]) == ("wrote", "Lock the ledger first.")
    assert "Two writers lost money." in answer["line"]
    assert [(turn["how"], "Wait longer." in turn["line"]) for turn in answer["later"]] == [("edited", True)]


async def test_the_session_s_own_line_is_found_while_its_turn_goes_on(asker: Asker):
    await asker.agent.prompt("Lock it.")
    await asker.agent.edit(PAY, "pass", LOCK)

    assert await asker.asked() == ("wrote", "Lock it.")


async def test_what_was_written_in_a_work_tree_below_the_repository_is_found_in_the_repository(asker: Asker):
    agent, tree = asker.agent, "/src/.claude/worktrees/side"
    agent.headers["X-Cmserver-Root"] = "/src"
    edit = {"file_path": f"{tree}/{PAY}", "old_string": "pass", "new_string": LOCK}
    await agent.send("SessionStart", source="startup", cwd=tree)
    await agent.send("UserPromptSubmit", prompt="Lock it.", cwd=tree)
    await agent.send("PostToolUse", tool_name="Edit", tool_use_id="t1", tool_input=edit, tool_response={}, cwd=tree)
    await agent.stop("It is done.")

    assert [await asker.asked(commit=OTHER), await asker.asked(file=f"{tree}/{PAY}")] == [("wrote", "Lock it.")] * 2
    assert await asker.asked(file=f"side/{PAY}") == (None, None)


@try_rows(
    ("text", "commit", "fields", "found"),
    [
        (LOCK, FIRST, {}, ("wrote", "Lock it.")),
        (LOCK, FIRST[:7], {}, ("wrote", "Lock it.")),
        (f"\t{LOCK}  ", None, {}, ("wrote", "Lock it.")),
        (LOCK, OTHER, {}, ("wrote", "Lock it.")),
        # A formatter came over it, or a person changed it before the agent committed it.
        ("with lock(ledger,  timeout=30) :", FIRST, {}, ("wrote", "Lock it.")),
        ("with lock(ledger,  timeout=30) :", OTHER, {}, (None, None)),
        ("with hold(other, seconds=99):", FIRST, {}, ("committed", "Commit it.")),
        ("with lock(ledger, timeout=99):", FIRST, {}, ("committed", "Commit it.")),
        ("ledger.lock()", FIRST, {}, ("committed", "Commit it.")),
        ("# ledger", FIRST, {}, ("committed", "Commit it.")),
        ("with lock(ledger, timeout=99):", OTHER, {}, (None, None)),
        # It stands in the file elsewhere, too: the agent's may be that one.
        (LOCK, FIRST, {"occurrences": 2}, ("wrote", "Lock it.")),
        (LOCK, OTHER, {"occurrences": 2}, (None, None)),
        (LOCK, None, {"occurrences": 2}, (None, None)),
        ("", FIRST, {}, ("committed", "Commit it.")),
        (" \t", FIRST, {}, ("committed", "Commit it.")),
        ("", OTHER, {}, (None, None)),
        # It edited what the commit has, and another turn made it, of which nothing is known.
        ("other = 1", THIRD, {"file": "src/by_hand.py"}, (None, None)),
        # What the turn edited, but did not put in.
        ("def pay():", OTHER, {}, (None, None)),
        ("}", OTHER, {}, (None, None)),
        (LOCK, OTHER, {"file": "src/queue.py"}, (None, None)),
        (LOCK, None, {"file": "src/queue.py", "otherPaths": ["/src/src/pay.py"]}, ("wrote", "Lock it.")),
        (LOCK, OTHER, {"file": "src/new.py", "otherPaths": [PAY]}, ("wrote", "Lock it.")),
        (None, FIRST, {}, ("wrote", "Lock it.")),
        (None, FIRST, {"file": "src/made.py"}, ("committed", "Commit it.")),
        (None, OTHER, {}, (None, None)),
        (LOCK, OTHER, {"writtenAtEpoch": 1_767_225_600_000}, (None, None)),
        (LOCK, FIRST, {"file": "%_'; \u202e\x1b[31m"}, ("committed", "Commit it.")),
    ],
)
async def test_which_turn_wrote_it(
    client: httpx.AsyncClient,
    cast: Cast,
    outbox: Outbox,
    text: str | None,
    commit: str | None,
    fields: dict[str, Any],
    found: tuple[str | None, str | None],
):
    asker = Asker(client, cast, outbox)
    async with outbox.db.system() as conn:
        is_new = await (await conn.execute("SELECT FROM turns LIMIT 1")).fetchone() is None
    if is_new:
        await asker.turn("Lock it.", (PAY, "def pay():\n    pass", f"def pay():\n    {LOCK}\n        pass\n}}"))
        await asker.turn("Commit it.", commit=FIRST)
        await asker.turn("Now the queue.", ("src/queue.py", "a = 1", "a = 2"), commit=SECOND)
        await asker.turn("By hand.", ("src/by_hand.py", "a = 1", "a = 2"), commit=THIRD)
        async with outbox.db.system() as conn:
            await conn.execute("DELETE FROM turn_traces WHERE kind = 'commit' AND commit = %s", (THIRD[:7],))

    assert await asker.asked(text, commit, **fields) == found


async def test_of_two_turns_that_wrote_the_same_line_the_commit_says_which(asker: Asker, db: Db):
    await asker.turn("Lock it.", (PAY, "pass", LOCK), commit=FIRST)
    await asker.turn("No lock.", (PAY, LOCK, "pass"))
    await age(db, 10)
    (then,) = (await asker.why(commit=FIRST))["later"]
    await asker.turn("Lock it again.", (PAY, "pass", f"{LOCK}\n    pass"), commit=SECOND)

    assert (await asker.asked(commit=FIRST), await asker.asked(commit=SECOND)) == (
        ("wrote", "Lock it."),
        ("wrote", "Lock it again."),
    )
    by_time = [await asker.asked(commit=OTHER, occurrences=1, writtenAtEpoch=at) for at in (then["createdAtEpoch"], None)]
    assert by_time == [("wrote", "Lock it."), ("wrote", "Lock it again.")]
    assert (then["how"], "No lock." in then["line"]) == ("changed", True)


@try_rows(
    ("commit", "fields", "found"),
    [
        (FIRST, {"occurrences": 2}, ("committed", "Log it.")),
        (FIRST, {}, ("committed", "Log it.")),
        (FIRST, {"occurrences": 1}, ("wrote", "Log it.")),
        (None, {}, (None, None)),
    ],
)
async def test_of_two_turns_that_wrote_it_at_two_places_none_is_named(
    client: httpx.AsyncClient,
    cast: Cast,
    outbox: Outbox,
    commit: str | None,
    fields: dict[str, Any],
    found: tuple[str | None, str | None],
):
    asker = Asker(client, cast, outbox)
    async with outbox.db.system() as conn:
        is_new = await (await conn.execute("SELECT FROM turns LIMIT 1")).fetchone() is None
    if is_new:
        await asker.turn("Return when closed.", (PAY, "x", "if closed:\n    release(ledger)"))
        await asker.turn("Log it.", (PAY, "y", "log()\nrelease(ledger)"), commit=FIRST)

    assert await asker.asked("release(ledger)", commit, **fields) == found


@try_rows(
    ("call", "commit", "found"),
    [
        ({"type": "update"}, OTHER, (None, None)),
        ({"type": "update"}, FIRST, ("wrote", "Write it.")),
        ({"type": "create", "originalFile": None}, OTHER, ("wrote", "Write it.")),
        ({"type": "update", "originalFile": "a = 1\n"}, OTHER, ("wrote", "Write it.")),
        ({"type": "update", "originalFile": f"{LOCK}\n"}, FIRST, ("committed", "Write it.")),
        (f"cat > {PAY} <<'EOF'\n{LOCK}\nEOF", OTHER, (None, None)),
        (f"cat > {PAY} <<'EOF'\n{LOCK}\nEOF", FIRST, ("wrote", "Write it.")),
        (f"cat >> {PAY} <<'EOF'\n{LOCK}\nEOF", OTHER, ("wrote", "Write it.")),
    ],
)
async def test_a_file_that_is_written_whole_has_lines_of_others(
    client: httpx.AsyncClient,
    cast: Cast,
    outbox: Outbox,
    call: dict[str, object] | str,
    commit: str,
    found: tuple[str | None, str | None],
):
    asker = Asker(client, cast, outbox)
    asker.agent.session = f"s-{call}"
    async with outbox.db.system() as conn:
        await conn.execute("DELETE FROM turns")
        await conn.execute("DELETE FROM agent_events")
    await asker.agent.prompt("Write it.")
    if isinstance(call, str):
        await asker.agent.run(call, "")
    else:
        path = f"/src/{PAY}"
        given = {"file_path": path, "content": f"{LOCK}\n    pass\n"}
        no_patch: list[object] = []
        answer: dict[str, object] = {"filePath": path, "structuredPatch": no_patch, **call}
        await asker.agent.send("PostToolUse", tool_name="Write", tool_use_id=str(call), tool_input=given, tool_response=answer)
    await asker.agent.run("git commit -am change", f"[main {FIRST[:7]}] change\n 1 file changed")
    await asker.agent.stop("It is done.")

    assert await asker.asked(commit=commit) == found


async def test_the_time_of_a_commit_that_was_taken_over_is_known(asker: Asker):
    sent = {"hash": OTHER, "subject": "Lock it", "authoredAtEpoch": 1_767_225_600_000, "files": [PAY]}
    await asker.client.post("/v1/history", json={"projectId": asker.project, "commits": [sent]}, headers=asker.headers)
    await asker.turn("Lock it.", (PAY, "pass", LOCK))

    assert await asker.asked(commit=OTHER) == (None, None)
    assert await asker.asked(commit=SECOND) == ("wrote", "Lock it.")


async def test_a_commit_that_was_taken_over_is_named(asker: Asker):
    sent = {"hash": OTHER, "subject": "Lock it", "authoredAtEpoch": 1_767_225_600_000, "files": [PAY]}
    answer = await asker.client.post("/v1/history", json={"projectId": asker.project, "commits": [sent]}, headers=asker.headers)
    assert answer.status_code == 200, answer.text

    answer = await asker.why(commit=OTHER)

    assert (answer["how"], answer["turn"], answer["line"], answer["later"]) == (None, None, "", [])
    shown = await asker.client.get(f"/v1/observations/{answer['history']}", headers=asker.headers)
    assert shown.json()["observation"]["title"] == "Lock it"


async def test_another_project_and_another_team_know_nothing_of_it(asker: Asker, cast: Cast, db: Db):
    await asker.turn("Lock it.", (PAY, "pass", LOCK), commit=FIRST)
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    question = {"file": PAY, "text": LOCK, "commit": FIRST}

    answers = [
        await asker.client.post("/v1/why", json={**question, **named}, headers=person.headers)
        for person, named in ((other, {}), (cast.charlie, {"projectId": asker.project}))
    ]
    foreign = await asker.client.post("/v1/why", json={**question, "projectId": asker.project}, headers=other.headers)

    assert [(answer.status_code, answer.json()["turn"]) for answer in answers] == [(200, None)] * 2
    assert foreign.status_code == 404


@try_rows(
    ("fields", "path"),
    [
        ({"text": None}, "$.text"),
        ({"commit": "4c1e2f"}, "$.commit"),
        ({"commit": "HEAD; rm"}, "$.commit"),
        ({"commit": "a" * 65}, "$.commit"),
        ({"text": "a" * 2_001}, "$.text"),
        ({"text": "a\0"}, "$.text"),
        ({"file": ""}, "$.file"),
        ({"file": "a" * 4_097}, "$.file"),
        ({"otherPaths": ["a"] * 6}, "$.otherPaths"),
        ({"writtenAtEpoch": 10**17}, "$.writtenAtEpoch"),
        ({"occurrences": 0}, "$.occurrences"),
        ({"line": 3}, "$.line"),
    ],
)
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, cast: Cast, fields: dict[str, Any], path: str):
    body = {"projectId": cast.alice.project.canonical_id, "file": PAY, "text": LOCK, **fields}

    answer = await client.post("/v1/why", json=body, headers=cast.alice.headers)

    assert answer.status_code == 400
    assert answer.json()["issues"][0]["path"] in {path, "$"}


async def test_what_is_read_is_audited_as_turns_are(asker: Asker, db: Db):
    await asker.turn("Lock it.", (PAY, "pass", LOCK))

    await asker.why()

    async with db.system() as conn:
        counted = await (await conn.execute("SELECT details FROM audit_log WHERE action = 'prompts.served'")).fetchall()
    assert len(counted) == 1
