"""What turns of before did is noted afterwards as it is at a turn's end, of events that are still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.generation import trace_old_turns as tracing
from cmserver.generation.trace_old_turns import trace_old_turns
from cmserver.ops.transfer.jsonl import JsonlSource
from tests.conftest import Cast, make_team, mint
from tests.generation import test_turns
from tests.generation.test_turns import Agent
from tests.ops.transfers import export, take
from tests.rows import rows

agent = test_turns.agent

MARK = """
    INSERT INTO untraced_turns (turn_id, team_id, project_id)
    SELECT t.id, t.team_id, t.project_id FROM turns t WHERE t.prompt_number IS NOT NULL
     ORDER BY max(t.created_at) OVER (PARTITION BY t.project_id) DESC, t.project_id, t.created_at, t.number
        ON CONFLICT (turn_id) DO NOTHING
"""
"""Those that nobody has traced, in the order of the queue."""
LEDGER = "SELECT to_jsonb(l) - 'recorded_at' AS noted FROM turn_ledger l ORDER BY earlier_id, kind, name, token"
"""But for when it was noted."""
Rows = dict[str, list[dict[str, Any]]]


async def play(agent: Agent) -> None:
    """Two sessions: one edits, fails, commits and takes something back; the other one moves the file, changes it and passes."""
    agent.session = "first"
    await agent.prompt("raise the limit of rows")
    await agent.edit("rows.py", "MAX_ROWS = 500\n", "MAX_ROWS = 2000\n")
    await agent.run("npm test", "FAIL src/a.test.ts > adds\n Tests  1 failed (1)", failed=True)
    await agent.run("git commit -am limit", "[main 3f9c2ab] limit")
    await agent.stop("I set MAX_ROWS to 2000, and one test fails.")
    await agent.prompt("and the other limit")
    await agent.edit("cells.py", "MAX_CELLS = 10\n", "MAX_CELLS = 77\n")
    await agent.stop("I set MAX_CELLS to 77.")
    await agent.prompt("no, not that one")
    await agent.run("git checkout -- cells.py", "")
    await agent.stop("It is as it was.")
    agent.session = "second"
    await agent.prompt("name it after what it is, with less")
    await agent.run("git mv rows.py limits.py", "")
    await agent.edit("limits.py", "MAX_ROWS = 2000\n", "MAX_ROWS = 900\n")
    await agent.run("npm test", " Tests  1 passed (1)")
    await agent.stop("MAX_ROWS is 900 in limits.py.")
    await agent.prompt("a new file of rows")
    await agent.edit("rows.py", "", "PAGE_ROWS = 31\n")
    await agent.stop("I made rows.py.")


async def noted(db: Db) -> Rows:
    """All that is noted of turns, and what is recorded."""
    return {
        "traces": await rows(db, "SELECT * FROM turn_traces ORDER BY turn_id, kind, name"),
        "ledger": await rows(db, LEDGER),
        "turns": await rows(db, "SELECT * FROM turns ORDER BY team_id, number"),
        "observations": await rows(db, "SELECT * FROM observations ORDER BY team_id, number"),
    }


async def make_old(db: Db) -> None:
    """As if the turns had ended before there was a ledger."""
    await rows(db, "DELETE FROM turn_ledger")
    await rows(db, "DELETE FROM turn_traces")
    await rows(db, "UPDATE turns SET files = '{}', checks = '{}', commits = '{}'")
    await rows(db, MARK)


async def trace(db: Db) -> None:
    while await trace_old_turns(db):
        pass
    assert await rows(db, "SELECT * FROM untraced_turns") == []


async def test_an_old_database_gets_what_it_would_have_had(db: Db, agent: Agent, cast: Cast):
    await play(agent)
    agent.headers = {**cast.charlie.headers, "X-Cmserver-Project": cast.charlie.project.canonical_id}
    await play(agent)
    live = await noted(db)
    agent.session = "third"
    told = await agent.send("SessionStart", source="startup")
    assert "(changed in #" in str(told)
    assert "(passes since #" in str(told)
    assert {row["name"] for row in live["traces"]} == {"limits.py", "rows.py", "cells.py", "npm", "3f9c2ab"}

    await make_old(db)
    agent.session = "fourth"
    assert "(changed in #" not in str(await agent.send("SessionStart", source="startup"))
    await trace(db)

    assert await noted(db) == live
    agent.session = "fifth"
    assert await agent.send("SessionStart", source="startup") == told


async def test_what_was_broken_off_or_is_done_again_gives_the_same(db: Db, agent: Agent, monkeypatch: pytest.MonkeyPatch):
    await play(agent)
    live = await noted(db)
    await make_old(db)
    add_work = tracing.add_work
    calls: list[object] = []

    async def break_off(*args: Any, **options: Any) -> None:
        await add_work(*args, **options)
        calls.append(args)
        if len(calls) % 2:
            raise Unavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(tracing, "add_work", break_off)
        for _ in range(5):
            with pytest.raises(Unavailable):
                await trace_old_turns(db)
        await trace(db)
    assert await noted(db) == live
    await rows(db, "INSERT INTO untraced_turns (turn_id, team_id, project_id) SELECT id, team_id, project_id FROM turns")
    await trace(db)

    assert await noted(db) == live


async def test_a_turn_that_cannot_be_noted_stands_in_nobodys_way(db: Db, agent: Agent, monkeypatch: pytest.MonkeyPatch):
    await play(agent)
    live = await noted(db)
    await make_old(db)
    add_work = tracing.add_work

    async def refuse_cells(*args: Any, **options: Any) -> None:
        if "cells.py" in args[4].files:
            raise ValueError("cells")
        await add_work(*args, **options)

    monkeypatch.setattr(tracing, "add_work", refuse_cells)
    await trace(db)

    assert (await noted(db))["traces"] == [row for row in live["traces"] if row["name"] != "cells.py"]


async def test_without_payloads_the_words_are_left(db: Db, agent: Agent):
    await play(agent)
    await make_old(db)
    await rows(db, "UPDATE agent_events SET payload = 'null', payload_purged_at = now()")
    before = await noted(db)
    agent.session = "third"

    await trace(db)

    assert await noted(db) == before
    assert before["traces"] == []
    told = str(await agent.send("SessionStart", source="startup"))
    assert "I set MAX_ROWS to 2000" in told
    assert "(changed in #" not in told


async def test_what_still_waits_for_a_worker_is_noted_by_it_alone(db: Db, agent: Agent):
    await agent.prompt("raise the limit of rows")
    await agent.edit("rows.py", "MAX_ROWS = 500\n", "MAX_ROWS = 2000\n")
    await rows(db, MARK)

    await trace(db)
    assert (await noted(db))["traces"] == []
    await agent.stop("I set MAX_ROWS to 2000.")
    live = await noted(db)
    assert [row["name"] for row in live["traces"]] == ["rows.py"]
    await rows(db, "INSERT INTO untraced_turns (turn_id, team_id, project_id) SELECT id, team_id, project_id FROM turns")
    await trace(db)

    assert await noted(db) == live


async def test_imported_turns_are_noted_of_imported_events(db: Db, agent: Agent, cast: Cast, database: str, tmp_path: Path):
    await play(agent)
    exported = await export(database, cast.alice.team_id, tmp_path / "team.jsonl")
    principal = (await mint(db, await make_team(db, "guests"), "ops", scopes=["*"]))[0]
    await take(db, principal, JsonlSource(exported), tmp_path)

    await trace(db)

    of_turns = "SELECT x.team_id, t.number, x.kind, x.name, x.{} AS said FROM {} x JOIN turns t ON t.id = x.{}"
    for said in (of_turns.format("put_in", "turn_traces", "turn_id"), of_turns.format("token", "turn_ledger", "earlier_id")):
        found = await rows(db, said)
        own, imported = (
            sorted((row["number"], row["kind"], row["name"], row["said"]) for row in found if row["team_id"] == team_id)
            for team_id in (cast.alice.team_id, principal.team_id)
        )
        assert own == imported != []
