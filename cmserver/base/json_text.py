"""Decodes JSON that others send: any JSON text, also with characters that cannot be stored; refusals are sentences."""

from __future__ import annotations

import json
import math
import re
from typing import cast

import msgspec

from cmserver.base.errors import Invalid, TooLarge

MAX_DEPTH = 64
"""Levels of objects and arrays."""

_MAX_DIGITS = 300
_STRING_PART = re.compile(rb'(?>(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*)')
_UNFINISHED = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z")
"""The first bytes of a character whose others are to come."""
_PLAIN = re.compile(rb'(?>(?:[^"\[\]{}]++|"(?>(?:[^"\\]++|\\.)*)")*)', re.DOTALL)
"""What has no brackets, and whole strings."""
_MAX_BRACKETS = 1_000_000
"""In a text that is cut: looking at each costs half a microsecond."""
_BOM = b"\xef\xbb\xbf"


class TooDeep(Invalid):
    """A JSON text has more levels than can be read."""


def decode_json(body: bytes, *, keeps_all: bool = False, max_depth: int = MAX_DEPTH) -> object:
    """Any JSON text. Bytes that are no UTF-8 and escaped lone surrogates come out as lone surrogates, for
    `redaction.clean`.

    Invalid says where the text is no JSON, or what it has that cannot be stored (NaN, numbers beyond all bounds). With `keeps_all`
    such a value, and what lies deeper than `max_depth` levels, becomes a text; TooDeep for more levels than can be read.
    """
    value = _decode(body, keeps_all=keeps_all)
    may_be_deep = keeps_all and body.count(b"{") + body.count(b"[") > max_depth
    return _flatten(value, max_depth) if may_be_deep else value


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


class JsonCutter:
    """Leaves out of a JSON text that arrives in parts what is too much of it, with a note of how much that was.

    It cuts strings after `max_string_bytes`, and replaces by a text what lies deeper than MAX_DEPTH levels, and an object or array
    of the outermost object that is larger than `max_member_bytes`. TooLarge for a text of too many objects and arrays.
    """

    def __init__(self, max_string_bytes: int, max_member_bytes: int) -> None:
        self._strings = _StringCutter(max_string_bytes)
        self._levels = _LevelCutter(max_member_bytes)

    def cut(self, part: bytes) -> bytes:
        """The part, shortened; what is unfinished in it may wait for the next part."""
        return self._levels.cut(self._strings.cut(part))

    def end(self) -> bytes:
        """What still waits; not empty only for a text that is no JSON."""
        return self._levels.cut(self._strings.rest) + self._levels.rest


class _LevelCutter:
    """Replaces objects and arrays that are too deep, or too large; the text comes in parts, with short strings."""

    def __init__(self, max_member_bytes: int) -> None:
        self._max_member_bytes = max_member_bytes
        self._depth = self._bracket_count = 0
        self._member: list[bytes] | None = None
        """What came of the object or array of the outermost object, while it may still be left out."""
        self._member_bytes = self._left_out_bytes = 0
        self._left_out_depth: int | None = None
        """How deep the object or array begins that is being left out."""
        self.rest = b""

    def cut(self, part: bytes) -> bytes:
        if not part:
            return b""
        part, self.rest = self.rest + part, b""
        kept: list[bytes] = []
        at = 0
        while at < len(part):
            end = cast("re.Match[bytes]", _PLAIN.match(part, at)).end()
            self._add(kept, part[at:end])
            sign = part[end : end + 1]
            if sign == b'"':  # a string goes on in the next part
                self.rest = part[end:]
                break
            if sign in (b"{", b"["):
                self._open(kept, sign)
            elif sign:
                self._close(kept, sign)
            at = end + 1
        return b"".join(kept)

    def _open(self, kept: list[bytes], sign: bytes) -> None:
        self._bracket_count += 1
        if self._bracket_count > _MAX_BRACKETS:
            raise TooLarge(f"The body is too large, and has more than {_MAX_BRACKETS:,} objects and arrays.")
        if self._left_out_depth is None and self._depth == MAX_DEPTH:
            self._left_out_depth, self._left_out_bytes = self._depth, 0
        elif self._depth == 1:
            self._member, self._member_bytes = [], 0
        self._depth += 1
        self._add(kept, sign)

    def _close(self, kept: list[bytes], sign: bytes) -> None:
        self._add(kept, sign)
        self._depth -= 1
        if self._depth == self._left_out_depth:
            self._left_out_depth = None
            self._add(kept, b'"[... %d bytes left out ...]"' % self._left_out_bytes)
        if self._depth == 1 and self._member is not None:
            kept += self._member
            self._member = None

    def _add(self, kept: list[bytes], piece: bytes) -> None:
        if self._left_out_depth is not None:
            self._left_out_bytes += len(piece)
        elif self._member is None:
            kept.append(piece)
        else:
            self._member.append(piece)
            self._member_bytes += len(piece)
            if self._member_bytes > self._max_member_bytes:
                self._left_out_depth, self._left_out_bytes, self._member = 1, self._member_bytes, None


class _StringCutter:
    """Cuts strings. What comes behind is left out whole: a passage that is to be hidden may have begun in what was cut."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._short = re.compile(rb'(?>(?:[^"]*+"(?>(?:[^"\\]|\\.){0,%d})")*)' % (max_bytes // 2), re.DOTALL)
        """Whole strings that are surely short enough, and what is between them."""
        self.rest = b""
        """An unfinished escape or character, which waits for the next part."""
        self._in_string = False
        self._kept = self._cut = self._cut_lines = 0

    def cut(self, part: bytes) -> bytes:
        part = self.rest + part
        unfinished = _UNFINISHED.search(part, max(0, len(part) - 3))
        part, self.rest = (part[: unfinished.start()], unfinished[0]) if unfinished else (part, b"")
        pieces: list[bytes] = []
        at = 0
        while at < len(part):
            if not self._in_string:
                end = cast("re.Match[bytes]", self._short.match(part, at)).end()
                opened = part.find(b'"', end) + 1
                end = opened or len(part)
                pieces.append(part[at:end])
                self._in_string = opened > 0
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
                self.rest = part[end:] + self.rest
                break
            if end < len(part):
                pieces += [b"%s" % self._note() if self._cut else b"", b'"']
                self._in_string = False
                end += 1
            at = end
        return b"".join(pieces)

    def _note(self) -> bytes:
        return b"\\n[... %d characters in %d lines left out ...]\\n" % (self._cut, self._cut_lines)

    @staticmethod
    def _end(part: bytes, at: int, most: int) -> int:
        return found.end() if (found := _STRING_PART.match(part, at, most)) else at


def _too_deep() -> TooDeep:
    return TooDeep(f"The body is nested too deeply. At most {MAX_DEPTH} levels of objects and arrays are accepted.")


def _refuse_number(name: str) -> object:
    raise Invalid(f"The body has the number {name}, which JSON does not know. Send null or a text.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"The body has the number {text[:40]}, which is too large. Send it as a text.")
    return number
