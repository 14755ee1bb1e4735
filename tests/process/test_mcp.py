"""The door of agents in the real program: how it stops with a hundred connected, and what a kill leaves of what they wrote."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.bench.agents import LEGACY, MODERN, Connection, Mcp, Reply
from tests.bench.world import free_port
from tests.process.conftest import Run
from tests.process.program import Program, measured, number, rows, wait_for

pytestmark = pytest.mark.slow

SESSIONS = 100
STOPS_WITHIN_SECONDS = 10.0
WRITERS = 12
WRITES = 40
"""Of each kind, by each writer."""
KILLED_AT = (60, 300, 600)
"""So many writes were acknowledged when the server is killed."""
_STORED = re.compile(r"^#(\d+) ", re.MULTILINE)


class _Text(msgspec.Struct, frozen=True):
    text: str


class _Result(msgspec.Struct, frozen=True):
    content: list[_Text]


class _Message(msgspec.Struct, frozen=True):
    result: _Result


def text(door: Mcp, answer: Reply) -> str:
    """What a tool has said; AssertionError for a refusal."""
    assert door.refusal(answer) is None, answer
    return msgspec.json.decode(answer.body, type=_Message).result.content[0].text


def port_of(program: Program) -> int:
    port = urlsplit(program.url).port
    assert port
    return port


def doors(program: Program, count: int) -> list[Mcp]:
    """Of both eras, in turn."""
    return [Mcp(program.key, LEGACY if place % 2 else MODERN) for place in range(count)]


def event(name: str) -> dict[str, object]:
    return {"projectId": "orders", "eventType": "tool_use", "sourceEventId": name, "payload": {"answer_text": name}}


async def opened(stack: AsyncExitStack, port: int, door: Mcp) -> Connection:
    connection = Connection(port)
    stack.callback(connection.close)
    for request in door.opening():
        assert door.refusal(await connection.ask(request)) is None
    return connection


@pytest.mark.speed
async def test_asked_to_stop_it_answers_what_was_asked_and_goes_with_a_hundred_sessions_connected(run: Run, database: str):
    # Without a worker: those who wait for the observations of their events wait until the server stops.
    program = run("api", "--role", "api", settings={"CMSERVER_DATABASE_URL": database})
    await asyncio.to_thread(program.wait_until_ready)
    port = port_of(program)
    async with AsyncExitStack() as stack:
        agents = [(door, await opened(stack, port, door)) for door in doors(program, SESSIONS)]
        waiting, streaming = agents[:30], agents[30:60]  # and the others are silent
        for _, connection in streaming:
            head = (
                f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {program.key}\r\nAccept: text/event-stream\r\n\r\n"
            )
            assert (await connection.ask(head.encode())).status == 405
        for place, (door, connection) in enumerate(waiting):
            await connection.send(door.call("observation_record_event", {**event(f"waiting-{place}"), "wait": True}))
        stored = "SELECT count(*) FROM agent_events"
        await asyncio.to_thread(wait_for, "all events to be stored", lambda: number(database, stored) == len(waiting))

        asked_to_stop = time.monotonic()
        program.send(signal.SIGTERM)
        answers = await asyncio.gather(*(connection.answer() for _, connection in waiting))
        gone = "the server to be gone"
        await asyncio.to_thread(wait_for, gone, lambda: program.process.poll() is not None, STOPS_WITHIN_SECONDS)
        code = program.process.returncode
        took = time.monotonic() - asked_to_stop

    assert code == 0
    for (door, _), answer in zip(waiting, answers, strict=True):
        assert re.fullmatch(r"Recorded event \S+ Job \S+ is queued\. The wait is over, the job goes on\.", text(door, answer))
    assert "Traceback" not in program.errors
    measured(f"gone in {took:.2f} s, with {SESSIONS} sessions connected and {len(waiting)} calls in flight")


class Mortal:
    """A server that is killed in the middle of the writes, and started again at the same port."""

    def __init__(self, run: Run, database: str) -> None:
        self._run = run
        self.port = free_port()
        self._settings = {
            "CMSERVER_DATABASE_URL": database,
            "CMSERVER_PORT": str(self.port),
        }
        self.deaths = 0
        self.acknowledged = 0
        self.is_there = asyncio.Event()
        self._was_written = asyncio.Event()

    def wrote(self) -> None:
        self.acknowledged += 1
        self._was_written.set()

    async def born(self) -> Program:
        server = self._run(f"server-{self.deaths}", "--role", "api", settings=self._settings)
        await asyncio.to_thread(server.wait_until_ready)
        self.is_there.set()
        return server

    async def suffer(self, server: Program) -> None:
        for target in KILLED_AT:
            while self.acknowledged < target:
                self._was_written.clear()
                await self._was_written.wait()
            self.is_there.clear()
            server.send(signal.SIGKILL)
            server.process.wait()
            self.deaths += 1
            server = await self.born()


class Writer:
    """An agent that writes things down, and knows what it was told of them."""

    def __init__(self, name: str, door: Mcp, mortal: Mortal) -> None:
        self._name, self._door, self._mortal = name, door, mortal
        self.added: dict[str, str] = {}
        """By title the number that it was told."""
        self.unsure: list[str] = []
        """What it added without hearing what became of it."""
        self.recorded: list[str] = []

    async def work(self) -> None:
        connection = Connection(self._mortal.port)
        for place in range(WRITES):
            await self._record(connection, f"{self._name}-{place}")  # an event makes its project, an observation needs one
            await self._add(connection, f"{self._name} decided {place}")
        connection.close()

    async def _add(self, connection: Connection, title: str) -> None:
        """Nobody but the writer could tell whether a second one is the first: so it does not write it again."""
        answer_text = await self._asked(connection, "observation_add", {"projectId": "orders", "title": title, "narrative": "So."})
        if answer_text is None:
            self.unsure.append(title)
            return
        (number,) = _STORED.findall(answer_text)
        self.added[title] = number

    async def _record(self, connection: Connection, name: str) -> None:
        """An event has its name, and may come again."""
        while await self._asked(connection, "observation_record_event", event(name)) is None:
            pass
        self.recorded.append(name)

    async def _asked(self, connection: Connection, tool: str, arguments: dict[str, object]) -> str | None:
        """What it said; None when the server died over it."""
        await self._mortal.is_there.wait()
        try:
            answer = await connection.ask(self._door.call(tool, arguments))
        except (OSError, EOFError):
            return None
        answer_text = text(self._door, answer)
        self._mortal.wrote()
        return answer_text


async def test_what_was_acknowledged_before_a_kill_is_there_afterwards_and_each_once(run: Run, database: str):
    mortal = Mortal(run, database)
    first = await mortal.born()
    writers = [Writer(f"writer-{place}", door, mortal) for place, door in enumerate(doors(first, WRITERS))]

    async with asyncio.TaskGroup() as group:
        group.create_task(mortal.suffer(first))
        for writer in writers:
            group.create_task(writer.work())

    assert mortal.deaths == len(KILLED_AT)
    check_added(database, writers)
    events = [row["name"] for row in rows(database, "SELECT source_event_id AS name FROM agent_events WHERE origin = 'mcp'")]
    assert sorted(map(str, events)) == sorted(name for writer in writers for name in writer.recorded)
    assert number(database, "SELECT count(*) FROM observation_generation_jobs") == WRITERS * WRITES
    unsure = sum(len(writer.unsure) for writer in writers)
    measured(f"{mortal.acknowledged} writes acknowledged, {mortal.deaths} kills, {unsure} observations of which nobody was told")


def check_added(database: str, writers: Sequence[Writer]) -> None:
    added = {title: number for writer in writers for title, number in writer.added.items()}
    unsure = {title for writer in writers for title in writer.unsure}
    stored = [(str(row["title"]), str(row["number"])) for row in rows(database, "SELECT title, number FROM observations")]
    assert len(added) + len(unsure) == WRITERS * WRITES
    assert len({title for title, _ in stored}) == len(stored)
    assert {title: number for title, number in stored if title not in unsure} == added
