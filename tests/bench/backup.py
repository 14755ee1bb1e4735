"""What a backup is: its size, its time, and what it costs those who send events meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cmserver.base.settings import Settings
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.drill import run_drill
from tests.bench.load import Loader, loader
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role

HOW = (
    "`cmserver run --role api`, to which 8 connections send 100 events of 2 kB a second, beside a database with so many events "
    "of 1 kB and observations of 60 words; meanwhile another process makes one backup after the other. The yardstick is the "
    "same load a moment before. The figure is the p99 of requests. The last backup is then restored by a drill."
)
_AIM = Aim(of="ratio", at_least=False, bound=1.5)
_CONNECTIONS = 8
_PER_SECOND = 100.0

_SEED = (
    """
    INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate, size_chars,
                              payload, occurred_at)
    SELECT gen_random_uuid(), %(project_id)s, %(team_id)s, 'api', 'seed:' || n, 'tool_use', 'api', false, 1000,
           jsonb_build_object('text', (SELECT string_agg(md5((n * 31 + part)::text), ' ') FROM generate_series(1, 30) AS part)),
           now()
      FROM generate_series(1, %(events)s) AS n
    """,
    """
    INSERT INTO observations (id, number, project_id, team_id, origin, title, content, content_search, content_words)
    SELECT gen_random_uuid(), 1000000 + n, %(project_id)s, %(team_id)s, 'api', md5(n::text), words.text,
           to_tsvector('simple', words.text), 60
      FROM generate_series(1, %(observations)s) AS n
     CROSS JOIN LATERAL (
           SELECT string_agg(substr(md5((n * 60 + word)::text), 1, 5), ' ') AS text FROM generate_series(1, 60) AS word) AS words
    """,
)


def run(world: World, scale: Scale) -> list[Figure]:
    """In each round the load alone, then the load beside a backup."""
    place = world.place()
    folder = world.free_folder()
    settings = Settings(data_dir=folder, database_url=place.url)
    file = folder / "bench.backup"
    _seed(place, scale)
    pairs: list[tuple[float, float]] = []
    alone_ms: list[float] = []
    beside_ms: list[float] = []
    backup_seconds: list[float] = []
    with role(world, place, "api") as port, loader() as over_http:
        for _ in range(scale.rounds):
            alone = _send(over_http, place, port, scale)
            with _backing_up(place, settings, file, backup_seconds):
                beside = _send(over_http, place, port, scale)
            pairs.append((percentile(beside, 99), percentile(alone, 99)))
            alone_ms += alone
            beside_ms += beside
    drill = run_drill(file, folder, folder)
    events, observations = scale.backed_up
    return [
        Figure(
            name=f"POST /v1/events while {events:,} events and {observations:,} observations are backed up",
            unit="ms",
            yardstick="without a backup",
            pairs=pairs,
            aim=_AIM,
            note=f"beside {spread(beside_ms)}; alone {spread(alone_ms)}; a backup takes {min(backup_seconds):.1f} to "
            f"{max(backup_seconds):.1f} s and {file.stat().st_size / 1e6:,.0f} MB; the drill "
            f"{'passed' if drill.passed else 'failed'} in {drill.seconds:.0f} s",
        )
    ]


def _send(over_http: Loader, place: Place, port: int, scale: Scale) -> list[float]:
    order = place.http(port, connections=_CONNECTIONS, seconds=4 * scale.seconds, per_second=_PER_SECOND)
    return over_http.send(order).milliseconds


def _seed(place: Place, scale: Scale) -> None:
    events, observations = scale.backed_up
    values = {"team_id": place.team_id, "project_id": place.project_id, "events": events, "observations": observations}
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        for statement in _SEED:
            conn.execute(statement, values)
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")


@contextmanager
def _backing_up(place: Place, settings: Settings, file: Path, seconds: list[float]) -> Generator[None]:
    """Makes backups until the block ends and one is done; adds how long each took."""
    stop = threading.Event()

    def back_up_on() -> None:
        while True:
            began = time.perf_counter()
            asyncio.run(back_up(place.url, settings, file))
            seconds.append(time.perf_counter() - began)
            if stop.is_set():
                return

    thread = threading.Thread(target=back_up_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
