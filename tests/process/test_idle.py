"""How much an idle server asks its database, by PostgreSQL's own log."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.steward.jobs import QUEUE as STEWARD
from tests.process.conftest import Run
from tests.process.program import measured

pytestmark = pytest.mark.slow

MAX_STATEMENTS = 52
MAX_OF_STEWARD = 40
QUIET_SECONDS, SPAN_SECONDS = 60, 60
CRON_SECONDS = 300
"""How often periodic tasks come, which are no idleness."""
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:\n]*):\s+(?P<text>\S.*(?:\n\t.*)*(?:\n.* DETAIL:.*)?)")


def statements(log: Path, offset: int) -> list[str]:
    """The statements in the log behind that offset, with their parameters, without those that begin and end transactions."""
    with log.open("rb") as file:
        file.seek(offset)
        found = STATEMENT.findall(file.read().decode())
    return [text for text in found if not text.startswith(("BEGIN", "COMMIT", "ROLLBACK"))]


def of_steward(found: list[str]) -> list[str]:
    """Those of the steward: that name it, and the heartbeats of the worker that asks for jobs of its queue."""
    workers = {worker for text in found for worker in re.findall(rf"\{{{STEWARD}\}}', \$2 = '(\d+)'", text)}
    beats = tuple(f"$1 = '{worker}'" for worker in workers)
    return [text for text in found if STEWARD in text or ("update_heartbeat" in text and text.endswith(beats))]


def test_an_idle_server_and_its_worker_send_less_than_a_statement_a_second_without_those_of_the_steward(run: Run):
    server = run("server")
    server.wait_until_ready()
    embedded = EmbeddedPostgres(server.data_dir)
    with psycopg.connect(embedded.superuser_url, autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET log_statement = 'all'")
        conn.execute("SELECT pg_reload_conf()")
    time.sleep(QUIET_SECONDS)
    while time.time() % CRON_SECONDS > CRON_SECONDS - SPAN_SECONDS - 10 or time.time() % CRON_SECONDS < 20:
        time.sleep(1)

    offset = embedded.log_file.stat().st_size
    time.sleep(SPAN_SECONDS)
    found = statements(embedded.log_file, offset)

    steward = of_steward(found)
    others = list((Counter(found) - Counter(steward)).elements())
    measured(f"{len(others)} statements in {SPAN_SECONDS} s, and {len(steward)} of the steward")
    assert len(others) <= MAX_STATEMENTS, Counter(others)
    # Its worker looks for jobs, beats, and looks for what the dead held, every five seconds. Goes with it.
    assert len(steward) <= MAX_OF_STEWARD, Counter(steward)
