"""Contextify's memories, taken over from its database: how they are found, shown and counted afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from psycopg import sql

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.ops import repository as ops
from cmserver.ops.transfer.contextify import ContextifySource
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer
from tests.conftest import Cast

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
SCHEMA = """
CREATE TYPE memory_type AS ENUM ('problem', 'fix', 'decision', 'general', 'command');
CREATE TYPE memory_scope AS ENUM ('global', 'project');
CREATE TABLE memories (
    id uuid PRIMARY KEY, title text NOT NULL, content text NOT NULL, summary text, embedding real[] DEFAULT '{0.5}',
    type memory_type NOT NULL DEFAULT 'general', scope memory_scope NOT NULL DEFAULT 'project', project_id text, agent_source text,
    tags text[] DEFAULT '{}', importance real NOT NULL DEFAULT 0.5, ttl_seconds integer, access_count integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT '2026-01-01Z', updated_at timestamptz NOT NULL DEFAULT '2026-01-02Z',
    expires_at timestamptz, version integer NOT NULL DEFAULT 1, merged_from uuid[] DEFAULT '{}', replaced_by uuid);
CREATE TABLE memory_relationships (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), from_memory_id uuid NOT NULL REFERENCES memories,
    to_memory_id uuid NOT NULL REFERENCES memories, relationship text NOT NULL, strength real NOT NULL DEFAULT 0.5, context text,
    created_at timestamptz NOT NULL DEFAULT now(), UNIQUE (from_memory_id, to_memory_id, relationship));
"""
INVOICES = "github.com/acme/invoices"
RETRIES, KEY, COMMITS, MERGED, EXPIRED = (UUID(int=number) for number in range(1, 6))
MEMORIES: list[dict[str, object]] = [
    {
        "id": RETRIES, "title": "Retries wait", "content": "The worker waits between its tries.", "summary": "Back off.",
        "type": "fix", "project_id": "github.com/Acme/Invoices", "agent_source": "claude-code", "tags": ["worker", "retry"],
        "importance": 0.9, "access_count": 7,
    },
    {
        "id": KEY, "title": "Key", "content": f"Use {SECRET}.", "project_id": f"{INVOICES}.git", "tags": None, "ttl_seconds": 86400,
        "expires_at": "2100-01-01Z",
    },
    {"id": COMMITS, "title": "Commits", "content": "Commits are signed.", "scope": "global", "agent_source": ""},
    {"id": MERGED, "title": "Old", "content": "Merged text.", "project_id": INVOICES, "replaced_by": RETRIES},
    {"id": EXPIRED, "title": "Gone", "content": "Expired.", "project_id": INVOICES, "ttl_seconds": 60, "expires_at": "2026-01-02Z"},
]  # fmt: skip
RELATIONSHIPS: list[dict[str, object]] = [
    {"from_memory_id": RETRIES, "to_memory_id": COMMITS, "relationship": "depends on", "strength": 0.9, "context": "why"},
    {"from_memory_id": RETRIES, "to_memory_id": COMMITS, "relationship": ""},
    {"from_memory_id": RETRIES, "to_memory_id": MERGED, "relationship": "SUPERSEDES"},
]


@pytest.fixture
def contextify(empty_database: str) -> str:
    with psycopg.connect(empty_database) as conn:
        conn.execute(SCHEMA)
        for table, rows in (("memories", MEMORIES), ("memory_relationships", RELATIONSHIPS)):
            for row in rows:
                names, values = sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(map(sql.Literal, row.values()))
                conn.execute(sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), names, values))
    return empty_database


async def take(db: Db, cast: Cast, url: str) -> ImportReport:
    return await Importer(db, cast.alice.principal, ContextifySource(url), journal=Path("none")).run(lambda _done: None)


async def test_memories_are_found_shown_and_counted(client: httpx.AsyncClient, cast: Cast, db: Db, contextify: str, database: str):
    report = await take(db, cast, contextify)

    assert report.taken == {"project": 2, "observation": 3, "relationship": 1}
    assert report.known == {"project": 2}  # the other spellings of the repository
    assert report.refused == {"observation": 2, "relationship": 1}
    headers = cast.alice.headers
    body = {"query": "worker waits tries", "project_id": "github.com/acme/invoices"}
    (hit, *_) = (await client.post("/api/v1/memories/search", json=body, headers=headers)).raise_for_status().json()
    memory = hit["memory"]
    expected = {
        "title": "Retries wait", "content": "The worker waits between its tries.", "summary": "Back off.", "type": "fix",
        "agent_source": "claude-code", "tags": ["worker", "retry"], "importance": 0.9, "access_count": 7,
        "project_id": "github.com/acme/invoices",
    }  # fmt: skip
    assert {name: memory[name] for name in expected} == expected
    assert datetime.fromisoformat(memory["created_at"]) == datetime(2026, 1, 1, tzinfo=UTC)
    assert "expires_at" not in memory
    related = (await client.get(f"/api/v1/memories/{memory['id']}/related", headers=headers)).raise_for_status().json()
    assert [(row["relationship"], row["context"]) for row in related["relationships"]] == [("DEPENDS_ON", "why")]
    assert related["memories"][0]["scope"] == "global"
    with psycopg.connect(database) as conn:
        assert SECRET not in str(conn.execute("SELECT array_agg(o::text) FROM observations o").fetchone())
        assert conn.execute("SELECT count(*) FROM observations WHERE expires_at > now()").fetchone() == (1,)
    async with db.system() as conn:
        assert all(team.holds for team in await ops.NUMBER_SUMS.all(conn))


async def test_the_second_run_takes_nothing(cast: Cast, db: Db, contextify: str):
    first = await take(db, cast, contextify)
    again = await take(db, cast, contextify)

    assert again.taken == {}
    assert again.known == {"project": 4, "observation": 3, "relationship": 1}
    assert again.refused == first.refused


def test_what_is_no_database_of_contextify_is_refused_without_its_password(empty_database: str):
    for url in (
        empty_database,
        "postgresql://user:hunter2@127.0.0.1:1/none",
        "postgresql://user:hunter2@[/none",
        "not an=address hunter2",
    ):
        with pytest.raises(Invalid) as refused:
            ContextifySource(url)
        assert "hunter2" not in str(refused.value)
