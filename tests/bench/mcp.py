"""A hundred agents that ask by the Model Context Protocol: how long each waits, what the server's memory does, and what the
protocol costs beside REST.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import psycopg
import uvloop

from tests.bench.agents import LEGACY, MODERN, ROUND, Door, Known, Mcp, Rest, Session, Taken, Verb, load, sessions
from tests.bench.library import Library, library
from tests.bench.measure import Aim, Figure, percentile, shown, spread
from tests.bench.scale import Scale
from tests.bench.search import questions
from tests.bench.world import World, free_port, program

HOW = (
    "`cmserver run --role api` on a database whose project has 10,000 observations. 100 sessions, each on a connection of its "
    "own, half of them in the wire form of 2025-11-25 (initialize, notifications/initialized), half in that of 2026-07-28 "
    "(server/discover, and the envelope in each request), with the key in each request; written out by hand, since a client "
    "library would cost more than the server. Each session makes 50 calls, ten a round: tools/list, three searches by words and "
    "meaning, two timelines, three times three observations whole, and the context of the project; they are not in step. "
    "Between two calls a session thinks for one to three seconds, as an agent does that has an answer to read: 50 calls a "
    "second in all. `Without a pause` it asks again at once, which no agent does: that is what the server can do. The yardstick "
    "of the former is one session alone, of the latter as many that ask the same by REST. An error of any call ends the "
    "benchmark. The memory is the resident set of the server's process, a second after each round, against what it was before "
    "the first of them, when each kind of call had been made some times. `One after the other` is over one connection, in the "
    "form of 2026-07-28; the other form stands in the notes."
)
_CALLS: tuple[Verb, ...] = ("observation_search", "observation_timeline", "observation_get", "observation_context")
_BRIEF: tuple[Verb, ...] = ROUND[1:4]
"""Of each kind one, for the rounds without a pause."""
_REST_SECONDS = 1.0
_LAST_REST_SECONDS = 3.0


class _Server(msgspec.Struct, frozen=True, kw_only=True):
    """A running one, and what there is to ask it for."""

    port: int
    pid: int
    key: str
    known: Known

    def mcp(self, agents: int) -> list[Door]:
        """For so many agents, every other one in the older form."""
        return [Mcp(self.key, LEGACY if place % 2 else MODERN) for place in range(agents)]

    def rest(self, agents: int) -> list[Door]:
        return [Rest(self.key) for _ in range(agents)]


def run(world: World, scale: Scale) -> list[Figure]:
    """Single calls, then all sessions at a pace, then all without one."""
    here = library(world, scale.remembered + scale.remembered // 10, sizes=(scale.remembered,))
    # All have one key here, and its limit is not what is measured.
    with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
        conn.execute("UPDATE api_keys SET requests_per_minute = 1000000")
    given = {"database_url": here.place.url, "log_format": "json"}
    port = free_port()
    command = [sys.executable, "-m", "cmserver", "run", "--role", "api"]
    with (
        program(command, given, world.free_folder(), port=port) as process,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        server = _Server(port=port, pid=process.pid, key=here.place.key, known=_known(here, scale.remembered))
        return [*runner.run(_single(server, scale)), *runner.run(_crowded(server, scale))]


def _known(here: Library, size: int) -> Known:
    project_id = here.projects[size]
    asked = "SELECT number FROM observations WHERE team_id = %s AND project_id = %s ORDER BY number"
    with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
        numbers = [int(row[0]) for row in conn.execute(asked, [here.place.team_id, project_id])]
    return Known(project=str(project_id), queries=[one.text for one in questions(here, project_id)], numbers=numbers)


# -- one call after the other


async def _single(server: _Server, scale: Scale) -> list[Figure]:
    doors = [Mcp(server.key), Rest(server.key), Mcp(server.key, LEGACY)]
    figures: list[Figure] = []
    async with sessions(doors, server.port, server.known) as asking:
        for one in asking:
            _checked(await load([one], ROUND, 0))  # what it needs is in memory now
        for verb in _CALLS:
            rounds = [[await _milliseconds(one, verb, scale.asked // 2) for one in asking] for _ in range(scale.rounds)]
            newer, _, older = [[each for one in rounds for each in one[door]] for door in range(len(doors))]
            figures.append(
                Figure(
                    name=f"MCP, {verb}, one after the other",
                    unit="ms",
                    yardstick="the same by REST",
                    pairs=[(percentile(mcp, 50), percentile(rest, 50)) for mcp, rest, _ in rounds],
                    aim=Aim(of="ratio", at_least=False, bound=1.5),
                    note=f"{spread(newer)}; in the form of {LEGACY} {spread(older)}",
                )
            )
    return figures


async def _milliseconds(asking: Session, verb: Verb, times: int) -> list[float]:
    asked: list[Verb] = [verb] * max(1, times)
    return _checked(await load([asking], asked, 0)).milliseconds[verb]


# -- many at once


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions at once, and their yardstick after them; and the memory of the server in between."""

    mine: Taken
    other: Taken
    megabytes: float


async def _crowded(server: _Server, scale: Scale) -> list[Figure]:
    async with (
        sessions(server.mcp(scale.agents), server.port, server.known) as agents,
        sessions(server.rest(scale.agents), server.port, server.known) as others,
    ):
        before = _megabytes(server.pid)

        async def round_of(verbs: Sequence[Verb], think_seconds: float, beside: Sequence[Session]) -> _Round:
            mine = _checked(await load(agents, verbs, think_seconds))
            await asyncio.sleep(_REST_SECONDS)
            megabytes = _megabytes(server.pid)
            return _Round(mine=mine, other=_checked(await load(beside, verbs, 0)), megabytes=megabytes)

        paced = [await round_of(ROUND, scale.think_seconds, agents[:1]) for _ in range(scale.rounds)]
        eager = [await round_of(_BRIEF, 0, others) for _ in range(scale.rounds)]
    await asyncio.sleep(_LAST_REST_SECONDS)
    at_last = _megabytes(server.pid)
    calls = sum(len(one.mine.all_ms) for one in paced)
    return [
        Figure(
            name=f"MCP, {scale.agents} sessions that think between their calls, p99",
            unit="ms",
            yardstick="one session alone",
            pairs=[(percentile(one.mine.all_ms, 99), percentile(one.other.all_ms, 99)) for one in paced],
            aim=Aim(of="median", at_least=False, bound=100),
            note=f"{calls:,} calls, no error; {_by_verb(paced)}",
        ),
        Figure(
            name=f"MCP, {scale.agents} sessions without a pause",
            unit="requests/s",
            yardstick="the same by REST",
            pairs=[(_per_second(one.mine), _per_second(one.other)) for one in eager],
            aim=Aim(of="ratio", at_least=True, bound=0.7),
            note=f"no error; each call waits for those of {scale.agents - 1} others: {_by_verb(eager)}",
        ),
        Figure(
            name=f"MCP, memory of the server after the calls of {scale.agents} sessions",
            unit="MiB",
            yardstick="before the first of them",
            pairs=[(one.megabytes, before) for one in paced],
            aim=Aim(of="ratio", at_least=False, bound=1.1),
            note=f"after each round {_all_shown([*paced, *eager])} MiB, when they had gone {shown(at_last)} MiB",
        ),
    ]


def _all_shown(rounds: Sequence[_Round]) -> str:
    return ", ".join(shown(one.megabytes) for one in rounds)


def _per_second(taken: Taken) -> float:
    return len(taken.all_ms) / taken.seconds


def _by_verb(rounds: Sequence[_Round]) -> str:
    of_each: dict[str, list[float]] = defaultdict(list)
    for one in rounds:
        for verb, milliseconds in one.mine.milliseconds.items():
            of_each[verb] += milliseconds
    return "; ".join(f"{verb} {spread(of_each[verb])}" for verb in sorted(of_each))


def _checked(taken: Taken) -> Taken:
    if taken.errors:
        raise RuntimeError(f"{len(taken.errors)} of {len(taken.all_ms)} calls went wrong: {taken.errors[0]}")
    return taken


def _megabytes(pid: int) -> float:
    """The resident set of a process."""
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(told.stdout) / 1024
