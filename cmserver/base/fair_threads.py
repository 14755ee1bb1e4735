"""Runs functions in a few threads, where those who wait take turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThreads:
    """A pool of threads. One holder has at most one thread less than there are, and holders take turns."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._most = max(1, threads - 1)
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        """By holder, in the order of their turns."""
        self._running: dict[Hashable, int] = {}

    def submit(self, holder: Hashable, function: Callable[[], T]) -> Future[T]:
        """Run the function when it is the holder's turn."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(holder, deque()).append((future, function))
        self._executor.submit(self._run_all)
        return future

    def _run_all(self) -> None:
        """Run what waits, until nothing may run in this thread."""
        while (taken := self._take()) is not None:
            holder, future, function = taken
            try:
                if future.set_running_or_notify_cancel():
                    _complete(future, function)
            finally:
                with self._lock:
                    self._running[holder] -= 1
                    if not self._running[holder]:
                        del self._running[holder]

    def _take(self) -> tuple[Hashable, Future[Any], Callable[[], Any]] | None:
        with self._lock:
            for holder, calls in self._waiting.items():
                if self._running.get(holder, 0) < self._most:
                    future, function = calls.popleft()
                    del self._waiting[holder]
                    if calls:
                        self._waiting[holder] = calls  # behind the others
                    self._running[holder] = self._running.get(holder, 0) + 1
                    return holder, future, function
        return None


def _complete(future: Future[T], function: Callable[[], T]) -> None:
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        future.set_exception(error)
    else:
        future.set_result(result)
