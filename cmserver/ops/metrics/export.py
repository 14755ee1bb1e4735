"""Sends the metrics of `GET /metrics` by OpenTelemetry's protocol. Imported only with the extra `otel`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.base.metrics import metrics
from cmserver.base.spans import describe_process
from cmserver.base.waiting import run_periodically
from cmserver.ops.metrics.collect import DatabaseMetrics, read_database_numbers

log = get_logger(__name__)

_STARTED = time.time_ns()
_UNKNOWN = 0
"""When the counters of the database began."""


async def export_metrics(db: Db, stop: asyncio.Event) -> None:
    """Send all metrics every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds until `stop`."""
    resource, scope = describe_process(), InstrumentationScope("cmserver", __version__)
    sending: Thread | None = None

    async def send() -> None:
        nonlocal sending
        if sending is not None and sending.is_alive():
            return
        numbers = await read_database_numbers(db)
        now = time.time_ns()
        converted = [
            *_convert(DatabaseMetrics(numbers).collect(), _UNKNOWN, now),
            *_convert(metrics().registry.collect(), _STARTED, now),
        ]
        exporter: MetricExporter = OTLPMetricExporter()
        data = MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, converted, "")], "")])
        # Nobody waits for it: a collector that is away must not hold up the end of the server.
        sending = Thread(target=lambda: exporter.export(data), daemon=True)  # pyright: ignore[reportUnknownMemberType]
        sending.start()

    await run_periodically(
        send, stop, seconds=_interval_seconds(), log_failure=lambda error: log.error("export.failed", exc_info=error)
    )


def _interval_seconds() -> float:
    with contextlib.suppress(ValueError):
        return max(int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")), 100) / 1000
    return 60.0


def _convert(families: Iterable[Family], started: int, now: int) -> Iterator[Metric]:
    for family in families:
        points = [
            NumberDataPoint(sample.labels, started, now, sample.value)
            for sample in family.samples
            if sample.name in {family.name, f"{family.name}_total"}
        ]
        match family.type:
            case "counter":
                data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            case "histogram":
                data = Histogram(list(convert_histogram(family.samples, started, now)), AggregationTemporality.CUMULATIVE)
            case _:
                data = Gauge(points)
        if data.data_points:
            yield Metric(family.name, family.documentation, "", data)


def convert_histogram(samples: Iterable[Sample], started: int, now: int) -> Iterator[HistogramDataPoint]:
    """A point for each set of labels. Prometheus counts in a bucket what the smaller ones hold, too."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if "le" in sample.labels:
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, bounds in buckets.items():
        bounds.sort()
        counts = [int(count) for _, count in bounds]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=started,
            time_unix_nano=now,
            count=counts[-1],
            sum=sums[labels],
            bucket_counts=[count - smaller for count, smaller in zip(counts, [0, *counts], strict=False)],
            explicit_bounds=[bound for bound, _ in bounds[:-1]],
            min=None,  # pyright: ignore[reportArgumentType] - unknown
            max=None,  # pyright: ignore[reportArgumentType] - unknown
        )
