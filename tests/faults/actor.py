"""Somebody who works with the program during a storm, over HTTP, and repeats or lets be what was not answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import httpx

from tests.faults.system import System
from tests.process.program import wait_for
from tests.timeouts import scaled

_LATER = 503


class Actor:
    """Sends requests with the admin's key, and acts in threads of its own until `end`."""

    def __init__(self, system: System, seed: int) -> None:
        self.system, self.seed = system, seed
        self.random = Random(seed)
        self.is_over = threading.Event()
        self.surprises: Counter[str] = Counter()
        self._client = httpx.Client(
            base_url=system.url, headers={"Authorization": f"Bearer {system.key}"}, timeout=scaled(5), trust_env=False
        )
        self._threads: list[threading.Thread] = []

    def begin(self, *acts: Callable[[], float]) -> None:
        """Repeat each act, after as many seconds as it says, beside the others."""
        self._threads = [threading.Thread(target=self._work, args=(act,), daemon=True) for act in acts]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let all acts finish what they have begun."""
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    def request(self, method: str, path: str, body: object, *good: int) -> httpx.Response | None:
        """The answer; None when there was none, or not now. Any other status than 503 and `good` is a surprise."""
        try:
            answer = self._client.request(method, path, json=body)
        except httpx.TransportError:
            return None
        if answer.status_code not in (*good, _LATER):
            self.surprises[f"{method} {path} answered {answer.status_code}: {answer.text[:200]}"] += 1
        return None if answer.status_code == _LATER else answer

    def insist(self, what: str, method: str, path: str, body: object, *good: int) -> httpx.Response:
        """The answer, for which it waits."""
        return wait_for(what, lambda: self.request(method, path, body, *good))

    def make_project(self, name: str) -> dict[str, str]:
        """A project of its own."""
        project = {"canonicalId": name}
        self.insist("a project of its own", "POST", "/v1/projects", project, 200, 201)
        return project

    def take_surprises(self) -> list[str]:
        """Sentences on the answers that nobody expected, each once."""
        sentences = [f"{sentence} ({times} times)" for sentence, times in self.surprises.items()]
        self.surprises.clear()
        return sentences

    def _work(self, act: Callable[[], float]) -> None:
        while not self.is_over.is_set():
            self.is_over.wait(act())
