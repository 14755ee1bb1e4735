"""Words a turn in one line, verbatim: what the user said, the sentences of the reply that say most, and what was done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import groupby

from cmserver.base.sentences import split_sentences
from cmserver.observations.plain import one_line
from cmserver.reading.own_words import own_words
from cmserver.sessions.turns.choose_sentences import (
    ANSWERED_CHARS,
    choose_sentences,
    drop_borrowed,
    find_answered,
    find_choice,
    is_question,
    is_short,
    is_small_talk,
    shorten_middle,
)
from cmserver.sessions.turns.model import MAX_LINE_CHARS, SessionTurn

Marks = Callable[[str], str]
"""Gives a sentence back, with the mark of what is over of it."""

SIDE_CHARS, SHORT_CHARS = 300, 120
"""The most characters of a side, where there is room for the whole line, and where there is less."""
_FILES, _CHECKS = 3, 2
_AGENTS, _AGENT_CHARS = 2, 120
_NAME_CHARS, _CHECK_CHARS = 60, 90
_REMARK_CHARS = 12
_MOST_OF_IT = 0.75
_QUOTES = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb\uff02', "'"))
_BRACKETS = _QUOTES | str.maketrans("[]", "()")


def render_turn(
    turn: SessionTurn,
    before: SessionTurn | None,
    side_chars: int = SIDE_CHARS,
    agents: Sequence[SessionTurn] = (),
    mark: Marks = str,
    told: Collection[str] = (),
) -> str:
    """The turn without its number: `"words" → "sentences" [files] [checks]`, or what a person says it shall be.

    `before` is the session's turn before it, if known. `agents` are the sub-agents that it started: the best sentences of what each
    said last stand behind the reply's. What `told` says already, squeezed, has a line of its own and is left out.
    """
    if turn.own_line is not None:
        return one_line(turn.own_line, MAX_LINE_CHARS)
    said = quote(_leave_out(own_words(turn.prompt), told), side_chars * 4 // 3, mark)
    if before is not None and before.reply and is_short(turn.prompt) and (answered := find_answered(turn.prompt, before.reply)):
        said = f"(to {quote(answered, ANSWERED_CHARS)}) {said}"
    is_all = not turn.files  # no row of the turn's work says what else was said
    reply_chars = side_chars + (side_chars if is_all else max(0, side_chars - len(said)) // 3)
    chosen = choose_sentences(
        drop_borrowed(turn.reply or "", turn.prompt, turn.borrowed), reply_chars, partial(is_told, told=told) if told else None
    )
    sentences = list(map(mark, chosen))
    replies = (drop_borrowed(agent.reply or "", agent.prompt, turn.borrowed) for agent in agents[:_AGENTS])
    by_agents = (" … ".join(choose_sentences(reply, _AGENT_CHARS)) for reply in replies)
    sentences += [f"agent: {last}" for last in by_agents if last]
    max_chars = 2 * reply_chars + len(agents[:_AGENTS]) * (_AGENT_CHARS + 10)
    replied = f" → {quote(' … '.join(sentences), max_chars)}" if sentences else ""
    return said + replied + _render_files(turn.files) + _render_checks(turn.checks[-_CHECKS:])


def render_session(turns: Sequence[SessionTurn], mark: Marks = str) -> str:
    """Several turns of a session in one line: what was asked first, what was changed, and how its last check ended."""
    first, last = turns[0], turns[-1]
    count = f"{len(turns)} turns: " if len(turns) > 1 else ""
    files = list(dict.fromkeys(file for turn in turns for file in turn.files))
    checks = [check for turn in turns for check in turn.checks][-1:]
    work = _render_files(files) + _render_checks(checks)
    ended = choose_sentences(drop_borrowed(last.reply or "", last.prompt, last.borrowed), SHORT_CHARS)
    replied = f" → {quote(mark(ended[-1]), 2 * SHORT_CHARS)}" if ended else ""
    return f"{count}{quote(own_words(first.prompt), SHORT_CHARS)}{replied}{work}"


def render_talk(turns: Sequence[SessionTurn]) -> str:
    """Neighbouring turns in which nothing was done in one line, behind the number of the first: how many, and what it asked."""
    noun = "questions" if all(is_question(own_words(turn.prompt)) for turn in turns) else "turns of talk"
    return f"to #{turns[-1].number}: {len(turns)} {noun}, first {quote(own_words(turns[0].prompt), SHORT_CHARS)}"


def is_talk(turn: SessionTurn, before: SessionTurn | None) -> bool:
    """Whether nothing was done in a turn: no edit, check or commit, and no answer to the turn before it."""
    if turn.own_line is not None or turn.files or turn.checks or turn.commits:
        return False
    return before is None or not before.reply or not find_choice(turn.prompt, before.reply)


def quote(text: str, max_chars: int, mark: Marks = str) -> str:
    """The text in quotation marks, of which it has none itself: nobody can end his side of the line and speak for the other."""
    shown = one_line(shorten_middle(text, max_chars), max_chars)
    marked = shown if mark is str else " ".join(map(mark, split_sentences(shown)))
    return f'"{marked.translate(_QUOTES)}"'


def squeeze(sentence: str) -> str:
    """The sentence as it is compared: without regard to case, spaces and the punctuation around it."""
    return " ".join(sentence.casefold().split()).strip(" .!;,:…*_")


def is_told(sentence: str, told: Collection[str]) -> bool:
    """Whether one of the squeezed lines says the whole sentence, or all of it but a few words that lead in."""
    squeezed = squeeze(sentence)
    if len(squeezed) < _REMARK_CHARS:
        return False
    return any(squeezed in line or (line in squeezed and len(line) >= _MOST_OF_IT * len(squeezed)) for line in told)


def _leave_out(words: str, told: Collection[str]) -> str:
    """The words, with an ellipsis for the sentences that have a line of their own."""
    if not told:
        return words
    kept = ("…" if is_told(sentence, told) else sentence for sentence in split_sentences(words))
    return " ".join(key for key, _ in groupby(kept))


def says_nothing(turn: SessionTurn, before: SessionTurn | None) -> bool:
    """Whether nothing was done in a turn, and it is only a question without an answer, or small talk that answers nothing."""
    if not turn.reply:
        return turn.own_line is None and not (turn.files or turn.checks or turn.commits) and is_question(own_words(turn.prompt))
    return is_small_talk(turn.prompt, turn.reply) and is_talk(turn, before)


def _render_files(files: Sequence[str]) -> str:
    if not files:
        return ""
    more = f" +{len(files) - _FILES}" if len(files) > _FILES else ""
    return f" [{', '.join(one_line(file, _NAME_CHARS).translate(_BRACKETS) for file in files[:_FILES])}{more}]"


def _render_checks(checks: Sequence[str]) -> str:
    """The last check, and one before it that failed."""
    checks = [check for place, check in enumerate(checks, 1) if place == len(checks) or "failed" in check]
    return "".join(f" [{one_line(check, _CHECK_CHARS).translate(_BRACKETS)}]" for check in checks)
