"""What is over of a turn is marked in its line, and a turn of which all is over stands below the later one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from cmserver.reading.edit_tokens import read_place
from cmserver.recall.index.layout import IndexFrame
from cmserver.recall.index.over import LaterTurns, find_later
from cmserver.recall.index.selection import IndexInput, compose_index
from cmserver.recall.model import ContextBudget
from cmserver.recall.turn_line import render_turn
from cmserver.sessions.ledger.model import Entry
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.sentences.model import Pointer
from tests.recall.test_turn_line import turn

AT = datetime(2026, 3, 5, tzinfo=UTC)


def tokens(text: str) -> list[int]:
    return sorted(read_place([], [text]).put_in)


def entries(earlier: int, later: int, text: str, *, instead: str = "") -> list[Entry]:
    """That the turn `later` took out what the turn `earlier` had put in."""
    return [
        Entry(
            earlier_id=UUID(int=earlier),
            later_id=UUID(int=later),
            kind="edit",
            name="a.py",
            token=token,
            instead=tokens(instead),
            later_number=later,
            later_at=AT,
        )
        for token in tokens(text)
    ]


def passes(earlier: int, later: int, name: str) -> Entry:
    edit = entries(earlier, later, "1000")[0]
    return msgspec.structs.replace(edit, kind="check", name=name, token=0)


def line(shown: SessionTurn, over: Sequence[Entry], turns: Sequence[SessionTurn] = ()) -> str:
    marked, mark = LaterTurns(turns or [shown], over).mark(shown)
    return render_turn(marked, None, mark=mark)


def index(turns: Sequence[SessionTurn], over: Sequence[Entry]) -> list[str]:
    """The lines of turns, and those below them."""
    frame = IndexFrame(project_name="p", reason="startup", reader=None, now=AT, has_turns=True)
    placed = [msgspec.structs.replace(it, created_at=AT + timedelta(minutes=it.number)) for it in turns]
    text = compose_index(frame, ContextBudget(), IndexInput(rows=[], newest_at=[], turns=placed[::-1], over=over)).text
    return [line for line in text.splitlines() if line.lstrip().startswith(("#", "before:"))]


RAISE = turn(1, "raise the limit for imports to 2000", "I raised `MAX_ROWS` from 500 to 2000. Imports are faster by that.")


def test_the_sentence_that_names_it_is_marked_and_no_other():
    assert line(RAISE, entries(1, 3, "2000")) == (
        '"raise the limit for imports to 2000 (changed in #3)"'
        ' → "I raised `MAX_ROWS` from 500 to 2000. (changed in #3) … Imports are faster by that."'
    )


def test_a_chain_points_to_its_end():
    over = [*entries(1, 2, "2000", instead="5000"), *entries(2, 3, "5000", instead="9000"), *entries(2, 4, "7777")]

    assert "(changed in #3)" in line(RAISE, over)
    assert "(changed in #2)" not in line(RAISE, over)


def test_a_circle_of_entries_ends():
    over = [*entries(1, 2, "2000", instead="5000"), *entries(2, 1, "5000", instead="2000")]

    assert "(changed in #" in line(RAISE, over)


def test_of_a_check_the_last_state_is_told_and_that_it_passes_since():
    shown = turn(1, "test it", checks=("npm test: failed (2 failed)", "npm test: failed (adds tax)", "ruff: passed"))

    assert line(shown, [passes(1, 4, "npm test")]) == ('"test it" [npm test: failed (adds tax) (passes since #4)] [ruff: passed]')


def test_a_turn_of_which_all_is_over_stands_below_the_later_one():
    turns = [
        turn(1, "raise the limit to 2000", "I raised `MAX_ROWS` to 2000. Done."),
        turn(
            3, "raise the limit for imports once more, to five thousand rows, as the customer has asked", "`MAX_ROWS` is 5000 now."
        ),
    ]

    assert index(turns, entries(1, 3, "2000")) == [
        (
            '#3 turn "raise the limit for imports once more, to five thousand rows, as the customer has asked"'
            ' → "`MAX_ROWS` is 5000 now." ~28'
        ),
        '  before: #1 "raise the limit to 2000" (changed in #3)',
    ]


def test_at_most_three_are_folded_below_one_and_what_still_says_something_is_not():
    turns = [turn(number, f"set the limit to {number}000", f"It is {number}000 now.") for number in range(1, 7)]
    over = [entry for number in range(1, 6) for entry in entries(number, 6, f"{number}000")]
    half = [turn(1, "set it to 1000. Ask me before you touch production.", "It is 1000 now."), turns[5]]

    assert [text.split()[1] for text in index(turns, over)[1:]] == ["#3", "#4", "#5"]
    assert not any("before:" in text for text in index(half, entries(1, 6, "1000")))


def test_a_turn_with_a_check_that_still_fails_is_not_folded():
    turns = [turn(1, "set it to 2000", "It is 2000.", checks=("pytest: failed",)), turn(2, "set it to 5000", "It is 5000.")]

    assert len(index(turns, entries(1, 2, "2000"))) == 2
    assert not any("before:" in text for text in index(turns, entries(1, 2, "2000")))
    assert any("before:" in text for text in index(turns, [*entries(1, 2, "2000"), passes(1, 2, "pytest")]))


def test_a_sentence_says_where_its_matter_was_taken_up_later_unless_it_is_over():
    said = turn(7, "Use npm here. It is fast.", "`package.json` has npm now. We publish to 2000 users.")
    pointers = [
        Pointer(number=7, place=0, text="Use npm here.", later_number=31),
        Pointer(number=7, place=2, text="`package.json` has npm now.", later_number=40),
        Pointer(number=7, place=3, text="We publish to 2000 users.", later_number=40),
        Pointer(number=7, place=1, text="It is fast.", later_number=99),
        Pointer(number=8, place=0, text="It is fast.", later_number=40),
    ]

    later = LaterTurns([said, turn(31, "a", "b"), turn(40, "a", "b")], entries(7, 31, "2000"), pointers=pointers)
    _, mark = later.mark(said)

    assert render_turn(said, None, mark=mark) == (
        '"Use npm here. (later: #31) It is fast." → "`package.json` has npm now. (later: #40)'
        ' … We publish to 2000 users. (changed in #31)"'
    )


def test_a_rule_points_to_the_turn_that_took_it_up():
    pointers = [
        Pointer(number=7, place=0, text="Always squash before merging to main.", later_number=31),
        Pointer(number=7, place=1, text="Tabs, please.", later_number=40),
        Pointer(number=8, place=0, text="Always squash before merging to main.", later_number=50),
    ]

    assert find_later(7, "Always squash before merging to main", pointers) == 31
    assert find_later(9, "Always squash before merging to main", pointers) is None
