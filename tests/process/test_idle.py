"""How much an idle server asks its database, by PostgreSQL's own log."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.process.conftest import Run
from tests.process.program import measured

pytestmark = pytest.mark.slow

MAX_STATEMENTS = 60
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


def test_an_idle_server_and_its_worker_send_less_than_a_statement_a_second(run: Run):
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

    measured(f"{len(found)} statements in {SPAN_SECONDS} s")
    assert len(found) <= MAX_STATEMENTS, Counter(found)
