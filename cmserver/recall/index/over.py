"""Marks in the lines of turns what is over by a later turn, and folds a turn of which all is over below the later one.

It claims nothing but what the ledger has evidence for: an edit or git took out what the turn's edits had put in, or a check passes.
For all else a sentence points to the nearest later one: `(later: #12)` says only that the matter was taken up again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sentences import split_sentences
from cmserver.observations.plain import one_line
from cmserver.reading.edit_tokens import find_tokens
from cmserver.reading.own_words import own_words
from cmserver.recall.turn_line import SIDE_CHARS, Marks, squeeze
from cmserver.sessions.ledger.model import Entry
from cmserver.sessions.turns.choose_sentences import choose_sentences, drop_borrowed
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.sentences.model import Pointer

MAX_FOLDED = 3
"""At most this many lines stand below one."""
_FOLDED_CHARS = 80
_FEW_WORDS = 4
_SAYS_SOMETHING = re.compile(r"[\d`_]")
_ENDED = re.compile(r"(.*): (?:passed|failed)(?: \(.*\))?", re.DOTALL)


class LaterTurns:
    """What is over of the turns that are shown."""

    def __init__(
        self,
        turns: Sequence[SessionTurn],
        entries: Iterable[Entry],
        kept: Collection[int] = (),
        pointers: Iterable[Pointer] = (),
    ) -> None:
        """`kept` are the numbers of turns that are never folded: those in which somebody laid down a rule."""
        self._kept = kept
        numbers = {turn.number for turn in turns}
        self._later = {
            (pointer.number, squeeze(pointer.text)): pointer.later_number for pointer in pointers if pointer.later_number in numbers
        }
        self._entries: dict[UUID, list[Entry]] = {}
        for entry in entries:
            self._entries.setdefault(entry.earlier_id, []).append(entry)
        ends = {turn.number: end for turn in turns if (end := self._find_fold(turn)) is not None}
        shown = {turn.number for turn in turns} - ends.keys()
        self._folded = [(turn, ends[turn.number]) for turn in turns if ends.get(turn.number) in shown]

    def mark(self, turn: SessionTurn) -> tuple[SessionTurn, Marks]:
        """The turn with the last state of each of its checks, and the marks of its sentences."""
        entries = self._entries.get(turn.id, ())
        passes = {entry.name: entry.later_number for entry in entries if entry.kind == "check"}
        checks = {_name_of(check): check for check in turn.checks}
        checks = {name: f"{check} (passes since #{passes[name]})" if name in passes else check for name, check in checks.items()}
        changed = {entry.token: self._find_end(entry) for entry in entries if entry.kind == "edit"}

        told: set[int] = set()

        def mark(sentence: str) -> str:
            marked = _mark(sentence, changed)
            later = self._later.get((turn.number, squeeze(sentence)))
            if later is None or later in told or marked != sentence:
                return marked
            told.add(later)  # a line points to a turn once
            return f"{marked} (later: #{later})"

        return msgspec.structs.replace(turn, checks=list(checks.values())), mark

    def find_change(self, turn_id: UUID, sentence: str) -> int | None:
        """The last turn that took out something which this sentence of the turn names; None where nothing is over."""
        changed = {entry.token: self._find_end(entry) for entry in self._entries.get(turn_id, ()) if entry.kind == "edit"}
        return _find_change(sentence, changed)

    def is_folded(self, turn: SessionTurn) -> bool:
        """Whether its line stands below that of a later one."""
        return any(turn.id == it.id for it, _ in self._folded)

    def render_folded(self, turn: SessionTurn) -> str:
        """Short lines of the turns that are folded below this one, each behind the end of a line; "" without any."""
        folded = sorted((it for it, end in self._folded if end == turn.number), key=lambda it: (it.created_at, it.number))
        lines = [
            f'\n  before: #{it.number} "{one_line(own_words(it.prompt), _FOLDED_CHARS)}" (changed in #{turn.number})'
            for it in folded[-MAX_FOLDED:]
        ]
        return "".join(lines)

    def _find_fold(self, turn: SessionTurn) -> int | None:
        """The number of the turn below which this one stands; None for one of which something holds."""
        entries = self._entries.get(turn.id, ())
        edits = [self._find_end(entry) for entry in entries if entry.kind == "edit"]
        passed = {entry.name for entry in entries if entry.kind == "check"}
        if not edits or turn.number in self._kept or turn.own_line is not None:
            return None
        last_checks = {_name_of(check): check for check in turn.checks}
        if any("failed" in check[len(name) :] and name not in passed for name, check in last_checks.items()):
            return None
        changed = {entry.token for entry in entries if entry.kind == "edit"}
        sentences = [
            *split_sentences(own_words(turn.prompt)),
            *choose_sentences(drop_borrowed(turn.reply or "", turn.prompt, turn.borrowed), 2 * SIDE_CHARS),
        ]
        telling = [sentence for sentence in sentences if len(sentence.split()) >= _FEW_WORDS or _SAYS_SOMETHING.search(sentence)]
        if not telling or not all(find_tokens(sentence) & changed for sentence in telling):
            return None
        return max(edits, key=_order).later_number

    def _find_end(self, entry: Entry) -> Entry:
        """The last entry of a chain: what came instead may be over, too."""
        seen = {entry.earlier_id}
        while entry.later_id not in seen:
            seen.add(entry.later_id)
            following = (
                it
                for it in self._entries.get(entry.later_id, ())
                if it.kind == "edit" and it.name == entry.name and it.token in entry.instead
            )
            entry = next(following, entry)
        return entry


def _mark(sentence: str, changed: Mapping[int, Entry]) -> str:
    """The sentence with the number of the last turn that took out something that it names."""
    number = _find_change(sentence, changed)
    return sentence if number is None else f"{sentence} (changed in #{number})"


def _find_change(sentence: str, changed: Mapping[int, Entry]) -> int | None:
    ends = [changed[token] for token in find_tokens(sentence) & changed.keys()] if changed else []
    return max(ends, key=_order).later_number if ends else None


def find_later(number: int, title: str, pointers: Iterable[Pointer]) -> int | None:
    """The turn to which the sentence of this turn points that the title says; the newest of several."""
    said = squeeze(title.rstrip("…"))
    near = (it for it in pointers if it.number == number and (said in (text := squeeze(it.text)) or text in said))
    return max((it.later_number for it in near), default=None)


def _order(entry: Entry) -> tuple[datetime, int]:
    return entry.later_at, entry.later_number


def _name_of(check: str) -> str:
    """The check without how it ended."""
    match = _ENDED.fullmatch(check)
    return match[1] if match else check
