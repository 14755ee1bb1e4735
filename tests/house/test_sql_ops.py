"""Every file of sql/ops/ runs in psql, and answers what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from cmserver.embedded.files import find_binaries
from tests.conftest import Cast
from tests.house.house import ROOT
from tests.house.pages import OPS

JOB = UUID(int=1)
STEPS = """
    INSERT INTO observation_generation_jobs (id, project_id, team_id, lane, source_type, source_id, job_type, idempotency_key)
    VALUES (%(job)s, %(project)s, %(team)s, %(job)s, 'session_summary', %(job)s, 'observation_generate_session_summary', 'one');
    INSERT INTO generation_lanes (lane, team_id, project_id, due_at, held_until, held_reason, held_for)
    VALUES (%(job)s, %(team)s, %(project)s, now() - interval '1 hour', now() + interval '1 hour', 'quota', 'anthropic');
"""
CLAIMED = """
    UPDATE generation_lanes SET worker_id = 42, claim = 7, locked_at = now();
    UPDATE observation_generation_jobs
       SET status = 'processing', attempts = 1, locked_at = now(), locked_by = 'gone:42', worker_id = 42, claim = 7;
"""
FAILED = (
    CLAIMED
    + """
    UPDATE observation_generation_jobs SET status = 'failed', last_error = '{"reason": "refused", "message": "The model refused."}';
"""
)
PAUSED = """
    INSERT INTO provider_pauses (provider, reason, message, until_at)
    VALUES ('anthropic', 'quota', 'The month is used up.', now() + interval '1 hour');
"""
RUN = """
    INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status, input_tokens)
    VALUES (%(job)s, %(team)s, %(project)s, %(job)s, 7, 'summary', 'anthropic', 'haiku', '{}', 'applied', 12345);
"""
UNUSABLE = (
    RUN
    + """
    UPDATE generation_runs SET status = 'unusable', error_class = 'unusable_answer', answer = 'I would rather not.';
"""
)
BUDGET = """
    INSERT INTO budgets (id, team_id, period, max_tokens) VALUES (%(job)s, %(team)s, 'month', 10000);
    UPDATE generation_lanes SET held_for = 'budget';
"""
WORKER = """
    INSERT INTO procrastinate_workers DEFAULT VALUES;
    INSERT INTO generation_workers (worker_id, label, lease_seconds) SELECT id, 'box:1', 20 FROM procrastinate_workers;
"""
EMBEDDING = """
    INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'nomic', 'current');
    INSERT INTO observations (id, number, project_id, team_id, origin, content)
    VALUES (%(job)s, 1, %(project)s, %(team)s, 'api', 'x');
    UPDATE observation_embeddings SET last_error = 'refused', next_at = 'infinity';
"""
WAITS = "UPDATE generation_lanes SET held_until = NULL;"

CASES: list[tuple[str, str, dict[str, str], list[str]]] = [
    # file, what has happened, its values, what it says
    ("queue_overview.sql", "", {}, ["blue", "github.com/acme/orders", "session_summary", "queued"]),
    ("queue_totals.sql", CLAIMED, {}, ["blue", "|      1 |       0 |    0 |"]),
    ("queue_totals.sql", WAITS, {}, ["blue", "|      0 |       0 |    0 |", "red"]),
    ("observations_as_of.sql", EMBEDDING, {"project": "github.com/acme/orders", "at": "now"}, ["valid_from", "| x"]),
    (
        "readers_of_words.sql",
        "UPDATE teams SET words = 'owners' WHERE name = 'blue';",
        {},
        ["blue | owners  |", "red  | members |"],
    ),
    ("lanes.sql", "", {}, [str(JOB), "held", "quota"]),
    ("stuck_jobs.sql", WAITS, {}, [str(JOB), "waits in a lane that is due"]),
    ("stuck_jobs.sql", WAITS, {"minutes": "90"}, ["(0 rows)"]),
    ("stuck_jobs.sql", CLAIMED, {}, [str(JOB), "its worker is gone", "gone:42"]),
    ("failed_jobs.sql", FAILED, {}, [str(JOB), "refused", "The model refused."]),
    ("job_history.sql", FAILED, {"job": str(JOB)}, ["processing", "failed", "refused"]),
    ("workers.sql", WORKER, {}, ["box:1", "(1 row)"]),
    ("pauses.sql", PAUSED, {}, ["anthropic", "The month is used up."]),
    ("end_pause.sql", PAUSED, {"provider": "anthropic"}, ["anthropic", str(JOB)]),
    (
        "embeddings_waiting.sql",
        EMBEDDING,
        {},
        ["nomic", "current", "blue", "orders", "|       1 |   0 |       1 |        1 | refused"],
    ),
    ("embeddings_waiting.sql", "", {}, ["(0 rows)"]),
    ("retry_job.sql", FAILED, {"job": str(JOB)}, ["queued"]),
    ("retry_job.sql", "", {"job": str(JOB)}, ["nothing to do: the job is queued"]),
    ("cancel_job.sql", "", {"job": str(JOB)}, ["cancelled"]),
    ("retry_failed.sql", FAILED, {"team": "blue"}, [" 1"]),
    ("retry_failed.sql", FAILED, {"team": "red", "hours": "1"}, [" 0"]),
    ("requeue_stale.sql", CLAIMED, {}, [str(JOB)]),
    ("spend.sql", RUN, {"days": "2"}, ["haiku", "12345", "(1 row)"]),
    ("budgets.sql", BUDGET + RUN, {}, ["blue", "(whole team)", "12345 |      10000 ", "| t         |       1", "(1 row)"]),
    ("failed_calls.sql", UNUSABLE, {}, ["anthropic", "unusable_answer", "I would rather not", "(1 row)"]),
    ("failed_calls.sql", RUN, {"days": "2"}, ["(0 rows)"]),
]


def psql(database: str, file: Path, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    given = [word for name, value in values.items() for word in ("-v", f"{name}={value}")]
    command = [find_binaries().bin / "psql", "-X", "-v", "ON_ERROR_STOP=1", *given, "-f", file, database]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("file", "happened", "values", "said"), CASES)
def test_psql_answers(database: str, cast: Cast, file: str, happened: str, values: dict[str, str], said: list[str]):
    at = {"job": JOB, "team": cast.alice.team_id, "project": cast.alice.project.id}
    with psycopg.ClientCursor(psycopg.connect(database, autocommit=True)) as cursor, cursor.connection:
        cursor.execute(STEPS + happened, at)  # pyright: ignore[reportArgumentType]

    done = psql(database, ROOT / "sql" / "ops" / file, values)

    assert done.returncode == 0, done.stderr
    for part in said:
        assert part in done.stdout


def test_a_value_that_is_missing_is_an_error(database: str):
    done = psql(database, ROOT / "sql" / "ops" / "retry_job.sql", {})

    assert done.returncode != 0
    assert 'syntax error at or near ":"' in done.stderr


def test_every_file_has_a_case():
    assert {file.name for file in OPS} == {file for file, *_ in CASES}
