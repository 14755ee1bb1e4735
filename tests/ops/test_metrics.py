"""GET /metrics: every metric moves, and the alerts and the board use only metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.metrics import observe_loop_lag
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops.metrics.collect import DatabaseMetrics
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.house.house import ROOT
from tests.house.metrics_page import NUMBERS, known_metrics
from tests.house.test_docs_examples import wrong_command
from tests.make import Make
from tests.steward.tools import Keeper, insert_job
from tests.timeouts import scaled, until

TOKEN = "a token of the operator"
MONITORING = ROOT / "docs" / "monitoring"
_SUFFIXES = re.compile(r"_(bucket|sum|count|created)$")


@pytest.fixture
def client(settings: Settings, db: Db) -> httpx.AsyncClient:
    settings = msgspec.structs.replace(settings, metrics_token=TOKEN)
    notifications = NotificationListener(db.url)
    app = create_app(settings, db, notifications, JobNotifier(db, notifications), secret=b"secret")
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    return httpx.AsyncClient(transport=transport, base_url="http://cmserver")


@pytest.fixture
def keeper(settings: Settings, db: Db, cast: Cast) -> Keeper:
    """The steward of Alice's team, without a model."""
    return Keeper(db, msgspec.structs.replace(settings, provider="offline"), cast.alice.principal)


async def scrape(client: httpx.AsyncClient) -> dict[str, float]:
    """The samples by name and labels."""
    response = await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        " ".join([sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def see_requests_and_events_counted(client: httpx.AsyncClient, cast: Cast) -> None:
    event = {"projectId": str(cast.alice.project.id), "eventType": "tool_use", "payload": {"tool_name": "Read"}}
    key = {"X-Api-Key": cast.alice.key}
    before = await scrape(client)

    for number, occurred_at in enumerate([1_767_225_600_000, None]):
        times = {"occurredAtEpoch": occurred_at} if occurred_at else {}
        stored = await client.post("/v1/events", headers=key, json={**event, **times, "sourceEventId": f"event {number}"})
        assert stored.status_code == 201, stored.text
    await client.post("/v1/events", headers=key, json={**event, "sourceEventId": "event 1"})
    await client.get("/no/such/path")
    after = await scrape(client)

    def gained(sample: str) -> float:
        return after[sample] - before.get(sample, 0)

    assert gained("cmserver_events_stored_total") == 2
    assert gained("cmserver_events_late_total") == 1
    assert gained("cmserver_http_responses_total method=POST path=/v1/events status=201") == 3
    assert gained("cmserver_http_request_duration_seconds_count method=POST path=/v1/events") == 3
    assert gained("cmserver_http_responses_total method=- path=- status=404") == 1


async def see_work_timed(client: httpx.AsyncClient, outbox: Outbox) -> None:
    before = await scrape(client)

    await outbox.put(2, session="a")
    await (await outbox.hand(Scripted())).work()
    notifications = NotificationListener(outbox.db.url)
    listening = asyncio.create_task(notifications.listen(["metrics_test"]))
    lag = asyncio.create_task(observe_loop_lag(interval_seconds=0.001))
    await notifications.listening.wait()
    received = asyncio.Event()
    notifications.subscribe("metrics_test", lambda payload: received.set() if payload else None)
    await outbox.rows("SELECT pg_notify('metrics_test', 'now')")
    await asyncio.wait_for(received.wait(), scaled(10))
    await asyncio.sleep(0.01)
    listening.cancel()
    lag.cancel()
    after = await scrape(client)

    for sample in (
        "cmserver_claim_duration_seconds_count",
        "cmserver_apply_duration_seconds_count",
        "cmserver_provider_call_duration_seconds_count outcome=answered provider=scripted",
        "cmserver_notifications_received_total channel=metrics_test",
        "cmserver_event_loop_lag_seconds_count",
    ):
        assert after[sample] > before.get(sample, 0), sample


async def see_queue_and_database_read(client: httpx.AsyncClient, outbox: Outbox, cast: Cast) -> None:
    await outbox.put(3, session="waiting")
    await outbox.rows("UPDATE generation_lanes SET due_at = now() - interval '1 minute'")
    await outbox.rows(
        "INSERT INTO provider_pauses (provider, reason, message, until_at)"
        " VALUES ('gemini', 'quota', '', now() + interval '1 hour')"
    )
    await outbox.rows(
        "INSERT INTO budgets (id, team_id, period, max_tokens) VALUES (gen_random_uuid(), %s, 'day', 100)", cast.alice.team_id
    )
    await outbox.rows(
        "INSERT INTO generation_spending"
        " SELECT %s, (now() AT TIME ZONE 'UTC')::date, %s, 'gemini', 'flash', 3, 1, 0, 40, 5, 5, 0, 0.25",
        cast.alice.team_id,
        cast.alice.project.id,
    )

    async with outbox.db.system() as conn:
        for status in ("queued", "failed", "completed"):
            await insert_job(conn, cast.alice.team_id, cast.alice.project.id, status=status)
    await outbox.rows(
        "INSERT INTO retention_counts (team_id, kind, row_count) VALUES (%s, 'expired_observations', 7)", cast.alice.team_id
    )

    samples = await scrape(client)

    team = (await outbox.rows("SELECT name FROM teams WHERE id = %s", cast.alice.team_id))[0]["name"]
    assert samples[f"cmserver_jobs source=agent_event state=queued team={team}"] == 3
    assert samples[f"cmserver_jobs source=steward state=queued team={team}"] == 1
    assert samples[f"cmserver_jobs source=steward state=failed team={team}"] == 1
    assert samples["cmserver_lanes state=due"] == 1
    assert samples[f"cmserver_retention_rows_total kind=expired_observations team={team}"] == 7
    assert samples["cmserver_oldest_due_seconds"] >= 60
    assert samples["cmserver_workers"] == 0
    assert 3500 < samples["cmserver_provider_pause_seconds provider=gemini reason=quota"] <= 3600
    assert samples["cmserver_provider_calls_total model=flash outcome=answered provider=gemini"] == 2
    assert samples["cmserver_provider_tokens_total direction=input model=flash provider=gemini"] == 45
    assert samples["cmserver_provider_cost_usd_total model=flash provider=gemini"] == 0.25
    assert samples[f"cmserver_budget_spent_ratio period=day project= team={team}"] == 0.5
    assert samples["cmserver_table_bytes table=agent_events"] > 0
    assert samples["cmserver_database_bytes"] > 1_000_000
    assert samples["cmserver_database_connections pool=owner state=open"] >= 1


async def see_merges_and_runs_counted(client: httpx.AsyncClient, keeper: Keeper, cast: Cast, make: Make) -> None:
    before = await scrape(client)

    kept, merged = [await make.observation(project=cast.alice.project) for _ in range(2)]
    path, body = f"/v1/observations/{kept.id}/merge", {"sources": [str(merged.id)]}
    assert (await client.post(path, headers={"X-Api-Key": cast.alice.key}, json=body)).status_code == 200
    await keeper.switch("write")
    await keeper.enqueue("reindex_everything", {})
    await keeper.drain()
    after = await scrape(client)

    for sample in (
        "cmserver_merged_observations_total by=others",
        "cmserver_steward_runs_total executor=unknown status=failed",
    ):
        assert after[sample] - before.get(sample, 0) == 1, sample


async def see_waits_for_connections(client: httpx.AsyncClient, db: Db, cast: Cast) -> None:
    async with AsyncExitStack() as taken:
        for _ in range(db.pool_stats()["tenant"]["pool_max"]):
            await taken.enter_async_context(db.tenant(cast.alice.team_id))
        waiting = asyncio.create_task(client.get("/v1/info", headers={"X-Api-Key": cast.alice.key}))
        await until("a request waits", lambda: db.pool_stats()["tenant"].get("requests_waiting", 0) == 1, waiting)
        crowded = await scrape(client)
    await waiting

    assert crowded["cmserver_database_waiting pool=tenant"] >= 1
    assert (await scrape(client))["cmserver_database_wait_seconds_total pool=tenant"] > 0


async def see_rows_counted(client: httpx.AsyncClient, db: Db) -> None:
    async with db.system() as conn:
        await conn.execute("ANALYZE agent_events")
        await conn.execute("UPDATE agent_events SET created_at = created_at")
        await conn.execute("SELECT pg_stat_force_next_flush()")
    after = await scrape(client)

    assert after["cmserver_table_rows state=live table=agent_events"] > 0
    assert after["cmserver_table_rows state=dead table=agent_events"] > 0


async def test_every_metric_moves(client: httpx.AsyncClient, outbox: Outbox, keeper: Keeper, db: Db, cast: Cast, make: Make):
    before = await scrape(client)

    await see_queue_and_database_read(client, outbox, cast)
    full = await scrape(client)
    await see_requests_and_events_counted(client, cast)
    await see_work_timed(client, outbox)
    await see_merges_and_runs_counted(client, keeper, cast, make)
    await see_waits_for_connections(client, db, cast)
    await see_rows_counted(client, db)
    after = await scrape(client)

    moved = {
        _SUFFIXES.sub("", sample.partition(" ")[0])
        for samples in (full, after)
        for sample, value in samples.items()
        if value != before.get(sample)
    }
    still = {name for name, *_ in known_metrics()} - moved
    assert still == {"cmserver_info", "cmserver_database_waiting"}, "the second has moved, and is back"


async def test_an_answer_looks_no_label_up_twice(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch):
    """To look the labels of a metric up costs more than to count: of 10 µs that an event may cost by its metrics, most."""
    await client.get("/healthz")
    looked_up: list[tuple[str, ...]] = []
    look_up = MetricWrapperBase.labels

    def note(metric: MetricWrapperBase, *labels: str) -> MetricWrapperBase:
        looked_up.append(labels)
        return look_up(metric, *labels)

    monkeypatch.setattr(MetricWrapperBase, "labels", note)

    assert (await client.get("/healthz")).status_code == 200
    assert looked_up == []


def test_every_metric_of_the_database_moves_with_its_number():
    registry = CollectorRegistry()
    registry.register(DatabaseMetrics(NUMBERS))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))

    values = [sample.value for family in families for sample in family.samples]

    assert {3, 4, 5, 6.5, 7, 10, 11, 1, 13, 14, 1.5, 0.5, 16, 17, 18, 19, 20, 21, 22, 23, 24} <= set(values)
    assert len(values) == 23


@pytest.mark.parametrize(
    ("authorization", "status"), [(None, 401), ("Basic abc", 401), ("Bearer wrong", 403), (f"Bearer {TOKEN}x", 403)]
)
async def test_without_the_token_nobody_reads_metrics(client: httpx.AsyncClient, authorization: str | None, status: int):
    response = await client.get("/metrics", headers={"Authorization": authorization} if authorization else {})

    assert response.status_code == status
    assert "cmserver_jobs" not in response.text


async def test_metrics_are_off_without_a_token_in_the_settings(settings: Settings, db: Db):
    notifications = NotificationListener(db.url)
    app = create_app(settings, db, notifications, JobNotifier(db, notifications), secret=b"secret")
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
        response = await client.get("/metrics", headers={"Authorization": "Bearer "})

    assert response.status_code == 404
    assert "CMSERVER_METRICS_TOKEN" in response.json()["message"]


# ---- the alerts and the board


def board_expressions() -> Iterator[str]:
    board = json.loads((MONITORING / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_alerts_and_board_use_only_metrics_that_exist():
    known = {name for name, *_ in known_metrics()}
    texts = [(MONITORING / "alerts.yml").read_text(), *board_expressions()]
    used = {_SUFFIXES.sub("", name) for text in texts for name in re.findall(r"\bcmserver_[a-z_]+", text)}

    assert used <= known
    assert len(used) >= 15
    assert known - used <= {
        "cmserver_answers_total",
        "cmserver_info",
        "cmserver_notifications_received_total",
        "cmserver_database_connections",
        "cmserver_merged_observations_total",
        "cmserver_retention_rows_total",
        "cmserver_steward_runs_total",
    }


def test_the_actions_of_alerts_are_commands_that_there_are():
    text = re.sub(r"\{\{.*?\}\}", "x", (MONITORING / "alerts.yml").read_text())
    actions = re.findall(r"^ +action: (.*)", text, re.MULTILINE)
    named = [found.split() for action in actions for found in re.findall(r"cmserver(?: [a-z]+)+(?= |;|,|\)|\.|$)", action)]

    assert len(named) >= 8
    for words in named:
        assert list(wrong_command(words)) == [], words


@pytest.mark.slow
def test_promtool_accepts_the_rules_and_every_expression_of_the_board(tmp_path: Path):
    rules: list[dict[str, Any]] = [
        {"record": f"board:panel{place}", "expr": expr} for place, expr in enumerate(board_expressions())
    ]
    board = tmp_path / "board.yml"
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))  # JSON is YAML

    checked = subprocess.run(
        ["promtool", "check", "rules", MONITORING / "alerts.yml", board], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(rules)} rules found" in checked.stdout
