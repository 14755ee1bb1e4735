"""Traces and metrics by OpenTelemetry: sent where its standard variables say, and not even loaded without them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Generator
from uuid import UUID

import pytest
from httpx import AsyncClient
from prometheus_client.samples import Sample
from structlog.testing import capture_logs

from cmserver.base import tracing
from cmserver.base.db import Db
from cmserver.base.tracing import exporting_traces, is_exported
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.ops.metrics.collect import read_database_numbers, render
from cmserver.ops.metrics.export import convert_histogram, export_metrics
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, completion, each_observed
from tests.otlp_collector import Collector, attributes
from tests.timeouts import ENOUGH_SECONDS, until

SECRET = "what the user wrote"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[Collector]:
    monkeypatch.setattr(tracing, "_FLUSH_SECONDS", ENOUGH_SECONDS)
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


async def test_one_trace_leads_from_a_request_over_its_job_to_the_provider_and_the_observation(
    client: AsyncClient, cast: Cast, outbox: Outbox, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=memory,deployment.environment=test")
    event = {"projectId": str(cast.alice.project.id), "eventType": "tool_use", "payload": {"tool_name": "Write", "n": SECRET}}
    caller = f"00-{'ab' * 16}-{'cd' * 8}-01"

    def answer(prompt: Prompt) -> Completion:
        if len(provider.prompts) == 1:
            raise ProviderError(FailureKind.UNUSABLE_ANSWER, SECRET)
        return completion(each_observed(prompt))

    provider = Scripted(answer)
    with exporting_traces():
        requests = [
            await client.post(
                "/v1/events",
                headers={"X-Api-Key": cast.alice.key, "traceparent": caller},
                json={**event, "sourceEventId": f"{place}", "contentSessionId": "s"},
            )
            for place in range(2)
        ]
        await client.get(f"/no/{SECRET}")
        await (await outbox.hand(provider)).work()

    ids = sorted(UUID(response.headers["x-request-id"]).bytes for response in requests)
    by_name = {name: [span for span in collector.spans if span.name == name] for name in {span.name for span in collector.spans}}
    assert {name: len(spans) for name, spans in by_name.items()} == {
        "POST /v1/events": 2,
        "- -": 1,
        "batch": 1,
        "chat script-1": 3,  # refused together, then each by itself
        "store": 1,
    }
    request = next(span for span in by_name["POST /v1/events"] if span.trace_id == ids[0])
    (batch,), (store,), calls = by_name["batch"], by_name["store"], by_name["chat script-1"]
    assert (batch.trace_id, batch.parent_span_id) == (request.trace_id, request.span_id)
    assert [link.trace_id for link in batch.links] == ids[1:]
    assert {(span.trace_id, span.parent_span_id) for span in (*calls, store)} == {(batch.trace_id, batch.span_id)}
    assert [link.trace_id.hex() for link in request.links] == ["ab" * 16]
    assert attributes(request) == {"http.request.method": "POST", "http.route": "/v1/events", "http.response.status_code": 201}
    assert [(span.status.code, span.status.message) for span in calls] == [(2, "ProviderError"), (0, ""), (0, "")]
    assert attributes(calls[1])["gen_ai.usage.input_tokens"] == 10
    numbers = [row["number"] for row in await outbox.rows("SELECT number FROM observations ORDER BY number")]
    assert attributes(store) == {"cmserver.observations": numbers}
    resource = attributes(collector.resources[0])
    assert (resource["service.name"], resource["deployment.environment"]) == ("memory", "test")
    assert SECRET not in str(collector.spans)


async def test_a_sampler_decides_alike_for_a_request_and_its_batch(
    client: AsyncClient, cast: Cast, outbox: Outbox, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    event = {"projectId": str(cast.alice.project.id), "eventType": "tool_use", "payload": {"tool_name": "Write"}}
    ids = {f"{half}{number}": f"00000000-0000-7000-{half}000-00000000000{number}" for half in "1f" for number in range(3)}

    with exporting_traces():
        for name, request_id in ids.items():
            headers = {"X-Api-Key": cast.alice.key, "X-Request-Id": request_id}
            session = {"sourceEventId": name, "contentSessionId": name}
            await client.post("/v1/events", headers=headers, json={**event, **session})
        await (await outbox.hand(Scripted())).work()

    for name in ("POST /v1/events", "batch"):
        seen = {str(UUID(bytes=span.trace_id)) for span in collector.spans if span.name == name}
        assert seen == {request_id for name, request_id in ids.items() if name.startswith("1")}, name


async def test_the_metrics_are_those_of_prometheus(client: AsyncClient, db: Db, collector: Collector):
    await client.get("/healthz")
    stop = asyncio.Event()

    exporting = asyncio.create_task(export_metrics(db, stop))
    await until("metrics", lambda: "cmserver_info" in collector.metrics, exporting)
    stop.set()
    await exporting

    numbers = await read_database_numbers(db)
    scraped = {line.split()[2] for line in render(numbers).decode().splitlines() if line.startswith("# TYPE")}
    names = {name.removesuffix("_total") for name in scraped if not name.endswith("_created")}
    assert collector.metrics.keys() <= names
    assert {"cmserver_workers", "cmserver_http_responses", "cmserver_http_request_duration_seconds"} <= collector.metrics.keys()
    responses = collector.metrics["cmserver_http_responses"]
    assert responses.sum.is_monotonic
    assert sum(point.as_double for point in responses.sum.data_points) >= 1
    assert len(collector.metrics["cmserver_workers"].gauge.data_points) == 1


def test_a_bucket_of_a_histogram_holds_what_the_smaller_ones_do_not():
    samples = [
        *(Sample("x_bucket", {"path": "/", "le": bound}, count) for bound, count in (("0.1", 1.0), ("1.0", 4.0), ("+Inf", 5.0))),
        Sample("x_sum", {"path": "/"}, 7.5),
        Sample("x_count", {"path": "/"}, 5.0),
    ]

    (point,) = convert_histogram(samples, 1, 2)

    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([1, 3, 1], [0.1, 1.0])
    assert (point.count, point.sum, point.attributes) == (5, 7.5, {"path": "/"})


def test_the_standard_variables_decide(monkeypatch: pytest.MonkeyPatch):
    url = "http://127.0.0.1:4318"
    rows: list[tuple[dict[str, str], set[str]]] = [
        ({}, set()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": url}, {"traces", "metrics"}),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/v1/metrics"}, {"metrics"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "prometheus"}, {"traces"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SDK_DISABLED": "true"}, set()),
    ]
    for variables, expected in rows:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert {signal for signal in ("traces", "metrics") if is_exported(signal)} == expected, variables


def test_missing_packages_are_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")

    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)

    with capture_logs() as logs, exporting_traces():
        pass

    assert [(line["event"], line["signal"]) for line in logs] == [("export.not_installed", "traces")]


def test_without_the_variables_nothing_of_it_is_loaded():
    modules = "cmserver.cli.run, cmserver.cli.child, cmserver.app, cmserver.worker"
    listed = f"import json, sys, {modules}; print(json.dumps([*sys.modules]))"

    printed = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout

    assert not [name for name in json.loads(printed) if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
