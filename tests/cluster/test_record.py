"""The table of docs/why/scale.md is that of the last runs."""

from __future__ import annotations

from tests.cluster.record import PAGE, kept, with_table


def test_the_page_shows_what_was_kept():
    text = PAGE.read_text("utf-8")

    assert with_table(text, kept()) == text


def test_nothing_was_doubled_and_only_asynchronous_standbys_lost_something():
    runs = kept()
    losing = {run.case for run in runs if run.lost}

    assert losing, "else the record shows nothing"
    assert [case for case in losing if "asynchronous" not in case] == []
    assert [run for run in runs if run.doubled] == []
