"""A simulated month: people, their agents and sessions, nights, outages of the provider, restarts and crashes, at full speed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import cast

import httpx
import msgspec
import psycopg

from tests.bench import session
from tests.bench.cpu import cpu_seconds, file_descriptors, pss_mib
from tests.bench.drain import OPEN_JOBS
from tests.bench.load import ROOT
from tests.bench.measure import percentile
from tests.bench.month.provider import AWAY
from tests.bench.month.record import WEEK, WORKDAYS, Day, Month
from tests.bench.recall.corpora import history
from tests.bench.world import STOPPED_SECONDS, Place, World, environment, free_port, value, wait_until_ready

_NIGHT_SECONDS = 600.0
_PROJECT = session.ROOT
"""As hooks name the project of a folder that has no remote."""
_HISTORY = history.load()
_PROMPTS = [prompt for session in _HISTORY.sessions for prompt in session.prompts]
_QUERIES = [question.text for question in _HISTORY.questions]

_TOTALS = """
    SELECT pg_database_size(current_database()) AS bytes,
           (SELECT count(*) FROM agent_events) AS events,
           (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()) AS connections,
           (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
             WHERE c.relkind = 'r' AND (c.relname LIKE 'procrastinate%'
                   OR c.relname IN ('generation_lanes', 'generation_workers', 'provider_pauses', 'rate_limits'))) AS queue_bytes,
           (SELECT coalesce(sum(n_dead_tup) / nullif(sum(n_live_tup + n_dead_tup), 0), 0)::float8
              FROM pg_stat_user_tables) AS dead_share
"""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much happens."""

    people: int = 20
    days: int = 30
    sessions: int = 3
    """Of each person on a working day; each person's run one after the other, as those of two agents."""
    tool_uses: int = 40
    """In a session, about."""
    searches: int = 3


class Program:
    """`cmserver run` on a database, which can be stopped, killed and started again on its port."""

    def __init__(self, world: World, place: Place) -> None:
        self._place = place
        self._data_dir = world.free_folder()
        self._log = self._data_dir.with_suffix(".log")
        self.away = self._data_dir.with_suffix(".away")
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.spent_cpu_seconds = 0.0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        settings = {
            "database_url": self._place.url,
            "log_format": "json",
            "log_level": "warning",
            "provider": "tests.bench.month.provider:make",
            "generation_debounce_seconds": 0.5,
            "lease_seconds": 4,
            "heartbeat_seconds": 1,
            "data_dir": self._data_dir,
            "port": self.port,
        }
        names = {name: text for name, text in os.environ.items() if not name.startswith(("CMSERVER_", "CLAUDE_MEM_"))}
        env = {**names, **environment(settings), AWAY: str(self.away)}
        command = [sys.executable, "-m", "cmserver", "run"]
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)
        wait_until_ready(self.process, self.port, self._log)

    def end(self, sent: signal.Signals) -> None:
        assert self.process is not None
        self.spent_cpu_seconds += cpu_seconds(self.pid)
        self.process.send_signal(sent)
        try:
            self.process.wait(STOPPED_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def cpu_seconds(self) -> float:
        """Of all processes that it had."""
        return self.spent_cpu_seconds + cpu_seconds(self.pid)


class Taken(msgspec.Struct, kw_only=True):
    """What callers saw on one day."""

    hooks_ms: list[float] = []
    contexts_ms: list[float] = []
    searches_ms: list[float] = []
    acknowledged: int = 0
    """Tool uses whose hook was answered."""


def live(world: World, size: Size, seed: int, echo: Callable[[str], None]) -> Month:
    """Live through the month. The same seed, the same month, but for what runs at once and what the model says."""
    rng = random.Random(seed)
    place = world.place()
    # A key of a person; all of them are behind one address here.
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("UPDATE api_keys SET requests_per_minute = 1000000")
    program = Program(world, place)
    days: list[Day] = []
    outages: list[int] = []
    restarts: list[int] = []
    kills: list[int] = []
    acknowledged = 0
    empty_bytes = cast("int", value(place.url, "SELECT pg_database_size(current_database())"))
    program.start()
    try:
        for number in range(1, size.days + 1):
            weekday = (number - 1) % WEEK
            if weekday >= WORKDAYS:
                if weekday == WORKDAYS:  # on Saturday somebody upgrades the machine
                    program.end(signal.SIGTERM)
                    program.start()
                    restarts.append(number)
                continue
            trouble: list[Callable[[], None]] = []
            if weekday == 2:
                trouble = [program.away.touch, lambda: program.away.unlink(missing_ok=True)]
                outages.append(number)
            elif weekday == 3:
                trouble = [lambda: program.end(signal.SIGKILL), program.start]
                kills.append(number)
            before = program.cpu_seconds() + cpu_seconds(world.postmaster)
            taken = asyncio.run(_work(program, place, size, number, rng, trouble))
            program.away.unlink(missing_ok=True)
            _sleep_until_empty(place)
            spent = program.cpu_seconds() + cpu_seconds(world.postmaster) - before
            acknowledged += taken.acknowledged
            days.append(_measured(program, world, place, number, taken, spent, empty_bytes))
            echo(
                f"day {number}: {taken.acknowledged} events, hook p99 {days[-1].hook_p99_ms:.1f} ms, {days[-1].memory_mib:.0f} MiB"
            )
        stored = cast("int", value(place.url, "SELECT count(*) FROM agent_events WHERE event_type = 'tool_use'"))
        verified = _verify(world, place)
    finally:
        if program.process is not None:
            program.end(signal.SIGTERM)
    return Month(
        machine={},
        people=size.people,
        days=days,
        outages=outages,
        restarts=restarts,
        kills=kills,
        verified=verified,
        lost_events=max(0, acknowledged - stored),
        doubled_events=max(0, stored - acknowledged),
    )


# -- a day


async def _work(
    program: Program, place: Place, size: Size, day: int, rng: random.Random, trouble: list[Callable[[], None]]
) -> Taken:
    taken = Taken()
    headers = {"Authorization": f"Bearer {place.key}"}
    limits = httpx.Limits(max_connections=size.people, max_keepalive_connections=size.people)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{program.port}", headers=headers, timeout=60, trust_env=False, limits=limits
    ) as client:
        people = [asyncio.create_task(_person(client, size, day, person, rng.random(), taken)) for person in range(size.people)]
        if trouble:
            wanted = size.people * size.sessions * size.tool_uses
            for share, act in zip((0.3, 0.6), trouble, strict=True):
                while taken.acknowledged < wanted * share and not all(task.done() for task in people):
                    if program.process is None:
                        break
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(act)
        await asyncio.gather(*people)
    return taken


async def _person(client: httpx.AsyncClient, size: Size, day: int, person: int, seed: float, taken: Taken) -> None:
    rng = random.Random(seed)
    for turn in range(size.sessions):
        name = f"day-{day}-person-{person}-session-{turn}"
        common = {"session_id": name, "cwd": session.ROOT}
        await _ask(
            client, taken.contexts_ms, "/v1/hooks/claude-code", {**common, "hook_event_name": "SessionStart", "source": "startup"}
        )
        uses = max(4, int(rng.gauss(size.tool_uses, size.tool_uses / 4)))
        said = session.requests(uses)
        for use in range(uses):
            if use in said:
                prompt = {**common, "hook_event_name": "UserPromptSubmit", "prompt": rng.choice(_PROMPTS)}
                await _ask(client, taken.contexts_ms, "/v1/hooks/claude-code", prompt)
            number = ((day * 100 + person) * 10 + turn) * 1000 + use
            body = {**session.tool_use(number), **common, "tool_use_id": f"toolu_{number:024d}"}
            await _ask(client, taken.hooks_ms, "/v1/hooks/claude-code", body)
            taken.acknowledged += 1
        for _ in range(size.searches):
            query = {"query": rng.choice(_QUERIES), "projectId": _PROJECT}
            await _ask(client, taken.searches_ms, "/v1/search", query)
        for last in ("Stop", "SessionEnd"):
            await _ask(client, taken.hooks_ms, "/v1/hooks/claude-code", {**common, "hook_event_name": last})


async def _ask(client: httpx.AsyncClient, milliseconds: list[float], path: str, body: Mapping[str, object]) -> None:
    """Ask until it is answered, as the hook client does that keeps what was not; the time is of the answered try."""
    while True:
        began = time.perf_counter()
        try:
            answer = await client.post(path, json=body)
        except httpx.TransportError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code < 500:
            answer.raise_for_status()
            milliseconds.append((time.perf_counter() - began) * 1000)
            return
        await asyncio.sleep(0.1)


# -- a night


def _sleep_until_empty(place: Place) -> None:
    end = time.monotonic() + _NIGHT_SECONDS
    while waiting := value(place.url, OPEN_JOBS):
        if time.monotonic() > end:
            raise RuntimeError(f"In the morning there are still {waiting} jobs to be done.")
        time.sleep(0.1)


def _measured(program: Program, world: World, place: Place, number: int, taken: Taken, spent: float, empty_bytes: int) -> Day:
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")  # autovacuum has all night; the simulation has not
        conn.execute("SELECT pg_stat_force_next_flush()")
        row = conn.execute(_TOTALS.encode()).fetchone()
    assert row is not None
    total_bytes, events, connections, queue_bytes, dead_share = row
    return Day(
        day=number,
        events=taken.acknowledged,
        hook_p99_ms=percentile(taken.hooks_ms, 99),
        context_p99_ms=percentile(taken.contexts_ms, 99),
        search_p99_ms=percentile(taken.searches_ms, 99),
        cpu_ms_per_event=spent * 1000 / taken.acknowledged,
        memory_mib=pss_mib(program.pid),
        postgres_mib=pss_mib(world.postmaster),
        file_descriptors=file_descriptors(program.pid),
        connections=connections,
        bytes_per_event=(total_bytes - empty_bytes) / events,
        queue_bytes=queue_bytes,
        dead_share=dead_share,
    )


def _verify(world: World, place: Place) -> bool:
    command = [sys.executable, "-m", "cmserver", "verify"]
    names = {name: text for name, text in os.environ.items() if not name.startswith("CMSERVER_")}
    env = {**names, "CMSERVER_DATABASE_URL": place.url, "CMSERVER_DATA_DIR": str(world.free_folder())}
    return subprocess.run(command, cwd=ROOT, env=env, check=False, timeout=_NIGHT_SECONDS).returncode == 0
