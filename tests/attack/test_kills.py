"""The server, a worker and PostgreSQL are killed in random order under load, and nothing acknowledged is lost or done twice.

CMSERVER_TEST_ATTACK_KILLS says how many kills (60 for the long form), CMSERVER_TEST_ATTACK_SEED repeats their order.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event

import httpx
import pytest

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.attack.seed import attack_seed
from tests.bench.world import free_port
from tests.process.conftest import Run, folder, run
from tests.process.program import QUICK_LEASE, Program, command, measured, number, rows, wait_for, wait_until_settled
from tests.process.slow_provider import WORK
from tests.timeouts import ENOUGH_SECONDS, Deadline, scaled

pytestmark = pytest.mark.slow

__all__ = ["folder", "run"]  # fixtures

KILLS = int(os.environ.get("CMSERVER_TEST_ATTACK_KILLS", "3"))
WRITERS = 4
VICTIMS = ("server", "worker", "postgres")


class System:
    """A server with its embedded PostgreSQL, and a worker beside it; each can be killed and is started again."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._settings = {
            **QUICK_LEASE,
            "CMSERVER_PORT": str(free_port()),
            "CMSERVER_PROVIDER": "tests.process.slow_provider:make",
            WORK: "0.05",
        }
        self._started = 0
        self.url = EmbeddedPostgres(folder / "data").url
        self.server = self._start_server()
        self.worker = self._start_worker()

    def kill(self, victim: str) -> None:
        if victim == "server":  # PostgreSQL goes with it
            self.server.stop(signal.SIGKILL)
            self.server = self._start_server()
        elif victim == "worker":
            self.worker.stop(signal.SIGKILL)
            self.worker = self._start_worker()
        else:
            restarts = self.server.logged("postgres.restarted")
            newest = (restarts or self.server.logged("postgres.started"))[-1]["pid"]
            assert isinstance(newest, int)
            os.kill(newest, signal.SIGKILL)
            self.server.wait_for_log("postgres.restarted", len(restarts) + 1)
            self.server.wait_until_ready()

    def _start_server(self) -> Program:
        self._started += 1
        server = self._run(f"server-{self._started}", settings=self._settings)
        server.wait_until_ready()
        return server

    def _start_worker(self) -> Program:
        self._started += 1
        settings = {**self._settings, "CMSERVER_DATABASE_URL": self.url}
        worker = self._run(f"worker-{self._started}", "--role", "worker", settings=settings)
        worker.wait_until_working()
        return worker


class Writer:
    """Posts events one after the other, and each until it is acknowledged."""

    def __init__(self, name: str, url: str, key: str, is_over: Event) -> None:
        self._name, self._url, self._key, self._is_over = name, url, key, is_over
        self.acknowledged: list[str] = []
        self.repeated = 0

    def work(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=scaled(10), trust_env=False) as client:
            while not self._is_over.is_set():
                name = f"{self._name}-{len(self.acknowledged)}"
                deadline = Deadline(ENOUGH_SECONDS)
                while not self._post(client, name):
                    assert not deadline.is_over, f"{name} is never acknowledged"
                    self.repeated += 1
                    time.sleep(0.02)
                self.acknowledged.append(name)

    def _post(self, client: httpx.Client, name: str) -> bool:
        payload = {"tool_name": "Write", "tool_input": {"file_path": f"/src/{name}.py", "content": f"{name} = 1\n"}}
        event = {
            "projectId": "orders",
            "eventType": "tool_use",
            "contentSessionId": f"{self._name}-{len(self.acknowledged) // 20}",
            "sourceEventId": name,
            "payload": payload,
        }
        try:
            answer = client.post("/v1/events", json=event)
        except httpx.TransportError:
            return False
        assert answer.status_code in {200, 201, 503}, answer.text
        return answer.is_success


def order_of_kills(random: Random, kills: int) -> list[str]:
    """Each victim comes in every three kills."""
    return [victim for _ in range(0, kills, len(VICTIMS)) for victim in random.sample(VICTIMS, len(VICTIMS))][:kills]


def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(run: Run, folder: Path):
    seed = attack_seed()
    random = Random(seed)
    system = System(run, folder)
    is_over = Event()
    writers = [Writer(f"writer{place}", system.server.url, system.server.key, is_over) for place in range(WRITERS)]
    kills = order_of_kills(random, KILLS)

    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(writer.work) for writer in writers]
        try:
            for victim in kills:
                load_before(writers, random)
                system.kill(victim)
            load_before(writers, random)
        finally:
            is_over.set()
        for future in writing:
            future.result()
    wait_for("the database to answer", lambda: is_answering(system.url))
    wait_until_settled(system.url)

    names = [name for writer in writers for name in writer.acknowledged]
    measured(
        f"seed {seed}: {len(names)} events acknowledged, {sum(writer.repeated for writer in writers)} posted again, "
        f"killed {dict(Counter(kills))}"
    )
    counts = Counter(str(row["source_event_id"]) for row in rows(system.url, "SELECT source_event_id FROM agent_events"))
    assert counts == Counter(names), f"seed {seed}: each acknowledged event is there exactly once, and no other"
    assert number(system.url, _EVENTS_WITHOUT_ONE_JOB) == 0, f"seed {seed}"
    assert rows(system.url, _OBSERVED_TWICE) == [], f"seed {seed}"
    # A job whose worker was killed on each of its attempts is given up, and says so: that takes more kills than the short form has.
    given_up = number(system.url, _GIVEN_UP)
    measured(f"{given_up} jobs given up after their last attempt")
    assert number(system.url, _COMPLETED) == len(names) - given_up, f"seed {seed}"
    assert number(system.url, _OBSERVED) == len(names) - given_up, (
        f"seed {seed}: each event wrote a file, which is worth an observation"
    )
    if len(VICTIMS) >= KILLS:
        assert given_up == 0, f"seed {seed}"
    verified = command(folder, "verify", settings={"CMSERVER_DATABASE_URL": system.url})
    assert verified.returncode == 0, f"seed {seed}: {verified.stderr}"

    # The questions above see what they should.
    rows(
        system.url,
        "DELETE FROM observation_generation_jobs WHERE id = (SELECT id FROM observation_generation_jobs LIMIT 1) RETURNING id",
    )
    assert number(system.url, _EVENTS_WITHOUT_ONE_JOB) == 1


_EVENTS_WITHOUT_ONE_JOB = """
    SELECT count(*) FROM agent_events e
     WHERE (SELECT count(*) FROM observation_generation_jobs j WHERE j.agent_event_id = e.id) <> 1
"""
_COMPLETED = "SELECT count(*) FROM observation_generation_jobs WHERE status = 'completed'"
_GIVEN_UP = "SELECT count(*) FROM observation_generation_jobs WHERE status = 'failed' AND attempts >= max_attempts"
_OBSERVED = "SELECT count(DISTINCT agent_event_id) FROM observation_sources WHERE source_type = 'agent_event'"
_OBSERVED_TWICE = """
    SELECT agent_event_id FROM observation_sources WHERE source_type = 'agent_event'
     GROUP BY agent_event_id HAVING count(DISTINCT observation_id) > 1
"""


def load_before(writers: list[Writer], random: Random) -> None:
    """Until some more events are acknowledged: a kill comes in the middle of the work."""
    target = sum(len(writer.acknowledged) for writer in writers) + random.randint(20, 120)
    wait_for("events to be acknowledged", lambda: sum(len(writer.acknowledged) for writer in writers) >= target)


def is_answering(url: str) -> bool:
    try:
        return number(url, "SELECT 1") == 1
    except Exception:  # noqa: BLE001 - whatever it is, it is asked again
        return False


class PersonalWriter(Writer):
    """Remembers one thing after the other for its person alone, and tells of it in prompts of sessions, too."""

    def _post(self, client: httpx.Client, name: str) -> bool:
        number = len(self.acknowledged)
        if number % 10 == 9:
            payload: dict[str, object] = {"prompt": f"{TASTES[(number // 10 + int(self._name[-1])) % len(TASTES)]} Read {name}.py."}
            sent: dict[str, object] = {
                "projectId": "orders",
                "eventType": "user_prompt",
                "contentSessionId": name,
                "sourceEventId": name,
                "payload": payload,
            }
            path = "/v1/events"
        else:
            path = "/v1/observations"
            sent = {"scope": "user", "narrative": f"{name} is mine."}
        try:
            answer = client.post(path, json=sent)
        except httpx.TransportError:
            return False
        assert answer.status_code in {200, 201, 503}, answer.text
        return answer.is_success


TASTES = ("Always answer me in German.", "Always answer me in French.", "Always answer me in Spanish.")


def test_nothing_that_is_personal_and_was_acknowledged_is_lost(run: Run, folder: Path):
    seed = attack_seed()
    random = Random(seed)
    system = System(run, folder)
    rows(
        system.url,
        "WITH ann AS (INSERT INTO users (id, name) VALUES (gen_random_uuid(), 'ann') RETURNING id, name)"
        " UPDATE api_keys SET user_id = ann.id, actor_id = ann.name FROM ann RETURNING api_keys.id",
    )
    system.kill("server")  # and with it what it knew of the key
    is_over = Event()
    writers: list[Writer] = [
        PersonalWriter(f"writer{place}", system.server.url, system.server.key, is_over) for place in range(WRITERS)
    ]
    kills = order_of_kills(random, KILLS)

    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(writer.work) for writer in writers]
        try:
            for victim in kills:
                load_before(writers, random)
                system.kill(victim)
            load_before(writers, random)
        finally:
            is_over.set()
        for future in writing:
            future.result()
    wait_for("the database to answer", lambda: is_answering(system.url))
    wait_until_settled(system.url)

    names = [name for writer in writers for name in writer.acknowledged]
    told = [name for writer in writers for place, name in enumerate(writer.acknowledged) if place % 10 == 9]
    measured(f"seed {seed}: {len(names)} acknowledged, {len(told)} of them prompts, killed {dict(Counter(kills))}")
    kept = Counter(str(row["content"]) for row in rows(system.url, "SELECT content FROM personal_observations"))
    by_hand = {f"{name} is mine." for name in names if name not in set(told)}
    assert kept == Counter({*by_hand, *TASTES}), f"seed {seed}: each acknowledged one is there exactly once, and no other"
    numbers = [number(system.url, f"SELECT {what} FROM personal_observations") for what in ("count(*)", "max(number)")]
    assert numbers == [len(kept)] * 2, f"seed {seed}: the numbers have no gap"
    rows(system.url, "DELETE FROM personal_observations WHERE number = 1 RETURNING id")
    assert number(system.url, "SELECT count(*) FROM personal_observations") == len(kept) - 1
