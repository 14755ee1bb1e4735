"""Migration 0002: the rows of `memberships` and `team_members` become one list, and none is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from cmserver.access.people import manage as people
from cmserver.access.people import repository
from cmserver.base import migrate as module
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate
from cmserver.ops.backup.archive import open_backup
from cmserver.ops.backup.restore import restore

BLUE, RED = new_id(), new_id()
ANN, BOB, CHARLIE, GONE = new_id(), new_id(), new_id(), new_id()
FIXTURE = Path(__file__).parents[1] / "fixtures" / "before-0001.backup"


@pytest.fixture
async def merged(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database that had rows in both tables."""
    first = module.migrations()[:1]
    with monkeypatch.context() as patch:
        patch.setattr(module, "migrations", lambda: first)
        assert await migrate(empty_database) == ["0001_schema"]
    with psycopg.connect(empty_database) as conn, conn.cursor() as cursor:
        cursor.executemany("INSERT INTO teams (id, name) VALUES (%s, %s)", [(BLUE, "blue"), (RED, "red")])
        cursor.executemany(
            "INSERT INTO users (id, name) VALUES (%s, %s)",
            [(ANN, "Ann"), (BOB, "bob@example.org"), (CHARLIE, "Charlie"), (GONE, "Gone")],
        )
        cursor.executemany(
            "INSERT INTO memberships (team_id, user_id, role, created_at) VALUES (%s, %s, %s, %s)",
            [
                (BLUE, ANN, "owner", "2026-03-01"),
                (BLUE, BOB, "viewer", "2026-03-02"),
                (RED, BOB, "member", "2026-03-03"),
                (RED, CHARLIE, "owner", "2026-03-04"),
            ],
        )
        cursor.executemany(
            "INSERT INTO team_members (team_id, user_id, role, metadata, created_at) VALUES (%s, %s, %s, %s, %s)",
            [
                (BLUE, "owner", "owner", "{}", "2026-01-01"),  # a name without an account
                (BLUE, "bob@example.org", "owner", '{"desk": 4}', "2026-01-02"),  # the same person in both, with more by name
                (BLUE, "BOB@example.org", "member", "{}", "2026-01-01"),  # another name, in letter case alone
                (BLUE, "Charlie", "owner", "{}", "2026-01-03"),  # has an account, but is in another team by it
                (BLUE, "Gone", "member", "{}", "2026-01-04"),  # has an account, and was removed with it
                (RED, "CHARLIE", "member", "{}", "2026-05-01"),  # the same person, spelled otherwise, and added by name later
            ],
        )
    assert "0002_members" in await migrate(empty_database)
    return empty_database


def members(url: str) -> list[dict[str, Any]]:
    with psycopg.connect(url) as conn, conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("""
            SELECT team_id, user_id, account_id, role, metadata, created_at::date::text AS since
              FROM team_members ORDER BY team_id, created_at, user_id
            """).fetchall()


async def test_each_member_is_one_row_and_a_person_has_the_role_that_was_checked(merged: str):
    def row(team_id: UUID, name: str, account_id: UUID | None, role: str, since: str, metadata: object = None) -> dict[str, Any]:
        values = {"team_id": team_id, "user_id": name, "account_id": account_id, "role": role}
        return {**values, "metadata": metadata or {}, "since": since}

    assert members(merged) == [
        row(BLUE, "BOB@example.org", None, "member", "2026-01-01"),
        row(BLUE, "owner", None, "owner", "2026-01-01"),
        row(BLUE, "bob@example.org", BOB, "viewer", "2026-01-02", {"desk": 4}),
        row(BLUE, "Charlie", None, "owner", "2026-01-03"),
        row(BLUE, "Gone", None, "member", "2026-01-04"),
        row(BLUE, "Ann", ANN, "owner", "2026-03-01"),
        row(RED, "bob@example.org", BOB, "member", "2026-03-03"),
        row(RED, "CHARLIE", CHARLIE, "owner", "2026-03-04"),
    ]
    with psycopg.connect(merged) as conn:
        assert conn.execute("SELECT to_regclass('memberships')").fetchone() == (None,)


async def test_a_name_lets_nobody_in_who_was_not_let_in_before(merged: str):
    async with Db(merged, size=1) as db, db.system() as conn:
        teams = {
            name: [(team.team_name, team.role) for team in await repository.teams_of(conn, account)]
            for name, account in {"Ann": ANN, "Bob": BOB, "Charlie": CHARLIE, "Gone": GONE}.items()
        }
        found = await people.lock_member(conn, RED, "charlie")

    assert teams == {
        "Ann": [("blue", "owner")],
        "Bob": [("blue", "viewer"), ("red", "member")],
        "Charlie": [("red", "owner")],
        "Gone": [],
    }
    assert (found.account_id, found.name) == (CHARLIE, "Charlie")


async def test_a_backup_of_the_time_before_the_first_release_is_merged_too(empty_database: str, tmp_path: Path):
    with open_backup(FIXTURE) as backup:
        counts = backup.manifest.counts
        restored = await restore(backup, empty_database, tmp_path)

    assert "0002_members" in restored.migrations
    rows = members(empty_database)
    assert counts["memberships"] == sum(row["account_id"] is not None for row in rows)
    assert len(rows) >= max(counts["memberships"], counts["team_members"])
