"""Clients that go on sending events to several servers, whatever happens, and remember what was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import httpx

PAUSE_SECONDS = 0.05
TIMEOUT_SECONDS = 15.0
"""A client waits no longer for an answer. A server that has lost its database says so earlier."""


class Load:
    """Sends events of one project, each until it is acknowledged, to the servers in turn, as a spool does."""

    def __init__(
        self, project: str, urls: Sequence[str], key: str, chance: Random, failures: Collection[str] = (), *, stays: bool = False
    ) -> None:
        """`failures` are the connections' failures that may happen, by the names of httpx's errors.

        Where it `stays`, each server has a client of its own.
        """
        self.project = project
        self.acknowledged: dict[str, float] = {}
        """By the name of the event, when it was acknowledged."""
        self.waits: list[float] = []
        """Of each event that was acknowledged, the seconds since it was sent for the first time."""
        self.answers: Counter[str] = Counter()
        """How often each status was answered, or a connection failed."""
        self.slowest_answer = 0.0
        self._urls = urls
        self._key = key
        self._failures = failures
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stays = stays
        lengths = [chance.randint(2, 20) for _ in range(len(urls) if stays else chance.randint(2, 3))]
        self._clients = ThreadPoolExecutor(len(lengths))
        self._ends = [self._clients.submit(self._send, client, length) for client, length in enumerate(lengths)]

    def stop(self) -> None:
        """End it, and raise what a client met that it may not; what is on its way is answered or given up first."""
        self._stopping.set()
        self._clients.shutdown()
        for end in self._ends:
            end.result()

    def wait_for_more(self, count: int) -> bool:
        """Whether so many more events are acknowledged within two minutes."""
        before, end = len(self.acknowledged), time.monotonic() + 120
        while time.monotonic() < end and not any(client.done() for client in self._ends):
            if len(self.acknowledged) >= before + count:
                return True
            time.sleep(PAUSE_SECONDS)
        return False

    def longest_gap(self) -> float:
        """The longest time, in seconds, in which nothing was acknowledged."""
        times = sorted(self.acknowledged.values())
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def _send(self, client: int, session_length: int) -> None:
        turn = client
        with httpx.Client(headers={"Authorization": f"Bearer {self._key}"}, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
            for place in itertools.count():
                began, session = time.monotonic(), f"{self.project}-{client}-{place // session_length}"
                while not self._stopping.is_set() and not self._try(
                    http, self._urls[turn % len(self._urls)], session, client, place
                ):
                    turn += not self._stays
                    time.sleep(PAUSE_SECONDS)
                if self._stopping.is_set():
                    return
                with self._lock:
                    self.waits.append(time.monotonic() - began)
                time.sleep(PAUSE_SECONDS)

    def _try(self, http: httpx.Client, url: str, session: str, client: int, place: int) -> bool:
        tool = {"tool_name": "Write", "tool_input": {"file_path": f"/src/f{place}.py", "content": f"limit = {place}\n"}}
        name = f"{client}-{place}"
        body = {
            "projectId": self.project,
            "eventType": "tool_use",
            "contentSessionId": session,
            "sourceEventId": name,
            "payload": tool,
        }
        began = time.monotonic()
        try:
            answer = http.post(f"{url}/v1/events", json=body)
        except httpx.HTTPError as error:
            failure = type(error).__name__
            with self._lock:
                self.answers[failure] += 1
            assert failure in self._failures, f"{failure} of {url} after {time.monotonic() - began:.1f} s"
            return False
        with self._lock:
            self.answers[str(answer.status_code)] += 1
            self.slowest_answer = max(self.slowest_answer, time.monotonic() - began)
            if answer.is_success:
                self.acknowledged[name] = time.monotonic()
        assert answer.status_code in {200, 201, 503}, f"{answer.status_code} of {url}: {answer.text}"
        assert answer.is_success or int(answer.headers["retry-after"]) >= 1
        return answer.is_success
