"""Databases of claude-mem, of three generations, taken over: what is found, shown and counted afterwards."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.ops import repository as ops
from cmserver.ops.transfer.claude_mem import ClaudeMemSource
from cmserver.ops.transfer.model import ImportReport, RefusedLine
from cmserver.ops.transfer.pipeline import Importer
from tests.conftest import Cast
from tests.ops.claude_mem_databases import AT_MS, add_server, add_tool_uses, make_v3, make_v4, make_v13

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


async def take(db: Db, cast: Cast, file: Path) -> ImportReport:
    importer = Importer(db, cast.alice.principal, ClaudeMemSource(file), journal=file.parent / "none")
    return await importer.run(lambda _done: None)


async def listed(client: httpx.AsyncClient, cast: Cast, project: str = "shop") -> list[dict[str, object]]:
    answer = await client.get("/v1/observations", params={"project": project, "limit": 100}, headers=cast.alice.headers)
    assert answer.is_success, answer.text
    return answer.json()["observations"]


async def test_memories_and_overviews_of_version_3(client: httpx.AsyncClient, cast: Cast, db: Db, tmp_path: Path):
    report = await take(db, cast, make_v3(tmp_path / "v3.db"))

    assert (report.taken, report.refused) == ({"project": 1, "session": 1, "observation": 2}, {})
    memory, overview = sorted(await listed(client, cast), key=lambda row: str(row["observationKind"]))
    assert (memory["title"], memory["facts"], memory["concepts"]) == ("Cache for an hour", ["one hour"], ["caching", "gotcha"])
    assert memory["createdAtEpoch"] == overview["createdAtEpoch"] == AT_MS
    assert overview["observationKind"] == "summary"


async def test_observations_and_summaries_of_version_4(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, tmp_path: Path
):
    report = await take(db, cast, make_v4(tmp_path / "v4.db"))

    assert report.taken == {"project": 1, "session": 1, "event": 1, "prompt": 1, "observation": 2}
    shown = {str(row["observationKind"]): row for row in await listed(client, cast)}
    assert shown["observation"]["narrative"] == "The cache now holds 100 orders."
    assert shown["observation"]["type"] == "feature"
    assert shown["summary"]["filesModified"] == ["src/cache.py"]
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT prompt AS text FROM turns").fetchone() == ("Bound the cache.",)


async def test_everything_of_version_13_is_found_shown_and_counted(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, tmp_path: Path
):
    report = await take(db, cast, make_v13(tmp_path / "v13.db", secret=SECRET))

    assert report.taken == {"project": 2, "session": 1, "event": 2, "prompt": 2, "observation": 5}
    assert report.refused == {"observation": 1}
    assert report.examples[0].reason == "It has no text."
    assert report.redactions
    with psycopg.connect(database) as conn:
        origins = conn.execute("SELECT DISTINCT origin FROM observations UNION SELECT DISTINCT origin FROM agent_events").fetchall()
        assert origins == [("import",)]
        everything = str(conn.execute("SELECT array_agg(o::text) FROM observations o").fetchone())
        everything += str(conn.execute("SELECT array_agg(e::text) FROM agent_events e").fetchone())
        assert SECRET not in everything
        session = conn.execute("SELECT title, external_session_id, ended_at - started_at FROM server_sessions").fetchone()
        assert session is not None
        assert (session[0], session[1], session[2].total_seconds()) == ("The cache", "agent-13", 3600)
    rows = {row["title"]: row for row in await listed(client, cast)}
    assert rows["Worker 2 retries"]["createdAtEpoch"] == AT_MS + 2000
    assert rows["Worker 2 retries"]["filesModified"] == ["src/worker_2.py"]
    body = {"projectId": "shop", "query": "worker waits between tries"}
    found = (await client.post("/v1/search", json=body, headers=cast.alice.headers)).json()
    assert "Worker 1 retries" in [hit["title"] for hit in found["observations"]]
    index = await client.get("/v1/context", params={"project": "shop", "format": "text"}, headers=cast.alice.headers)
    assert "Worker 2 retries" in index.text
    assert "Never push on Fridays." in index.text
    async with db.system() as conn:
        assert all(team.holds for team in [*await ops.CONSERVATION.all(conn), *await ops.NUMBER_SUMS.all(conn)])


async def test_no_value_of_a_column_ends_the_import(db: Db, cast: Cast, tmp_path: Path):
    """A session's title with a NUL in it did."""
    ended: list[str] = []
    for table, column in _columns(make_v13(tmp_path / "whole.db")):
        for place, value in enumerate(("a\x00b", 2**62)):
            file = make_v13(tmp_path / f"{table}-{column}-{place}.db")
            with contextlib.suppress(sqlite3.IntegrityError), sqlite3.connect(file) as conn:
                conn.execute(f'UPDATE "{table}" SET "{column}" = ?', [value])
            try:
                await take(db, cast, file)
            except Exception as error:  # noqa: BLE001 - all are listed
                ended.append(f"{table}.{column} = {value!r}: {error!r}"[:300])
            file.unlink()

    assert ended == []


def _columns(file: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(file) as conn:
        tables = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%fts%'").fetchall()
        return [(table, row[1]) for (table,) in tables for row in conn.execute(f'PRAGMA table_info("{table}")')]


async def test_items_of_its_own_server_come_in_once(client: httpx.AsyncClient, cast: Cast, db: Db, tmp_path: Path):
    report = await take(db, cast, add_server(make_v13(tmp_path / "server.db")))

    assert (report.taken["session"], report.taken["observation"]) == (2, 7)
    items = [row for row in await listed(client, cast) if str(row["content"]).startswith("An item")]
    assert {row["observationKind"]: row["content"] for row in items} == {
        "manual": "An item, manual.",
        "summary": "An item, summary.",
    }
    assert len({row["serverSessionId"] for row in items}) == 1


async def test_the_second_run_takes_only_what_is_new(cast: Cast, db: Db, tmp_path: Path):
    first = await take(db, cast, make_v13(tmp_path / "first.db", observations=2))
    again = await take(db, cast, make_v13(tmp_path / "first-grown.db", observations=4))

    assert first.taken["observation"] == 4
    # The rows after the first two are those of the grown database; the one without text has another id there.
    assert again.taken == {"observation": 2}
    assert again.known == {**first.taken}


async def test_a_session_that_this_server_knows_already_keeps_its_id(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, tmp_path: Path
):
    await client.post("/v1/projects", json={"canonicalId": "shop"}, headers=cast.alice.headers)
    body = {"projectId": "shop", "externalSessionId": "agent-13", "platformSource": "claude"}
    started = (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).json()["session"]["id"]

    report = await take(db, cast, make_v13(tmp_path / "v13.db"))

    assert report.refused == {"observation": 1}
    with psycopg.connect(database) as conn:
        ids = conn.execute(
            "SELECT DISTINCT server_session_id::text FROM observations WHERE server_session_id IS NOT NULL"
        ).fetchall()
    assert ids == [(started,)]


@pytest.mark.parametrize("content", [None, b"", b"no database at all, whatever its name says"])
def test_a_file_that_is_no_database_of_claude_mem_is_refused(content: bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "file.db").write_bytes(content)

    with pytest.raises(Invalid):
        ClaudeMemSource(tmp_path / "file.db")


async def test_a_value_that_is_too_large_costs_its_row_alone(db: Db, cast: Cast, tmp_path: Path):
    """Also one that a column computes: nothing of it is held."""
    whole = await take(db, cast, make_v13(tmp_path / "whole.db"))
    file = make_v13(tmp_path / "v13.db")
    with contextlib.closing(sqlite3.connect(file)) as conn:
        rows = conn.execute("SELECT rowid FROM observations ORDER BY rowid").fetchall()
        size = f"CASE id WHEN {rows[0][0]} THEN 200000000 ELSE 1 END"
        conn.execute(f"ALTER TABLE observations ADD COLUMN huge TEXT AS (hex(zeroblob({size}))) VIRTUAL")
        conn.execute(
            "UPDATE user_prompts SET prompt_text = hex(zeroblob(9000000)) WHERE rowid = (SELECT min(rowid) FROM user_prompts)"
        )
        conn.commit()

    source = ClaudeMemSource(file)
    refused = [line for line in source.lines() if isinstance(line, RefusedLine) and "16 MiB" in line.reason]
    report = await take(db, cast, file)

    assert [line.record for line in refused] == ["observation", "prompt"]
    assert report.refused == {"observation": whole.refused["observation"] + 1, "prompt": 1}


async def test_tool_calls_of_13_25_come_in_with_what_was_made_of_them(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, tmp_path: Path
):
    file = add_tool_uses(make_v13(tmp_path / "v13.db"))
    report = await take(db, cast, file)
    again = await take(db, cast, file)

    assert (report.taken["event"], report.taken["source"], report.refused) == (4, 1, {"observation": 1})
    assert again.taken == {}
    body = {"ids": ["toolu_1", "toolu_2", "toolu_3"], "project": "shop"}
    found = (await client.post("/api/tool-uses/batch", json=body, headers=cast.alice.headers)).json()
    first, second = sorted(found, key=lambda use: use["tool_use_id"])
    assert (first["tool_use_id"], first["tool_name"], first["cwd"], first["agent_id"]) == ("toolu_1", "Bash", "/w", "a1")
    assert (first["tool_input"], first["tool_response"]) == ('{"command":"pytest toolu_1"}', '"cut in the mid"')
    assert first["content_session_id"] == "agent-13"
    seen = await client.get(f"/v1/observations/{first['observation_id']}", headers=cast.alice.headers)
    assert seen.json()["observation"]["title"] == "Worker 1 retries"
    assert second["observation_id"] is None
    with psycopg.connect(database) as conn:
        metadata = conn.execute("SELECT metadata FROM server_sessions WHERE external_session_id = 'agent-13'").fetchone()
        assert metadata == ({"observedModel": "opus", "observedBilling": "api"},)
        assert conn.execute("SELECT count(*) FROM turns WHERE prompt LIKE '%x1%'").fetchone() == (0,)
