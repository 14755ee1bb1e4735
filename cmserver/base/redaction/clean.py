"""Makes a decoded JSON value fit to be stored: no NUL, no lone surrogate, nothing private, no secret, no endless text.

Runs for every event. A value without anything suspicious is looked at once and given back as it is.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import cast

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.base.redaction import private, secret_rules
from cmserver.base.redaction.redact import take_private, take_private_items, take_secrets, take_secrets_from_ends
from cmserver.base.redaction.secret_rules import RULES, Rule, is_assigned_secret, kind_of_name, may_find
from cmserver.base.text import UNSTORABLE, storable

MAX_DEPTH = 64
"""So many objects and arrays may stand in one another."""

LARGE_BYTES = 200_000
"""To clean more than this on the event loop would be felt by others."""

_NOTE_CHARS = 60
_SHORTEST = len("pwd=abcd")
_SHORTEST_TOKEN = len("AKIA") + 16
_BOM = b"\xef\xbb\xbf"


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON value that jsonb takes, and what was done to it.

    `redactions` counts by kind, `context` being what tools had put in; `replaced` counts characters; `trimmed` counts texts.
    """

    value: object
    replaced: int = 0
    redactions: dict[str, int] = {}
    trimmed: int = 0


def decode_json(body: bytes) -> object:
    """Any JSON text. Bytes that are no UTF-8 and escaped lone surrogates come out as lone surrogates, for `clean`.

    Invalid says where the text is no JSON, or what it has that cannot be stored (NaN, numbers beyond all bounds).
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = body.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise Invalid("The body is empty. Send a JSON value.") from None
        raise Invalid(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except ValueError:
        raise Invalid("The body has a number with too many digits. Send it as a text.") from None


async def clean_aside(value: object, *, field_max_chars: int, size_bytes: int, at: str = "$") -> Cleaned:
    """As `clean`, but what is large (as JSON) in a thread: hostile megabytes take seconds, in which others are served."""
    if size_bytes < LARGE_BYTES:
        return clean(value, field_max_chars=field_max_chars, at=at)
    return await asyncio.to_thread(clean, value, field_max_chars=field_max_chars, at=at)


def clean(value: object, *, field_max_chars: int, at: str = "$") -> Cleaned:
    """Invalid (with the path, which begins with `at`) for more than MAX_DEPTH levels and for NaN or infinite numbers.

    Texts, keys included, longer than `field_max_chars` keep 60 % at their beginning and 30 % at their end. Cleaning what
    is clean changes nothing.
    """
    texts: list[str] = []
    names: list[str] = []
    if not _survey(value, MAX_DEPTH, texts, names):
        raise _refusal(value, at)
    texts += names
    long = max(map(len, texts), default=0) > field_max_chars
    together = "\n".join([text for text in texts if len(text) <= field_max_chars] if long else texts)
    rules = secret_rules.suspects(together)
    has_private = long or private.may_be_in(together)
    storable = not long and _is_storable(together)
    if storable and not has_private:
        # No pattern misses in the texts together what it finds in one of them.
        found = bool(rules) and (any(secret_rules.find(together, rules)) or any(map(_kind_of_key, names)))
        if not found:
            return Cleaned(value=value)
    cleaner = _Cleaner(field_max_chars, rules, has_private=has_private, storable=storable)
    return Cleaned(value=cleaner.value(value), replaced=cleaner.replaced, redactions=cleaner.redactions, trimmed=cleaner.trimmed)


_ONLY_TEXTS: set[type] = {str}
_SIMPLE: set[type] = {str, int, bool, type(None)}


def _survey(value: object, levels: int, texts: list[str], names: list[str]) -> bool:
    """Gather all texts, and the names of all members; False when it is too deep or has a number that is none."""
    if not isinstance(value, (dict, list)):
        value, levels = [value], levels + 1
    inner_values = _inner_values(cast("dict[str, object] | list[object]", value), names)
    if levels == 0:
        return False
    kinds = set(map(type, inner_values))
    if kinds == _ONLY_TEXTS:  # the lines of a patch, most often: no loop of ours
        texts.extend(cast("list[str]", inner_values))
        return True
    if str in kinds:
        texts.extend(inner for inner in inner_values if isinstance(inner, str))
    if kinds <= _SIMPLE:
        return True
    for inner in inner_values:
        kind = type(inner)
        if kind is dict or kind is list:
            if not _survey(inner, levels - 1, texts, names):
                return False
        elif kind not in _SIMPLE and not _is_plain(inner):
            return False
    return True


def _inner_values(value: dict[str, object] | list[object], names: list[str]) -> list[object]:
    if isinstance(value, list):
        return value
    names.extend(value)
    return list(value.values())


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if value is None or isinstance(value, int):
        return True
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _is_storable(text: str) -> bool:
    if "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Cleaner:
    """One pass over one value, with what it has counted."""

    def __init__(self, limit: int, rules: Sequence[Rule], *, has_private: bool, storable: bool) -> None:
        self._limit = limit
        self._rules = rules
        self._has_private = has_private
        self._storable = storable
        self.replaced = 0
        self.redactions: dict[str, int] = {}
        self.trimmed = 0

    def value(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._dict(cast("dict[str, object]", value))
        if isinstance(value, list):
            return self._list(cast("list[object]", value))
        return value

    def _dict(self, source: dict[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for name, inner in source.items():
            key = name if len(name) < _SHORTEST_TOKEN and name.isidentifier() else self._text(name)
            value = self.value(inner)
            if isinstance(value, str) and (kind := _kind_of_key(name)) and is_assigned_secret(kind, value, explicit=True):
                value = f"[redacted:{kind}]"
                self.redactions[kind] = self.redactions.get(kind, 0) + 1
            if key in result:  # two that differed only in what was taken out
                number = len(result) + 1
                while f"{key} ({number})" in result:
                    number += 1
                key = f"{key} ({number})"
            result[key] = value
        return result

    def _list(self, items: list[object]) -> list[object]:
        if self._has_private and len(items) > 1:
            runs = [(is_text, list(run)) for is_text, run in groupby(items, lambda item: isinstance(item, str))]
            items = [item for is_text, run in runs for item in (self._lines(cast("list[str]", run)) if is_text else run)]
        return [self.value(item) for item in items]

    def _lines(self, lines: list[str]) -> list[str]:
        if len(lines) == 1 or not private.may_be_in("\n".join(lines)):
            return lines
        return [
            line if line == before else take_secrets(line, RULES, self.redactions)
            for before, line in zip(lines, take_private_items(lines, self.redactions), strict=True)
        ]

    def _text(self, text: str) -> str:
        if not self._storable and not _is_storable(text):
            self.replaced += len(UNSTORABLE.findall(text))
            text = storable(text)
        rules = self._rules
        if self._has_private and (less := take_private(text, self.redactions)) != text:
            text, rules = less, RULES  # what was apart may now stand together
        if len(text) > self._limit:
            return self._trim(text)
        if rules and len(text) >= _SHORTEST and may_find(text, rules):
            text = take_secrets(text, rules, self.redactions)
            return self._trim(text) if len(text) > self._limit else text
        return text

    def _trim(self, text: str) -> str:
        self.trimmed += 1
        for _ in range(4):  # marks may be longer than what they stand for, so once may not be enough
            room = max(self._limit - _NOTE_CHARS, 0)
            head, tail = min(self._limit * 6 // 10, room * 2 // 3), min(self._limit * 3 // 10, room // 3)
            left_out = f"\n[... {len(text) - head - tail:,} characters left out ...]\n"
            front, back = take_secrets_from_ends(text, head, tail, RULES, self.redactions)
            text = take_secrets(front + left_out + back, RULES, self.redactions)
            if len(text) <= self._limit:
                return text
        return text[: self._limit]


def _kind_of_key(key: str) -> str | None:
    return _remembered_kind(key[-64:])


@functools.lru_cache(maxsize=2048)
def _remembered_kind(key: str) -> str | None:
    return kind_of_name(key)


def _refusal(value: object, at: str) -> Invalid:
    """Found again, with the path: `_survey` does not spend time on paths."""
    path, what = _locate(value, at, MAX_DEPTH) or (at, "cannot be stored")
    path = storable(path)
    return Invalid(f"The value at {path} {what}.", [Issue(path, what)])


def _locate(value: object, path: str, levels: int) -> tuple[str, str] | None:
    if isinstance(value, float) and not math.isfinite(value):
        return path, "is no finite number; send null or a text"
    if not isinstance(value, dict | list):
        return None
    if levels == 0:
        return path, f"lies deeper than {MAX_DEPTH} levels; send it as a text"
    if isinstance(value, dict):
        steps = ((f"{path}.{key}", inner) for key, inner in cast("dict[str, object]", value).items())
    else:
        steps = ((f"{path}[{index}]", inner) for index, inner in enumerate(cast("list[object]", value)))
    found = (_locate(inner, inner_path, levels - 1) for inner_path, inner in steps)
    return next(filter(None, found), None)


def _too_deep() -> Invalid:
    return Invalid(f"The body is nested too deeply. At most {MAX_DEPTH} levels of objects and arrays are accepted.")


def _refuse_number(name: str) -> object:
    raise Invalid(f"The body has the number {name}, which JSON does not know. Send null or a text.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"The body has the number {text[:40]}, which is too large. Send it as a text.")
    return number
