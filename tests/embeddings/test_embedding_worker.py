from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from cmserver.base.errors import Invalid
from cmserver.embeddings import embedding_worker, model_choice, repository
from cmserver.embeddings.embedding_worker import EmbeddingWorker
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.model import FailureKind, ProviderError
from tests.conftest import Cast
from tests.embeddings.conftest import Room
from tests.embeddings.fake import Fake
from tests.make import Make
from tests.timeouts import until

DOWN = ProviderError(FailureKind.TRANSIENT, "No connection", out_of_reach=True)


class Clock:
    """Stands in for the loop's: outages pass at will."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def keeper(room: Room) -> EmbeddingWorker:
    return EmbeddingWorker(room.db, room.chosen("one"), room.makers)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("cmserver.embeddings.embedding_worker.monotonic", clock.time)
    return clock


async def test_a_dead_embedder_is_said_once_and_asked_with_patience_until_it_is_back(
    room: Room, keeper: EmbeddingWorker, clock: Clock, make: Make, cast: Cast
):
    fake = room.makers.named("one")
    fake.error = DOWN
    await keeper.round()
    await make.observation(project=cast.alice.project)

    with capture_logs() as logs:
        for _ in range(5):
            room.make_due()
            await keeper.round()
        asked_at_once = fake.calls
        for _ in range(8):
            clock.now += 60
            room.make_due()
            await keeper.round()
        asked_in_all = fake.calls
        stored = await make.observation(project=cast.alice.project, title="Stored all the same")
        fake.error = None
        clock.now += 60
        while await keeper.round():
            pass
        await keeper.round()

    assert (asked_at_once, asked_in_all) == (1, 9)
    assert [one["event"] for one in logs if str(one["event"]).startswith("embedder.")] == [
        "embedder.unavailable",
        "embedder.recovered",
    ]
    assert {row.observation_id: row.is_embedded for row in await room.rows()}[stored.id]
    assert all(row.is_embedded for row in await room.rows())


async def test_when_it_is_back_what_failed_need_not_wait_for_its_time(
    room: Room, keeper: EmbeddingWorker, clock: Clock, make: Make, cast: Cast
):
    room.makers.named("one").error = DOWN
    await keeper.round()
    await make.observation(project=cast.alice.project)
    await keeper.round()
    room.ask("UPDATE observation_embeddings SET next_at = now() + interval '9 minutes'")

    room.makers.named("one").error = None
    await make.observation(project=cast.alice.project)
    clock.now += 60
    while await keeper.round():
        pass
    await keeper.round()

    assert [row.is_embedded for row in await room.rows()] == [True, True]


async def test_it_waits_as_long_as_the_embedder_asks_for(room: Room, keeper: EmbeddingWorker, clock: Clock, make: Make, cast: Cast):
    fake = room.makers.named("one")
    fake.error = ProviderError(FailureKind.RATE_LIMITED, "Slow down", retry_after_seconds=300)
    await keeper.round()
    await make.observation(project=cast.alice.project)
    await keeper.round()

    for seconds in (299, 1):
        clock.now += seconds
        room.make_due()
        await keeper.round()

    assert fake.calls == 2


async def test_the_log_does_not_repeat_what_a_refusal_quotes(room: Room, keeper: EmbeddingWorker, make: Make, cast: Cast):
    room.makers.named("one").refuses = {"poisoned"}
    await keeper.round()
    for _ in range(2):
        await make.observation(project=cast.alice.project, title="a poisoned text")

    with capture_logs() as logs:
        await keeper.round()

    assert [one["event"] for one in logs] == ["embedder.unavailable"]
    assert "secret words" not in str(logs)


async def test_how_far_a_backlog_is_stands_in_the_log_once_a_minute(
    room: Room, keeper: EmbeddingWorker, clock: Clock, make: Make, cast: Cast
):
    most = room.makers.named("one").max_texts
    await keeper.round()
    for _ in range(3 * most):
        await make.observation(project=cast.alice.project)

    with capture_logs() as logs:
        for _ in range(3):
            await keeper.round()
            clock.now += 40

    assert [(one["embedded"], one["seconds"]) for one in logs if one["event"] == "embeddings.progress"] == [(3 * most, 80)]


async def test_an_embedder_that_cannot_be_made_is_said_once_and_texts_wait(room: Room, make: Make, cast: Cast):
    await room.choose("one")
    await make.observation(project=cast.alice.project)

    def missing(given: EmbedderSettings) -> Fake:
        raise Invalid("The embedder is not installed here.")

    keeper = EmbeddingWorker(room.db, room.chosen("one"), missing)
    with capture_logs() as logs:
        for _ in range(3):
            assert not await keeper.round()

    assert [line["event"] for line in logs if line["event"].startswith("embedder.")] == ["embedder.missing"]
    assert [(row.is_embedded, row.due) for row in await room.rows()] == [(False, True)]


async def test_while_a_dump_keeps_the_models_they_are_changed_later_and_nobody_waits_for_it(
    room: Room, clock: Clock, make: Make, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(model_choice, "LOCK_MILLISECONDS", 20)
    await make.observation(project=cast.alice.project)
    await room.choose("one")
    keeper = EmbeddingWorker(room.db, room.chosen("two"), room.makers)

    async with room.db.system() as dump:
        await dump.execute("SELECT FROM embedding_models")
        await keeper.round()
        locked: list[int] = []

        async def lock_models(_conn: object, milliseconds: int) -> None:
            locked.append(milliseconds)

        monkeypatch.setattr(repository, "lock_models", lock_models)
        for _ in range(3):
            await keeper.round()
    embedded = room.makers.named("one").texts
    monkeypatch.undo()
    clock.now = embedding_worker.IN_USE_SECONDS
    for _ in range(4):
        await keeper.round()

    assert locked == []
    assert len(embedded) == 1  # by the model that there is, meanwhile
    assert [(one.model, one.state) for one in await room.models()] == [("two", "current")]


async def test_several_workers_share_the_work(room: Room, make: Make, cast: Cast):
    for n in range(20):
        await make.observation(project=cast.alice.project, title=f"Title {n}")
    await room.choose("one")
    keepers = [EmbeddingWorker(room.db, room.chosen("one"), room.makers) for _ in range(3)]

    async def work(keeper: EmbeddingWorker) -> None:
        while await keeper.round():
            pass

    await asyncio.gather(*map(work, keepers))
    await work(keepers[0])

    assert all(row.is_embedded for row in await room.rows())
    assert len(room.makers.named("one").texts) == 20


async def test_the_loop_is_woken_and_stops_with_what_it_has_in_hand_given_back(
    room: Room, keeper: EmbeddingWorker, make: Make, cast: Cast
):
    fake = room.makers.named("one")
    woken, stop = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(keeper.run(woken, stop))
    await until("the model is chosen", room.models, running)
    fake.gate = asyncio.Event()
    await make.observation(project=cast.alice.project)

    woken.set()
    await fake.asked.wait()
    stop.set()
    await running

    assert [(row.is_embedded, row.due, row.attempts) for row in await room.rows()] == [(False, True, 0)]
    assert fake.closed


async def test_what_wakes_it_while_it_gathers_makes_one_round(keeper: EmbeddingWorker, monkeypatch: pytest.MonkeyPatch):
    rounds: list[int] = []
    woken, stop = asyncio.Event(), asyncio.Event()

    async def count() -> bool:
        rounds.append(1)
        return False

    monkeypatch.setattr(keeper, "round", count)
    monkeypatch.setattr(embedding_worker, "GATHER_SECONDS", 1e6)
    running = asyncio.create_task(keeper.run(woken, stop))
    await until("the first round", lambda: rounds, running)
    for _ in range(100):
        woken.set()
        await asyncio.sleep(0)
    stop.set()
    await running

    assert len(rounds) == 1


async def test_the_loop_outlives_a_bug_and_says_it(room: Room, keeper: EmbeddingWorker, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    again = asyncio.Event()

    async def broken(*_: object) -> None:
        calls.append(1)
        if len(calls) > 1:
            again.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr("cmserver.embeddings.embedding_worker.apply_choice", broken)
    monkeypatch.setattr("cmserver.embeddings.embedding_worker.POLL_SECONDS", 0.01)
    stop = asyncio.Event()
    with capture_logs() as logs:
        running = asyncio.create_task(keeper.run(asyncio.Event(), stop))
        await again.wait()
        stop.set()
        await running

    assert "embeddings.failed" in {one["event"] for one in logs}
