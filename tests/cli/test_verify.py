"""`cmserver verify` where there is nothing to check. Its sums are looked at wherever something could be lost."""

from __future__ import annotations

import psycopg

from tests.cli.conftest import Cms


async def test_a_database_without_the_schema_is_a_sentence(cms: Cms, database: str):
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("ALTER TABLE entity_mentions RENAME TO of_another_program")

    told = await cms("verify")

    assert told.code != 0
    assert "does not have this program's schema" in told.err
