"""Reads a live stream in a test: what the feed says, taken apart into events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable
from types import TracebackType
from typing import Self, cast

import msgspec

from cmserver.access.model import Principal
from cmserver.access.projects import Project
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Name

ENOUGH_SECONDS = 20


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
        who: Principal,
        *,
        project: Project | None = None,
        names: tuple[Name, ...] = NAMES,
        last_event_id: str | None = None,
    ) -> None:
        self._feed = feed
        self._who = who
        self._project_id = project.id if project else who.project_id
        self._names = frozenset(names)
        self._last_event_id = last_event_id
        self._heard: asyncio.Queue[Heard | None] = asyncio.Queue()
        self.last_id = ""

    async def __aenter__(self) -> Self:
        self.reader, lost = await self._feed.join(
            self._who, project_id=self._project_id, names=self._names, last_event_id=self._last_event_id
        )
        self._task = asyncio.create_task(self._listen(lost=lost))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._feed.leave(self.reader)

    async def _listen(self, *, lost: bool) -> None:
        async for heard in events_of(self._feed.read(self.reader, lost=lost)):
            self._heard.put_nowait(heard)
        self._heard.put_nowait(None)

    async def next(self) -> Heard:
        """The next event with data."""
        while True:
            heard = await self.next_block()
            if heard.name:
                return heard

    async def next_block(self) -> Heard:
        heard = await asyncio.wait_for(self._heard.get(), ENOUGH_SECONDS)
        assert heard is not None, "the stream has ended"
        self.last_id = heard.id or self.last_id
        return heard

    async def until(self, name: str, subject: object = None) -> list[Heard]:
        """All up to the event of that name (and about that thing), which is the last."""
        heard = [await self.next()]
        while heard[-1].name != name or (subject and heard[-1].subject != str(subject)):
            heard.append(await self.next())
        return heard

    async def end(self) -> None:
        """Until the stream ends by itself."""
        while await asyncio.wait_for(self._heard.get(), ENOUGH_SECONDS):
            pass

    def unread(self) -> list[Heard]:
        """What has been heard and not been asked for yet."""
        found: list[Heard] = []
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                heard = self._heard.get_nowait()
                if heard and heard.name:
                    found.append(heard)
        return found
