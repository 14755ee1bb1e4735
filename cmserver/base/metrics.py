"""What processes count and time, for `GET /metrics`. What the database knows is read there instead (`ops.metrics`)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, values
from prometheus_client.multiprocess import MultiProcessCollector

_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder with the files in which Prometheus' client counts, if several processes count together."""
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


class Metrics:
    """The metrics of this process; `registry` has those of all processes that count in the same folder."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self.request_seconds = Histogram(
            "cmserver_http_request_duration_seconds",
            "Time from a request to the end of its answer, by method and path.",
            ["method", "path"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=own,
        )
        self.responses = Counter(
            "cmserver_http_responses", "Answers by method, path and status.", ["method", "path", "status"], registry=own
        )
        self.events_stored = Counter("cmserver_events_stored", "Events that were stored; repeats are not counted.", registry=own)
        self.events_late = Counter(
            "cmserver_events_late",
            "Stored events that happened more than a minute before: a hook's spool has brought them after an outage.",
            registry=own,
        )
        self.notifications = Counter("cmserver_notifications_received", "Notifications from PostgreSQL.", ["channel"], registry=own)
        self.loop_lag_seconds = Histogram(
            "cmserver_event_loop_lag_seconds",
            "How much later than planned a timer fires, once a second: how long all else in the process waits for the processor.",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
            registry=own,
        )
        self.claim_seconds = Histogram(
            "cmserver_claim_duration_seconds",
            "The worker's statement that claims lanes.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5),
            registry=own,
        )
        self.apply_seconds = Histogram(
            "cmserver_apply_duration_seconds",
            "The transaction that stores what a batch of events became.",
            buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
            registry=own,
        )
        self.provider_seconds = Histogram(
            "cmserver_provider_call_duration_seconds",
            "Calls of a provider, by its name and whether it answered.",
            ["provider", "outcome"],
            buckets=(0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
            registry=own,
        )
        self.answers = Counter(
            "cmserver_answers",
            "Answers of models, by their provider and whether they could be used.",
            ["provider", "usable"],
            registry=own,
        )
        self.merges = Counter(
            "cmserver_merged_observations",
            "Observations merged into others, by the steward or not.",
            ["by"],
            registry=own,
        )
        self.steward_runs = Counter(
            "cmserver_steward_runs", "Runs of the steward, by executor and how they ended.", ["executor", "status"], registry=own
        )
        self.registry = own
        if _FOLDER_VARIABLE in os.environ:
            self.registry = CollectorRegistry()
            MultiProcessCollector(self.registry)  # pyright: ignore[reportUnknownArgumentType] - registers itself


@cache
def metrics() -> Metrics:
    """The metrics of this process, made at the first call: by then it must be decided where it counts."""
    return Metrics()


@contextmanager
def counting_together() -> Generator[None]:
    """Let this process and those that it starts count together, in memory. Enter it before the first use of `metrics`."""
    with tempfile.TemporaryDirectory(prefix="cmserver-metrics-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        os.environ[_FOLDER_VARIABLE] = folder
        # The client has looked for the folder when it was imported.
        values.ValueClass = values.MultiProcessValue()  # pyright: ignore[reportUnknownMemberType]
        try:
            yield
        finally:
            del os.environ[_FOLDER_VARIABLE]


async def observe_loop_lag(*, interval_seconds: float = 1.0) -> None:
    """Observe once a second by how much a timer is late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval_seconds
        await asyncio.sleep(interval_seconds)
        metrics().loop_lag_seconds.observe(max(loop.time() - due, 0.0))
