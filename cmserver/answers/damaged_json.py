"""Finds JSON values in any text: whole, damaged, cut off, or with prose between them.

msgspec and json stop at the first error. jiter's partial mode refuses everything for a line break in a string or a trailing comma.
json-repair (0.64) keeps only the last of several values, and of two equal keys, and its work grows with the square of a list
without commas. This reader keeps its own stack and only moves forward, so its work grows linearly with the text.
"""

from __future__ import annotations

import re

import msgspec

_START = re.compile(
    r'\{(?=\s*+["}])|\[(?=\s*+\{)|<(/?)(?:think|thinking|thought|reasoning|reflection|analysis|scratchpad)\s*+>', re.IGNORECASE
)
_MARK = re.compile(r'[\s,]*+(?:([{}\[\]"])|([\w.+-]++)|[^\s,{}\[\]"\w.+-]++)')
_STRING = re.compile(r'[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', re.DOTALL)
_KEY_ENDS = re.compile(r"\s*+(?:\Z|[:,}\]])")
_TEXT_ENDS = re.compile(
    r'\s*+(?:\Z|[}\]]|,\s*+(?:\Z|["{\[}\]]|-?\d|[A-Za-z_]\w*+\s*+:|true\b|false\b|null\b))|[^\S\r\n]*+[\r\n]\s*+"'
)
_COLON = re.compile(r"\s*+:")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt])|u?[0-9a-fA-F]{0,3}(\Z)|)')
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
        self._key: str | None = None
        """Of the innermost object, where its value is still to come."""
        self._result: object = None

    def read(self, at: int) -> tuple[object, int]:
        """Read the value that begins there; returns it, as far as it goes, and where it ends."""
        while (mark := _MARK.match(self._text, at)) is not None:
            at = mark.end()
            sign, wants_key = mark[1], bool(self._open) and isinstance(self._open[-1], JsonObject) and self._key is None
            if sign == '"':
                text, at = self._read_string(at, _KEY_ENDS if wants_key else _TEXT_ENDS)
                self._add(text, is_key=wants_key)
            elif sign in {"}", "]"}:
                self._open.pop()
                self._key = None
                if not self._open:
                    break
            elif sign:
                if len(self._open) == _MAX_DEPTH:
                    break
                self._begin(JsonObject([]) if sign == "{" else [])
            elif mark[2] and not wants_key:
                self._add(_LITERALS.get(mark[2], mark[2][:_MAX_NUMBER_CHARS]))
            elif mark[2] and _COLON.match(self._text, at):
                self._add(mark[2], is_key=True)
        return self._result, at

    def _begin(self, container: JsonObject | list[object]) -> None:
        if self._open:
            self._add(container)
        else:
            self._result = container
        self._open.append(container)
        self._key = None

    def _add(self, value: object, *, is_key: bool = False) -> None:
        container = self._open[-1]
        if is_key:
            self._key = str(value)
        elif isinstance(container, list):
            container.append(value)
        elif self._key is not None:
            container.pairs.append((self._key, value))
            self._key = None

    def _read_string(self, start: int, ends: re.Pattern[str]) -> tuple[str, int]:
        """Read up to the closing quote. What follows a quote tells whether it closes the string or was left unescaped inside."""
        at = start
        while (body := _STRING.match(self._text, at)) is not None:
            at = body.end()
            if ends.match(self._text, at):
                return _unescape(self._text[start : at - 1]), at
        return _unescape(self._text[start:]), len(self._text)


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    # UTF-16 joins the two halves of a character.
    return _ESCAPE.sub(_unescape_match, raw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape_match(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return _ESCAPES.get(match[2], match[2])
    return "" if match[3] is not None else match[0]
