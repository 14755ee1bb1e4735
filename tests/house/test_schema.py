"""sql/schema.sql is what the migrations make of an empty database; and what procrastinate brings is what 0002 was written for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from cmserver.base.migrate import newest
from cmserver.embedded.files import wheel_binaries
from tests.house.house import ROOT
from tests.house.pages import REFERENCE, SCHEMA, SCHEMA_MAJOR, present, schema, tables_page

PROCRASTINATE = "c70ec4b400a60ad9592787653aae5ae77ae41bf801d56b5bd2712751a07f2009"
"""SHA-256 of the schema that migration 0002 installs."""


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as opened:
        if opened.info.server_version // 10_000 != SCHEMA_MAJOR or wheel_binaries() is None:
            pytest.skip(f"only PostgreSQL {SCHEMA_MAJOR} of the embedded database writes its schema in these words")
        yield opened


def test_the_dumped_schema_is_what_the_migrations_make(database: str, conn: psycopg.Connection):
    assert schema(database) == present(SCHEMA), "bin/check --fix writes it anew; read its diff"
    assert tables_page(database) == present(REFERENCE / "tables.md"), "bin/check --fix writes it anew"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE teams ADD COLUMN colour text",
        "ALTER TABLE teams ALTER COLUMN name DROP NOT NULL",
        "DROP INDEX api_keys_team",
        "GRANT DELETE ON audit_log TO cmserver_tenant",
        "ALTER POLICY team ON teams USING (true)",
        "DROP TRIGGER generation_job_law ON observation_generation_jobs",
        "CREATE OR REPLACE FUNCTION retry_job(job uuid) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    ],
)
def test_the_test_above_sees_each_change(database: str, conn: psycopg.Connection, change: LiteralString):
    before = schema(database)

    conn.execute(change)

    assert schema(database) != before


def test_the_schema_of_procrastinate_is_the_one_that_was_installed():
    """When this fails, a new procrastinate brings another schema: read its own migrations between the two versions, write one of
    ours with what they do, keep the old text for 0002 in sql/, so that an empty database gets both, and pin the new sum here."""
    text = SchemaManager.get_schema()

    assert hashlib.sha256(text.encode()).hexdigest() == PROCRASTINATE


def lacks_fixture(changelog: str, fixtures: set[str]) -> str | None:
    """What a release lacks in tests/fixtures; None while the changelog's top part is not released."""
    heading = next(line for line in changelog.splitlines() if line.startswith("## "))
    name = f"schema-{newest():04}.backup"
    return None if "(unreleased)" in heading or name in fixtures else f"{name}: run `python -m tests.fixtures.generate`"


def test_a_release_has_a_fixture_of_its_schema():
    fixtures = {file.name for file in (ROOT / "tests" / "fixtures").glob("schema-*.backup")}

    assert lacks_fixture((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), fixtures) is None
    assert lacks_fixture("# Changelog\n\n## 0.2.0 (unreleased)\n", set()) is None
    assert lacks_fixture("# Changelog\n\n## 0.2.0\n\n## 0.1.0 (unreleased)\n", {"schema-0001.backup"}) is not None
