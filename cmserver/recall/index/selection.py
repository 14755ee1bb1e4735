"""Selects what gets a line, by relevance and within both limits, and composes the index."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import groupby, pairwise
from uuid import UUID

import msgspec

from cmserver.git.clones.branches import NO_BRANCH_MARKS, BranchMarks
from cmserver.git.clones.marks import NO_MARKS, CodeMarks, find_only_file
from cmserver.reading.own_words import own_words
from cmserver.reading.text import ACCEPTED_PLAN
from cmserver.recall import model
from cmserver.recall.index import layout
from cmserver.recall.index.over import LaterTurns, find_later
from cmserver.recall.index.relevance import WEIGHTS, SessionFocus, Weights, score_row
from cmserver.recall.turn_line import (
    SHORT_CHARS,
    SIDE_CHARS,
    is_talk,
    quote,
    render_session,
    render_talk,
    render_turn,
    says_nothing,
    squeeze,
)
from cmserver.sessions.ledger.model import Entry
from cmserver.sessions.turns.choose_sentences import is_small_talk
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.sentences.model import Pointer

_WORD = re.compile(r"\w+")
_FRESH_TURNS = 40
"""After so many later turns nobody knows whether a sentence about what is open still holds."""
_MANY_TURNS, _MIN_RUN, _NEWEST_TURNS = 20, 3, 8
"""In a session of many turns a run of neighbours in which nothing was done shares a line; the project's newest have their own."""
_SIMILARITY = 0.8
"""Titles that share this part of their words say the same."""


class IndexInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that an index is made of. `newest_at` are the times of the project's newest observations."""

    rows: Sequence[model.IndexRow]
    newest_at: Sequence[datetime]
    code: CodeMarks = NO_MARKS
    """What became of the files of the clone in which the session works."""
    branches: BranchMarks = NO_BRANCH_MARKS
    """Which turns were said on branches that are not merged there."""
    history: Sequence[model.IndexRow] = ()
    """A few commits and documents of the repository, only where there are no turns."""
    turns: Sequence[SessionTurn] = ()
    """The newest turns of the project, newest first, but for those that somebody left out."""
    over: Sequence[Entry] = ()
    """What of them is over by later ones."""
    pointers: Sequence[Pointer] = ()
    """Where the matter of their sentences was taken up later."""
    agents: Sequence[SessionTurn] = ()
    """Of sub-agents of their sessions: each belongs to the turn that began before it."""
    summary: model.IndexRow | None = None
    """The summary that is shown in full."""
    summary_text: model.SummaryText | None = None
    details: Mapping[int, model.ObservationDetails] = {}
    """Details by number of what is shown in full where there is room: the session's own work, after its context was compacted."""
    shown_numbers: Collection[int] = ()
    changed_files: Sequence[str] = ()
    continued_session_id: UUID | None = None


class ComposedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The text, empty when there is nothing to show; its lines as they were selected; what was omitted, the most relevant first."""

    text: str
    lines: Sequence[model.IndexLine]
    omitted: Sequence[model.IndexLine]
    summary: model.ScoredRow | None
    summary_block: str = ""
    """The lines of the summary that is shown in full."""


def compose_index(
    frame: layout.IndexFrame, budget: model.ContextBudget, source: IndexInput, weights: Weights = WEIGHTS, *, taken_chars: int = 0
) -> ComposedIndex:
    """The index, never longer than MAX_CHARS nor than the tokens of the budget, of which something else takes `taken_chars`."""
    focus = SessionFocus(source.newest_at, source.changed_files, source.continued_session_id)
    room = min(layout.MAX_CHARS, budget.tokens * 4) - layout.frame_chars(frame) - taken_chars
    source = _mark_code(_add_next_prompts(_mark_later(_without_told(source))))
    summary, block = _render_latest_summary(source, focus, weights, room // 3)
    selection = IndexSelection(
        max_chars=room - len(block),
        max_observations=budget.observations,
        max_summaries=budget.summaries * (2 if frame.reason == "compact" else 1) - (1 if summary else 0),
        shown_numbers=source.shown_numbers,
    )
    scored = [score_row(row, focus, weights) for row in source.rows if summary is None or row.number != summary.row.number]
    if own := [scored_row for scored_row in scored if scored_row.row.number in source.details]:
        selection.add(
            own,
            lambda scored_row: layout.render_full_line(scored_row, source.details.get(scored_row.row.number)),
            max_chars=(room - len(block)) * 2 // 3,
            is_full=True,
        )
    more: dict[str, int] = {}
    if source.turns:
        ended = _EndedWork(source.turns)
        for section, share in ((layout.INSTRUCTIONS, 3), (layout.OPEN_ENDS, 5)):
            chosen = [one for one in scored if layout.section_of(one.row) == section]
            current = [one for one in chosen if not ended.is_past(one.row)]
            selection.add(current, layout.render_line, max_chars=(room - len(block)) // share)
            new = [one for one in chosen if one.row.number not in source.shown_numbers]
            more[section] = len(new) - sum(layout.section_of(line.scored.row) == section for line in selection.lines)
        noted = [one for one in scored if layout.section_of(one.row) is None]
        selection.add(noted, layout.render_line, max_chars=(room - len(block)) // 5)
        _add_turns(selection, source, focus)
    else:
        selection.add(scored, layout.render_line)
        selection.add([score_row(row, focus, weights) for row in source.history], layout.render_line)
    rows = [*(line.scored.row for line in selection.lines), *([summary.row] if summary else [])]
    frame = msgspec.structs.replace(frame, more=more)
    text = layout.render_index(frame, selection.lines, block, rows) if rows else ""
    return ComposedIndex(text=text, lines=selection.lines, omitted=selection.omitted, summary=summary, summary_block=block)


def _without_told(source: IndexInput) -> IndexInput:
    """Without what the lines of turns say: what rules made of them, rules' summaries, and what a model's says of the request."""
    if not source.turns:
        return source
    numbers = {turn.number for turn in source.turns}
    rows = [row for row in source.rows if row.turn_number not in numbers or layout.section_of(row) is not None]
    summary, text = source.summary, source.summary_text
    if summary is not None and summary.turn_number in numbers:
        summary = text = None
    elif (
        summary is not None
        and text is not None
        and any(turn.server_session_id == summary.server_session_id for turn in source.turns)
    ):
        text = msgspec.structs.replace(text, summary={**(text.summary or {}), "request": None})
    return msgspec.structs.replace(source, rows=rows, summary=summary, summary_text=text)


def _mark_later(source: IndexInput) -> IndexInput:
    """With the turn that later changed a file which an open end names, or took the matter up: whether that is it, nobody knows."""
    names = [(turn.number, {path.rsplit("/", 1)[-1] for path in turn.files}) for turn in source.turns if turn.files]

    def mark(row: model.IndexRow) -> model.IndexRow:
        if row.turn_number is None or layout.section_of(row) is None:
            return row
        later = find_later(row.turn_number, row.title, source.pointers)
        if row.state != "open":
            return msgspec.structs.replace(row, later=later)
        changed = (number for number, files in names if number > row.turn_number and any(name in row.title for name in files))
        return msgspec.structs.replace(row, changed_in=next(changed, None), later=later)

    return msgspec.structs.replace(source, rows=[mark(row) for row in source.rows])


def _add_next_prompts(source: IndexInput) -> IndexInput:
    """With what the user said next to a plan that he had accepted: it may say otherwise."""
    by_session = _by_session(source.turns)
    following = {turn.number: after for turns in by_session for turn, after in pairwise(turns)}

    def add(row: model.IndexRow) -> model.IndexRow:
        after = following.get(row.turn_number or 0) if row.title.startswith(ACCEPTED_PLAN) else None
        if after is None or is_small_talk(after.prompt, ""):
            return row
        return msgspec.structs.replace(row, then=f"{quote(own_words(after.prompt), SHORT_CHARS)} (#{after.number})")

    return msgspec.structs.replace(source, rows=[add(row) for row in source.rows])


def _mark_code(source: IndexInput) -> IndexInput:
    """With what became of the files that rows name, and of the branches on which they were said."""
    ids = {turn.number: turn.id for turn in source.turns}

    def mark(row: model.IndexRow) -> model.IndexRow:
        code_mark = source.code.describe(find_only_file(row.files), row.title, row.created_at)
        if row.turn_number in ids and layout.section_of(row) != layout.INSTRUCTIONS:  # a rule holds on each branch
            code_mark += source.branches.describe(ids[row.turn_number])
        return msgspec.structs.replace(row, code_mark=code_mark)

    return msgspec.structs.replace(source, rows=[mark(row) for row in source.rows])


def _mark_turn(source: IndexInput, turn: SessionTurn, line: str) -> str:
    return source.code.describe(turn.files, line, turn.ended_at) + source.branches.describe(turn.id)


class _EndedWork:
    """Which sentences about what is open, and commands that failed, have been left behind by the work.

    A line of Open is for the last word. After it its session changed files, or many turns of the project followed. Its turn's line
    says it all the same.
    """

    def __init__(self, turns: Sequence[SessionTurn]) -> None:
        """`turns` are the newest of the project, newest first."""
        self._turns = {turn.number: (place, turn) for place, turn in enumerate(turns)}
        self._last_work: dict[UUID, int] = {}
        for turn in turns:
            if turn.files:
                self._last_work.setdefault(turn.server_session_id, turn.number)

    def is_past(self, row: model.IndexRow) -> bool:
        if row.state != "open" or not row.is_unwatched or row.turn_number is None:
            return False
        later, turn = self._turns.get(row.turn_number, (_FRESH_TURNS, None))
        return later >= _FRESH_TURNS or (turn is not None and self._last_work.get(turn.server_session_id, 0) > turn.number)


def _add_turns(selection: IndexSelection, source: IndexInput, focus: SessionFocus) -> None:
    """Lines of turns: whole, those about the files under change and the newest first; then short; then a line for a session."""
    in_session: dict[UUID, list[SessionTurn]] = {}
    for turn in reversed(source.turns):
        in_session.setdefault(turn.server_session_id, []).append(turn)
    before = {turn.id: earlier for turns in in_session.values() for earlier, turn in pairwise(turns)}
    agents: dict[UUID, list[SessionTurn]] = {}
    for agent in reversed(source.agents):
        started = [turn for turn in in_session.get(agent.server_session_id, []) if turn.number < agent.number]
        if started:
            agents.setdefault(started[-1].id, []).append(agent)
    near = [turn for turn in source.turns if focus.is_about(turn.files)]
    left = [
        turn for turn in {turn.id: turn for turn in [*near, *source.turns]}.values() if not says_nothing(turn, before.get(turn.id))
    ]
    rules = {row.turn_number for row in source.rows if layout.section_of(row) == layout.INSTRUCTIONS}
    later = LaterTurns(left, source.over, {number for number in rules if number is not None}, source.pointers)
    told = _told_of_turns(selection.lines)
    left = [turn for turn in left if not later.is_folded(turn)]
    for turn in (turn for turn in left if turn.own_line is not None):  # never among its session's
        line = render_turn(turn, None)
        selection.add_turn(layout.turn_row(turn, line, code_mark=_mark_turn(source, turn, line)), later.render_folded(turn))
    runs = _find_talk(left, in_session, before, rules)
    shared = {turn.id for run in runs for turn in run}
    left = [turn for turn in left if turn.own_line is None and turn.id not in shared]
    room = selection.chars_left
    for side_chars, share in ((SIDE_CHARS, 0.42), (SHORT_CHARS, 0.72)):
        rest: list[SessionTurn] = []
        for turn in left:
            is_room = not rest and selection.chars_left > room * (1 - share)
            marked, mark = later.mark(turn)
            line = (
                render_turn(marked, before.get(turn.id), side_chars, agents.get(turn.id, ()), mark, told.get(turn.number, ()))
                if is_room
                else ""
            )
            row = layout.turn_row(turn, line, code_mark=_mark_turn(source, turn, line)) if is_room else None
            if row is None or not selection.add_turn(row, later.render_folded(turn)):
                rest.append(turn)
        left = rest
    _add_sessions(selection, source, left, runs, later)


def _add_sessions(
    selection: IndexSelection,
    source: IndexInput,
    left: Sequence[SessionTurn],
    runs: Sequence[Sequence[SessionTurn]],
    later: LaterTurns,
) -> None:
    """A line for what is left of each session, and one for each run, the newest first."""
    for turns in sorted([*_by_session(left), *runs], key=lambda turns: turns[-1].created_at, reverse=True):
        if turns in runs:
            shown = layout.turn_row(turns[0], render_talk(turns))
        else:
            marked = [later.mark(turn) for turn in turns]
            line = render_session([turn for turn, _ in marked], marked[-1][1])
            files = list(dict.fromkeys(file for turn in turns for file in turn.files))
            code_mark = source.code.describe(files, line, turns[-1].ended_at)
            code_mark += source.branches.describe(turns[-1].id)
            shown = layout.turn_row(turns[-1], line, first=turns[0], code_mark=code_mark)
        if not selection.add_turn(shown):
            break


def _find_talk(
    turns: Sequence[SessionTurn],
    in_session: Mapping[UUID, Sequence[SessionTurn]],
    before: Mapping[UUID, SessionTurn],
    rules: Collection[int | None],
) -> list[list[SessionTurn]]:
    """Of `turns` the runs of neighbours in which nothing was done or laid down, in sessions of many; the newest are in none."""
    told = {turn.id for turn in turns}
    newest = {turn.id for turn in sorted(turns, key=lambda turn: turn.number)[-_NEWEST_TURNS:]}
    runs: list[list[SessionTurn]] = []
    for session in in_session.values():
        if len(session) < _MANY_TURNS:
            continue
        for is_run, run in groupby(
            session, key=lambda turn: turn.id not in newest and turn.number not in rules and is_talk(turn, before.get(turn.id))
        ):
            found = [turn for turn in run if is_run and turn.id in told]
            if len(found) >= _MIN_RUN:
                runs.append(found)
    return runs


def _told_of_turns(lines: Iterable[model.IndexLine]) -> dict[int, list[str]]:
    """What lines say that were made of turns, by the number of the turn."""
    told: dict[int, list[str]] = {}
    for row in (line.scored.row for line in lines):
        if row.turn_number is not None:
            told.setdefault(row.turn_number, []).append(squeeze(layout.render_title(row)))
    return told


def _by_session(turns: Sequence[SessionTurn]) -> list[list[SessionTurn]]:
    by_session: dict[UUID, list[SessionTurn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.number):
        by_session.setdefault(turn.server_session_id, []).append(turn)
    return list(by_session.values())


def _render_latest_summary(
    source: IndexInput, focus: SessionFocus, weights: Weights, max_chars: int
) -> tuple[model.ScoredRow | None, str]:
    """The summary that is shown in full, where there is room for it."""
    if source.summary is None or source.summary_text is None or source.summary.number in source.shown_numbers:
        return None, ""
    block = layout.render_summary(source.summary, source.summary_text, max_chars)
    return (score_row(source.summary, focus, weights), block) if block else (None, "")


class IndexSelection:
    """Selects lines in several rounds into the same room. `max_chars` counts the headings above the lines, too."""

    def __init__(self, *, max_chars: int, max_observations: int, max_summaries: int, shown_numbers: Collection[int] = ()) -> None:
        self.lines: list[model.IndexLine] = []
        self._chars_left = max_chars
        self._lines_left = {"summary": max_summaries, "observation": max_observations}
        self._shown_numbers = shown_numbers
        self._selected_numbers: set[int] = set()
        self._days: set[date] = set()
        self._files: set[tuple[date, str]] = set()
        self._titles: list[tuple[int, frozenset[str]]] = []
        self._omitted: dict[int, model.IndexLine] = {}

    def add(
        self,
        candidates: Iterable[model.ScoredRow],
        render: Callable[[model.ScoredRow], str],
        *,
        max_chars: int | None = None,
        is_full: bool = False,
    ) -> None:
        """Add the most relevant candidates, in at most `max_chars` of the room. What a former round has added stays as it is."""
        reserved = 0 if max_chars is None else max(self._chars_left - max_chars, 0)
        by_score = sorted(candidates, key=lambda scored: (scored.score, scored.row.created_at, scored.row.number), reverse=True)
        for scored in by_score:
            number = scored.row.number
            if number in self._selected_numbers:
                continue
            if reason := self._add_line(scored, render, reserved=reserved, is_full=is_full):
                like = self._find_like(scored.row) if reason == "duplicate" else None
                self._omitted[number] = model.IndexLine(scored=scored, omission=reason, like=like)
            else:
                self._selected_numbers.add(number)
                self._omitted.pop(number, None)

    @property
    def chars_left(self) -> int:
        return self._chars_left

    def add_turn(self, row: model.IndexRow, below: str = "") -> bool:
        """Add the line of a turn, and what stands below it; whether there was room for it."""
        if row.number in self._shown_numbers:
            return True
        scored = model.ScoredRow(row=row, score=0.0, parts={})
        omission = self._add_line(scored, lambda it: layout.render_line(it) + below, reserved=0, is_full=False)
        if omission is None:
            self._selected_numbers.add(row.number)
            self._omitted.pop(row.number, None)
        else:
            self._omitted[row.number] = model.IndexLine(scored=scored, omission=omission)
        return omission is None

    @property
    def omitted(self) -> list[model.IndexLine]:
        """The most relevant first."""
        return sorted(self._omitted.values(), key=lambda line: (line.scored.score, line.number), reverse=True)

    def _add_line(
        self, scored: model.ScoredRow, render: Callable[[model.ScoredRow], str], *, reserved: int, is_full: bool
    ) -> model.OmissionReason | None:
        """Add a line; the reason when it cannot be added."""
        kind = "summary" if scored.row.kind == "summary" else "observation"
        if scored.row.number in self._shown_numbers:
            return "shown"
        if self._lines_left[kind] <= 0:
            return "limit"
        if scored.row.kind != "turn" and self._find_like(scored.row) is not None:
            return "duplicate"
        text, day, file = render(scored), layout.day_of(scored.row), scored.file
        cost = len(text) + 1
        cost += 0 if day in self._days else len(layout.render_day_heading(day, day)) + 2
        cost += 0 if file is None or (day, file) in self._files else len(layout.render_file_heading(file)) + 1
        if cost > self._chars_left - reserved:
            return "budget"
        self._chars_left -= cost
        self._lines_left[kind] -= 1
        self._days.add(day)
        if file is not None:
            self._files.add((day, file))
        self._titles.append((scored.row.number, _title_words(scored.row)))
        self.lines.append(model.IndexLine(scored=scored, text=text, is_full=is_full))
        return None

    def _find_like(self, row: model.IndexRow) -> int | None:
        """The number of the first line that has nearly the same title."""
        title = _title_words(row)
        return next((number for number, other in self._titles if is_similar(title, other, _SIMILARITY)), None)


def _title_words(row: model.IndexRow) -> frozenset[str]:
    return frozenset(_WORD.findall(row.title[:640].lower()))


def is_similar(words: frozenset[str], other: frozenset[str], share: float) -> bool:
    """Whether two texts share this part of their words. Words with digits (versions, names) have to be the same."""
    if not words or min(len(words), len(other)) < share * max(len(words), len(other)):
        return False
    common = len(words & other)
    if common < share * (len(words) + len(other) - common):
        return False
    return not any(any(map(str.isdigit, word)) for word in words ^ other)
