"""JSON values out of any text: whole, damaged, cut off, or one after the other with prose in between.

Our own reader for what the libraries refuse. msgspec and json stop at the first error. jiter's partial mode reads what was cut off,
but refuses all of it for one line break in a string, one comma too many, one lone surrogate or one long number, drops what comes
behind an unescaped quote, and does not say where a value ends. This one has a stack of its own, and goes forward only.
"""

from __future__ import annotations

import json
import re

import msgspec

_BEGINNING = re.compile(
    r'\{(?=\s*+["}])|\[(?=\s*+\{)|<(/?)(?:think|thinking|thought|reasoning|reflection|analysis|scratchpad)\s*+>', re.IGNORECASE
)
_MARK = re.compile(r'[\s,]*+(?:([{}\[\]"])|([\w.+-]++)|[^\s,{}\[\]"\w.+-]++)')
_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_KEY_ENDS = re.compile(r'"(?=\s*+(?:\Z|[:,}\]]))')
_TEXT_ENDS = re.compile(
    r'"(?=\s*+(?:\Z|[}\]]|,\s*+(?:\Z|["{\[}\]]|-?\d|[A-Za-z_]\w*+\s*+:|true\b|false\b|null\b))|[^\S\r\n]*+[\r\n]\s*+")'
)
_COLON = re.compile(r"\s*+:")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt])|)')
_HALF_ESCAPE = re.compile(r"((?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*+)\\(?:u[0-9a-fA-F]{0,3})?", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, object] = {"null": None, "None": None, "true": True, "false": False, "True": True, "False": False}
_DEPTH = 60
_NUMBER_MOST = 40


class Object(msgspec.Struct, gc=False):
    """A JSON object with its keys as they came, twice if they came twice."""

    pairs: list[tuple[str, object]]


class Found(msgspec.Struct, frozen=True, gc=False):
    """A value, and where it stands. Numbers are texts."""

    value: object
    start: int
    end: int


def values(text: str) -> list[Found]:
    """The objects and arrays of a text, outermost ones only. Thoughts before them are no part of it."""
    found = list[Found]()
    at = 0
    closing = dict[str, int]()
    while (start := _BEGINNING.search(text, at)) is not None:
        at = start.end()
        if start[0][0] != "<":
            value, at = _Reader(text).read(start.start())
            found.append(Found(value, start.start(), at))
        elif start[1]:
            found.clear()  # thoughts without an opening tag
        else:
            name = f"</{start[0][1:].rstrip('>').strip()}>"
            if closing.get(name, 0) >= 0:
                closing[name] = text.find(name, at)
                at = max(at, closing[name])
    return found


class _Reader:
    """Reads one value. What it cannot make sense of it steps over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[Object | list[object]] = []
        self._keys: list[str | None] = []
        self._result: object = None

    def read(self, start: int) -> tuple[object, int]:
        at = start
        while (mark := _MARK.match(self._text, at)) is not None:
            at = mark.end()
            sign = mark[1]
            if sign in {"{", "["}:
                if len(self._open) == _DEPTH:
                    break
                self._begin(Object([]) if sign == "{" else [])
            elif sign in {"}", "]"}:
                self._end()
                if not self._open:
                    break
            elif sign == '"':
                text, at = self._string(at)
                self._say(text, key=self._wants_key())
            elif mark[2]:
                self._say_word(mark[2], at)
        return self._result, at

    def _begin(self, container: Object | list[object]) -> None:
        if self._open:
            self._add(container)
        else:
            self._result = container
        self._open.append(container)
        self._keys.append(None)

    def _end(self) -> None:
        self._open.pop()
        self._keys.pop()

    def _wants_key(self) -> bool:
        return isinstance(self._open[-1], Object) and self._keys[-1] is None

    def _say(self, said: object, *, key: bool) -> None:
        if key:
            self._keys[-1] = str(said)
        else:
            self._add(said)

    def _say_word(self, word: str, end: int) -> None:
        if not self._wants_key():
            self._add(_WORDS[word] if word in _WORDS else word[:_NUMBER_MOST])
        elif _COLON.match(self._text, end):
            self._keys[-1] = word

    def _add(self, value: object) -> None:
        container = self._open[-1]
        if isinstance(container, list):
            container.append(value)
        elif (key := self._keys[-1]) is not None:
            container.pairs.append((key, value))
            self._keys[-1] = None

    def _string(self, start: int) -> tuple[str, int]:
        """To the quote that ends it: a quote inside that nobody escaped is followed by what follows no string."""
        ends = _KEY_ENDS if self._wants_key() else _TEXT_ENDS
        at = start
        while True:
            body = _STRING.match(self._text, at)
            at = body.end() if body else at
            if at >= len(self._text) or self._text[at] == "\\":
                half = _HALF_ESCAPE.fullmatch(self._text, start)
                return _unescaped(half[1] if half else self._text[start:at]), len(self._text)
            if ends.match(self._text, at):
                return _unescaped(self._text[start:at]), at + 1
            at += 1


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return json.loads(f'"{raw}"', strict=False)
    except ValueError:
        return _ESCAPE.sub(_character, raw)


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return _ESCAPES.get(found[2], found[2]) if found[2] else found[0]
