"""Reads from a text what another text is compared with: its words, its numbers and names, its negations."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from cmserver.base.sentences import split_sentences
from cmserver.base.text import UNSEGMENTED
from cmserver.observations.model import ManualObservation, Observation, compose

TokenKind = Literal["word", "name", "identifier", "path", "number", "version", "negation", "filler"]

MAX_SENTENCES = 60
"""How many sentences of a text are compared with each of another one; whole texts are compared at any length."""

_TOKEN = re.compile(
    rf"""
    (?P<url>[a-z][a-z0-9+.-]{{1,9}}://[^\s<>"'`)\]]+)
    |(?P<version>(?<![\w.])v\d+(?:\.\d+)*(?![\w.]?\w)|(?<![\w.])v?\d+(?:\.\d+){{2,}}(?:[-+][\w.]*\w)?)
    |(?P<time>(?<![\w.])(?:\d{{4}}-\d\d-\d\d|\d{{1,2}}:\d\d(?::\d\d)?)(?!\w))
    |(?P<path>(?<![\w.@~$%/-])(?:[\w.@~$%-]*/)+[\w.@*-]*[\w*])
    |(?P<number>(?<!\w)[-+\u2212]?\d+(?:[.,]\d+)*(?![\w]))
    |(?P<character>[{UNSEGMENTED}])
    |(?P<name>[^\W{UNSEGMENTED}]+(?:(?:\.|::|->|\#|-|['\u2019])[^\W{UNSEGMENTED}]+)*(?:\+\+|\#(?!\w))?)
    |(?P<sign>[<>=&|]{{1,3}}|!=|!(?=\w)|[%€$£¥§]|°[CFcf]?|[≤≥≠≈←→↔↑↓⇐⇒✅❌✓✔✗✘✖^~]|\[[ xX]\])
    """,
    re.VERBOSE,
)
IS_CHARACTER = re.compile(f"[{UNSEGMENTED}]")
_AMOUNT = re.compile(r"(\d+(?:[.,]\d+)*)([^\W\d_]{1,12}|%)")
_FILE_NAME = re.compile(r"[\w-]*\w(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,6}")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_ENGLISH_NOT = re.compile(r"(?<=n)['\u2019]t$")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_LONGEST_NUMBER = 15
_REMEMBERED_WORDS = 20_000
"""So many words are not read anew in the next text: texts of one project have most of them in common."""


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of words.toml."""

    negations: frozenset[str]
    fillers: frozenset[str]
    temporary: frozenset[str]
    changes: frozenset[str]
    opposites: list[tuple[list[str], list[str]]]
    numbers: dict[str, int]
    units: dict[str, tuple[str, float]]


class Token(msgspec.Struct, frozen=True):
    """A word of a text, or a character of a script without spaces. Two that mean the same have the same kind and value."""

    kind: TokenKind
    value: str
    text: str = ""
    """As it was written."""


class SentenceMarks(msgspec.Struct, frozen=True):
    """The words of one sentence or fact, without fillers; `counts` are those that are no negations, by value."""

    values: tuple[str, ...]
    counts: Counter[str]
    negation_count: int


class TextMarks(msgspec.Struct, frozen=True):
    """What a text is compared by. It depends on the text alone, so it can be kept beside it."""

    words: frozenset[str]
    trigrams: frozenset[tuple[str, ...]]
    """Three words in a row of one sentence; a shorter sentence whole."""
    whole: SentenceMarks
    sentences: tuple[SentenceMarks, ...]
    tokens: dict[str, Token]
    """Each that carries a fact, by its value."""
    plain_words: frozenset[str]
    """All of its words in lower case as they are written."""
    is_unsegmented: bool
    """Whether most of its words are characters of scripts without spaces."""

    def values(self, kind: TokenKind) -> set[str]:
        """The values of all tokens of a kind."""
        return {value for value, token in self.tokens.items() if token.kind == kind}


@cache
def load_words() -> _Words:
    """The word lists of words.toml."""
    text = files("cmserver.consolidation").joinpath("words.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Words)


@cache
def opposites_by_word() -> dict[str, frozenset[str]]:
    """For each word of the list, the words that say the opposite."""
    opposites: dict[str, set[str]] = {}
    for left, right in load_words().opposites:
        for words, others in ((left, right), (right, left)):
            for word in words:
                opposites.setdefault(word, set()).update(others)
    return {word: frozenset(others) for word, others in opposites.items()}


def compared_text(observation: ManualObservation | Observation) -> str:
    """What of an observation is compared by its words."""
    return compose(observation.title, observation.subtitle, observation.narrative, observation.facts) or observation.content or ""


def read_marks(text: str) -> TextMarks:
    """The marks of a text; about a millisecond for 1,500 characters."""
    text = unicodedata.normalize("NFKC", text)
    sentences = [list(_tokens(sentence)) for sentence in split_sentences(text)]
    marks = [_read_sentence(tokens) for tokens in sentences if tokens]
    tokens = [token for sentence in sentences for token in sentence]
    return TextMarks(
        words=frozenset(token.value for token in tokens),
        trigrams=frozenset(trigram for sentence in sentences for trigram in _trigrams([token.value for token in sentence])),
        whole=_read_sentence(tokens),
        sentences=tuple(marks[:MAX_SENTENCES]),
        tokens={token.value: token for token in reversed(tokens) if token.kind not in {"negation", "filler"}},
        plain_words=frozenset(token.text.casefold() for token in tokens),
        is_unsegmented=2 * sum(IS_CHARACTER.fullmatch(token.text) is not None for token in tokens) > len(tokens),
    )


def _trigrams(values: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if len(values) < 3:
        return iter([tuple(values)] if values else [])
    return zip(values, values[1:], values[2:], strict=False)


def _read_sentence(tokens: Sequence[Token]) -> SentenceMarks:
    return SentenceMarks(
        values=tuple(token.value for token in tokens if token.kind != "filler"),
        counts=Counter(token.value for token in tokens if token.kind not in {"negation", "filler"}),
        negation_count=sum(token.kind == "negation" for token in tokens),
    )


def _tokens(sentence: str) -> Iterator[Token]:
    """The tokens of a sentence, each unit with the number before it."""
    words = load_words()
    number: tuple[float | str, str] | None = None
    is_first = True
    for raw in _raw_tokens(sentence):
        if number is not None:
            unit = words.units.get(raw.text.casefold()) if raw.kind == "word" or raw.text == "%" else None
            yield _amount(*number, unit)
            number = None
            if unit is not None:
                continue
        if raw.kind == "number" and (value := _number_value(raw.value)) is not None:
            number = (value, raw.text)
        elif raw.kind == "word" and raw.value in words.numbers:
            number = (words.numbers[raw.value], raw.text)
        elif raw.kind == "word":
            yield _word(raw, is_first=is_first)
        else:
            yield raw
        is_first = False
    if number is not None:
        yield _amount(*number, None)


def _raw_tokens(sentence: str) -> Iterator[Token]:
    """The tokens as they stand, each number apart from its unit."""
    for match in _TOKEN.finditer(sentence):
        text = match[0]
        match match.lastgroup:
            case "url" | "path":
                yield Token("path", text.casefold().removesuffix("**").rstrip(".,:;/"), text)
            case "version":
                yield Token("version", text.casefold().removeprefix("v"), text)
            case "time":
                yield Token("number", text, text)
            case "number":
                yield Token("number", text.lstrip("+").replace("\u2212", "-"), text)
            case "name":
                yield from _name_tokens(text)
            case _:
                yield Token("word", text.casefold(), text)


@lru_cache(maxsize=_REMEMBERED_WORDS)
def _name_tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a word, or of words that are joined."""
    return tuple(_split_name(text))


def _split_name(text: str) -> Iterator[Token]:
    if (amount := _AMOUNT.fullmatch(text)) and amount[2].casefold() in load_words().units:
        yield Token("number", amount[1], amount[1])
        yield Token("word", amount[2].casefold(), amount[2])
        return
    if _FILE_NAME.fullmatch(text) and "." in text and not _is_abbreviation(text):
        yield Token("path", text.casefold(), text)
    elif _is_identifier(text):
        yield Token("identifier", text.casefold().replace("::", ".").replace("->", ".").replace("#", "."), text)
    else:
        text = _ENGLISH_NOT.sub(" not", text.replace("cannot", "can not"))
        for part in re.split(r"[\s.'\u2019-]+|->|::", text):
            if part:
                yield Token("word", part.casefold(), part)


def _is_identifier(text: str) -> bool:
    is_joined = any(sign in text for sign in ("_", "::", "->", "#")) or ("." in text and not _is_abbreviation(text))
    has_digit = any(letter.isdigit() for letter in text)
    return is_joined or has_digit or _CAMEL.search(text) is not None


def _is_abbreviation(text: str) -> bool:
    return all(len(part) == 1 for part in text.split("."))


def _word(raw: Token, *, is_first: bool) -> Token:
    words = load_words()
    if raw.value in words.negations:
        return Token("negation", raw.value, raw.text)
    if raw.value in words.fillers:
        return Token("filler", raw.value, raw.text)
    if not is_first and raw.text[:1].isupper():
        return Token("name", _stem(raw.value), raw.text)
    return Token("word", _stem(raw.value), raw.text)


@lru_cache(maxsize=_REMEMBERED_WORDS)
def _stem(word: str) -> str:
    return _ENDING.sub("", word) if len(word) > 4 else word


def _number_value(text: str) -> float | str | None:
    """The number, or its text where it is a time or too long for one."""
    if ":" in text or text.count("-") > 1 or len(text) > _LONGEST_NUMBER:
        return text
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return text


def _amount(value: float | str, text: str, unit: tuple[str, float] | None) -> Token:
    """The number in the first unit of its kind. Without a unit, 4.10 is not 4.1: it may be a version."""
    if unit is None and "." in text:
        value = text.removeprefix("+")
    name, factor = unit or ("", 1)
    size = value if isinstance(value, str) else f"{round(value * factor, 9):.15g}"
    return Token("number", f"{size}{name}", text)
