"""A database that the migrations of before the first release have made is compared with 0001 and marked, or refused with a list.

`unmark` makes one of today's look like one of then; tests/house/test_older_schemas.py marks a real one, which has rows.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
import structlog

from cmserver.base import migrate as base
from cmserver.base.catalogue import CatalogueDifference, compare_catalogue
from cmserver.base.migrate import SQUASHED, MigrationError, find_missing, migrate, migrations, statements
from cmserver.base.settings import Settings
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.restore import restore
from tests.conftest import Server

FIRST = migrations()[0]
ALL = [migration.name for migration in migrations()]
NUMBERS = "SELECT number, name, applied_at FROM schema_migrations ORDER BY number"
UNMARK = """
    DELETE FROM schema_migrations WHERE number > 1;
    UPDATE schema_migrations SET name = '0001_access', checksum = 'x', applied_at = '2026-11-01';
    INSERT INTO schema_migrations (number, name, checksum) SELECT number, 'before', 'x' FROM generate_series(2, 64) number;
"""


@pytest.fixture
def first_only(empty_database: str) -> str:
    """A database as 0001 makes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "migrations", lambda: [FIRST])
        asyncio.run(migrate(empty_database))
    return empty_database


@pytest.fixture
def unmarked(first_only: str) -> str:
    execute(first_only, UNMARK)
    return first_only


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode())


def numbers(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(NUMBERS).fetchall()


def compare(url: str, *changes: LiteralString) -> list[CatalogueDifference]:
    """With each of the changes alone."""

    async def run() -> list[CatalogueDifference]:
        found: list[CatalogueDifference] = []
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            for change in changes:
                async with conn.transaction(force_rollback=True):
                    await conn.execute(change)
                    found.append(await compare_catalogue(conn, statements(FIRST)))
        return found

    return asyncio.run(run())


def test_it_is_marked_once_and_keeps_the_time_of_its_first_start(unmarked: str):
    first = asyncio.run(migrate(unmarked))
    second = asyncio.run(migrate(unmarked))

    assert (first, second) == (ALL, [])
    assert [row[:2] for row in numbers(unmarked)] == [(one.number, one.name) for one in migrations()]
    assert str(numbers(unmarked)[0][2]).startswith("2026-11-01")


async def test_of_several_that_start_at_once_one_marks_it(unmarked: str):
    done = await asyncio.gather(*(migrate(unmarked) for _ in range(4)))

    assert sorted(done, key=len) == [[], [], [], ALL]


async def test_its_backup_is_restored_and_marked(unmarked: str, server: Server, settings: Settings, tmp_path: Path):
    """`upgrade --check` asks for one."""
    file = tmp_path / "before.backup"
    manifest = await back_up(unmarked, settings, file)
    name = f"cmserver_test_{uuid4().hex[:12]}"

    url = server.create(name)
    try:
        with open_backup(file) as backup:
            await restore(backup, url, tmp_path)
        restored = numbers(url)
    finally:
        server.drop(name)

    assert (manifest.format, manifest.schema) == (1, SQUASHED)
    assert [row[1] for row in restored] == ALL


def test_what_would_be_done_is_said_without_doing_it(unmarked: str):
    before = numbers(unmarked)

    assert [migration.name for migration in asyncio.run(find_missing(unmarked))] == ALL
    assert numbers(unmarked) == before


@pytest.mark.parametrize(
    ("newest", "said"),
    [(number, r"commit 30856421.*cmserver export.*Nothing was changed") for number in (1, 53, 63)]
    + [(65, r"migration 0065, which this program does not know\. Nothing was changed")],
)
def test_one_that_stands_elsewhere_is_refused_with_what_to_do(unmarked: str, newest: int, said: str):
    execute(unmarked, f"DELETE FROM schema_migrations WHERE number > {newest}")
    if newest == 65:
        execute(unmarked, "INSERT INTO schema_migrations (number, name, checksum) VALUES (65, 'before', 'x')")
    before = numbers(unmarked)

    for begin in (migrate, find_missing):
        with pytest.raises(MigrationError, match=said):
            asyncio.run(begin(unmarked))
    assert numbers(unmarked) == before


def test_a_difference_stops_with_a_list_and_changes_nothing(unmarked: str):
    execute(
        unmarked,
        """
        DROP INDEX api_keys_team;
        CREATE INDEX api_keys_team ON api_keys (created_at);
        DROP INDEX turns_project;
        CREATE INDEX one_of_mine ON teams (created_at);
        """,
    )
    before = numbers(unmarked)

    for begin in (migrate, find_missing):
        with pytest.raises(MigrationError) as refused:
            asyncio.run(begin(unmarked))
        assert str(refused.value).splitlines()[1:] == [
            "  missing: index turns_project",
            "  different: index api_keys_team",
            "  added, which does no harm: index one_of_mine",
        ]
    assert numbers(unmarked) == before
    with psycopg.connect(unmarked) as conn:
        assert conn.execute("SELECT to_regnamespace('cmserver_expected'), to_regclass('turns_project')").fetchone() == (None, None)


def test_what_operators_made_beside_it_is_named_and_stops_nothing(unmarked: str):
    execute(
        unmarked,
        """
        CREATE INDEX one_of_mine ON teams (created_at);
        ALTER TABLE teams ADD COLUMN colour text;
        CREATE VIEW my_teams AS SELECT name FROM teams;
        ALTER TABLE agent_events SET (fillfactor = 90);
        COMMENT ON TABLE teams IS 'Ours.';
        GRANT SELECT ON teams TO pg_monitor;
        ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO pg_monitor;
        REVOKE EXECUTE ON FUNCTION search_names(text) FROM PUBLIC;
        """,
    )

    with structlog.testing.capture_logs() as logged:
        assert asyncio.run(migrate(unmarked)) == ALL

    assert [(line["event"], line["added"]) for line in logged if "added" in line] == [
        ("migration.marked", ["column teams.colour", "index one_of_mine", "view my_teams"])
    ]


def test_a_user_who_may_make_no_schema_is_told_what_to_ask_for(server: Server, unmarked: str):
    with psycopg.connect(unmarked) as conn:
        database, user = conn.info.dbname, conn.info.user
    if server.embedded is None:
        pytest.skip("the user may be a superuser")
    execute(server.superuser_url(database), f'REVOKE CREATE ON DATABASE "{database}" FROM "{user}"')
    before = numbers(unmarked)

    with pytest.raises(MigrationError, match=rf'GRANT CREATE ON DATABASE "{database}" TO "{user}";'):
        asyncio.run(migrate(unmarked))

    assert numbers(unmarked) == before


CHANGES: dict[LiteralString, tuple[list[str], list[str], list[str]]] = {
    "SELECT 1": ([], [], []),
    "ALTER TABLE teams ADD COLUMN colour text": ([], [], ["column teams.colour"]),
    "ALTER TABLE teams ALTER COLUMN name DROP NOT NULL": ([], ["column teams.name"], []),
    "ALTER TABLE budgets ALTER COLUMN max_tokens TYPE integer": ([], ["column budgets.max_tokens"], []),
    "ALTER TABLE teams ALTER COLUMN metadata SET DEFAULT '[]'": ([], ["column teams.metadata"], []),
    "ALTER TABLE teams DROP CONSTRAINT teams_name_check": (["constraint teams.teams_name_check"], [], []),
    "ALTER TABLE teams DISABLE ROW LEVEL SECURITY": ([], ["table teams"], []),
    "ALTER POLICY team ON teams USING (true)": ([], ["policy teams.team"], []),
    "DROP INDEX api_keys_team": (["index api_keys_team"], [], []),
    "DROP VIEW failed_jobs": (["view failed_jobs"], [], []),
    "DROP TRIGGER generation_job_law ON observation_generation_jobs": (
        ["trigger observation_generation_jobs.generation_job_law"],
        [],
        [],
    ),
    "ALTER TABLE observation_generation_jobs DISABLE TRIGGER generation_job_law": (
        [],
        ["trigger observation_generation_jobs.generation_job_law"],
        [],
    ),
    "CREATE OR REPLACE FUNCTION retry_job(job uuid) RETURNS text LANGUAGE sql AS 'SELECT NULL'": (
        [],
        ["function retry_job(job uuid)"],
        [],
    ),
    "GRANT DELETE ON audit_log TO cmserver_tenant": ([], [], ["right DELETE on audit_log for cmserver_tenant"]),
    "REVOKE INSERT ON audit_log FROM cmserver_tenant": (["right INSERT on audit_log for cmserver_tenant"], [], []),
    "GRANT EXECUTE ON FUNCTION join_project TO PUBLIC": (
        [],
        [],
        ["right EXECUTE on join_project(joining uuid, target uuid, team uuid) for PUBLIC"],
    ),
    "ALTER SEQUENCE generation_claims INCREMENT 2": ([], ["sequence generation_claims"], []),
    "ALTER TYPE procrastinate_job_status ADD VALUE 'later'": ([], ["type procrastinate_job_status"], []),
    # As in a database that had no pgvector.
    "ALTER TABLE observation_embeddings ALTER COLUMN embedding TYPE real[] USING embedding::real[]": ([], [], []),
}


def test_each_kind_of_change_is_seen(first_only: str):
    found = compare(first_only, *CHANGES)

    assert {change: (one.missing, one.different, one.added) for change, one in zip(CHANGES, found, strict=True)} == CHANGES
