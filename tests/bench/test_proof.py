"""The kept tasks of `bin/bench prove`: that they are whole, and judged rightly."""

from __future__ import annotations

from collections import Counter

import msgspec

from cmserver.doors.hooks.claude_code import ADAPTER
from tests.bench.proof import ToldTask, load, render, session_payloads


def test_there_are_sixty_tasks_of_which_half_of_each_kind_is_held_back():
    tasks = load()

    assert len({task.id for task in tasks}) == len(tasks) == 60
    assert set(Counter((task.kind, task.held) for task in tasks).values()) == {3}


def test_both_things_of_a_task_are_in_its_history_and_not_in_what_is_asked():
    for task in load():
        history = msgspec.json.encode(task.sessions).decode().replace('\\"', '"').casefold()
        assert task.right.casefold() in history, task.id
        assert task.stale.casefold() in history, task.id
        assert 3 <= sum(map(len, task.sessions)) <= 12, task.id
        assert task.right.casefold() not in " ".join(task.then).casefold(), task.id


def test_each_event_is_one_that_the_agents_hooks_send():
    for task in load():
        for payload in session_payloads(task.id, [event for events in task.sessions for event in events]):
            call = ADAPTER.parse(payload, None)
            assert call.events or call.moment in {"start", "end"}, (task.id, payload)


def test_a_stale_thing_counts_unless_its_line_points_to_what_came_later():
    task = msgspec.structs.replace(load()[0], right="SQLite", stale="MongoDB")
    cases = {
        "#1 use mongodb": (False, True),
        "#1 use MongoDB (later: #2)\n#2 use sqlite": (True, False),
        "#2 SQLite took the place of MongoDB": (True, False),
        "#2 SQLite\n#1 MongoDB": (True, True),
        "#1 MongoDB (changed in #2)": (False, False),
        "#3 `mongodb` failed: not found": (False, False),
        "": (False, False),
    }
    for text, expected in cases.items():
        told = ToldTask(task=task, text=text)
        assert (told.has_right, told.has_stale) == expected, text


def test_what_is_held_back_is_never_shown():
    told = [ToldTask(task=task, text=f"text of {task.id}") for task in load()]

    shown = render(told, details=True)

    assert "0 of 30" in shown
    assert f"text of {next(task.id for task in load() if not task.held)}" in shown
    assert not any(f"text of {task.id}" in shown for task in load() if task.held)
