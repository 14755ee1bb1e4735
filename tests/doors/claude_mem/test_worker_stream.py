"""GET /stream: the live stream as claude-mem's viewer reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest

from cmserver.access import announce, audit
from cmserver.access.model import Project
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import CHANNELS, JobNotifier
from cmserver.observations.model import Kind
from cmserver.ops.stream.feed import Feed
from tests.conftest import Cast, Person, bound_to, mint
from tests.doors.claude_mem.worker import served, session
from tests.generation.tools import Outbox
from tests.make import Make
from tests.ops.streams import Browser
from tests.timeouts import ENOUGH_SECONDS

HERE = {"Host": "127.0.0.1:37877"}


@pytest.fixture
async def live_hub(hub: NotificationListener) -> AsyncGenerator[NotificationListener]:
    listening = asyncio.create_task(hub.listen([*CHANNELS, announce.CHANNEL, announce.NEWS]))
    await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
    yield hub
    listening.cancel()


@pytest.fixture
def app(settings: Settings, db: Db, live_hub: NotificationListener, notifier: JobNotifier) -> AsgiFrame:
    app = create_app(settings, db, live_hub, notifier, secret=b"s" * 32)
    app.dependencies.replace(Feed(db, live_hub, secret=b"s" * 32, streams_per_key=2))
    return app


class Viewer:
    """Reads the stream, one object after another."""

    def __init__(self, app: AsgiFrame, headers: dict[str, str]) -> None:
        self._browser = Browser(app, "", headers, path="/stream")
        self._come = ""

    async def opened(self) -> Viewer:
        status, head = await self._browser.head()
        assert (status, head["content-type"].partition(";")[0]) == (200, "text/event-stream")
        return self

    async def next(self) -> dict[str, Any]:
        while True:
            while "\n\n" not in self._come:
                self._come += await self._browser.until("\n\n")
            block, _, self._come = self._come.partition("\n\n")
            if not block.startswith(":"):
                assert block.startswith("data: "), "no names and no ids"
                assert "\n" not in block
                return msgspec.json.decode(block.removeprefix("data: "))

    async def until(self, type_: str) -> dict[str, Any]:
        while (message := await self.next())["type"] != type_:
            pass
        return message

    async def go(self) -> None:
        await self._browser.go()

    async def refused(self) -> int:
        status, _ = await self._browser.head()
        return status

    async def end(self) -> None:
        await self._browser.end()
        await asyncio.wait_for(self._browser.task, ENOUGH_SECONDS)


async def happened(
    db: Db, make: Make, person: Person, title: str, *, kind: Kind = "observation", project: Project | None = None
) -> int:
    """Somebody writes an observation, and all who listen are told; its number."""
    made = await make.observation(project=project or person.project, title=title, kind=kind)
    async with db.tenant(person.team_id) as conn:
        await audit.record(
            conn, person.principal, "observations.created", "project", made.project_id, project_id=made.project_id,
            observations=[str(made.id)],
        )  # fmt: skip
        await announce.notify_stream(conn)
    return made.number


async def test_it_begins_with_what_there_is(client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, db: Db, notifier: JobNotifier):
    await session(client, cast.alice, "one", platform="codex")
    await Outbox(db, notifier, cast.alice.principal, cast.alice.project).put(3, session="s1")

    viewer = await Viewer(app, cast.alice.headers).opened()

    connected = await viewer.next()
    assert connected.pop("timestamp") > 1_700_000_000_000
    assert connected == {"type": "connected"}
    first = await viewer.next()
    assert (first["type"], first["projects"]) == ("initial_load", ["github.com/acme/orders"])
    assert "codex" in first["sources"]
    assert first["projectsBySource"]["codex"] == ["github.com/acme/orders"]
    assert await viewer.next() == {"type": "processing_status", "isProcessing": True, "queueDepth": 3}
    await viewer.go()


async def test_what_is_new_is_told_whole_and_only_to_its_team(app: AsgiFrame, cast: Cast, db: Db, make: Make):
    alices, charlies = await Viewer(app, cast.alice.headers).opened(), await Viewer(app, cast.charlie.headers).opened()
    await alices.until("processing_status")
    await charlies.until("processing_status")

    number = await happened(db, make, cast.bob, "the zebra is fed")
    summary = await happened(db, make, cast.bob, "fed a zebra", kind="summary")
    strangers = await happened(db, make, cast.charlie, "a stranger's")

    message = await alices.until("new_observation")
    assert (message["observation"]["id"], message["observation"]["title"]) == (number, "the zebra is fed")
    assert (message["observation"]["platform_source"], message["observation"]["facts"]) == ("claude", "[]")
    message = await alices.until("new_summary")
    assert (message["summary"]["id"], message["summary"]["request"]) == (summary, "fed a zebra")
    message = await charlies.next()
    assert (message["type"], message["observation"]["id"], message["observation"]["title"]) == (
        "new_observation",
        strangers,
        "a stranger's",
    )
    assert {"stream"} == {one["via"] for one in await served(db)}
    await alices.go()
    await charlies.go()


async def test_a_key_of_a_project_hears_of_that_project(app: AsgiFrame, cast: Cast, db: Db, make: Make):
    other = await bound_to(db, cast.alice, "github.com/acme/other")
    viewer = await Viewer(app, other.headers).opened()
    first = await viewer.until("initial_load")
    await viewer.until("processing_status")

    await happened(db, make, cast.alice, "elsewhere")
    await happened(db, make, cast.alice, "here", project=other.project)

    assert first["projects"] == ["github.com/acme/other"]
    assert (await viewer.next())["observation"]["title"] == "here"
    await viewer.go()


async def test_work_that_goes_on_is_told(app: AsgiFrame, cast: Cast, db: Db, notifier: JobNotifier):
    viewer = await Viewer(app, cast.alice.headers).opened()
    idle = await viewer.until("processing_status")

    await Outbox(db, notifier, cast.alice.principal, cast.alice.project).put(1, session="s1")

    assert (idle["isProcessing"], idle["queueDepth"]) == (False, 0)
    assert await viewer.until("processing_status") == {"type": "processing_status", "isProcessing": True, "queueDepth": 1}
    await viewer.go()


async def test_it_ends_with_the_server_and_counts_as_a_stream(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast):
    one, two = await Viewer(app, cast.alice.headers).opened(), await Viewer(app, cast.alice.headers).opened()
    stats = await client.get("/api/stats", headers=cast.alice.headers)
    strangers = await client.get("/api/stats", headers=cast.charlie.headers)
    third = await Viewer(app, cast.alice.headers).refused()

    await two.go()
    again = await Viewer(app, cast.alice.headers).opened()
    app.dependencies.get(Feed).close()
    await one.end()
    await again.end()

    assert third == 429
    assert (stats.json()["worker"]["sseClients"], strangers.json()["worker"]["sseClients"]) == (2, 0)
    assert await Viewer(app, cast.alice.headers).refused() == 503


async def test_who_may_not_read_hears_nothing(app: AsgiFrame, cast: Cast, db: Db):
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])

    assert await Viewer(app, {"Authorization": f"Bearer {writer}"}).refused() == 403
    assert await Viewer(app, {"Host": "memory.example"}).refused() == 401


async def test_asked_for_the_head_only_it_opens_no_stream(client: httpx.AsyncClient, cast: Cast):
    answered = await client.head("/stream", headers=cast.alice.headers)

    assert (answered.status_code, answered.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")


async def test_guests_listen_too_and_not_more_of_them_than_with_a_key(app: AsgiFrame, cast: Cast, db: Db, make: Make):
    one, two = await Viewer(app, HERE).opened(), await Viewer(app, HERE).opened()
    await one.until("processing_status")

    await happened(db, make, cast.alice, "fed")

    assert (await one.next())["observation"]["title"] == "fed"
    assert await Viewer(app, HERE).refused() == 429
    await one.go()
    await two.go()
