"""Runs functions in a few threads, where those who wait take turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


_Call = tuple[Future[Any], Callable[[], Any]]


class FairThreads:
    """A pool of threads. One holder has at most one thread less than there are. Holders take turns, and so do members of one."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._most = max(1, threads - 1)
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, dict[Hashable, deque[_Call]]] = {}
        """By holder and member, both in the order of their turns."""
        self._running: dict[Hashable, int] = {}

    def submit(self, holder: Hashable, function: Callable[[], T], *, member: Hashable = None) -> Future[T]:
        """Run the function when it is the turn of the holder, and of the member among those of the holder."""
        future: Future[T] = Future()
        with self._lock:
            members = self._waiting.setdefault(holder, {})
            members.setdefault(member, deque()).append((future, function))
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
            for holder, members in self._waiting.items():
                if self._running.get(holder, 0) < self._most:
                    member, calls = next(iter(members.items()))
                    future, function = calls.popleft()
                    del members[member], self._waiting[holder]
                    if calls:
                        members[member] = calls  # behind the others
                    if members:
                        self._waiting[holder] = members
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
