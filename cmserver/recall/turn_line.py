"""Words a turn in one line, verbatim: what the user said, the sentences of the reply that say most, and what was done.

Nothing is judged. Sentences are chosen by a plain score that knows no language, and what is not the user's own text (code,
quotations, pasted reports) is no word of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cmserver.base.sentences import split_sentences
from cmserver.base.text import UNSEGMENTED
from cmserver.observations.plain import one_line
from cmserver.reading.own_words import BULLET, FENCED, HEADING, own_words
from cmserver.sessions.turns.model import SessionTurn

Marks = Callable[[str], str]
"""Gives a sentence back, with the mark of what is over of it."""

SIDE_CHARS, SHORT_CHARS = 300, 120
"""The most characters of a side, where there is room for the whole line, and where there is less."""
_ANSWERED_CHARS = 160
_FILES, _CHECKS = 3, 2
_NAME_CHARS, _CHECK_CHARS = 60, 90
_SHORT_WORDS, _SHORT_SIGNS = 14, 30

_CODE = re.compile(r"`[^`]+`|\b\w+(?:[._/]\w+)+|\b\w+_\w+")
_MARKS = re.compile(r"\*\*|__|^#+\s+", re.MULTILINE)
_QUOTES = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb\uff02', "'"))
_BRACKETS = _QUOTES | str.maketrans("[]", "()")
_SIGN = re.compile(f"[{UNSEGMENTED}]")
_OPTION = re.compile(r"\W*(?P<name>[a-zA-Z]|\d{1,2})\W*$")


def measure(text: str) -> int:
    """The length of a text in characters; a sign of a script without spaces counts as two."""
    return len(text) + len(_SIGN.findall(text))


def render_turn(turn: SessionTurn, before: SessionTurn | None, side_chars: int = SIDE_CHARS, mark: Marks = str) -> str:
    """The turn without its number: `"words" → "sentences" [files] [checks]`. `before` is the session's turn before it, if known."""
    said = _quote(own_words(turn.prompt), side_chars, mark)
    if before is not None and before.reply and is_short(turn.prompt) and (answered := find_answered(turn.prompt, before.reply)):
        said = f"(to {_quote(answered, _ANSWERED_CHARS)}) {said}"
    sentences = choose_sentences(turn.reply or "", side_chars)
    replied = f" → {_quote(' … '.join(map(mark, sentences)), 2 * side_chars)}" if sentences else ""
    return said + replied + _render_files(turn.files) + _render_checks(turn.checks[-_CHECKS:])


def render_session(turns: Sequence[SessionTurn], mark: Marks = str) -> str:
    """Several turns of a session in one line: what was asked first, what was changed, and how its last check ended."""
    first, last = turns[0], turns[-1]
    count = f"{len(turns)} turns: " if len(turns) > 1 else ""
    files = list(dict.fromkeys(file for turn in turns for file in turn.files))
    checks = [check for turn in turns for check in turn.checks][-1:]
    work = _render_files(files) + _render_checks(checks)
    ended = choose_sentences(last.reply or "", SHORT_CHARS)
    replied = f" → {_quote(mark(ended[-1]), 2 * SHORT_CHARS)}" if ended else ""
    return f"{count}{_quote(own_words(first.prompt), SHORT_CHARS)}{replied}{work}"


def _quote(text: str, max_chars: int, mark: Marks = str) -> str:
    """The text in quotation marks, of which it has none itself: nobody can end his side of the line and speak for the other."""
    shown = one_line(_shorten(text, max_chars), max_chars)
    marked = shown if mark is str else " ".join(map(mark, split_sentences(shown)))
    return f'"{marked.translate(_QUOTES)}"'


def is_short(prompt: str) -> bool:
    """Whether a prompt is so short that it may only be an answer."""
    signs = len(_SIGN.findall(prompt))
    return (signs < _SHORT_SIGNS) if signs * 2 > len(prompt) else len(prompt.split()) < _SHORT_WORDS


def find_answered(prompt: str, reply: str) -> str:
    """What a short prompt answers: the option that it names, else the last question, else the first sentence."""
    lines = [line for line in FENCED.sub("\n", reply).splitlines() if line.strip()]
    option = _OPTION.match(prompt.split(",", maxsplit=1)[0].split(".", maxsplit=1)[0].strip())
    sentences = _prose(reply)
    questions = [sentence for sentence in sentences if is_question(sentence)]
    chosen = ""
    if option is not None:
        name = re.escape(option["name"])
        marker = re.compile(rf"[\s|>*_\-(]*(?:option\s+)?{name}[\s|*_]*[).:|\-\u2013\u2014]\s*(?P<text>.+)", re.IGNORECASE)
        chosen = next((match["text"].strip(" |*_") for line in lines if (match := marker.match(line))), "")
    if chosen and questions:
        return f"{questions[-1]} {chosen}"
    return chosen or (questions[-1] if questions else next(iter(sentences), ""))


def is_bare_question(turn: SessionTurn) -> bool:
    """Whether a turn is only a question, to which nothing was said and for which nothing was done."""
    return not (turn.reply or turn.files or turn.checks or turn.commits) and is_question(own_words(turn.prompt))


def is_question(sentence: str) -> bool:
    """By its end, in any language that marks questions so."""
    return sentence.rstrip("\"'»”)*_` ").endswith(("?", "\uff1f", "\u061f", "\u037e"))


def choose_sentences(reply: str, max_chars: int) -> list[str]:
    """The sentences of a reply that say most, in their order, within that many characters; questions to the user have no place."""
    told = [sentence for sentence in _prose(reply) if not is_question(sentence)]
    ranked = sorted(range(len(told)), key=lambda place: (-_score(told[place], place, len(told)), place))
    chosen: list[int] = []
    left = max_chars
    for place in ranked:
        size = measure(told[place])
        if size <= left or not chosen:
            chosen.append(place)
            left -= size + 3
    return [_shorten(told[place], max_chars) for place in sorted(chosen)]


def _score(sentence: str, place: int, count: int) -> float:
    score = 1.0 if any(map(str.isdigit, sentence)) else 0.0
    score += 0.7 * min(3, len(_CODE.findall(sentence)))
    score += 0.4 * min(measure(sentence), 100) / 100
    return score + (0.5 if place == 0 else 0.0) + (0.5 if place == count - 1 else 0.0)


def _prose(reply: str) -> list[str]:
    """The sentences of a reply, without code, tables, quotations and headings."""
    lines = [line for line in FENCED.sub("\n", reply).splitlines() if not HEADING.match(line)]
    sentences = split_sentences("\n".join(BULLET.sub("", line) for line in lines))
    return [text for sentence in sentences if len(text := _MARKS.sub("", sentence).strip()) > 2]


def _shorten(text: str, max_chars: int) -> str:
    """The beginning and the end of a text that is too long."""
    if measure(text) <= max_chars:
        return text
    if measure(text) > len(text):
        max_chars = max_chars * len(text) // measure(text)
    head = max_chars * 2 // 3
    return f"{text[:head].rstrip()} … {text[-(max_chars - head - 3) :].lstrip()}"


def _render_files(files: Sequence[str]) -> str:
    if not files:
        return ""
    more = f" +{len(files) - _FILES}" if len(files) > _FILES else ""
    return f" [{', '.join(one_line(file, _NAME_CHARS).translate(_BRACKETS) for file in files[:_FILES])}{more}]"


def _render_checks(checks: Sequence[str]) -> str:
    return "".join(f" [{one_line(check, _CHECK_CHARS).translate(_BRACKETS)}]" for check in checks)
