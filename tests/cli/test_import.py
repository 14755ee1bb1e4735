"""The memory of another program, sent over HTTP in parts: what comes in, who may, and what is refused."""

from __future__ import annotations

import json
import threading
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
from cmserver.redaction import clean
from tests.cli.conftest import Cms
from tests.conftest import Cast, Person, bound_to, mint
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


AT = "2026-01-01T00:00:00Z"


def line(record: str, **fields: object) -> dict[str, Any]:
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


async def send(client: httpx.AsyncClient, one: Person, lines: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    given = {"source": "claude-mem", "lines": lines, "isLast": True, **more}
    answer = await client.post("/v1/import", json=given, headers=one.headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_line_chooses_no_settings_and_no_project_of_another_team(client: httpx.AsyncClient, db: Db, cast: Cast):
    project = line(
        "project", canonical_id="toys", name="Toys", created_at=AT, retention={"eventsDays": 1}, isolated=True, aliases=["y"]
    )
    foreign = str(cast.charlie.project.id)

    report = await send(client, cast.alice, [project, line("session", project_id=foreign, started_at=AT)])

    assert (report["taken"], report["refused"]) == ({"project": 1}, {"session": 1})
    assert await rows(db, "SELECT retention, isolated FROM projects WHERE canonical_id = 'toys'") == [
        {"retention": {}, "isolated": False}
    ]


async def test_a_line_names_nothing_of_another_team(client: httpx.AsyncClient, db: Db, cast: Cast):
    project = line("project", canonical_id="toys", name="Toys", created_at=AT)
    about = {"project_id": project["line"]["id"], "content": "Secret.", "created_at": AT, "updated_at": AT}
    session = line("session", project_id=project["line"]["id"], external_session_id="s", started_at=AT)
    await send(client, cast.charlie, [project, session, line("observation", **about)])
    (theirs,) = await rows(db, "SELECT id, project_id FROM observations WHERE team_id = %s", cast.charlie.team_id)
    (their_session,) = await rows(db, "SELECT id FROM server_sessions WHERE team_id = %s", cast.charlie.team_id)
    project["line"]["id"], session["line"]["id"] = str(theirs["project_id"]), str(their_session["id"])
    session["line"]["project_id"] = project["line"]["id"]
    about = {**about, "project_id": project["line"]["id"], "server_session_id": session["line"]["id"], "content": "Another."}

    report = await send(client, cast.alice, [project, session, line("observation", **about, id=str(theirs["id"]))])

    assert (report["taken"], report["refused"]) == ({"project": 1, "session": 1, "observation": 1}, {})
    assert await rows(db, "SELECT content, team_id FROM observations WHERE id = %s", theirs["id"]) == [
        {"content": "Secret.", "team_id": cast.charlie.team_id}
    ]


async def test_a_line_says_nothing_that_only_the_server_knows(client: httpx.AsyncClient, db: Db, cast: Cast):
    project = line("project", canonical_id="toys", name="Toys", created_at="2999-01-01T00:00:00Z")
    observation = line(
        "observation", project_id=project["line"]["id"], content="Deploys are on Friday.", created_at="2999-01-01T00:00:00",
        updated_at="2999-01-01T00:00:00Z", number=10**12, closed_by=1, actor_id="bob", access_count=7, caller_type="commit",
        metadata={"git": "a" * 40, "importedFrom": "claude-mem"},
    )  # fmt: skip

    report = await send(client, cast.alice, [project, observation])

    assert report["taken"] == {"project": 1, "observation": 1}
    question = """
        SELECT o.number, o.closed_by, o.actor_id, o.access_count, o.origin, o.metadata,
               greatest(o.created_at, o.updated_at, p.created_at) <= now() AS is_past
          FROM observations o JOIN projects p ON p.id = o.project_id WHERE o.team_id = %s
    """
    assert await rows(db, question, cast.alice.team_id) == [
        {
            "number": 1, "closed_by": None, "actor_id": None, "access_count": 0, "origin": "import",
            "metadata": {"importedFrom": "claude-mem"}, "is_past": True,
        }
    ]  # fmt: skip


async def test_an_operator_says_how_often_something_was_read(cms: Cms, db: Db, cast: Cast):
    project = line("project", canonical_id="toys", name="Toys", created_at=AT)
    about = {"project_id": project["line"]["id"], "content": "Deploys are on Friday.", "created_at": AT, "updated_at": AT}
    read = line("observation", **about, access_count=7, last_accessed_at=AT, number=10**12)
    body = json.dumps({"source": "contextify", "lines": [project, read], "isLast": True})

    said = await cms("api", "POST", "/v1/import", "--body", "-", "--operator", "--team", str(cast.alice.team_id), stdin=body)

    assert said.read(ImportReport).taken == {"project": 1, "observation": 1}
    question = "SELECT number, access_count, last_accessed_at::text AS at FROM observations WHERE team_id = %s"
    assert await rows(db, question, cast.alice.team_id) == [{"number": 1, "access_count": 7, "at": "2026-01-01 00:00:00+00"}]


async def test_a_long_text_is_cleaned_beside_the_event_loop(client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    threads: list[str] = []
    redact = clean.clean

    def note_thread(value: object, **how: Any) -> clean.CleanJson:
        if "long " in str(value):
            threads.append(threading.current_thread().name)
        return redact(value, **how)

    monkeypatch.setattr(clean, "clean", note_thread)
    project = line("project", canonical_id="toys", name="Toys", created_at=AT)
    about = {"project_id": project["line"]["id"], "created_at": AT, "updated_at": AT}

    await send(client, cast.alice, [project, line("observation", **about, content="long " * 4000)])

    assert len(threads) == 1
    assert threading.main_thread().name not in threads


async def test_only_projects_and_sessions_are_context(client: httpx.AsyncClient, db: Db, cast: Cast):
    project = line("project", canonical_id="toys", name="Toys", created_at=AT)
    observation = line("observation", project_id=project["line"]["id"], content="x", created_at=AT, updated_at=AT)
    given = {"source": "claude-mem", "context": [project, observation]}

    refused = await client.post("/v1/import", json=given, headers=cast.alice.headers)

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.context[1].line.record")
    assert await rows(db, "SELECT 1 FROM projects WHERE canonical_id = 'toys'") == []
