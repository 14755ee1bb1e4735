"""Reads what an agent concluded from its last message: causes, decisions, limits, open ends, commands, each as it was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import cast, get_args

import msgspec

from cmserver.base.sentences import split_line
from cmserver.base.text import UNSEGMENTED, shorten
from cmserver.base.words import COMMON_WORDS, content_words
from cmserver.reading.model import Conclusion, Kind

_KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_QUOTE = 400
_MAX_TEXT = 20_000
_MAX_SENTENCE = 1_000
_MAX_CONCLUSIONS = 24
_MAX_LABEL = 60
_MIN_WORDS = 4
FEW_WORDS = 4
"""A sentence with no more words that carry it cannot be understood by itself."""
_MAX_COMMAND = 160

_FENCE = re.compile(
    r"((?<=\n)[^\n]{1,300}:[ \t]*\n\s*?|\A[^\n]{1,300}:[ \t]*\n\s*?|)^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BULLET = re.compile(r"^[ \t>]*(?:[-*+•]|(?:\d{1,2}|[A-Ha-h])[.)])[ \t]+(?:\[[ xX]\][ \t]*)?")
_INLINE_LIST = re.compile(r"^[^\n:]{1,60}:[ \t]+1[.)][ \t][^\n]+?[ \t]2[.)][ \t][^\n]+$", re.MULTILINE)
_INLINE_ITEM = re.compile(r"[ \t]+(?=\d{1,2}[.)][ \t])")
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(.+)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.{1,300}?)(?<=\S)\1")
_INLINE_LABEL = re.compile(rf"^([^\s:`][^:`\n]{{1,{_MAX_LABEL}}}?)[ ]?(?::|[ ][\u2014\u2013-][ ])[ ]*(?=\S)")
_FILE = re.compile(r"(?<![\w/.-])(?:[\w.@-]+/)*[\w@-][\w.@-]*\.[A-Za-z]{1,10}\b(?!\()|(?<![\w/.-])(?:[\w.@-]+/)+[\w.@-]+")
_CODE = re.compile(r"`(?!(?:main|master)`)([^`\n]{1,120})`")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*(?:::|\.|->))*[A-Za-z]\w*_\w+\b|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|#\d{1,6}\b"
)
_NO_FILE = re.compile(r"^(?:e\.g|i\.e|z\.B|p\.ex|d\.h|u\.a|\d[\d.]*[a-z%]*|\w+\.\w+\(.*)$", re.IGNORECASE)
_RUN = re.compile(f"[{UNSEGMENTED}]{{2,}}")
_MIN_COMMON = 0.06
_WORD = re.compile(r"[^\W\d_][\w-]{2,}|\d{2,}")
_ASKS = re.compile(  # for one of several
    r"(?i:\b(?:or|which|what|oder|welche\w*|ou|quel\w*|czy|któr\w*)\b|ど|それとも)[^\n.]*(?:[?？][\s*_)]*|か。\s*)$",  # noqa: RUF001 - Japanese
    re.MULTILINE,
)
_DONE_MARK = re.compile(r"^[ \t>]*(?:[-*+][ \t]+)?(?:✅|✓|☑|\[[xX]\])")


class _Phrases(msgspec.Struct, frozen=True):
    label: re.Pattern[str]
    phrase: re.Pattern[str]


@cache
def phrases() -> dict[str, _Phrases]:
    """The patterns of phrases.toml by kind."""
    tables = cast(
        "dict[str, dict[str, list[str]]]", tomllib.loads(files("cmserver.reading").joinpath("phrases.toml").read_text("utf-8"))
    )
    return {
        kind: _Phrases(
            re.compile(rf"(?:{'|'.join(table.get('label', ['(?!)']))})", re.IGNORECASE),
            re.compile(
                "|".join(part if part.startswith("^") else rf"(?<!\w)(?:{part})" for part in table["phrase"]), re.IGNORECASE
            ),
        )
        for kind, table in tables.items()
    }


def read_conclusions(message: str) -> list[Conclusion]:
    """The conclusions of an agent's message, in its order; empty for small talk and for guesses."""
    conclusions: dict[str, Conclusion] = {}
    options = list_items(message) if _ASKS.search(message[-MAX_QUOTE:]) else []
    keeps_all = is_foreign(message[:_MAX_SENTENCE])
    for line in _lines(message[:_MAX_TEXT]):
        if line.is_item and line.label not in {"open", "next"} and " ".join(line.sentences) in options:
            continue
        for kind, text, point in _line_conclusions(line, keeps_all=keeps_all):
            is_listed = line.is_item and line.label in {"open", "next"}
            conclusions.setdefault(text.casefold(), msgspec.structs.replace(conclude(kind, text, point), is_listed=is_listed))
    return list(conclusions.values())[:_MAX_CONCLUSIONS]


def list_items(message: str) -> list[str]:
    """The items of the last list of several."""
    items: list[list[str]] = [[]]
    none: list[str] = []
    for line in _INLINE_LIST.sub(_break_list, message).splitlines():
        if _BULLET.match(line):
            items[-1].append(_EMPHASIS.sub(r"\2", _BULLET.sub("", line)).strip())
        elif line.strip() and not line.startswith(" ") and items[-1]:
            items.append([])
    return next((group for group in reversed(items) if len(group) > 1), none)


def _line_conclusions(line: _Line, *, keeps_all: bool) -> Iterator[tuple[Kind, str, str]]:
    """The conclusions of a paragraph: kind, text, and the sentence that makes it one.

    From what is open in it, the rest of the paragraph belongs to that. What begins with a guess is nothing else.
    """
    sentences = line.sentences
    kinds: list[Kind | None] = [
        _kind(line.label, sentence)
        or ("finding" if keeps_all and count_words(sentence) > FEW_WORDS and not is_chatter(sentence) else None)
        for sentence in sentences
    ]
    first_open = next((place for place, kind in enumerate(kinds) if kind in {"open", "next"}), None)
    start = len(kinds) if first_open is None else _find_subject(sentences, kinds, first_open)
    if line.label is None and is_guess(sentences[0]):
        kinds[:start] = [None] * start
        if first_open is not None and (is_vague(sentences[first_open]) or matches("hedge", sentences[first_open])):
            return
    for kind, sentence in zip(kinds[:start], sentences, strict=False):
        if kind is not None and not is_guess(sentence):
            yield kind, shorten(sentence, MAX_QUOTE), sentence
    if first_open is None:
        return
    ends = [first_open, *(place for place in range(first_open + 1, len(kinds)) if _begins_another(sentences[place]))]
    for place, following in pairwise([*ends, len(kinds)]):
        text = " ".join(it for it in sentences[start:following] if not is_chatter(it))
        yield cast("Kind", kinds[place]), shorten(text, MAX_QUOTE), sentences[place]
        start = following


def _begins_another(sentence: str) -> bool:
    """Whether a sentence behind one that says what is open says something else that is."""
    return (
        _kind(None, sentence) in {"open", "next"}
        and len(content_words(sentence)) > FEW_WORDS
        and not matches("refers_back", sentence)
    )


def _find_subject(sentences: Sequence[str], kinds: Sequence[Kind | None], place: int) -> int:
    """Where the sentences begin that are needed to know what the sentence at `place` is about."""
    chars = len(sentences[place])
    while place and not _has_anchor(sentences[place]) and not is_chatter(sentences[place - 1]) and kinds[place - 1] != "rejected":
        chars += len(sentences[place - 1]) + 1
        if chars > MAX_QUOTE:
            break
        place -= 1
    return place


def _has_anchor(text: str) -> bool:
    return bool(_CODE.search(text) or _FILE.search(text) or _IDENTIFIER.search(text))


def conclude(kind: Kind, text: str, point: str = "") -> Conclusion:
    """The conclusion with the files and identifiers that it names."""
    named = [name.rstrip(".") for name in _FILE.findall(text) if not _NO_FILE.match(name)]
    words = [code for code in _CODE.findall(text) if code not in named]
    return Conclusion(
        kind=kind,
        text=text,
        point=point,
        files=list(dict.fromkeys(named)),
        identifiers=list(dict.fromkeys([*words, *(name for name in _IDENTIFIER.findall(text) if name not in named)])),
    )


def is_chatter(sentence: str) -> bool:
    """Small talk, an offer, or a question."""
    return sentence.rstrip(" *_").endswith(("?", "\uff1f", "か。")) or phrases()["chatter"].phrase.search(sentence) is not None


def is_vague(text: str) -> bool:
    """Whether it does not say what it is about: "I have not verified this yet"."""
    return not _has_anchor(text) and len(content_words(text)) <= FEW_WORDS


def is_guess(sentence: str) -> bool:
    """Whether it says what may be, and not that it is so, or is not."""
    return matches("hedge", sentence) and not any(matches(kind, sentence) for kind in ("refuted", "open", "done"))


def count_words(text: str) -> int:
    """About how many words a text has, also in a script without spaces."""
    return len(text.split()) + sum(map(len, _RUN.findall(text))) // 3


def is_foreign(text: str) -> bool:
    """Whether it is in a language whose phrases are not known: few of its words are among the common ones."""
    words = _WORD.findall(_RUN.sub(" ", _CODE.sub(" ", text)))
    common = sum(word.casefold() in COMMON_WORDS for word in words)
    return count_words(text) > 2 * FEW_WORDS and common <= len(words) * _MIN_COMMON


def matches(name: str, text: str) -> bool:
    """Whether a phrase of that name occurs in the text."""
    return phrases()[name].phrase.search(text) is not None


def _kind(label: Kind | None, sentence: str) -> Kind | None:
    if is_chatter(sentence):
        return None
    if label is None and count_words(sentence) < _MIN_WORDS:
        return None
    if label in {"open", "next"}:
        return None if matches("done", sentence) else label
    is_over = matches("done", sentence) or matches("condition", sentence)
    for kind in _KINDS[:-1]:
        if is_over and kind in {"open", "next"}:
            continue
        if kind != "finding" and kind == label:
            return kind
        if phrases()[kind].phrase.search(sentence):
            return kind
    is_over = is_over or (len(content_words(sentence)) > FEW_WORDS and matches("closed", sentence))
    says_more = is_over or _has_anchor(sentence) or re.search(r"\d", sentence)
    return label or ("change" if says_more else None)


class _Line(msgspec.Struct, frozen=True):
    """One paragraph or bullet, and the kind that its heading or its own label gives it."""

    label: Kind | None
    sentences: list[str]
    is_item: bool = False


def _lines(message: str) -> Iterator[_Line]:
    heading: Kind | None = None
    list_label: Kind | None = None
    for line in _INLINE_LIST.sub(_break_list, _FENCE.sub(_fence_line, message)).splitlines():
        if title := _HEADING.match(line):
            heading, list_label = _label_kind(title[1]), None
            continue
        text = _EMPHASIS.sub(r"\2", _BULLET.sub("", line)).strip()
        if not text or text.startswith("|"):
            continue
        if not _BULLET.match(line):
            list_label = None
            is_bold = line.strip().startswith("**") and line.strip().endswith("**")
            if len(text) <= _MAX_LABEL and (text.endswith(":") or is_bold):
                list_label = _label_kind(text) or _read_intro(text)
                heading = list_label if is_bold else heading
                continue
        match = _INLINE_LABEL.match(text)
        label = (_label_kind(match[1]) if match else None) or list_label or heading
        if label in {"open", "next"} and _DONE_MARK.match(line):
            continue
        is_item = _BULLET.match(line) is not None
        yield _Line(label, [sentence[:_MAX_SENTENCE] for sentence in split_line(text)], is_item)


def _break_list(line: re.Match[str]) -> str:
    """`To do: 1. this 2. that`, with each item on its line."""
    return _INLINE_ITEM.sub("\n", line[0])


def _read_intro(text: str) -> Kind | None:
    """The kind of a list's items by the line before it: "Two things are still open:"."""
    return next((kind for kind in ("open", "next") if matches(kind, text) and not matches("done", text)), None)


def _label_kind(text: str) -> Kind | None:
    name = text.strip(" *_:#").strip()
    return next((kind for kind in _KINDS[:-1] if phrases()[kind].label.fullmatch(name)), None)


def _fence_line(fence: re.Match[str]) -> str:
    """A block of code is left out, but for a single command, which ends the sentence before it."""
    lines = [line.strip() for line in fence[2].splitlines() if line.strip()]
    if not fence[1] or len(lines) != 1 or len(lines[0]) > _MAX_COMMAND:
        return f"{fence[1]}\n"
    return f"{fence[1].rstrip()} `{lines[0].removeprefix('$ ')}`\n"


def choose_quotes(conclusions: Sequence[Conclusion], max_chars: int) -> list[Conclusion]:
    """As many as fit, the kinds that are tried first before the others; in the order in which they were written."""
    ranks = {kind: rank for rank, kind in enumerate(_KINDS)}
    chosen: set[str] = set()
    room = max_chars
    for conclusion in sorted(conclusions, key=lambda conclusion: ranks[conclusion.kind]):
        if len(conclusion.text) < room:
            chosen.add(conclusion.text)
            room -= len(conclusion.text) + 1
    return [conclusion for conclusion in conclusions if conclusion.text in chosen]
