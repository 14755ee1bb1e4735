"""Each backup in tests/fixtures, made by the program of its time, is brought to today's schema and works there.

This is what every later migration is tested from: an empty database forgives what two teams' rows do not. The first two are of the
last commit before the first release, whose 64 migrations became one file: such a database is compared with that, and marked.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import psycopg
import pytest

from cmserver.base import credentials
from cmserver.base.db import Db
from cmserver.base.migrate import migrate, migrations
from cmserver.base.sql import Conn
from cmserver.embedded.tools import VECTOR_TABLES, find_tools
from cmserver.embeddings.repository import ensure_vectors
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import Manifest, open_backup
from cmserver.ops.backup.restore import RestoreReport, restore
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.ops.transfer.model import LINE_TYPES, ObservationLine, PinLine, SourceLine, record_name
from tests.conftest import make_team, mint
from tests.fixtures.generate import TEAMS
from tests.ops.transfers import export, take
from tests.process import conftest
from tests.process.conftest import Run
from tests.process.program import number, wait_for, wait_until_settled

folder, run = conftest.folder, conftest.run

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*.backup"))
PER_TEAM = ("projects", "observations", "agent_events", "server_sessions", "observation_generation_jobs", "api_keys", "audit_log")

CHANGED: dict[str, str] = {
    "memberships": "0002: its rows are in team_members now",
    "team_members": "0002: has the rows of memberships, too",
    **dict.fromkeys(
        ("entity_progress", "consolidation_progress", "access_counting", "retention_marks"),
        "0003: its rows are in read_positions now",
    ),
    "procrastinate_periodic_defers": "0003: without those of tasks that are gone",
    "steward_jobs": "0004: a view of observation_generation_jobs",
    "steward_events": "0004: a view of observation_generation_job_events",
    "observation_generation_jobs": "0004: has the steward's jobs, too",
    "observation_generation_job_events": "0004: has the events of the steward's jobs, too",
}
"""Tables of which a later migration removes or adds rows on purpose, and why."""

EMPTY = {
    *("procrastinate_events", "procrastinate_jobs"),  # nothing is kept of what is done
    *("retention_counts", "retention_marks"),  # nothing in a fixture is old enough to go
    "embedding_calibrations",  # the coefficients of the embedder `local` come with cmserver
    "entity_rereads",  # is read within seconds
    "steward_policy_history",  # takes months of corrections
    *("turn_ledger", "untraced_turns"),  # a turn that takes out what an earlier one put in; an import
}
"""Tables that may be empty in a fixture, and why."""
OPEN_JOBS = """
WITH p AS (SELECT id, team_id FROM projects ORDER BY id LIMIT 1)
INSERT INTO steward_jobs (id, team_id, project_id, job_type, trigger_reason)
SELECT gen_random_uuid(), p.team_id, p.id, 'derive', 'test: ' || word
  FROM p, unnest(ARRAY['waiting', 'running', 'asked to stop']) word;
UPDATE steward_jobs SET status = 'running', attempt_count = 1, claim = 1, locked_at = now(), lease_expires_at = now(),
       cancel_requested_at = CASE WHEN trigger_reason = 'test: asked to stop' THEN now() END
 WHERE trigger_reason IN ('test: running', 'test: asked to stop')
"""
EMPTY_WITHOUT_VECTORS = {"embedding_models", "observation_embeddings"}

pytestmark = pytest.mark.parametrize("fixture", FIXTURES, ids=lambda file: file.stem)


async def bring_up(fixture: Path, url: str, folder: Path) -> tuple[Manifest, RestoreReport]:
    """The fixture in that empty database, migrated; also one that was made on a newer PostgreSQL, with pgvector."""
    with open_backup(fixture) as backup:
        return backup.manifest, await restore(backup, url, folder)


async def counts(conn: Conn) -> dict[str, int]:
    row_counts, _ = await repository.checksums(conn)
    return {table: count for table, count in row_counts.items() if table != "schema_migrations"}


def schema(url: str) -> str:
    """What pg_dump says of it. Without the key that is another one each time; without parentheses: a dump that was loaded has fewer
    of them around OR; and without names of NOT NULL, of which PostgreSQL 18 alone keeps one that a column had before.
    """
    with psycopg.connect(url) as conn:
        tools = find_tools(conn.info.server_version // 10_000)
    command = [tools.bin / "pg_dump", "--schema-only", "--no-owner", f"--dbname={url}"]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kept = [line for line in dumped.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    return re.sub(r"CONSTRAINT \w+ NOT NULL", "NOT NULL", "\n".join(kept).replace("(", "").replace(")", ""))


def test_it_holds_rows_of_two_teams_in_every_table(fixture: Path):
    with open_backup(fixture) as backup:
        manifest = backup.manifest

    assert {table for table, count in manifest.counts.items() if not count} <= (
        EMPTY if manifest.vectors else EMPTY | EMPTY_WITHOUT_VECTORS
    )
    assert sum(manifest.counts.values()) > 900
    assert fixture.stat().st_size < 1_000_000


async def test_nothing_is_lost_on_the_way_to_todays_schema(fixture: Path, empty_database: str, tmp_path: Path):
    manifest, restored = await bring_up(fixture, empty_database, tmp_path)

    left_out = set(VECTOR_TABLES) if restored.without_vectors else set[str]()
    assert {table: count for table, count in restored.counts.items() if table not in left_out} == {
        table: count for table, count in manifest.counts.items() if table not in left_out
    }
    assert all(restored.counts.get(table) in {0, None} for table in left_out)
    number = 0 if manifest.format == 1 else manifest.schema
    assert restored.migrations == [one.name for one in migrations() if one.number > number]
    assert [team.team for team in restored.teams] == sorted(TEAMS)
    assert all(team.holds and team.events for team in restored.teams)
    async with await psycopg.AsyncConnection.connect(empty_database) as conn:
        after = await counts(conn)
    before = {table: count for table, count in manifest.counts.items() if table not in {"schema_migrations", *left_out}}
    assert {table for table, count in before.items() if after.get(table) != count} <= CHANGED.keys()
    assert await migrate(empty_database) == []


async def test_the_jobs_of_the_steward_are_in_the_outbox_with_their_events(fixture: Path, empty_database: str, tmp_path: Path):
    manifest, _ = await bring_up(fixture, empty_database, tmp_path)

    with psycopg.connect(empty_database) as conn:
        (jobs, tunings) = conn.execute(
            "SELECT (SELECT count(*) FROM steward_jobs), (SELECT count(*) FROM steward_runs WHERE job_id IS NULL)"
        ).fetchone() or (0, 0)
        lives = conn.execute(
            "SELECT DISTINCT j.status, (SELECT array_agg(e.event_type ORDER BY e.id) FROM steward_events e"
            " WHERE e.job_id = j.id AND e.event_type LIKE 'job_%') FROM steward_jobs j WHERE j.status = 'succeeded'"
        ).fetchall()
        errors = conn.execute("SELECT DISTINCT last_error FROM steward_jobs WHERE status = 'succeeded'").fetchall()
        unlike = conn.execute(
            "SELECT count(*) FROM steward_runs r JOIN steward_jobs j ON j.id = r.job_id"
            " WHERE j.decision ->> 'decision' IS DISTINCT FROM r.output_snapshot ->> 'decision' AND j.attempt_count = 1"
        ).fetchone()

    assert jobs + tunings == manifest.counts["steward_jobs"]
    assert tunings > 0
    assert lives == [("succeeded", ["job_created", "job_claimed", "job_completed"])]
    assert errors == [(None,)]
    assert unlike == (0,)


async def test_what_the_steward_had_not_ended_ends_undone_and_is_planned_again(
    fixture: Path, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    everything = migrations()
    with monkeypatch.context() as patched:
        patched.setattr("cmserver.base.migrate.migrations", lambda: everything[:2])
        await bring_up(fixture, empty_database, tmp_path)
    with psycopg.connect(empty_database) as conn:
        conn.execute(OPEN_JOBS)

    assert await migrate(empty_database) == [one.name for one in everything[2:]]

    with psycopg.connect(empty_database) as conn:
        ended = conn.execute(
            "SELECT s.trigger_reason, s.status, s.decision -> 'goesOn', s.last_error, j.phase,"
            " (SELECT array_agg(e.event_type ORDER BY e.id) FROM observation_generation_job_events e"
            " WHERE e.generation_job_id = s.id)"
            " FROM steward_jobs s JOIN observation_generation_jobs j ON j.id = s.id WHERE s.trigger_reason LIKE 'test:%' ORDER BY 1"
        ).fetchall()
        due = conn.execute("SELECT count(*) FROM generation_lanes WHERE lane = project_id").fetchone()

    assert ended == [
        ("test: asked to stop", "cancelled", None, None, "cancelled", ["queued", "processing", "cancelled"]),
        ("test: running", "succeeded", True, None, "completed", ["queued", "processing", "completed"]),
        ("test: waiting", "succeeded", True, None, "completed", ["queued", "completed"]),
    ]
    assert due == (0,)


async def test_the_schema_is_that_of_a_fresh_database(fixture: Path, empty_database: str, database: str, tmp_path: Path):
    await bring_up(fixture, empty_database, tmp_path)
    for url in (empty_database, database):
        async with await psycopg.AsyncConnection.connect(url) as conn:
            await ensure_vectors(conn)

    assert schema(empty_database) == schema(database)


async def test_a_team_still_sees_only_its_own(fixture: Path, empty_database: str, tmp_path: Path):
    await bring_up(fixture, empty_database, tmp_path)

    with psycopg.connect(empty_database) as conn:
        teams = [row[0] for row in conn.execute("SELECT id FROM teams").fetchall()]
        for table in PER_TEAM:
            by_team = dict(conn.execute(f"SELECT team_id, count(*) FROM {table} GROUP BY 1".encode()).fetchall())
            conn.execute("SET ROLE cmserver_tenant")
            for team in teams:
                conn.execute("SELECT set_config('cmserver.team_id', %s, false)", [str(team)])
                seen = conn.execute(
                    f"SELECT count(*), count(*) FILTER (WHERE team_id <> %s) FROM {table}".encode(), [team]
                ).fetchone()
                assert by_team[team] > 0
                assert seen == (by_team[team], 0) or (seen == (0, 0) and not may_read(conn, table))
            conn.execute("RESET ROLE")


def may_read(conn: psycopg.Connection, table: str) -> bool:
    row = conn.execute("SELECT has_table_privilege('cmserver_tenant', %s, 'SELECT')", [table]).fetchone()
    return row is not None and bool(row[0])


async def test_its_export_is_imported_whole_into_an_empty_server(
    fixture: Path, empty_database: str, database: str, db: Db, tmp_path: Path
):
    await bring_up(fixture, empty_database, tmp_path)
    with psycopg.connect(empty_database) as conn:
        teams = conn.execute("SELECT id, name FROM teams ORDER BY name").fetchall()
    records: set[str] = set()
    is_newest = fixture.name.removesuffix(".backup") == FIXTURES[-1].name.removesuffix(".backup")
    for team_id, name in teams:
        exported = await export(empty_database, team_id, tmp_path / f"{name}.jsonl")
        records |= {line["record"] for line in map(msgspec.json.decode, exported.read_bytes().splitlines())}
        principal = (await mint(db, await make_team(db, str(name)), "ops", scopes=["*"]))[0]
        dry = await take(db, principal, JsonlSource(exported), tmp_path, dry_run=True)
        report = await take(db, principal, JsonlSource(exported), tmp_path)
        repeated = await take(db, principal, JsonlSource(exported), tmp_path)

        assert (report.examples, report.redactions, report.renumbered) == ([], {}, 0)
        assert dry.taken == report.taken == repeated.known
        assert repeated.taken == {}
        again = await export(database, principal.team_id, tmp_path / f"{name}-again.jsonl")
        assert again.read_text() == exported.read_text()

    wanted = {*LINE_TYPES} - {PinLine} if is_newest else {ObservationLine, SourceLine}  # no schema of these had pins
    assert records >= {record_name(line_type) for line_type in wanted}


@pytest.mark.slow
async def test_the_program_works_on_it(fixture: Path, empty_database: str, tmp_path: Path, folder: Path, run: Run):
    manifest, _ = await bring_up(fixture, empty_database, tmp_path)
    (folder / "data").mkdir()
    with open_backup(fixture) as backup:
        credentials.write_bytes(folder / "data", backup.credentials() or b"")
    program = run("server", settings={"CMSERVER_DATABASE_URL": empty_database, "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    program.wait_until_ready()
    project, last = "/home/dev/orders", manifest.counts["observations"]

    with program.http() as client:
        found = client.post("/v1/search", json={"projectId": project, "query": "belongs to team fixture"}).raise_for_status().json()
        assert found["observations"]
        assert "belongs to team guests" not in str(found)
        assert "<cmserver-context>" in client.get("/v1/context", params={"project": project, "format": "text"}).text
        edit = {"file_path": f"{project}/src/late.py", "old_string": "LATE = 1", "new_string": "LATE = 2"}
        payload = {"hook_event_name": "PostToolUse", "session_id": "after", "cwd": project, "tool_use_id": "toolu_after"}
        client.post("/v1/hooks/claude-code", json={**payload, "tool_name": "Edit", "tool_input": edit}).raise_for_status()
        wait_until_settled(empty_database)
        assert number(empty_database, "SELECT count(*) FROM observations") > last
        title = "SELECT count(*) FROM observations WHERE title LIKE '%%LATE%%'"
        assert number(empty_database, title) == 1
        if number(empty_database, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"):
            waiting = "SELECT count(*) FROM observation_embeddings WHERE embedding IS NULL"
            wait_for("embeddings of what had none", lambda: number(empty_database, waiting) == 0)
    assert program.stop() == 0
