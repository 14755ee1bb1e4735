"""The page of tables is what the migrations make; and what procrastinate brings is what 0001 was written for."""

from __future__ import annotations

import hashlib

from procrastinate.schema import SchemaManager

from cmserver.base.migrate import newest
from tests.house.house import ROOT
from tests.house.pages import REFERENCE, present, tables_page

PROCRASTINATE = "c70ec4b400a60ad9592787653aae5ae77ae41bf801d56b5bd2712751a07f2009"
"""SHA-256 of the schema that migration 0001 installs."""


def test_the_page_of_tables_is_what_the_migrations_make(database: str):
    assert tables_page(database) == present(REFERENCE / "tables.md"), "bin/check --fix writes it anew"


def test_the_schema_of_procrastinate_is_the_one_that_was_installed():
    """When this fails, a new procrastinate brings another schema: read its own migrations between the two versions, write one of
    ours with what they do, keep the old text for 0001 in sql/, so that an empty database gets both, and pin the new sum here."""
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
    assert lacks_fixture("# Changelog\n\n## 0.2.0\n\n## 0.1.0 (unreleased)\n", {"schema-0000.backup"}) is not None
