"""What a sweep of retention costs those who send events meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from cmserver.base.db import Db
from cmserver.retention.model import RetentionDefaults
from cmserver.retention.sweep import sweep
from tests.bench.load import Loader, loader
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role

HOW = (
    "`cmserver run --role api`, to which 8 connections send 200 events of 2 kB a second; meanwhile another process sweeps without "
    "a break and without a budget. What goes is in equal parts expired observations with 40 different words, payloads of events "
    "of 2 kB, rows of the log of ended jobs, and receipts, all of one project; each round has as many of them. The yardstick is "
    "the same load a moment before, beside the same rows, without a sweep. The figure is the p99 of requests."
)
_AIM = Aim(of="ratio", at_least=False, bound=1.2)
_CONNECTIONS = 8
_PER_SECOND = 200.0

# Made by the superuser without triggers, since only the rows matter.
_SEED = (
    """
    INSERT INTO observations (id, number, project_id, team_id, origin, title, content, content_search, content_words, ttl_seconds,
                              expires_at)
    SELECT gen_random_uuid(), %(first)s + n, %(project_id)s, %(team_id)s, 'api', md5(n::text), words.text,
           to_tsvector('simple', words.text), 40, 60, now() - interval '8 days'
      FROM generate_series(1, %(rows)s) AS n
     CROSS JOIN LATERAL (
           SELECT string_agg(substr(md5((n * 40 + word)::text), 1, 5), ' ') AS text FROM generate_series(1, 40) AS word) AS words
    """,
    """
    INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate, size_chars,
                              payload, occurred_at, received_at)
    SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, 'api', 'old:' || (%(first)s + n), 'tool_use', 'api', false, 2000,
           jsonb_build_object('text', repeat(md5(n::text), 60)), now() - interval '40 days', now() - interval '40 days'
      FROM generate_series(1, %(rows)s) AS n
    """,
    """
    WITH job AS (
        INSERT INTO observation_generation_jobs (id, project_id, team_id, lane, source_type, source_id, job_type, idempotency_key,
                                                 status, outcome, completed_at)
        SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, gen_random_uuid(), 'session_summary', gen_random_uuid(), 'bench',
               'old:' || (%(first)s + n), 'completed', 'observed', now() - interval '100 days'
          FROM generate_series(1, %(rows)s, 3) AS n
        RETURNING id
    )
    INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, created_at)
    SELECT %(team_id)s, %(project_id)s, job.id, 'queued', 'queued', now() - interval '100 days'
      FROM job, generate_series(1, 3)
    """,
    """
    INSERT INTO context_injections (id, team_id, project_id, reason, numbers, summary_numbers, left_out, left_out_count, tokens,
                                    budget_tokens, chars, created_at)
    SELECT gen_random_uuid(), %(team_id)s, %(project_id)s, 'startup', '{1,2,3}', '{}', '{}', 0, 500, 2000, 2000,
           now() - interval '100 days'
      FROM generate_series(1, %(rows)s)
    """,
)


def run(world: World, scale: Scale) -> list[Figure]:
    """In each round the load alone, then the load beside a sweep."""
    place = world.place()
    pairs: list[tuple[float, float]] = []
    alone_ms: list[float] = []
    beside_ms: list[float] = []
    taken = [0, 0.0]
    with role(world, place, "api") as port, loader() as over_http:
        for round_ in range(scale.rounds):
            _seed(place, scale.retained // scale.rounds, round_)
            alone = _send(over_http, place, port, scale)
            with _sweeping(place, taken):
                beside = _send(over_http, place, port, scale)
            pairs.append((percentile(beside, 99), percentile(alone, 99)))
            alone_ms += alone
            beside_ms += beside
    rows, seconds = taken
    return [
        Figure(
            name=f"POST /v1/events while {scale.retained:,} rows go",
            unit="ms",
            yardstick="without a sweep",
            pairs=pairs,
            aim=_AIM,
            note=f"beside {spread(beside_ms)}; alone {spread(alone_ms)}; {rows / seconds:,.0f} rows were taken a second",
        )
    ]


def _send(over_http: Loader, place: Place, port: int, scale: Scale) -> list[float]:
    order = place.http(port, connections=_CONNECTIONS, seconds=4 * scale.seconds, per_second=_PER_SECOND)
    return over_http.send(order).milliseconds


def _seed(place: Place, rows: int, round_: int) -> None:
    part = max(1, rows // len(_SEED))
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        for statement in _SEED:
            values = {"team_id": place.team_id, "project_id": place.project_id, "rows": part, "first": 1 + round_ * part}
            conn.execute(statement, values)
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")


@contextmanager
def _sweeping(place: Place, taken: list[float]) -> Generator[None]:
    """Sweeps until the block ends; adds up the rows, and the seconds in which there were any."""
    stop = threading.Event()

    async def sweep_on() -> None:
        async with Db(place.url, size=2) as db:
            while not stop.is_set():
                started_at = time.perf_counter()
                rows = sum((await sweep(db, RetentionDefaults(events_days=30), max_rows=10_000_000)).counts.values())
                if rows:
                    taken[0] += rows
                    taken[1] += time.perf_counter() - started_at
                await asyncio.sleep(0.1)

    thread = threading.Thread(target=lambda: asyncio.run(sweep_on()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
