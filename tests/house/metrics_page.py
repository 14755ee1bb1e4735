"""The reference page on metrics."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import cast

from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from cmserver.base.ids import from_epoch_ms
from cmserver.base.metrics import metrics
from cmserver.models.calls.model import Pause
from cmserver.ops.metrics.collect import DatabaseMetrics, DatabaseNumbers
from cmserver.ops.metrics.repository import BudgetShare, JobCount, LaneNumbers, ProviderTotals
from cmserver.ops.repository import Schema, Sizes, TableSize
from cmserver.retention.model import TakenRows

TIME = from_epoch_ms(1_767_225_600_000)
NUMBERS = DatabaseNumbers(
    schema=Schema(number=1, vectors=True, postgres="18.4", workers=2),
    sizes=Sizes(database_bytes=7, teams=1),
    lanes=LaneNumbers(due=3, claimed=4, held=5, oldest_due_seconds=6.5),
    jobs=[JobCount(team="default", source="steward", state="queued", jobs=23)],
    pauses=[Pause(provider="gemini", reason="quota", message="", paused_at=TIME, until_at=TIME, seconds_left=10)],
    spending=[
        ProviderTotals(
            provider="gemini", model="flash", calls=12, failed_calls=1, input_tokens=13, output_tokens=14, cost_usd=Decimal("1.5")
        )
    ],
    budgets=[BudgetShare(team="default", project="shop", period="day", spent=0.5)],
    taken=[TakenRows(team="default", kind="expired_observations", row_count=24, last_at=TIME)],
    tables=[TableSize(name="agent_events", bytes=16, rows=17, dead_rows=18)],
    pools={"tenant": {"pool_size": 19, "pool_available": 20, "requests_waiting": 21, "requests_wait_ms": 22_000}},
)
"""A value for every metric."""


def known_metrics() -> Iterator[tuple[str, str, list[str], str]]:
    """Each metric: name as it is queried, type, labels, meaning."""
    for metric in vars(metrics()).values():
        if not isinstance(metric, MetricWrapperBase):
            continue
        described = next(iter(metric.describe()))
        # Nothing public has the names of the labels.
        names = cast("tuple[str, ...]", metric._labelnames)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        yield _name(described), described.type, list(names), described.documentation
    for metric in DatabaseMetrics(NUMBERS).collect():
        yield _name(metric), metric.type, list(metric.samples[0].labels), metric.documentation


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    rows = "\n".join(
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |"
        for name, kind, labels, meaning in sorted(known_metrics())
    )
    return _PAGE.format(rows=rows)


_PAGE = """\
# Metrics

<!-- Generated from cmserver/base/metrics.py and cmserver/ops/metrics/collect.py. -->

`GET /metrics` returns these for Prometheus, if `CMSERVER_METRICS_TOKEN` is set ([how](../howto/watch-with-prometheus.md));
OpenTelemetry gets them, too ([how](../howto/watch-with-opentelemetry.md)), without the ending `_total`.
A histogram has `_bucket`, `_sum` and `_count`. Gauges and counters of the queue, of providers and of the database are read from
the database, and so are those of all processes; what is timed and stored is counted by the processes of the
`cmserver run` that answers, since its start.

| metric | type | labels | meaning |
|---|---|---|---|
{rows}
"""
