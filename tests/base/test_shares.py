"""Nobody takes all of the database's connections: not reads those of ingest, and not one key those of all others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Literal
from uuid import UUID

import pytest

from cmserver.base.errors import Unavailable
from cmserver.base.shares import ConnectionShares, Share, current_share, set_share

SIZE = 8
ALICE, BOB, CHARLIE = (UUID(int=number) for number in (1, 2, 3))


class Requests:
    """Requests that hold a connection until they are told to end."""

    def __init__(self) -> None:
        self.shares = ConnectionShares(SIZE)
        self.running: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, name: str, holder: UUID | None, kind: Literal["ingest", "read"] = "read", seconds: float = 1000) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(name, Share(holder, kind), seconds))
        await asyncio.sleep(0)

    async def _run(self, name: str, share: Share, seconds: float) -> None:
        set_share(share)
        async with self.shares.hold(seconds):
            self.running.append(name)
            await self._ends[name].wait()
        self.running.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        for _ in range(3):
            await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)

    async def end_all(self) -> None:
        for event in self._ends.values():
            event.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def test_a_key_has_half_and_reads_leave_a_quarter_to_ingest():
    requests = Requests()
    for number in range(6):
        await requests.start(f"a{number}", ALICE)
        await requests.start(f"b{number}", BOB)
    for number in range(3):
        await requests.start(f"i{number}", ALICE, "ingest")

    counts = {letter: sum(name.startswith(letter) for name in requests.running) for letter in "abi"}
    assert counts["a"] <= SIZE // 2
    assert counts["a"] + counts["b"] == SIZE * 3 // 4
    assert counts["i"] == 3
    await requests.end_all()


async def test_the_next_place_is_for_whoever_holds_least():
    requests = Requests()
    for number in range(6):
        await requests.start(f"a{number}", ALICE)
        await requests.start(f"b{number}", BOB)
    await requests.start("c", CHARLIE)
    assert "c" not in requests.running

    await requests.end("a0")

    assert "c" in requests.running
    await requests.end_all()
    assert requests.running == []


async def test_who_waits_too_long_is_told_why_and_holds_nothing():
    requests = Requests()
    for number in range(SIZE // 2):
        await requests.start(f"a{number}", ALICE)
    set_share(Share(ALICE, "read"))

    with pytest.raises(Unavailable, match="this key"):
        async with requests.shares.hold(0.01):
            pass

    await requests.end("a0")
    async with requests.shares.hold(0.01):
        pass
    await requests.end_all()


async def test_a_cancelled_request_gives_its_place_back():
    requests = Requests()
    for number in range(SIZE // 2 + 2):
        await requests.start(f"a{number}", ALICE)
    waiting = f"a{SIZE // 2}"

    await requests.cancel(waiting)
    await requests.cancel("a0")
    await asyncio.sleep(0)

    assert f"a{SIZE // 2 + 1}" in requests.running
    await requests.end_all()


async def test_what_a_request_nests_counts_once_and_work_of_no_request_is_not_bounded():
    shares = ConnectionShares(1)
    set_share(Share(ALICE, "read"))
    async with shares.hold(0.01), shares.hold(0.01):
        pass
    assert current_share() == Share(ALICE, "read")

    set_share(None)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(shares.hold(0.01))
