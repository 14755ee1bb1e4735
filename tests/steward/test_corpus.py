"""The labelled history is large enough, always the same, and half of it is held back."""

from __future__ import annotations

from collections import Counter

from tests.steward.corpus import all_cases, counts, held_cases, open_cases


def test_the_history_is_the_same_each_time_and_half_of_it_is_held_back():
    cases = all_cases()

    assert cases == all_cases()
    assert len({case.name for case in cases}) == len(cases) == sum(count for _, count in counts()) >= 150
    assert abs(len(open_cases()) - len(held_cases())) < len(cases) * 0.15
    assert len(Counter(case.kind for case in held_cases())) == len(Counter(case.kind for case in open_cases())) == 13


def test_every_pair_and_every_claim_has_a_label():
    for case in all_cases():
        if case.same is not None:
            assert len(case.notes) == 2, case.name
            assert case.notes[0] != case.notes[1], case.name
        elif case.derives is None:
            assert case.calls, case.name
            assert case.notes[0].is_stale == case.kind.startswith("stale"), case.name
