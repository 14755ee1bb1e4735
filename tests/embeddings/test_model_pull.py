from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from itertools import pairwise

import msgspec
import pytest
from structlog.testing import capture_logs

from cmserver.base.settings import Settings
from cmserver.embeddings import model_pull
from cmserver.embeddings.embedding_worker import EmbeddingWorker
from tests.conftest import Cast
from tests.embeddings.conftest import Room
from tests.make import Make
from tests.models.providers.fake import embedding as said
from tests.models.providers.fake.server import Asked, FakeProvider, Reply, fake_provider, json_reply
from tests.timeouts import ENOUGH_SECONDS


def pulling(completed: int) -> bytes:
    line = {"status": "pulling a", "digest": "sha256:a", "total": 1000, "completed": completed}
    return json.dumps(line).encode() + b"\n"


class Ollama:
    """Has a model once it was pulled. `pulls` are the answers to the first pulls; all others succeed at once."""

    def __init__(self) -> None:
        self.is_there = False
        self.pulls: list[Reply] = []

    def play(self, request: Asked) -> Reply:
        match request.path:
            case "/api/show":
                return json_reply({}, status=200 if self.is_there else 404)
            case "/api/pull":
                reply = self.pulls.pop(0) if self.pulls else Reply(body=pulling(1000) + b'{"status":"success"}\n')
                self.is_there = b"success" in reply.body
                return reply
            case _:
                texts = msgspec.convert(request.json["input"], list[str])
                return said.ollama([[1.0, float(len(text))] for text in texts])


@pytest.fixture
def ollama() -> Ollama:
    return Ollama()


@pytest.fixture
async def fake(ollama: Ollama) -> AsyncGenerator[FakeProvider]:
    async with fake_provider(ollama.play) as fake:
        yield fake


class BackgroundWorker:
    """A worker in the background."""

    def __init__(self, room: Room, settings: Settings) -> None:
        self._worker = EmbeddingWorker(room.db, settings)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._worker.run(asyncio.Event(), self._stop))

    async def end(self) -> None:
        self._stop.set()
        if self._task is not None:
            async with asyncio.timeout(ENOUGH_SECONDS):
                await self._task


@pytest.fixture
async def worker(room: Room, fake: FakeProvider) -> AsyncGenerator[BackgroundWorker]:
    settings = msgspec.structs.replace(room.settings, embedder="ollama", embedder_base_url=fake.url)
    worker = BackgroundWorker(room, settings)
    yield worker
    await worker.end()


async def until_embedded(room: Room) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while not (rows := await room.rows()) or not all(row.is_embedded for row in rows):
            await asyncio.sleep(0.02)


async def until_pulled(room: Room, percent: int) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while [model.pulled_percent for model in await room.models()] != [percent]:
            await asyncio.sleep(0.02)


async def test_a_missing_model_is_pulled_and_what_waits_for_it_embedded(
    room: Room, fake: FakeProvider, ollama: Ollama, worker: BackgroundWorker, make: Make, cast: Cast
):
    ollama.pulls = [Reply(body=b"".join(pulling(done) for done in range(0, 1000, 7)) + b'{"status":"success"}\n')]
    await make.observation(project=cast.alice.project)

    with capture_logs() as logs:
        worker.start()
        await until_embedded(room)

    percents = [entry["percent"] for entry in logs if entry["event"] == "embedder.pulling"]
    assert [request.path for request in fake.asked] == ["/api/show", "/api/pull", "/api/embed"]
    assert 3 <= len(percents) <= 11
    assert all(after >= before + 10 for before, after in pairwise(percents))
    assert "embedder.unavailable" not in {entry["event"] for entry in logs}
    assert [model.pulled_percent for model in await room.models()] == [None]


async def test_a_model_that_is_there_is_not_pulled(
    room: Room, fake: FakeProvider, ollama: Ollama, worker: BackgroundWorker, make: Make, cast: Cast
):
    ollama.is_there = True
    await make.observation(project=cast.alice.project)

    worker.start()
    await until_embedded(room)

    assert "/api/pull" not in {request.path for request in fake.asked}


async def test_a_failed_pull_is_logged_once_a_reason_and_tried_again(
    room: Room, ollama: Ollama, worker: BackgroundWorker, make: Make, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(model_pull, "FIRST_PAUSE_SECONDS", 0.01)
    ollama.pulls = [Reply(body=b'{"error":"no space left on device"}\n')] * 3
    await make.observation(project=cast.alice.project)

    with capture_logs() as logs:
        worker.start()
        async with asyncio.timeout(ENOUGH_SECONDS):
            while not ollama.is_there:
                room.make_due()
                await asyncio.sleep(0.02)

    assert [entry["event"] for entry in logs].count("embedder.pull_failed") == 1


async def test_a_stop_ends_a_pull_and_forgets_its_progress(room: Room, ollama: Ollama, worker: BackgroundWorker):
    begun = pulling(420)
    ollama.pulls = [Reply(body=begun + b'{"status":"success"}\n', stall_after=len(begun))]
    worker.start()
    await until_pulled(room, 42)

    await worker.end()

    assert [model.pulled_percent for model in await room.models()] == [None]
