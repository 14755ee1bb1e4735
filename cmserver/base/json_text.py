"""Decodes JSON that others send: any JSON text, also with characters that cannot be stored; refusals are sentences."""

from __future__ import annotations

import json
import math
import re
from typing import cast

import msgspec

from cmserver.base.errors import Invalid

MAX_DEPTH = 64
"""Levels of objects and arrays."""

_MAX_DIGITS = 300
_STRING_PART = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
_UNFINISHED = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z")
"""The first bytes of a character whose others are to come."""
_BOM = b"\xef\xbb\xbf"


def decode_json(body: bytes, *, keeps_all: bool = False) -> object:
    """Any JSON text. Bytes that are no UTF-8 and escaped lone surrogates come out as lone surrogates, for
    `redaction.clean`.

    Invalid says where the text is no JSON, or what it has that cannot be stored (NaN, numbers beyond all bounds). With `keeps_all`
    such a value, and what lies deeper than MAX_DEPTH levels, becomes a text.
    """
    value = _decode(body, keeps_all=keeps_all)
    may_be_deep = keeps_all and body.count(b"{") + body.count(b"[") > MAX_DEPTH
    return _flatten(value, MAX_DEPTH) if may_be_deep else value


def _decode(body: bytes, *, keeps_all: bool) -> object:
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = body.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    try:
        if keeps_all:
            return json.loads(text, parse_constant=str, parse_float=_float_or_text, parse_int=_int_or_text)
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise Invalid("The body is empty. Send a JSON value.") from None
        raise Invalid(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except ValueError:
        raise Invalid("The body has a number with too many digits. Send it as a text.") from None


def _float_or_text(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


def _int_or_text(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS else text


def _flatten(value: object, levels: int) -> object:
    """The value with what lies deeper than so many levels as JSON text."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        try:
            return json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return "[too deep]"
    if isinstance(value, dict):
        return {name: _flatten(inner, levels - 1) for name, inner in cast("dict[str, object]", value).items()}
    return [_flatten(inner, levels - 1) for inner in cast("list[object]", value)]


class StringCutter:
    """Cuts the long strings of a JSON text that arrives in parts, each after `max_bytes`, with a note of what is left out.

    What comes behind is left out whole: a passage that is to be hidden may have begun in what was cut.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._in_string = False
        self._kept = self._cut = self._cut_lines = 0

    def cut(self, part: bytes) -> bytes:
        """The part, shortened; an unfinished escape or character waits for the next part."""
        part = self._rest + part
        unfinished = _UNFINISHED.search(part, max(0, len(part) - 3))
        part, self._rest = (part[: unfinished.start()], unfinished[0]) if unfinished else (part, b"")
        pieces: list[bytes] = []
        at = 0
        while at < len(part):
            if not self._in_string:
                end = part.find(b'"', at) + 1 or len(part)
                pieces.append(part[at:end])
                self._in_string = part[end - 1 : end] == b'"'
                self._kept = self._cut = self._cut_lines = 0
                at = end
                continue
            end = self._end(part, at, len(part))
            kept_end = self._end(part, at, min(end, at + max(0, self._max_bytes - self._kept)))
            while at < kept_end < end and part[kept_end] & 0xC0 == 0x80:  # in the middle of a character
                kept_end -= 1
            pieces.append(part[at:kept_end])
            self._kept += kept_end - at
            self._cut += end - kept_end
            self._cut_lines += part.count(b"\\n", kept_end, end)
            if end < len(part) and part[end : end + 1] != b'"':
                self._rest = part[end:] + self._rest
                break
            if end < len(part):
                pieces += [b"%s" % self._note() if self._cut else b"", b'"']
                self._in_string = False
                end += 1
            at = end
        return b"".join(pieces)

    def end(self) -> bytes:
        """What still waits; not empty only for a text that is no JSON."""
        return self._rest

    def _note(self) -> bytes:
        return b"\\n[... %d characters in %d lines left out ...]\\n" % (self._cut, self._cut_lines)

    @staticmethod
    def _end(part: bytes, at: int, most: int) -> int:
        return found.end() if (found := _STRING_PART.match(part, at, most)) else at


def _too_deep() -> Invalid:
    return Invalid(f"The body is nested too deeply. At most {MAX_DEPTH} levels of objects and arrays are accepted.")


def _refuse_number(name: str) -> object:
    raise Invalid(f"The body has the number {name}, which JSON does not know. Send null or a text.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"The body has the number {text[:40]}, which is too large. Send it as a text.")
    return number
