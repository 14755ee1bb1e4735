"""Clients that go on sending events to several servers, whatever happens, and remember what was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

import httpx

PAUSE_SECONDS = 0.05
TIMEOUT_SECONDS = 10.0


class Load:
    """Sends events of one project, each until it is acknowledged, to the servers in turn, as a spool does."""

    def __init__(self, project: str, urls: Sequence[str], key: str, clients: int = 2) -> None:
        self.project = project
        self.acknowledged: dict[str, float] = {}
        """By the name of the event, when it was acknowledged."""
        self.answers: dict[str, int] = {}
        """How often each status was answered, or a connection failed."""
        self._urls = urls
        self._key = key
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(client,)) for client in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End it; what is on its way is answered or given up first."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> bool:
        """Whether so many more events are acknowledged within two minutes."""
        before, end = len(self.acknowledged), time.monotonic() + 120
        while time.monotonic() < end:
            if len(self.acknowledged) >= before + count:
                return True
            time.sleep(PAUSE_SECONDS)
        return False

    def wrong_answers(self) -> list[str]:
        """Those that are no success, no 503 with `Retry-After`, and no connection that failed."""
        return [name for name in self.answers if name not in {"200", "201", "503"} and name[0].isdigit()]

    def longest_gap(self) -> float:
        """The longest time, in seconds, in which nothing was acknowledged."""
        times = sorted(self.acknowledged.values())
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def _send(self, client: int) -> None:
        turn = client
        with httpx.Client(headers={"Authorization": f"Bearer {self._key}"}, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
            for place in itertools.count():
                name = f"{client}-{place}"
                while not self._stopping.is_set() and not self._try(http, self._urls[turn % len(self._urls)], name, place):
                    turn += 1
                    time.sleep(PAUSE_SECONDS)
                if self._stopping.is_set():
                    return
                time.sleep(PAUSE_SECONDS)

    def _try(self, http: httpx.Client, url: str, name: str, place: int) -> bool:
        tool = {"tool_name": "Write", "tool_input": {"file_path": f"/src/f{place}.py", "content": f"limit = {place}\n"}}
        body = {
            "projectId": self.project,
            "eventType": "tool_use",
            "contentSessionId": f"{self.project}-{name.split('-', maxsplit=1)[0]}-{place // 10}",
            "sourceEventId": name,
            "payload": tool,
        }
        try:
            answer = http.post(f"{url}/v1/events", json=body)
        except httpx.HTTPError as error:
            return self._count(type(error).__name__)
        waits = answer.status_code == 503 and int(answer.headers.get("retry-after", 0)) >= 1
        self._count("503" if waits else str(answer.status_code) if answer.is_success else f"{answer.status_code}: {answer.text}")
        if not answer.is_success:
            return False
        with self._lock:
            self.acknowledged[name] = time.monotonic()
        return True

    def _count(self, answer: str) -> bool:
        with self._lock:
            self.answers[answer] = self.answers.get(answer, 0) + 1
        return False
