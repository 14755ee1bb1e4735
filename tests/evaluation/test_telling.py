"""Labelled conversations: what is told of them as a rule, as open, and in the lines of their turns."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from cmserver.reading.laid_down import read_rules
from cmserver.reading.open_ends import read_open_ends
from cmserver.recall.turn_line import render_turn
from cmserver.sessions.turns.model import SessionTurn
from tests.evaluation.labels.load import read_labels

CASES = read_labels("telling", "dev")


def laid_down(case: dict[str, Any]) -> list[str]:
    return [rule.text for turn in case["turns"] for rule in read_rules(turn["prompt"])]


def lines(case: dict[str, Any]) -> list[str]:
    """The lines of the turns, without what was done in them."""
    turns = [
        SessionTurn(
            id=UUID(int=place),
            number=place,
            event_id=None,
            project_id=UUID(int=0),
            server_session_id=UUID(int=0),
            prompt_number=place,
            prompt=turn["prompt"],
            reply=turn["reply"],
            files=[],
            checks=[],
            commits=[],
            actor_id=None,
            agent_id=None,
            created_at=datetime(2026, 3, 2, tzinfo=UTC),
            ended_at=None,
        )
        for place, turn in enumerate(case["turns"])
    ]
    return [render_turn(turn, before) for before, turn in pairwise([None, *turns]) if turn is not None]


def holds(texts: list[str], label: str) -> bool:
    return any("".join(label.split()).casefold() in "".join(text.split()).casefold() for text in texts)


def test_talk_lays_nothing_down():
    assert {case["id"]: laid_down(case) for case in CASES if case["kind"] == "talk" and laid_down(case)} == {}


def test_what_is_no_rule_is_none():
    wrong = {
        (case["id"], label): laid_down(case)
        for case in CASES
        if case["kind"] != "revocation"  # there it was one, until it was taken back
        for label in case["labels"]["not_rules"]
        if holds(laid_down(case), label)
    }

    assert wrong == {}


def test_of_four_rules_at_least_three_are_told():
    labels = [(case, label) for case in CASES for label in case["labels"]["rules"]]

    told = [any(holds([*laid_down(case), *lines(case)], text) for text in label) for case, label in labels]

    assert sum(told) >= 0.75 * len(labels)
    assert sum(any(holds(laid_down(case), text) for text in label) for case, label in labels) >= 8


def test_what_is_not_open_is_not_told_as_open():
    wrong = {
        (case["id"], label)
        for case in CASES
        for label in case["labels"]["not_open"]
        if holds([end.text for turn in case["turns"] for end in read_open_ends(turn["reply"])], label)
    }

    assert wrong == set()


def test_what_was_held_back_is_told_too():
    cases = read_labels("telling", "held_back")
    told = [(case, label) for case in cases for label in [*case["labels"]["told"], *case["labels"]["rules"]]]

    missing = [
        (case["id"], label) for case, label in told if not any(holds([*laid_down(case), *lines(case)], text) for text in label)
    ]
    talk = [case["id"] for case in cases if case["kind"] == "talk" and laid_down(case)]

    assert len(missing) <= 0.25 * len(told), missing
    assert len(talk) <= 2, talk  # of 40; none is the aim
