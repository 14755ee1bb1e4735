"""Who waits for a thread takes turns, and nobody holds all of them."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from cmserver.base.fair_threads import FairThreads
from tests.timeouts import ENOUGH_SECONDS


def test_holders_take_turns() -> None:
    threads, gate, order = FairThreads(1, "test"), threading.Event(), list[str]()
    first = threads.submit("busy", gate.wait)
    calls = [threads.submit(name[:1], partial(order.append, name)) for name in ("a1", "a2", "a3", "b1", "c1", "b2")]

    gate.set()

    for call in [first, *calls]:
        call.result(ENOUGH_SECONDS)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_holder_leaves_a_thread_to_the_others() -> None:
    threads, gate = FairThreads(2, "test"), threading.Event()
    held = [threads.submit("busy", gate.wait) for _ in range(3)]

    assert threads.submit("other", lambda: 1).result(ENOUGH_SECONDS) == 1
    assert sum(call.running() for call in held) == 1

    gate.set()
    assert all(call.result(ENOUGH_SECONDS) for call in held)


def test_members_of_a_holder_take_turns_in_its_turns_and_leave_a_thread_to_others() -> None:
    threads, gate, order = FairThreads(2, "test"), threading.Event(), list[str]()
    held = [threads.submit("team", gate.wait, member=name) for name in ("one key", "another")]
    calls = [threads.submit("team", partial(order.append, name), member=name[:1]) for name in ("a1", "a2", "a3", "b1", "b2")]

    assert threads.submit("other team", lambda: 1, member="a").result(ENOUGH_SECONDS) == 1
    assert sum(call.running() for call in held) == 1

    gate.set()
    for call in [*held, *calls]:
        call.result(ENOUGH_SECONDS)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


def test_errors_reach_the_caller_and_what_was_cancelled_does_not_run() -> None:
    threads, gate, ran = FairThreads(1, "test"), threading.Event(), list[int]()
    held = threads.submit("a", gate.wait)
    cancelled = threads.submit("a", partial(ran.append, 1))
    failed = threads.submit("a", partial(int, "x"))

    assert cancelled.cancel()
    gate.set()

    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(ENOUGH_SECONDS)
    assert held.result(ENOUGH_SECONDS)
    assert ran == []
