"""Pauses between attempts."""

from __future__ import annotations

from itertools import islice

from cmserver.base.waiting import backoff


def test_pauses_grow_to_the_longest_and_processes_do_not_come_back_in_step():
    processes = [list(islice(backoff(0.1, 5.0), 12)) for _ in range(20)]

    for place, whole in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 6]):
        pauses = [process[place] for process in processes]
        assert all(whole / 2 <= pause <= whole for pause in pauses)
        assert len(set(pauses)) > 1


def test_no_pause_is_left_when_the_time_is_over():
    assert list(backoff(0.1, 1.0, total_seconds=0)) == []
