"""How much an idle server asks its database, by PostgreSQL's own log."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.process.conftest import Run
from tests.process.program import measured

pytestmark = pytest.mark.slow

MAX_STATEMENTS = 20
MAX_OF_STEWARD = 12
"""Its worker looks for jobs, beats, and looks for what the dead held, every five seconds."""
QUIET_SECONDS, SPAN_SECONDS = 60, 20
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:\n]*):\s+(?P<text>\S.*)")


def statements(log: Path, offset: int) -> list[str]:
    """The beginnings of the statements in the log behind that offset, without those that begin and end transactions."""
    with log.open("rb") as file:
        file.seek(offset)
        found = STATEMENT.findall(file.read().decode())
    return [text for text in found if not text.startswith(("BEGIN", "COMMIT", "ROLLBACK"))]


def test_an_idle_server_and_its_worker_send_at_most_one_statement_a_second(run: Run):
    server = run("server")
    server.wait_until_ready()
    embedded = EmbeddedPostgres(server.data_dir)
    with psycopg.connect(embedded.superuser_url, autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET log_statement = 'all'")
        conn.execute("SELECT pg_reload_conf()")
    time.sleep(QUIET_SECONDS)

    spans: list[list[str]] = []
    for _ in range(3):
        offset = embedded.log_file.stat().st_size
        time.sleep(SPAN_SECONDS)
        spans.append(statements(embedded.log_file, offset))

    counts = [len(span) for span in spans]
    measured(f"{counts} statements in spans of {SPAN_SECONDS} s")
    assert statistics.median(counts) <= MAX_STATEMENTS + MAX_OF_STEWARD, Counter(text for span in spans for text in span)
