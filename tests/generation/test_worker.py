"""The real worker over the outbox: procrastinate's loop, our manager, wake-ups, aborts and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.embeddings.embedding_worker import EmbeddingWorker
from cmserver.generation.job_notifier import CHANNELS, JobNotifier, wait_for_jobs
from cmserver.generation.manager import check_contract
from cmserver.models.providers.model import Completion, Prompt
from cmserver.worker import run_worker
from tests.generation.tools import Outbox, Scripted, completion, each_observed
from tests.timeouts import ENOUGH_SECONDS


@asynccontextmanager
async def working(
    settings: Settings, outbox: Outbox, hub: NotificationListener, provider: Scripted
) -> AsyncGenerator[asyncio.Event]:
    """A worker and the hub, for the length of the block; the event stops the worker."""
    stop = asyncio.Event()
    listening = asyncio.create_task(hub.listen(CHANNELS))
    running = asyncio.create_task(run_worker(settings, outbox.db, hub, outbox.notifier, [provider], stop))
    try:
        await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(running, ENOUGH_SECONDS)
        listening.cancel()


async def ended(outbox: Outbox, hub: NotificationListener, recorded: list[object]) -> list[str]:
    jobs = [event.job for event in recorded]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    done = await wait_for_jobs(outbox.db, hub, outbox.principal.team_id, jobs, ENOUGH_SECONDS)  # pyright: ignore[reportUnknownArgumentType]
    return [job.status for job in done.values()]


async def drop_connections(db: Db) -> None:
    """End every connection of the owner and of the tenant but those that say so; a role may end its own only."""
    statement = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()"
    )
    async with db.system_statement() as conn:
        await conn.execute(statement)

    async def drop(conn: Conn) -> None:
        await conn.execute(statement)

    await db.statement_in_tenant(drop)


def test_the_installed_procrastinate_calls_its_manager_as_ours_answers():
    check_contract()


async def test_events_are_generated_as_they_come(settings: Settings, outbox: Outbox, hub: NotificationListener):
    async with working(settings, outbox, hub, Scripted()):
        for n in range(5):
            recorded = await outbox.put(3, session=f"s{n}")
            assert await ended(outbox, hub, [*recorded]) == ["completed"] * 3

    assert await outbox.value("SELECT count(*) FROM observations") == 15
    assert await outbox.value("SELECT count(*) FROM procrastinate_workers") == 0


async def test_who_reads_entities_wakes_who_embeds_them(
    settings: Settings, outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    woken, stop = asyncio.Event(), asyncio.Event()

    async def run(_: EmbeddingWorker, wakeup: asyncio.Event, stop: asyncio.Event) -> None:
        await wakeup.wait()
        woken.set()
        await stop.wait()

    monkeypatch.setattr(EmbeddingWorker, "run", run)
    # No notification comes: nobody listens.
    running = asyncio.create_task(run_worker(settings, outbox.db, hub, outbox.notifier, [Scripted()], stop))
    try:
        await asyncio.wait_for(woken.wait(), ENOUGH_SECONDS)
    finally:
        stop.set()
        await running


async def test_work_that_another_process_put_in_is_found(settings: Settings, outbox: Outbox, hub: NotificationListener, db: Db):
    elsewhere = NotificationListener(db.url)
    stranger = Outbox(db, JobNotifier(db, elsewhere), outbox.principal, outbox.project)
    async with working(settings, outbox, hub, Scripted()):
        recorded = await stranger.put(2)

        assert await ended(outbox, hub, [*recorded]) == ["completed"] * 2


async def test_a_batch_of_which_every_job_is_cancelled_is_stopped(settings: Settings, outbox: Outbox, hub: NotificationListener):
    called, stopped = asyncio.Event(), asyncio.Event()

    async def reply(_: Prompt) -> Completion:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with working(settings, outbox, hub, Scripted(reply)):
        recorded = await outbox.put(2)
        await asyncio.wait_for(called.wait(), ENOUGH_SECONDS)
        for event in recorded:
            assert event.job is not None
            await outbox.value("SELECT cancel_job(%s)", event.job.id)
        await asyncio.wait_for(stopped.wait(), ENOUGH_SECONDS)

        assert await ended(outbox, hub, [*recorded]) == ["cancelled"] * 2

    assert await outbox.value("SELECT count(*) FROM generation_lanes WHERE worker_id IS NOT NULL") == 0


async def test_a_stopping_worker_finishes_what_it_has_begun(settings: Settings, outbox: Outbox, hub: NotificationListener):
    called, go_on = asyncio.Event(), asyncio.Event()

    async def reply(prompt: Prompt) -> Completion:
        called.set()
        await go_on.wait()
        return completion(each_observed(prompt))

    async with working(settings, outbox, hub, Scripted(reply)) as stop:
        await outbox.put(2)
        await asyncio.wait_for(called.wait(), ENOUGH_SECONDS)
        stop.set()
        go_on.set()

    assert await outbox.statuses() == {"completed": 2}


async def test_a_stopping_worker_puts_back_what_takes_too_long(
    settings: Settings, outbox: Outbox, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    called = asyncio.Event()

    async def reply(_: Prompt) -> Completion:
        called.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Settings, "drain_seconds", 0.1)
    async with working(settings, outbox, hub, Scripted(reply)) as stop:
        await outbox.put(2)
        await asyncio.wait_for(called.wait(), ENOUGH_SECONDS)
        stop.set()

    assert await outbox.statuses() == {"queued": 2}
    assert await outbox.value("SELECT max(attempts) FROM observation_generation_jobs") == 0
    assert await outbox.value("SELECT due_at <= now() FROM generation_lanes") is True


async def test_a_worker_whose_lease_is_over_comes_back_under_a_new_id(
    settings: Settings, outbox: Outbox, hub: NotificationListener
):
    quick = msgspec.structs.replace(settings, heartbeat_seconds=0.1, lease_seconds=2.0)
    async with working(quick, outbox, hub, Scripted()):
        recorded = await outbox.put(1)
        assert await ended(outbox, hub, [*recorded]) == ["completed"]
        before = await outbox.value("SELECT max(id) FROM procrastinate_workers")

        await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")
        recorded = await outbox.put(1, first=1)

        assert await ended(outbox, hub, [*recorded]) == ["completed"]
        assert await outbox.value("SELECT max(id) > %s FROM procrastinate_workers", before) is True


async def test_the_worker_and_the_hub_survive_the_loss_of_every_connection(
    settings: Settings, outbox: Outbox, hub: NotificationListener
):
    async with working(settings, outbox, hub, Scripted()):
        recorded = await outbox.put(1)
        assert await ended(outbox, hub, [*recorded]) == ["completed"]

        await drop_connections(outbox.db)
        async with asyncio.timeout(ENOUGH_SECONDS):
            while True:
                try:
                    recorded = await outbox.put(1, first=1)
                    break
                except Exception:  # noqa: BLE001 - connections that died in the pool
                    await asyncio.sleep(0.05)

        assert await ended(outbox, hub, [*recorded]) == ["completed"]
