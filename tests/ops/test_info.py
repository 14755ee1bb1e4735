"""GET /v1/info: what anybody may know of the server, and what a key's team may know of its queue."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.generation.calls import repository as calls
from cmserver.generation.leases import repository as leases
from cmserver.generation.operate.model import QueueCounts
from cmserver.generation.operate.read import behind
from cmserver.ingest import session as sessions
from cmserver.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.worker import say_when_behind
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted

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
        lambda conn: sessions.end(conn, cast.alice.principal, session_id, source_adapter="api", max_attempts=3),
    )


async def test_without_a_key_it_tells_of_the_installation_and_of_nobody(client: httpx.AsyncClient, outbox: Outbox, db: Db):
    await outbox.put(1)
    async with db.system() as conn:
        await calls.pause_provider(conn, "offline", "quota_exhausted", "No credit.", 60)

    told = await info(client)

    assert told.keys() == {
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
    assert (told["name"], told["runtime"], told["authMode"], told["queueLanes"]) == ("cmserver", "cmserver", "api-key", [])
    assert told["postgres"]["initialized"] is True
    assert told["postgres"]["schemaVersion"] == told["schemaVersion"]
    assert told["boundaries"]["queueManager"]["status"] == "active"
    assert told["boundaries"]["generationWorkerManager"] == {
        "status": "disabled",
        "reason": "No worker runs: events are stored and wait.",
        "details": {"workers": 0},
    }


async def test_a_bad_key_is_refused_all_the_same(client: httpx.AsyncClient):
    assert (await client.get("/v1/info", headers={"X-Api-Key": "cms_wrong"})).status_code == 403


async def test_a_key_that_may_not_read_jobs_is_told_no_counts(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, hook = await mint(db, cast.alice.team_id, "hook", scopes=["events:write"])

    told = await info(client, hook)

    assert told["team"]["name"] == "blue"
    assert told["provider"]["name"] == "offline"
    assert "queue" not in told
    assert told["queueLanes"] == []


async def test_the_queue_is_told_in_all_its_states(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await in_every_state(outbox, cast)

    told = await info(client, cast.alice.key)

    queue = told["queue"]
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
    events, summaries = told["queueLanes"]
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
    assert "CMSERVER_QUEUE_WARNING_SECONDS" in due["warning"]


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
        await say_when_behind(db, 300)
        await say_when_behind(db, 3600)

    assert [one["teams"] for one in logged if one["event"] == "queue.behind"] == [["blue"]]


@pytest.mark.parametrize(("oldest", "allowed", "warns"), [(301, 300, True), (300, 300, False), (None, 300, False), (9e9, 0, False)])
def test_the_setting_says_when_to_warn(oldest: float | None, allowed: float, warns: bool):
    counts = QueueCounts(
        waiting=1,
        active=0,
        delayed=0,
        held=0,
        completed=0,
        failed=0,
        cancelled=0,
        recovered=0,
        oldest_waiting_seconds=oldest,
    )

    assert (behind(counts, allowed) is not None) is warns


async def test_a_job_is_counted_as_recovered_once_for_each_loss(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(1)
    lost = await outbox.hand(Scripted())
    await lost.claim()
    await outbox.rows("DELETE FROM procrastinate_workers WHERE id = %s", lost.worker_id)
    async with outbox.db.system() as conn:
        (job_id,) = await leases.reap(conn, hard_limit_seconds=300)
        await calls.pause_provider(conn, "scripted", "quota_exhausted", "No credit.", 60)

    await (await outbox.hand(Scripted())).work()  # is given back at once: its provider is paused

    assert await outbox.lifecycle(job_id) == ["queued", "processing", "retry_scheduled", "processing", "retry_scheduled"]
    details = await outbox.rows(
        "SELECT details FROM observation_generation_job_events WHERE event_type = 'retry_scheduled' ORDER BY id"
    )
    assert details[0]["details"] == {"reason": "worker lost", "worker": f"test:{lost.worker_id}", "claim": 1}
    assert details[1]["details"] == {"reason": "paused", "message": "The provider scripted is paused (quota_exhausted)."}
    assert (await info(client, cast.alice.key))["queue"]["recovered"] == 1


def test_the_default_warns_after_five_minutes(settings: Settings):
    assert settings.queue_warning_seconds == 300
