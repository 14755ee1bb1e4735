"""Reads what an agent concluded from its last message: causes, decisions, limits, open ends, commands, each as it was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, cast, get_args

import msgspec

from cmserver.rules.text import shorten

Kind = Literal["open", "cause", "decision", "limitation", "next", "command", "finding", "change"]
"""In the order in which they are tried. `open` is not done; `next` is to be done; `change` is what was done."""
_KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_QUOTE = 400
_MAX_TEXT = 20_000
_MAX_SENTENCE = 1_000
_MAX_CONCLUSIONS = 24
_MAX_LABEL = 60
_MIN_WORDS = 4
_MAX_COMMAND = 160

_FENCE = re.compile(
    r"((?<=\n)[^\n]{1,300}:[ \t]*\n\s*?|\A[^\n]{1,300}:[ \t]*\n\s*?|)^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BULLET = re.compile(r"^[ \t>]*(?:[-*+•]|\d{1,2}[.)])[ \t]+(?:\[[ xX]\][ \t]*)?")
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(.+)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.{1,300}?)(?<=\S)\1")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bz\.B\.)(?<!\bca\.)(?<!\betc\.)(?<!\bp\.ex\.)[\"')]?\s+(?=[\"'(`«]?[A-ZÀ-Ý0-9`/])"
)
_INLINE_LABEL = re.compile(rf"^([^\s:`][^:`\n]{{1,{_MAX_LABEL}}}?)[ ]?(?::|[ ][\u2014\u2013-][ ])[ ]*(?=\S)")
_FILE = re.compile(r"(?<![\w/.-])(?:[\w.@-]+/)*[\w@-][\w.@-]*\.[A-Za-z]{1,10}\b(?!\()|(?<![\w/.-])(?:[\w.@-]+/)+[\w.@-]+")
_CODE = re.compile(r"`(?!(?:main|master)`)([^`\n]{1,120})`")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*(?:::|\.|->))*[A-Za-z]\w*_\w+\b|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|#\d{1,6}\b"
)
_NO_FILE = re.compile(r"^(?:e\.g|i\.e|z\.B|p\.ex|d\.h|u\.a|\d[\d.]*[a-z%]*|\w+\.\w+\(.*)$", re.IGNORECASE)
_DONE_MARK = re.compile(r"^[ \t>]*(?:[-*+][ \t]+)?(?:✅|✓|☑|\[[xX]\])")


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that somebody will want to read again."""

    kind: Kind
    text: str
    """As it was written, at most MAX_QUOTE characters."""
    files: list[str]
    identifiers: list[str]

    @property
    def is_open(self) -> bool:
        return self.kind in {"open", "next"}


class _Phrases(msgspec.Struct, frozen=True):
    label: re.Pattern[str]
    phrase: re.Pattern[str]


@cache
def phrases() -> dict[str, _Phrases]:
    """The patterns of phrases.toml by kind."""
    tables = cast(
        "dict[str, dict[str, list[str]]]", tomllib.loads(files("cmserver.rules").joinpath("phrases.toml").read_text("utf-8"))
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
    """The conclusions of an agent's message, in its order; empty for small talk."""
    conclusions: dict[str, Conclusion] = {}
    for line in _lines(message[:_MAX_TEXT]):
        for kind, text in _line_conclusions(line):
            conclusions.setdefault(text.casefold(), conclude(kind, text))
    return list(conclusions.values())[:_MAX_CONCLUSIONS]


def _line_conclusions(line: _Line) -> Iterator[tuple[Kind, str]]:
    """The conclusions of a paragraph. From what is open in it, the rest of the paragraph belongs to that."""
    kinds: list[Kind | None] = [_kind(line.label, sentence) for sentence in line.sentences]
    first_open = next((place for place, kind in enumerate(kinds) if kind in {"open", "next"}), None)
    start = len(kinds) if first_open is None else _find_subject(line.sentences, first_open)
    for kind, sentence in zip(kinds[:start], line.sentences, strict=False):
        if kind is not None:
            yield kind, shorten(sentence, MAX_QUOTE)
    if first_open is not None and (kind := kinds[first_open]) is not None:
        rest = [sentence for sentence in line.sentences[start:] if not is_chatter(sentence)]
        yield kind, shorten(" ".join(rest), MAX_QUOTE)


def _find_subject(sentences: Sequence[str], place: int) -> int:
    """Where the sentences begin that are needed to know what the sentence at `place` is about."""
    chars = len(sentences[place])
    while place and not _has_anchor(sentences[place]) and not is_chatter(sentences[place - 1]):
        chars += len(sentences[place - 1]) + 1
        if chars > MAX_QUOTE:
            break
        place -= 1
    return place


def _has_anchor(text: str) -> bool:
    return bool(_CODE.search(text) or _FILE.search(text) or _IDENTIFIER.search(text))


def conclude(kind: Kind, text: str) -> Conclusion:
    """The conclusion with the files and identifiers that it names."""
    named = [name.rstrip(".") for name in _FILE.findall(text) if not _NO_FILE.match(name)]
    words = [code for code in _CODE.findall(text) if code not in named]
    return Conclusion(
        kind=kind,
        text=text,
        files=list(dict.fromkeys(named)),
        identifiers=list(dict.fromkeys([*words, *(name for name in _IDENTIFIER.findall(text) if name not in named)])),
    )


def is_chatter(sentence: str) -> bool:
    """Small talk, an offer, or a question."""
    return sentence.rstrip(" *_").endswith("?") or phrases()["chatter"].phrase.search(sentence) is not None


def _kind(label: Kind | None, sentence: str) -> Kind | None:
    if is_chatter(sentence):
        return None
    if label is None and len(sentence.split()) < _MIN_WORDS:
        return None
    if label in {"open", "next"}:
        return None if _DONE_MARK.match(sentence) else label
    is_done = phrases()["done"].phrase.search(sentence) is not None
    for kind in _KINDS[:-1]:
        if is_done and kind in {"open", "next"}:
            continue
        if kind != "finding" and kind == label:
            return kind
        if phrases()[kind].phrase.search(sentence):
            return kind
    return label or ("change" if _has_anchor(sentence) or re.search(r"\d", sentence) else None)


class _Line(msgspec.Struct, frozen=True):
    """One paragraph or bullet, and the kind that its heading or its own label gives it."""

    label: Kind | None
    sentences: list[str]


def _lines(message: str) -> Iterator[_Line]:
    heading: Kind | None = None
    list_label: Kind | None = None
    for line in _FENCE.sub(_fence_line, message).splitlines():
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
                list_label = _label_kind(text)
                heading = list_label if is_bold else heading
                continue
        match = _INLINE_LABEL.match(text)
        label = (_label_kind(match[1]) if match else None) or list_label or heading
        yield _Line(label, [sentence.strip()[:_MAX_SENTENCE] for sentence in _SENTENCE_END.split(text) if sentence.strip()])


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
