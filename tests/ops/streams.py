"""Reads a live stream in a test: what the feed says, taken apart into events; and asks for one as a server would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable
from types import TracebackType
from typing import Self, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Scope

from cmserver.access.model import Principal
from cmserver.access.projects import Project
from cmserver.base.http.frame import AsgiFrame
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Name
from tests.timeouts import ENOUGH_SECONDS


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One event. A block without data, which only moves the id, has the name "" and no data."""

    id: str
    name: str
    data: dict[str, object]

    @property
    def subject(self) -> str:
        return cast("str", self.data.get("id"))


async def events_of(texts: AsyncIterable[bytes]) -> AsyncGenerator[Heard]:
    """As an EventSource would read them."""
    rest = b""
    async for text in texts:
        *blocks, rest = (rest + text).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            data = msgspec.json.decode(fields.get("data", "{}"), type=dict[str, object])
            yield Heard(id=fields.get("id", ""), name=fields.get("event", ""), data=data)


class Listener:
    """Joins when it is entered, and keeps all it hears."""

    def __init__(
        self,
        feed: Feed,
        principal: Principal,
        *,
        project: Project | None = None,
        names: tuple[Name, ...] = NAMES,
        last_event_id: str | None = None,
    ) -> None:
        self._feed = feed
        self._principal = principal
        self._project_id = project.id if project else principal.project_id
        self._names = frozenset(names)
        self._last_event_id = last_event_id
        self._heard: asyncio.Queue[Heard | None] = asyncio.Queue()
        self.last_id = ""

    async def __aenter__(self) -> Self:
        self.reader, lost = await self._feed.join(
            self._principal, project_id=self._project_id, names=self._names, last_event_id=self._last_event_id
        )
        self._task = asyncio.create_task(self._listen(lost=lost))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._feed.leave(self.reader)

    async def _listen(self, *, lost: bool) -> None:
        async for block in events_of(self._feed.read(self.reader, lost=lost)):
            self._heard.put_nowait(block)
        self._heard.put_nowait(None)

    async def next(self) -> Heard:
        """The next event with data."""
        while True:
            block = await self.next_block()
            if block.name:
                return block

    async def next_block(self) -> Heard:
        block = await asyncio.wait_for(self._heard.get(), ENOUGH_SECONDS)
        assert block is not None, "the stream has ended"
        self.last_id = block.id or self.last_id
        return block

    async def until(self, name: str, subject: object = None) -> list[Heard]:
        """All up to the event of that name (and about that thing), which is the last."""
        blocks = [await self.next()]
        while blocks[-1].name != name or (subject and blocks[-1].subject != str(subject)):
            blocks.append(await self.next())
        return blocks

    async def end(self) -> None:
        """Until the stream ends by itself."""
        while await asyncio.wait_for(self._heard.get(), ENOUGH_SECONDS):
            pass

    def unread(self) -> list[Heard]:
        """What has been heard and not been asked for yet."""
        found: list[Heard] = []
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                block = self._heard.get_nowait()
                if block and block.name:
                    found.append(block)
        return found


class Browser:
    """Asks the application for the stream as a server would, and goes when it is told to."""

    def __init__(self, app: AsgiFrame, query: str, headers: dict[str, str], *, path: str = "/v1/stream") -> None:
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "client": ("127.0.0.1", 50_000),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._sent.put))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def go(self) -> None:
        self._gone.set()
        await asyncio.wait_for(self.task, ENOUGH_SECONDS)

    async def head(self) -> tuple[int, Headers]:
        message = await asyncio.wait_for(self._sent.get(), ENOUGH_SECONDS)
        return message["status"], Headers(raw=message["headers"])

    async def until(self, text: object) -> str:
        """What comes up to the text."""
        came = ""
        while str(text) not in came:
            message = await asyncio.wait_for(self._sent.get(), ENOUGH_SECONDS)
            came += message["body"].decode()
            assert message["more_body"], came
        return came

    async def end(self) -> str:
        """What comes until the answer is complete."""
        came = ""
        while (message := await asyncio.wait_for(self._sent.get(), ENOUGH_SECONDS))["more_body"]:
            came += message["body"].decode()
        return came
