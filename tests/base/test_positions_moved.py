"""Migration 0003: four tables of positions become one, and none is lost or outdated."""

from __future__ import annotations

import asyncio
from typing import LiteralString

import psycopg
import pytest

from cmserver.base import migrate as module
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate
from tests.timeouts import until

BLUE, RED = new_id(), new_id()
GONE = ["ingest.end_idle_sessions", "observations.count_accesses", "consolidation.compare", "projects.move_strays", "steward.plan"]


@pytest.fixture
async def before(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with rows in the four tables."""
    first = module.migrations()[:2]
    with monkeypatch.context() as patch:
        patch.setattr(module, "migrations", lambda: first)
        await migrate(empty_database)
    with psycopg.connect(empty_database) as conn, conn.cursor() as cursor:
        cursor.executemany("INSERT INTO teams (id, name) VALUES (%s, %s)", [(BLUE, "blue"), (RED, "red")])
        cursor.executemany("INSERT INTO entity_progress VALUES (%s, %s)", [(BLUE, 11), (RED, 12)])
        cursor.executemany("INSERT INTO consolidation_progress VALUES (%s, %s)", [(BLUE, 21), (RED, 22)])
        cursor.execute("INSERT INTO access_counting (counted_to, seen_to, seen_below) VALUES (31, 35, '700')")
        cursor.executemany("INSERT INTO retention_marks VALUES (%s, %s)", [("event_rows", 41), ("audit_log", 42)])
    return empty_database


def positions(url: str) -> set[tuple[object, ...]]:
    with psycopg.connect(url) as conn:
        return set(conn.execute("SELECT name, team_id, read_to, fence_id, fence_transaction::text FROM read_positions").fetchall())


async def test_every_position_is_the_one_that_it_was(before: str):
    await migrate(before)

    assert positions(before) == {
        ("entities", BLUE, 11, 0, None),
        ("entities", RED, 12, 0, None),
        ("comparison", BLUE, 21, 0, None),
        ("comparison", RED, 22, 0, None),
        ("accesses", None, 31, 35, "700"),
        ("retention.event_rows", None, 41, 0, None),
        ("retention.audit_log", None, 42, 0, None),
    }


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("UPDATE entity_progress SET read_to = 99", "entities"),
        ("UPDATE consolidation_progress SET compared_to = 99", "comparison"),
        ("UPDATE access_counting SET counted_to = 99", "accesses"),
        ("UPDATE retention_marks SET read_to = 99", "retention.audit_log"),
    ],
)
async def test_it_waits_for_who_keeps_a_position_just_then(before: str, statement: LiteralString, name: str):
    with psycopg.connect(before, autocommit=True) as looking, psycopg.connect(before) as worker:
        worker.execute(statement)
        migrating = asyncio.create_task(migrate(before))
        waits = "SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"
        await until("it waits for a lock", lambda: looking.execute(waits).fetchall(), migrating)
        worker.commit()
    await migrating

    assert {row[2] for row in positions(before) if row[0] == name} == {99}


async def test_nothing_is_left_of_the_tasks_that_are_gone_but_what_runs(before: str):
    with psycopg.connect(before) as conn:
        for status in ("todo", "doing", "failed", "cancelled"):
            conn.execute(
                "WITH job AS (INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
                " SELECT 'maintenance', unnest(%s::text[]), %s::procrastinate_job_status RETURNING id, task_name)"
                " INSERT INTO procrastinate_periodic_defers (task_name, defer_timestamp, job_id) SELECT task_name, id, id FROM job",
                [[*GONE, "retention.sweep"], status],
            )

    await migrate(before)

    with psycopg.connect(before) as conn:
        left = conn.execute("SELECT task_name, status::text FROM procrastinate_jobs").fetchall()
        defers = conn.execute("SELECT task_name, count(*) FROM procrastinate_periodic_defers GROUP BY 1").fetchall()
    of_others = {("retention.sweep", status) for status in ("todo", "doing", "failed", "cancelled")}
    assert set(left) == {(name, "doing") for name in GONE} | of_others
    assert defers == [("retention.sweep", 4)]
