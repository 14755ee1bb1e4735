"""`bin/bench growth`: what an event costs and takes as the database grows."""

from __future__ import annotations

import time
from typing import LiteralString, cast

import click
import msgspec
import psycopg

from cmserver.base import logs
from tests.bench import page
from tests.bench.cpu import cpu_seconds
from tests.bench.crowd import crowded
from tests.bench.drain import PROVIDER, wait_until_ended
from tests.bench.growth import record
from tests.bench.growth.hosts import measure_hosts
from tests.bench.growth.record import Churn, Growth, Stage, Table
from tests.bench.load import loader
from tests.bench.operations import KINDS, LISTS, Cost, Kind, measure, start_role
from tests.bench.world import Place, World, role, value, world

_READS = frozenset({"a search by words and meaning", "a context", *(kind.name for kind in LISTS)})

_SIZES = """
    SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_total_relation_size(oid) > 0
"""
_NOTHING_WAITS = "UPDATE observation_generation_jobs SET status = 'cancelled', cancelled_at = now() WHERE status = 'queued'"
_CHURNED = """
    SELECT pg_total_relation_size('generation_lanes'), pg_total_relation_size('observation_generation_jobs'),
           coalesce(sum(n_dead_tup)::float8 / nullif(sum(n_live_tup + n_dead_tup), 0), 0), sum(autovacuum_count)::integer
      FROM pg_stat_user_tables WHERE relname IN ('generation_lanes', 'observation_generation_jobs')
"""
_RESET = """
    ALTER TABLE {table} RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor)
"""
SETTINGS: dict[str, tuple[LiteralString, ...]] = {
    "as they are": (),
    "PostgreSQL's own": (
        _RESET.replace("{table}", "generation_lanes"),
        _RESET.replace("{table}", "observation_generation_jobs"),
    ),
    "every 200 dead lanes, without pauses": (
        (
            "ALTER TABLE generation_lanes SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, "
            "autovacuum_vacuum_cost_delay = 0)"
        ),
        "ALTER TABLE observation_generation_jobs SET (autovacuum_vacuum_cost_delay = 0)",
    ),
}


@click.command()
@click.option("--quick", is_flag=True, help="Tiny sizes: whether it runs.")
@click.option(
    "--events", multiple=True, type=int, default=(10_000, 100_000, 1_000_000), show_default=True, help="Sizes of the databases."
)
@click.option("--operations", "number", default=400, show_default=True, help="How often each operation is done.")
@click.option("--churn", default=40_000, show_default=True, help="Events for each of autovacuum's settings; 0: not measured.")
@click.option("--hosts", default=2000, show_default=True, help="Events for 1, 2 and 4 processes and workers; 0: not measured.")
@click.option("--keep", is_flag=True, help="Keep the figures in build/bench/, for docs/reference/sizing.md.")
def main(events: tuple[int, ...], number: int, churn: int, hosts: int, *, quick: bool, keep: bool) -> None:
    """Measure ingest, the worker, search, context, lists and sizes of tables at several sizes of the database.

    A million events take 3 GB of disk and ten minutes; ten million ten times as much of both.
    """
    logs.configure("console", "error")
    if quick:
        events, churn, hosts, number = (500, 1000), 200, 100, 20
    with world() as here:
        stages = [measure_stage(here, size, number) for size in events]
        churns = [measure_churn(here, name, statements, churn) for name, statements in SETTINGS.items()] if churn else []
        spread = measure_hosts(here, (1, 2) if quick else (1, 2, 4), hosts, 1 if quick else 3) if hosts else []
        machine = page.machine(cast("str", value(here.embedded.url, "SHOW server_version")))
    growth = Growth(machine=machine, stages=stages, churns=churns, hosts=spread)
    click.echo(record.page(growth, None))
    if keep:
        click.echo(f"kept: {record.keep(growth).relative_to(page.ROOT)}")
        record.write_page()


def measure_stage(world: World, events: int, number: int) -> Stage:
    """The sizes first, before the operations write more."""
    place = crowded(world, events).place
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute(_NOTHING_WAITS)
        tables = [Table(*row) for row in conn.execute(_SIZES).fetchall()]
        row = conn.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    costs: dict[str, Cost] = {}
    for name in ("api", "worker"):
        with start_role(world, place, name) as server:
            for kind in (*KINDS, *LISTS):
                if kind.role == name:
                    costs[kind.name] = measure(server, kind, _times(kind, number))
                    click.echo(f"{events:,} events: {kind.name}", err=True)
    world.embedded.drop_database(_name(place))
    return Stage(events=events, database_bytes=row[0], tables=tables, costs=costs)


def _times(kind: Kind, number: int) -> int:
    return max(20, number // 4) if kind.name in _READS else number


def _name(place: Place) -> str:
    return place.url.partition("?")[0].rpartition("/")[2]


def measure_churn(world: World, name: str, statements: tuple[LiteralString, ...], events: int) -> Churn:
    """Autovacuum looks every second here, so that what takes hours on a server can be seen in a minute."""
    place = world.place()
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        for statement in (*statements, "ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()"):
            conn.execute(statement)
    batch = 5
    settings = {"provider": PROVIDER, "generation_debounce_seconds": 0}
    with loader() as sender, role(world, place, "worker", **settings):
        before = cpu_seconds(world.postmaster)
        sender.send(
            msgspec.structs.replace(
                place.sql(connections=2, seconds=600, batch=batch, requests=events // batch, delay_seconds=0), warm_seconds=0
            )
        )
        wait_until_ended(place)
        spent = cpu_seconds(world.postmaster) - before
    time.sleep(1.5)
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        row = conn.execute(_CHURNED).fetchone()
        conn.execute("ALTER SYSTEM RESET autovacuum_naptime")
        conn.execute("SELECT pg_reload_conf()")
    assert row is not None
    world.embedded.drop_database(_name(place))
    click.echo(f"churn with autovacuum {name}: {row}", err=True)
    return Churn(
        name=name,
        events=events,
        lanes_bytes=row[0],
        jobs_bytes=row[1],
        dead_share=row[2],
        vacuums=row[3] or 0,
        postgres_us=spent * 1e6 / events,
    )
