"""GET /v1/info: what anybody may know of the server, and what a key's team may know of its queue."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.waiting import run_beside
from cmserver.generation.job_notifier import DONE, JOBS
from cmserver.generation.leases import repository as leases
from cmserver.generation.operate.model import QueueCounts
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.ingest import session_lifecycle as sessions
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted
from tests.steward.tools import insert_job

LANE = {"kind", "name", "waiting", "active", "completed", "failed", "delayed", "stalled", "unavailable"}


async def info(client: httpx.AsyncClient, key: str | None = None) -> Any:
    response = await client.get("/v1/info", headers={"X-Api-Key": key} if key else {})
    assert response.status_code == 200, response.text
    return response.json()


def refusing(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, "The model refused.")


async def in_every_state(outbox: Outbox, cast: Cast) -> None:
    """2 observed, 1 failed, 1 cancelled, 1 that came back from a lost worker and is active again, 1 delayed, 1 held, 2 waiting; and
    a summary that waits with them.
    """
    await outbox.put(2, session="observed")
    await (await outbox.hand(Scripted())).work()
    await outbox.put(1, session="failed")
    await (await outbox.hand(Scripted(refusing))).work()
    await outbox.put(1, session="cancelled")
    await outbox.rows("UPDATE observation_generation_jobs SET status = 'cancelled' WHERE status = 'queued'")
    await outbox.put(1, session="lost")
    lost = await outbox.hand(Scripted())
    await lost.claim()
    await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", lost.worker_id)
    async with outbox.db.system() as conn:
        await leases.reap(conn, hard_limit_seconds=300)
    await (await outbox.hand(Scripted())).claim()
    for session in ("delayed", "held"):
        await outbox.put(1, session=session)
    await outbox.rows("UPDATE generation_lanes SET due_at = now() + interval '1 hour' WHERE due_at IS NOT NULL")
    await outbox.rows(
        "UPDATE generation_lanes SET held_until = due_at WHERE lane = (SELECT lane FROM observation_generation_jobs"
        " WHERE status = 'queued' ORDER BY seq DESC LIMIT 1)"
    )
    session_id = (await outbox.put(2, session="waiting"))[0].event.server_session_id
    assert session_id is not None
    await outbox.db.in_tenant(
        cast.alice.team_id,
        lambda conn: sessions.end(conn, cast.alice.principal, session_id, source_adapter="api"),
    )


async def test_without_a_key_it_tells_of_the_installation_and_of_nobody(client: httpx.AsyncClient, outbox: Outbox, db: Db):
    await outbox.put(1)
    async with db.system() as conn:
        await calls.pause_provider(conn, "offline", "quota_exhausted", "No credit.", 60)

    answer = await info(client)

    assert answer.keys() == {
        "name",
        "runtime",
        "version",
        "authMode",
        "schemaVersion",
        "postgres",
        "boundaries",
        "workers",
        "queueLanes",
    }
    assert (answer["name"], answer["runtime"], answer["authMode"], answer["queueLanes"]) == ("cmserver", "cmserver", "api-key", [])
    assert answer["postgres"]["initialized"] is True
    assert answer["postgres"]["schemaVersion"] == answer["schemaVersion"]
    assert answer["boundaries"]["queueManager"]["status"] == "active"
    assert answer["boundaries"]["generationWorkerManager"] == {
        "status": "disabled",
        "reason": "No worker runs: events are stored and wait.",
        "details": {"workers": 0},
    }


async def test_a_bad_key_is_refused_all_the_same(client: httpx.AsyncClient):
    assert (await client.get("/v1/info", headers={"X-Api-Key": "cms_wrong"})).status_code == 403


async def test_a_key_that_may_not_read_jobs_is_told_no_counts(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, hook = await mint(db, cast.alice.team_id, "hook", scopes=["events:write"])

    answer = await info(client, hook)

    assert answer["team"]["name"] == "blue"
    assert answer["provider"]["name"] == "offline"
    assert "queue" not in answer
    assert answer["queueLanes"] == []


async def test_the_queue_is_told_in_all_its_states(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await in_every_state(outbox, cast)

    answer = await info(client, cast.alice.key)

    queue = answer["queue"]
    assert queue.pop("oldestWaitingSeconds") >= 0
    assert queue == {
        "waiting": 3,
        "active": 1,
        "delayed": 1,
        "held": 1,
        "completed": 2,
        "failed": 1,
        "cancelled": 1,
        "recovered": 1,
        "warning": None,
    }
    events, summaries, *others = answer["queueLanes"]
    assert [lane["kind"] for lane in others] == ["reindex", "entities", "steward", "embedding"]
    assert events.keys() == summaries.keys() == LANE
    assert events | {"name": ""} == {
        "kind": "event",
        "name": "",
        "waiting": 2,
        "active": 1,
        "completed": 2,
        "failed": 1,
        "delayed": 2,
        "stalled": 1,
        "unavailable": False,
    }
    assert (summaries["kind"], summaries["waiting"], summaries["completed"]) == ("summary", 1, 0)


async def test_psql_tells_the_same(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await in_every_state(outbox, cast)

    (blue, red) = await outbox.rows("SELECT * FROM queue_totals ORDER BY team")

    queue = (await info(client, cast.alice.key))["queue"]
    names = ("waiting", "active", "delayed", "held", "completed", "failed", "cancelled", "recovered")
    assert {name: blue[name] for name in names} == {name: queue[name] for name in names}
    assert {red[name] for name in names} == {0}


async def test_a_key_of_one_project_is_told_of_its_own_queue(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    await in_every_state(outbox, cast)
    elsewhere = (await bound_to(db, cast.alice, "other")).key
    _, own = await mint(db, cast.alice.team_id, "own", scopes=["*"], project_id=cast.alice.project.id)

    nothing = await info(client, elsewhere)
    same = await info(client, own)

    assert set(nothing["queue"].values()) == {0, None}
    assert {value for lane in nothing["queueLanes"] for name, value in lane.items() if name not in ("kind", "name")} == {0}
    assert same["queue"]["waiting"] == 3
    assert same["queueLanes"][1]["waiting"] == 1
    assert (await info(client, cast.charlie.key))["queue"]["recovered"] == 0


async def test_only_a_job_that_is_due_counts_as_the_oldest(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1, session="held")
    await outbox.rows(
        "UPDATE observation_generation_jobs SET created_at = now() - interval '2 h', updated_at = now() - interval '2 h'"
    )
    await outbox.rows("UPDATE generation_lanes SET due_at = now() + interval '1 h', held_until = now() + interval '1 h'")

    held = (await info(client, cast.alice.key))["queue"]
    await outbox.rows("UPDATE generation_lanes SET due_at = now(), held_until = NULL")
    due = (await info(client, cast.alice.key))["queue"]

    assert (held["oldestWaitingSeconds"], held["warning"]) == (None, None)
    assert 7200 <= due["oldestWaitingSeconds"] < 7300
    assert "has waited for" in due["warning"]


async def test_a_job_that_was_sent_back_waits_since_then(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1)
    await (await outbox.hand(Scripted(refusing))).work()
    await outbox.rows("UPDATE observation_generation_jobs SET created_at = now() - interval '2 days'")
    await outbox.rows("SELECT retry_job(id) FROM observation_generation_jobs")

    assert (await info(client, cast.alice.key))["queue"]["warning"] is None


async def test_a_queue_that_is_behind_is_logged_with_its_teams(outbox: Outbox, db: Db):
    await outbox.put(1)
    await outbox.rows("UPDATE observation_generation_jobs SET updated_at = now() - interval '10 min'")

    with capture_logs() as logged:
        for seconds in (300, 3600):
            await QueueMonitor(db, warning_seconds=seconds).look()

    assert [line["teams"] for line in logged if line["event"] == "queue.behind"] == [["blue"]]


def queue_lines(logged: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """The lines about the queue: another test's tasks may log as well."""
    return [line for line in logged if str(line["event"]).startswith("queue.")]


async def test_what_the_steward_has_to_do_makes_no_queue_late(client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db):
    async with db.system() as conn:
        await insert_job(conn, cast.alice.team_id, cast.alice.project.id, "derive", status="queued")
    await outbox.rows("UPDATE observation_generation_jobs SET updated_at = now() - interval '1 hour'")

    with capture_logs() as logged:
        await QueueMonitor(db).look()

    assert queue_lines(logged) == []
    told = (await info(client, cast.alice.key))["queue"]
    assert (told["waiting"], told["oldestWaitingSeconds"], told["warning"]) == (1, None, None)
    in_psql = await outbox.rows("SELECT waiting, oldest_waiting FROM queue_totals WHERE waiting > 0")
    assert in_psql == [{"waiting": 1, "oldest_waiting": None}]


async def test_a_long_queue_is_logged_once_a_minute_and_shown(
    client: httpx.AsyncClient, app: AsgiFrame, outbox: Outbox, cast: Cast
):
    now = [0.0]
    monitor = app.dependencies.get(QueueMonitor)
    monitor.warning_jobs, monitor.clock = 2, lambda: now[0]
    await outbox.put(2)
    with capture_logs() as logged:
        await monitor.look()
    assert queue_lines(logged) == []
    assert (await info(client, cast.alice.key))["queue"]["warning"] is None

    await outbox.put(1, first=2)
    with capture_logs() as logged:
        for now[0] in (0.0, 59.0, 60.0):
            await monitor.look()

    assert [(line["event"], line["teams"], line["queued"]) for line in queue_lines(logged)] == [("queue.long", ["blue"], 3)] * 2
    assert "3 jobs are queued" in (await info(client, cast.alice.key))["queue"]["warning"]
    assert (await info(client, cast.charlie.key))["queue"]["warning"] is None


async def test_a_quiet_queue_is_read_once_a_minute_and_soon_after_a_notification(
    outbox: Outbox, db: Db, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    now: list[float] = [0.0]
    looks: list[float] = []
    monitor = QueueMonitor(db, clock=lambda: now[0])

    async def look() -> None:
        await QueueMonitor.look(monitor)
        looks.append(now[0])

    monkeypatch.setattr(monitor, "look", look)
    async with run_beside(monitor.run(asyncio.Event(), hub)):
        while not looks:
            await asyncio.sleep(0.01)
        for now[0] in (15.0, 30.0):
            await monitor.look_if_due()
        hub.deliver(DONE, "")
        for now[0] in (45.0, 60.0, 75.0, 90.0, 105.0, 120.0):
            await monitor.look_if_due()
        await outbox.put(1)
        hub.deliver(JOBS, "")
        for now[0] in (135.0, 150.0, 165.0):
            await monitor.look_if_due()

    assert looks == [0.0, 45.0, 105.0, 135.0, 150.0, 165.0]


async def test_a_look_that_failed_is_repeated_at_the_next_turn(db: Db, monkeypatch: pytest.MonkeyPatch):
    monitor = QueueMonitor(db, clock=lambda: 0.0)
    await monitor.look_if_due()
    looks: list[bool] = []

    async def look() -> None:
        looks.append(True)
        if len(looks) == 1:
            raise Unavailable("The database is away.")

    hub = NotificationListener(db.url)
    monkeypatch.setattr(monitor, "look", look)
    async with run_beside(monitor.run(asyncio.Event(), hub)):
        await asyncio.sleep(0)
        hub.deliver(DONE, "")
        with pytest.raises(Unavailable):
            await monitor.look_if_due()
        for _ in range(2):
            await monitor.look_if_due()

    assert len(looks) == 2


@pytest.mark.parametrize(("oldest", "allowed", "warns"), [(301, 300, True), (300, 300, False), (None, 300, False)])
def test_it_warns_of_a_job_that_has_waited_for_longer(db: Db, oldest: float | None, allowed: float, warns: bool):
    counts = QueueCounts(
        waiting=1,
        active=0,
        delayed=0,
        held=0,
        completed=0,
        failed=0,
        cancelled=0,
        recovered=0,
        of_steward=0,
        oldest_waiting_seconds=oldest,
    )

    assert (QueueMonitor(db, warning_seconds=allowed).warning(counts) is not None) is warns


async def test_open_sessions_and_memory_are_told_to_a_key_that_may_see_jobs(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1, session="s1")
    await outbox.put(1, session="s2")

    blue, red = await info(client, cast.alice.key), await info(client, cast.charlie.key)
    nobody = (await client.get("/v1/info")).json()

    assert (blue["activeSessions"], red["activeSessions"]) == (2, 0)
    assert blue["memoryBytes"] > 1_000_000
    assert blue["steward"] == {"mode": "off", "paused": False, "queued": 0, "running": 0, "deadLetter": 0}
    assert not {"activeSessions", "memoryBytes", "queue"} & nobody.keys()


async def test_a_job_is_counted_as_recovered_once_for_each_loss(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1)
    lost = await outbox.hand(Scripted())
    await lost.claim()
    await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", lost.worker_id)
    async with outbox.db.system() as conn:
        (job_id,) = (await leases.reap(conn, hard_limit_seconds=300)).jobs
        await calls.pause_provider(conn, "scripted", "quota_exhausted", "No credit.", 60)

    await (await outbox.hand(Scripted())).work()  # is given back at once: its provider is paused

    assert await outbox.lifecycle(job_id) == ["queued", "processing", "retry_scheduled", "processing", "retry_scheduled"]
    details = await outbox.rows(
        "SELECT details FROM observation_generation_job_events WHERE event_type = 'retry_scheduled' ORDER BY id"
    )
    assert details[0]["details"] == {"reason": "worker lost", "worker": f"test:{lost.worker_id}", "claim": 1}
    assert details[1]["details"] == {"reason": "paused", "message": "The provider scripted is paused (quota_exhausted)."}
    assert (await info(client, cast.alice.key))["queue"]["recovered"] == 1


def test_the_default_warns_after_five_minutes(db: Db):
    assert QueueMonitor(db).warning_seconds == 300
