"""A client of the live stream that resumes, at the next host if there are several, and keeps what it has heard."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import httpx


class Stream:
    """Reads in a thread, as an EventSource does. It asks again after `timeout` seconds of silence."""

    def __init__(self, urls: Sequence[str], key: str, types: str, timeout: float = 20) -> None:
        self.heard: list[str] = []
        """The data of each event."""
        self.resets = 0
        self.answers: Counter[str] = Counter()
        """How often each status was answered, or a connection failed."""
        self._urls, self._types, self._timeout = urls, types, timeout
        self._headers = {"Authorization": f"Bearer {key}"}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read_until_stopped, daemon=True)
        self._thread.start()

    @property
    def connects(self) -> int:
        return self.answers["200"]

    def stop(self) -> None:
        self._stopping.set()

    def _read_until_stopped(self) -> None:
        turn = 0
        while not self._stopping.wait(0.1):
            try:
                self._read(self._urls[turn % len(self._urls)])
            except httpx.HTTPError as error:
                self.answers[type(error).__name__] += 1
            turn += 1

    def _read(self, url: str) -> None:
        query, block = {"types": self._types}, dict[str, str]()
        with httpx.stream(
            "GET", f"{url}/v1/stream", params=query, headers=self._headers, timeout=self._timeout, trust_env=False
        ) as answer:
            self.answers[str(answer.status_code)] += 1
            for line in answer.iter_lines() if answer.is_success else ():
                if self._stopping.is_set():
                    return
                if line:
                    name, _, value = line.partition(": ")
                    block[name] = value
                    continue
                if block.get("event") == "reset":
                    self.resets += 1
                elif "data" in block:
                    self.heard.append(block["data"])
                self._headers["Last-Event-ID"] = block["id"]
                block = {}
