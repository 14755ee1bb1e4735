"""The memory of another program, sent over HTTP in parts: what comes in, who may, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.ops.transfer import batches
from cmserver.ops.transfer.claude_mem import ClaudeMemSource
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer
from tests.cli.conftest import Cms
from tests.conftest import Cast, bound_to, mint
from tests.ops.claude_mem_databases import make_v13
from tests.rows import rows
from tests.table import try_rows

STORED = """
    SELECT p.canonical_id, o.type, o.title, o.content, o.created_at, o.origin, o.turn_number IS NULL AS has_no_turn,
           s.title AS session,
           (SELECT count(*) FROM observation_sources x WHERE x.observation_id = o.id) AS sources
      FROM observations o JOIN projects p ON p.id = o.project_id LEFT JOIN server_sessions s ON s.id = o.server_session_id
     WHERE o.team_id = %s ORDER BY o.created_at, o.title, o.content
"""
TURNS = """
    SELECT s.external_session_id, t.prompt_number, t.prompt, t.created_at
      FROM turns t JOIN server_sessions s ON s.id = t.server_session_id
     WHERE t.team_id = %s ORDER BY t.created_at, t.prompt
"""


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return make_v13(tmp_path / "claude-mem.db", observations=12)


async def test_what_is_sent_in_parts_is_what_one_import_takes_and_again_nothing_is_taken(
    cms: Cms, db: Db, cast: Cast, memory: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = await Importer(db, cast.charlie.principal, ClaudeMemSource(memory), journal=memory.parent / "none").run(
        lambda _done: None
    )
    monkeypatch.setattr(batches, "LINES_MOST", 3)

    dry = await cms("import", "claude-mem", str(memory), "--dry-run", "--json", key=cast.alice.key)
    before = await rows(db, STORED, cast.alice.team_id)
    sent = await cms("import", "claude-mem", str(memory), "--json", key=cast.alice.key)
    again = await cms("import", "claude-mem", str(memory), "--json", key=cast.alice.key)

    assert before == []
    assert sent.read(ImportReport).taken == whole.taken == dry.read(ImportReport).taken
    assert (again.read(ImportReport).taken, again.read(ImportReport).known) == ({}, whole.taken)
    for question in (STORED, TURNS):
        of_alice, of_charlie = [await rows(db, question, one.team_id) for one in (cast.alice, cast.charlie)]
        assert of_alice == of_charlie != []


async def test_a_key_without_a_scope_is_told_which(cms: Cms, db: Db, cast: Cast, memory: Path):
    scopes = ["events:write", "sessions:write", "observations:write", "observations:read"]
    for missing in scopes[:3]:
        _, key = await mint(db, cast.alice.team_id, "bob", scopes=[scope for scope in scopes if scope != missing])
        refused = await cms("import", "claude-mem", str(memory), key=key)
        assert (refused.code != 0, f"the scope {missing}" in refused.err) == (True, True), refused
    assert await rows(db, STORED, cast.alice.team_id) == []
    _, key = await mint(db, cast.alice.team_id, "bob", scopes=scopes)

    taken = await cms("import", "claude-mem", str(memory), key=key)

    assert taken.code == 0, taken.err


async def test_a_key_of_a_project_imports_nothing(client: httpx.AsyncClient, db: Db, cast: Cast):
    bound = await bound_to(db, cast.alice, "billing")

    refused = await client.post("/v1/import", json={"source": "claude-mem"}, headers={"Authorization": f"Bearer {bound.key}"})

    assert refused.status_code == 403


def line(record: str, **fields: object) -> dict[str, object]:
    return {"place": f"a {record}", "line": {"record": record, "id": str(uuid4()), **fields}}


@try_rows(
    ("given", "reason"),
    [
        (line("entity", project_id=str(uuid4())), "entity"),
        (line("version"), "version"),
        (line("observation"), "project_id"),
        (line("project", canonical_id="x", name="x", created_at="yesterday"), "created_at"),
        (line("session", project_id=str(uuid4()), started_at="2026-01-01T00:00:00Z"), "Its project is not in the source"),
    ],
)
async def test_a_line_that_cannot_be_taken_is_refused_with_its_place(
    given: dict[str, object], reason: str, client: httpx.AsyncClient, cast: Cast
):
    answer = await client.post("/v1/import", json={"source": "claude-mem", "lines": [given]}, headers=cast.alice.headers)

    (example,) = answer.json()["examples"]
    assert (answer.status_code, answer.json()["taken"], example["place"]) == (200, {}, given["place"])
    assert reason in example["reason"]


async def test_a_line_chooses_no_settings_and_names_nothing_of_another_team(client: httpx.AsyncClient, db: Db, cast: Cast):
    at = "2026-01-01T00:00:00Z"
    project = line(
        "project", canonical_id="toys", name="Toys", created_at=at, retention={"eventsDays": 1}, isolated=True, aliases=["y"]
    )
    foreign = str(cast.charlie.project.id)
    lines: list[dict[str, Any]] = [project, line("session", project_id=foreign, started_at=at)]

    answer = await client.post(
        "/v1/import", json={"source": "claude-mem", "lines": lines, "isLast": True}, headers=cast.alice.headers
    )

    assert answer.json()["taken"] == {"project": 1}
    assert await rows(db, "SELECT retention, isolated FROM projects WHERE canonical_id = 'toys'") == [
        {"retention": {}, "isolated": False}
    ]
    assert json.dumps(answer.json()["refused"]) == '{"session": 1}'
