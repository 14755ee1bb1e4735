"""Finds JSON values in any text: whole, damaged, cut off, or with prose between them.

msgspec and json stop at the first error. jiter's partial mode reads what was cut off, but refuses everything for a line break in a
string, a trailing comma, a lone surrogate or a long number, drops what follows an unescaped quote, and does not say where a value
ends. This reader keeps its own stack and only moves forward, so its work grows linearly with the text.
"""

from __future__ import annotations

import json
import re

import msgspec

_START = re.compile(
    r'\{(?=\s*+["}])|\[(?=\s*+\{)|<(/?)(?:think|thinking|thought|reasoning|reflection|analysis|scratchpad)\s*+>', re.IGNORECASE
)
_MARK = re.compile(r'[\s,]*+(?:([{}\[\]"])|([\w.+-]++)|[^\s,{}\[\]"\w.+-]++)')
_STRING = re.compile(r'[^"\\]*+(?>(?:\\.[^"\\]*+)*)', re.DOTALL)
_KEY_ENDS = re.compile(r'"(?=\s*+(?:\Z|[:,}\]]))')
_TEXT_ENDS = re.compile(
    r'"(?=\s*+(?:\Z|[}\]]|,\s*+(?:\Z|["{\[}\]]|-?\d|[A-Za-z_]\w*+\s*+:|true\b|false\b|null\b))|[^\S\r\n]*+[\r\n]\s*+")'
)
_COLON = re.compile(r"\s*+:")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt])|)')
_HALF_ESCAPE = re.compile(r"((?>(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*))\\(?:u[0-9a-fA-F]{0,3})?", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, object] = {"null": None, "None": None, "true": True, "false": False, "True": True, "False": False}
_MAX_DEPTH = 60
_MAX_NUMBER_CHARS = 40


class JsonObject(msgspec.Struct, gc=False):
    """A JSON object with its keys in order, repeated ones included."""

    pairs: list[tuple[str, object]]


class JsonValue(msgspec.Struct, frozen=True, gc=False):
    """A value and its position. Numbers are strings."""

    value: object
    start: int
    end: int


def find_json_values(text: str) -> list[JsonValue]:
    """The outermost objects and arrays of a text. Those in a model's thoughts (`<think>` and the like) are left out."""
    values = list[JsonValue]()
    at = 0
    closing = dict[str, int]()
    while (start := _START.search(text, at)) is not None:
        at = start.end()
        if start[0][0] != "<":
            value, at = _Reader(text).read(start.start())
            values.append(JsonValue(value, start.start(), at))
        elif start[1]:
            values.clear()  # thoughts without an opening tag
        else:
            name = f"</{start[0][1:].rstrip('>').strip()}>"
            if closing.get(name, 0) >= 0:
                closing[name] = text.find(name, at)
                at = max(at, closing[name])
    return values


class _Reader:
    """Reads one value; skips what it does not understand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[JsonObject | list[object]] = []
        self._keys: list[str | None] = []
        self._result: object = None

    def read(self, start: int) -> tuple[object, int]:
        """Read the value that begins at `start`; returns it, as far as it goes, and where it ends."""
        at = start
        while (mark := _MARK.match(self._text, at)) is not None:
            at = mark.end()
            sign = mark[1]
            if sign in {"{", "["}:
                if len(self._open) == _MAX_DEPTH:
                    break
                self._begin(JsonObject([]) if sign == "{" else [])
            elif sign in {"}", "]"}:
                self._open.pop()
                self._keys.pop()
                if not self._open:
                    break
            elif sign == '"':
                text, at = self._string(at)
                if self._wants_key():
                    self._keys[-1] = text
                else:
                    self._add(text)
            elif mark[2]:
                self._add_literal(mark[2], at)
        return self._result, at

    def _begin(self, container: JsonObject | list[object]) -> None:
        if self._open:
            self._add(container)
        else:
            self._result = container
        self._open.append(container)
        self._keys.append(None)

    def _wants_key(self) -> bool:
        return isinstance(self._open[-1], JsonObject) and self._keys[-1] is None

    def _add_literal(self, word: str, end: int) -> None:
        if not self._wants_key():
            self._add(_LITERALS[word] if word in _LITERALS else word[:_MAX_NUMBER_CHARS])
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
        """Read up to the closing quote. What follows a quote tells whether it closes the string or was left unescaped inside."""
        ends = _KEY_ENDS if self._wants_key() else _TEXT_ENDS
        at = start
        while True:
            body = _STRING.match(self._text, at)
            at = body.end() if body else at
            if at >= len(self._text) or self._text[at] == "\\":
                half = _HALF_ESCAPE.fullmatch(self._text, start)
                return _unescape(half[1] if half else self._text[start:at]), len(self._text)
            if ends.match(self._text, at):
                return _unescape(self._text[start:at]), at + 1
            at += 1


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return json.loads(f'"{raw}"', strict=False)
    except ValueError:
        return _ESCAPE.sub(_unescape_match, raw)


def _unescape_match(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPES.get(match[2], match[2]) if match[2] else match[0]
