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
from cmserver.observations.history.model import Snapshot
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
_FILE_NAME = re.compile(r"[\w-]*\w(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,6}")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_ENGLISH_NOT = re.compile(r"(?<=n)['\u2019]t$")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_REMEMBERED_WORDS = 20_000
"""How many words are kept for the next text: texts of one project share most of them."""


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of words.toml."""

    negations: frozenset[str]
    fillers: frozenset[str]
    temporary: frozenset[str]
    changes: frozenset[str]
    opposites: list[tuple[list[str], list[str]]]


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


def compared_text(observation: ManualObservation | Observation | Snapshot) -> str:
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
    for place, raw in enumerate(_raw_tokens(sentence)):
        yield _word(raw, is_first=place == 0) if raw.kind == "word" else raw


def _raw_tokens(sentence: str) -> Iterator[Token]:
    """The tokens as they stand."""
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
