"""Reads the database's numbers and renders all metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.metrics import metrics
from cmserver.models.calls import repository as calls
from cmserver.models.calls.model import Pause
from cmserver.ops import repository as ops
from cmserver.ops.metrics import repository
from cmserver.ops.metrics.repository import BudgetShare, JobCount, LaneNumbers, ProviderTotals
from cmserver.ops.repository import Schema, Sizes, TableSize
from cmserver.retention import repository as retention
from cmserver.retention.model import TakenRows


class DatabaseNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knew at one time, and the numbers of this process's connection pools by pool."""

    schema: Schema
    sizes: Sizes
    lanes: LaneNumbers
    jobs: Sequence[JobCount]
    pauses: Sequence[Pause]
    spending: Sequence[ProviderTotals]
    budgets: Sequence[BudgetShare]
    taken: Sequence[TakenRows]
    tables: Sequence[TableSize]
    pools: Mapping[str, Mapping[str, int]]


class DatabaseMetrics(Collector):
    """The metrics made of numbers that were read before."""

    def __init__(self, numbers: DatabaseNumbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with all its labels."""
        yield from self._queue()
        yield from self._providers()
        yield from self._upkeep()
        yield from self._database()

    def _queue(self) -> Iterator[Metric]:
        numbers = self._numbers.lanes
        jobs = GaugeMetricFamily(
            "cmserver_jobs",
            "Jobs that are not done, and those of 24 hours that have failed, by what they were made for.",
            labels=["team", "source", "state"],
        )
        for count in self._numbers.jobs:
            jobs.add_metric([count.team, count.source, count.state], count.jobs)
        yield jobs
        lanes = GaugeMetricFamily("cmserver_lanes", "Lanes (of a session each) by what they wait for.", labels=["state"])
        lanes.add_metric(["due"], numbers.due)
        lanes.add_metric(["claimed"], numbers.claimed)
        lanes.add_metric(["held"], numbers.held)
        yield lanes
        yield GaugeMetricFamily(
            "cmserver_oldest_due_seconds",
            "How long the longest waiting lane has been due; 0 when none is.",
            value=numbers.oldest_due_seconds,
        )
        yield GaugeMetricFamily("cmserver_workers", "Workers whose lease holds, on all hosts.", value=self._numbers.schema.workers)

    def _providers(self) -> Iterator[Metric]:
        paused = GaugeMetricFamily(
            "cmserver_provider_pause_seconds", "Seconds until a paused provider is tried again.", labels=["provider", "reason"]
        )
        for pause in self._numbers.pauses:
            if pause.seconds_left > 0:
                paused.add_metric([pause.provider, pause.reason], pause.seconds_left)
        yield paused
        labels = ["provider", "model"]
        requests = CounterMetricFamily("cmserver_provider_calls", "Calls of providers.", labels=[*labels, "outcome"])
        tokens = CounterMetricFamily("cmserver_provider_tokens", "Tokens of provider calls.", labels=[*labels, "direction"])
        cost = CounterMetricFamily("cmserver_provider_cost_usd", "Cost of provider calls, where a price is known.", labels=labels)
        for row in self._numbers.spending:
            model = [row.provider, row.model]
            requests.add_metric([*model, "answered"], row.calls - row.failed_calls)
            requests.add_metric([*model, "failed"], row.failed_calls)
            tokens.add_metric([*model, "input"], row.input_tokens)
            tokens.add_metric([*model, "output"], row.output_tokens)
            cost.add_metric(model, float(row.cost_usd))
        yield from (requests, tokens, cost)
        budgets = GaugeMetricFamily(
            "cmserver_budget_spent_ratio",
            "Spent share of a budget in its present period; from 1 on, generation waits.",
            labels=["team", "project", "period"],
        )
        for budget in self._numbers.budgets:
            budgets.add_metric([budget.team, budget.project or "", budget.period], budget.spent)
        yield budgets

    def _upkeep(self) -> Iterator[Metric]:
        taken = CounterMetricFamily(
            "cmserver_retention_rows", "Rows that retention took: what has expired, was merged, or is old.", labels=["team", "kind"]
        )
        for rows in self._numbers.taken:
            taken.add_metric([rows.team, rows.kind], rows.row_count)
        yield taken

    def _database(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("cmserver_database_bytes", "Size of the database.", value=self._numbers.sizes.database_bytes)
        sizes = GaugeMetricFamily("cmserver_table_bytes", "Size of a table with its indexes.", labels=["table"])
        rows = GaugeMetricFamily("cmserver_table_rows", "Estimated rows of a table.", labels=["table", "state"])
        for table in self._numbers.tables:
            sizes.add_metric([table.name], table.bytes)
            if table.rows is not None:
                rows.add_metric([table.name, "live"], table.rows)
            rows.add_metric([table.name, "dead"], table.dead_rows)
        yield from (sizes, rows)
        connections = GaugeMetricFamily(
            "cmserver_database_connections", "Connections of the process that answers, by pool.", labels=["pool", "state"]
        )
        waiting = GaugeMetricFamily("cmserver_database_waiting", "Requests that wait for a connection.", labels=["pool"])
        waited = CounterMetricFamily("cmserver_database_wait_seconds", "Time waited for connections.", labels=["pool"])
        for pool, numbers in self._numbers.pools.items():
            connections.add_metric([pool, "open"], numbers.get("pool_size", 0))
            connections.add_metric([pool, "idle"], numbers.get("pool_available", 0))
            waiting.add_metric([pool], numbers.get("requests_waiting", 0))
            waited.add_metric([pool], numbers.get("requests_wait_ms", 0) / 1000)
        yield from (connections, waiting, waited)
        info = GaugeMetricFamily("cmserver_info", "1, with the versions as labels.", labels=["version", "schema"])
        info.add_metric([__version__, str(self._numbers.schema.number)], 1)
        yield info


async def read_database_numbers(db: Db) -> DatabaseNumbers:
    """Read all in one transaction of the owner."""
    async with db.system() as conn:
        return DatabaseNumbers(
            schema=await ops.SCHEMA.one(conn),
            sizes=await ops.SIZES.one(conn),
            lanes=await repository.LANE_NUMBERS.one(conn),
            jobs=await repository.JOB_COUNTS.all(conn),
            pauses=await calls.PAUSES.all(conn),
            spending=await repository.PROVIDER_SPENDING.all(conn),
            budgets=await repository.BUDGET_SHARES.all(conn),
            taken=await retention.COUNTS.all(conn),
            tables=await ops.TABLE_SIZES.all(conn),
            pools=db.pool_stats(),
        )


def render(numbers: DatabaseNumbers) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(DatabaseMetrics(numbers))
    return generate_latest(registry) + generate_latest(metrics().registry)
