"""The queries that came with the pages of jobs and analytics use their index, as the tenant's role, among several teams."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import psycopg

from cmserver.base.db import Db
from cmserver.generation.operate.repository import COUNT, LOCK_SELECTED, PAGE, RUNS, lanes
from cmserver.ops.analytics.repository import shown_days, shown_totals, stored_days, top_shown
from cmserver.steward.repository import queue_health
from cmserver.steward.runs.repository import figures as steward_figures
from cmserver.steward.runs.repository import newest as newest_steward_runs
from tests.conftest import Cast
from tests.house.test_plans import RUNS as SEED_RUNS
from tests.house.test_plans import listing, plan, queue

__all__ = ["queue"]

_RECEIPTS = """
INSERT INTO context_injections (id, team_id, project_id, reason, numbers, summary_numbers, left_out, left_out_count, tokens,
                                budget_tokens, chars, created_at)
SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, 'startup', ARRAY[n, n + 1], '{}', '{}', 0, 9, 9, 9,
       now() - n * interval '1 hour'
  FROM generate_series(1, 8000) n
"""
_OBSERVATIONS = """
INSERT INTO observations (id, number, project_id, team_id, origin, scope, type, kind, title, content, created_at)
SELECT gen_random_uuid(), n, %(project_id)s, %(team_id)s, 'model', 'project', 'change', 'observation', 'title', 'word ' || n,
       now() - n * interval '1 hour'
  FROM generate_series(1, 8000) n
"""
_STEWARD_JOBS = """
INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, source_run, job_type, status,
                                         attempts, outcome, completed_at, failed_at, created_at)
SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, %(project_id)s, 'steward', %(project_id)s, n, 'recheck',
       CASE WHEN n %% 400 = 0 THEN 'failed' ELSE 'completed' END, 1, CASE WHEN n %% 400 <> 0 THEN 'skipped' END,
       CASE WHEN n %% 400 <> 0 THEN now() - n * interval '1 hour' END,
       CASE WHEN n %% 400 = 0 THEN now() - n * interval '1 hour' END, now() - n * interval '1 hour'
  FROM generate_series(1, 8000) n
"""
_STEWARD_RUNS = """
INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, latency_ms, created_at, completed_at)
SELECT gen_random_uuid(), team_id, project_id, id, job_type, 1, 'succeeded', 20, created_at, created_at
  FROM steward_jobs WHERE team_id = %(team_id)s AND project_id = %(project_id)s
"""


async def fill(db: Db, cast: Cast, statement: str, table: str) -> None:
    async with db.system() as conn:
        for person in (cast.alice, cast.charlie):
            await conn.execute(statement.encode(), {"team_id": person.team_id, "project_id": person.project.id})
    async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
        await conn.execute(f"VACUUM ANALYZE {table}".encode())


async def test_selected_jobs_are_found_by_the_index_of_their_team(db: Db, queue: Cast):
    selection = listing(queue, statuses=["failed"], phases=["failed"], ids=None, limit=1001)

    for query in (COUNT, LOCK_SELECTED):
        told = await plan(db, queue.alice.team_id, query.text, selection)

        assert "observation_jobs_team" in told, told
        assert "Seq Scan on observation_generation_jobs" not in told


async def test_running_jobs_are_counted_and_listed_without_reading_all_others(db: Db, queue: Cast):
    running = listing(queue, status="processing", phases=["open"], open_status="processing", ids=None, max_count=1001)

    for query in (COUNT, PAGE):
        told = await plan(db, queue.alice.team_id, query.text, running)

        assert "Seq Scan on observation_generation_jobs" not in told


async def test_the_pages_of_the_steward_read_the_newest_from_indexes(db: Db, cast: Cast):
    await fill(db, cast, _STEWARD_JOBS, "observation_generation_jobs")
    await fill(db, cast, _STEWARD_RUNS, "steward_runs")
    team_id = cast.alice.team_id
    page: dict[str, object] = {"team_id": team_id, "project_id": None, "status": None, "job_type": None}
    page |= {"before": datetime.now(UTC), "before_id": uuid4(), "limit": 50, "offset": 0}

    newest = await plan(db, team_id, newest_steward_runs.query.text, page)
    health = await plan(db, team_id, queue_health.query.text, {"team_id": team_id, "project_id": None})
    figures = await plan(db, team_id, steward_figures.query.text, {"team_id": team_id, "project_id": None})

    assert "Backward using steward_runs_team" in newest
    assert "steward_runs_team" in figures
    assert "Seq Scan on steward_" not in newest + figures
    assert "Seq Scan on observation_generation_jobs" not in newest + health


async def test_lanes_count_their_queued_jobs_by_the_index_of_lanes(db: Db, queue: Cast):
    told = await plan(
        db, queue.alice.team_id, lanes.query.text, {"team_id": queue.alice.team_id, "project_id": None, "state": None, "limit": 100}
    )

    assert "observation_jobs_lane" in told


async def test_calls_of_a_job_are_looked_for_only_in_the_time_the_job_has_lived(db: Db, cast: Cast):
    await fill(db, cast, SEED_RUNS, "generation_runs")
    asked: dict[str, object] = {"job_id": uuid4(), "since": datetime.now(UTC), "until": None, "with_answer": False, "limit": 100}

    told = await plan(
        db, cast.alice.team_id, RUNS.text, {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, **asked}
    )

    assert "generation_runs_" in told
    assert "Seq Scan on generation_runs" not in told


async def test_analytics_read_only_the_days_that_are_asked_for(db: Db, cast: Cast):
    await fill(db, cast, _OBSERVATIONS, "observations")
    await fill(db, cast, _RECEIPTS, "context_injections")
    asked: dict[str, object] = {"team_id": cast.alice.team_id, "project_id": None, "days": 7, "limit": 10}

    for query in (shown_days.query, shown_totals.query, top_shown.query):
        told = await plan(db, cast.alice.team_id, query.text, asked)
        assert "context_injections_project" in told, told
        assert "Seq Scan on context_injections" not in told
    stored = await plan(db, cast.alice.team_id, stored_days.query.text, asked)
    assert "observations_team" in stored, stored
