"""Removes unstorable characters, private spans, secrets and excess length from a decoded JSON value.

Runs for every event, so a value without anything suspicious is scanned once and returned as it is.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeVar, cast

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.base.fair_threads import FairThreads
from cmserver.base.json_text import MAX_DEPTH
from cmserver.base.shares import current_share
from cmserver.base.text import FIELD_MOST, UNSTORABLE, storable
from cmserver.redaction import places, private, secret_rules
from cmserver.redaction.named_values import classify_name
from cmserver.redaction.plausible import is_assigned_secret, is_login, is_mixed, is_passphrase, is_token_like
from cmserver.redaction.redact import (
    count_spans,
    may_change,
    redact,
    reveal_hidden,
    take_private,
    take_private_items,
    take_secrets,
    take_secrets_from_ends,
)
from cmserver.redaction.rule import WINDOW, Rule, has_match, lower, scan
from cmserver.redaction.secret_rules import RULES, may_find
from cmserver.redaction.spans import Span, merge, render, render_items

T = TypeVar("T")

LARGE_BYTES = 16_000
"""What a request of this size or more sends is cleaned in a thread: at its slowest, cleaning so much takes some 30 ms."""
_TICK_SECONDS = 0.01
"""So long the event loop cleans in one of its rounds; what comes in the same round after that is cleaned in a thread, too."""

_NOTE_CHARS = 90
_TELLING = re.compile(
    r"\b(?:error|fatal error|panic|exception|fatal)(?:\[\w+\])?:|\bFAIL(?:ED)?\b|\bTraceback \(|^E  +\S"
    r"|^\*\*\* (?:Add|Update|Delete) File: ",
    re.IGNORECASE | re.MULTILINE,
)
"""In lines that are kept of the middle of a long text: errors, and the files of a patch."""
_MAX_TELLING_LINES = 10
_MAX_LINE_CHARS = 200
_MIN_CHARS = len("pwd=abcd")
_MIN_TOKEN_CHARS = len("AKIA") + 16
_PART_CHARS = WINDOW

_VALUE_MEMBERS = frozenset(
    {"value", "Value", "VALUE", "parametervalue", "ParameterValue", "parameterValue", "defaultValue", "stringValue"}
)
_LABEL_MEMBERS = ("name", "Name", "NAME", "key", "Key", "ParameterKey", "parameterKey", "variable", "field", "header", "id")
_LOGIN_MEMBERS = frozenset({"auth", "_auth"})
_MANIFEST_MEMBER = "kind"
_MANIFEST_DATA_MEMBERS = frozenset({"data", "stringData"})
_COOKIE_MEMBERS = frozenset(
    {"cookie", "Cookie", "COOKIE", "cookies", "Cookies", "set-cookie", "Set-Cookie", "set_cookie", "setCookie", "HTTP_COOKIE"}
)
_SUSPICIOUS_MEMBERS = _VALUE_MEMBERS | _LOGIN_MEMBERS | _COOKIE_MEMBERS | {_MANIFEST_MEMBER, places.JWK_TYPE}
_HARMLESS_MEMBERS = frozenset({
    "type", "format", "description", "title", "pattern", "label", "placeholder", "help", "message", "hint", "example", "id",
    "name", "key", "user", "username", "login", "email", "account", "host", "url", "uri", "href", "endpoint", "path", "file",
    "ref", "algorithm", "alg", "version", "region", "created", "updated", "expires",
})  # fmt: skip
"""Members of a secret's object that are no secrets: the schema of a password, the user of a credential."""

_FLAG_ITEM = re.compile(r"\n-(?:[pPawUu]|-[a-z][a-z-]{2,40})(?:\n|[^\s]{0,200}\n)", re.ASCII)
_MAX_ARGUMENTS = 200
_MAX_ARGUMENT_CHARS = 2000
_MAX_NAME_CHARS = 64
_MIN_LONG_CHARS = 20
"""Names may mix letters and digits, too, but are shorter."""


class CleanJson(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON value that jsonb accepts. `redactions` counts by kind, `replaced` characters, and `trimmed` texts."""

    value: object
    replaced: int = 0
    redactions: dict[str, int] = {}
    trimmed: int = 0


class _Aside:
    """Runs what is quick at once, and the rest in a few threads, where teams take turns, and in a team its keys."""

    def __init__(self) -> None:
        self._threads = FairThreads(2, "clean")
        self._spent_seconds = 0.0
        """In this round of the event loop."""

    async def run(self, function: Callable[[], T], size_bytes: int) -> T:
        if size_bytes >= LARGE_BYTES or self._spent_seconds >= _TICK_SECONDS:
            share = current_share()
            team_id, holder = (share.team_id, share.holder) if share else (None, None)
            return await asyncio.wrap_future(self._threads.submit(team_id, function, member=holder))
        began = time.perf_counter()
        try:
            return function()
        finally:
            if not self._spent_seconds:
                asyncio.get_running_loop().call_soon(self._begin_round)
            self._spent_seconds += time.perf_counter() - began

    def _begin_round(self) -> None:
        self._spent_seconds = 0.0


_aside = _Aside()


async def run_aside(function: Callable[[], T], *, size_bytes: int) -> T:
    """The function's result for a request of so many bytes; computed in a thread when the event loop would wait for it."""
    return await _aside.run(function, size_bytes)


async def clean_aside(value: object, *, field_max_chars: int = FIELD_MOST, size_bytes: int, at: str = "$") -> CleanJson:
    """The cleaned value (see `clean`) of a request of so many bytes, by `run_aside`."""
    return await run_aside(lambda: clean(value, field_max_chars=field_max_chars, at=at), size_bytes=size_bytes)


def clean(value: object, *, field_max_chars: int = FIELD_MOST, at: str = "$") -> CleanJson:
    """Clean a value. Invalid (with a path that begins with `at`) for more than MAX_DEPTH levels, NaN and infinite numbers.

    Texts, keys included, longer than `field_max_chars` keep 60 % at their beginning and 30 % at their end. Cleaning what
    is clean changes nothing.
    """
    texts: list[str] = []
    names: list[str] = []
    huge: list[float] = []
    if not _survey(value, MAX_DEPTH, texts, names, huge):
        raise _describe_refusal(value, at)
    texts += names
    has_long_text = max(map(len, texts), default=0) > field_max_chars
    # No pattern misses in some texts together what it finds in one of them.
    parts = list(_join_texts([text for text in texts if len(text) <= field_max_chars] if has_long_text else texts))
    hides = has_long_text or any((plain := reveal_hidden(part.text)) is not None and may_change(plain) for part in parts)
    has_private = has_long_text or any(private.may_be_in(part.text, part.low) for part in parts)
    storable = not has_long_text and all(_is_storable(part.text) for part in parts)
    if storable and not has_private and not hides and not huge and not _may_find_secret(names, parts):
        return CleanJson(value=value)
    rules = RULES if hides else _unite_rules(parts)
    cleaner = _Cleaner(field_max_chars, rules, has_private=has_private or hides, hides=hides, storable=storable)
    cleaned = cleaner.clean_value(value)
    return CleanJson(value=cleaned, replaced=cleaner.replaced, redactions=cleaner.redactions, trimmed=cleaner.trimmed)


class _Part(NamedTuple):
    """Some of a value's texts in lines, the same after `lower`, and the rules that could find something in them."""

    text: str
    low: str
    rules: list[Rule]


def _join_texts(texts: list[str]) -> Iterator[_Part]:
    """The texts in parts of about _PART_CHARS: a search in one part holds the interpreter only for moments."""
    start = size = 0
    for place, text in enumerate(texts):
        if size > _PART_CHARS:
            yield _new_part("\n".join(["", *texts[start:place], ""]))
            start, size = place, 0
        size += len(text) + 1
    # An argument of a command is recognized by the lines around it, so a part that is not the only one has them at both ends.
    yield _new_part("\n".join(["", *texts[start:], ""] if start else texts))


def _new_part(text: str) -> _Part:
    low = lower(text)
    return _Part(text, low, secret_rules.select_rules(text, low))


def _unite_rules(parts: Sequence[_Part]) -> list[Rule]:
    if len(parts) == 1:
        return parts[0].rules
    chosen = {id(rule) for part in parts for rule in part.rules}
    return [rule for rule in RULES if id(rule) in chosen]


_ONLY_TEXTS: set[type] = {str}
_SIMPLE: set[type] = {str, int, bool, type(None)}


def _survey(value: object, levels: int, texts: list[str], names: list[str], huge: list[float]) -> bool:
    """Collect all texts, names of members and huge numbers; False for too deep values, NaN and infinity."""
    if not isinstance(value, (dict, list)):
        value, levels = [value], levels + 1
    inner_values = _inner_values(cast("dict[str, object] | list[object]", value), names)
    if levels == 0:
        return False
    kinds = set(map(type, inner_values))
    if kinds == _ONLY_TEXTS:  # mostly the lines of a patch; faster than a loop
        texts.extend(cast("list[str]", inner_values))
        return True
    if str in kinds:
        texts.extend(inner for inner in inner_values if isinstance(inner, str))
    if kinds <= _SIMPLE:
        return True
    for inner in inner_values:
        kind = type(inner)
        if kind is dict or kind is list:
            if not _survey(inner, levels - 1, texts, names, huge):
                return False
        elif kind not in _SIMPLE and not _is_plain(inner, huge):
            return False
    return True


def _inner_values(value: dict[str, object] | list[object], names: list[str]) -> list[object]:
    """The items, or the values of the members, whose names are added to `names`."""
    if isinstance(value, list):
        return value
    names.extend(value)
    return list(value.values())


def _has_many_digits_in_jsonb(value: float) -> bool:
    """Whether jsonb, which writes every digit, would make the number 50 times as long; then it is stored as text."""
    return not 1e-40 <= abs(value) <= 1e40 and value != 0


def _is_plain(value: object, huge: list[float]) -> bool:
    """Whether the value is a finite number or null; huge ones are added to `huge`. TypeError for what is no JSON value."""
    if isinstance(value, float):
        if _has_many_digits_in_jsonb(value):
            huge.append(value)
        return math.isfinite(value)
    if value is None or isinstance(value, int):
        return True
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _is_storable(text: str) -> bool:
    """Whether the text has neither NUL nor half of a surrogate pair."""
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
    """Cleans one value, and counts what it changed."""

    def __init__(self, limit: int, rules: Sequence[Rule], *, has_private: bool, hides: bool, storable: bool) -> None:
        self._limit = limit
        self._rules = rules
        self._has_private = has_private
        self._hides = hides
        self._storable = storable
        self.replaced = 0
        self.redactions: dict[str, int] = {}
        self.trimmed = 0

    def clean_value(self, value: object) -> object:
        """The value, cleaned with all that is in it. A float that jsonb would write with very many digits becomes text."""
        if isinstance(value, str):
            return self._clean_text(value)
        if isinstance(value, dict):
            return self._clean_dict(cast("dict[str, object]", value))
        if isinstance(value, list):
            return self._clean_list(cast("list[object]", value))
        return repr(value) if isinstance(value, float) and _has_many_digits_in_jsonb(value) else value

    def _clean_dict(self, source: dict[str, object]) -> dict[str, object]:
        return self._clean_names(source, [self._clean_member(source, name, inner) for name, inner in source.items()])

    def _clean_names(self, source: dict[str, object], values: Iterable[object]) -> dict[str, object]:
        """An object of these values under the names of `source`, which are cleaned, too."""
        result: dict[str, object] = {}
        numbers: dict[str, int] = {}
        for name, value in zip(source, values, strict=True):
            key = name if len(name) < _MIN_TOKEN_CHARS and name.isidentifier() else self._clean_text(name)
            if key in result:  # two names that differed only in what was removed
                number = numbers.get(key, 1) + 1
                while f"{key} ({number})" in result:
                    number += 1
                numbers[key] = number
                key = f"{key} ({number})"
            result[key] = value
        return result

    def _clean_member(self, source: dict[str, object], name: str, inner: object) -> object:
        if _holds_cookies(source, name):
            return self._clean_cookies(inner)
        if isinstance(inner, (dict, list)):
            if _is_manifest_data(source, name):
                return self._clean_beneath(cast("object", inner), "secret", certain=True)
            kind = _classify_member(name)
            return self._clean_beneath(cast("object", inner), kind) if kind else self.clean_value(cast("object", inner))
        value = self.clean_value(inner)
        kind = _classify_value(source, name, value)
        return self._mark(kind) if kind else value

    def _clean_beneath(self, value: object, kind: str, name: str | None = None, *, certain: bool = False) -> object:
        """Clean the value of a member named like a secret: whatever looks like one goes. `certain`: all but placeholders go."""
        if isinstance(value, str):
            text = self._clean_text(value)
            return self._mark(kind) if _is_secret_beneath(kind, name, text, certain=certain) else text
        if isinstance(value, dict):
            source = cast("dict[str, object]", value)
            return self._clean_names(source, [self._clean_member_beneath(source, kind, name, certain=certain) for name in source])
        if isinstance(value, list):
            return [self._clean_beneath(item, kind, certain=certain) for item in self._clean_runs(cast("list[object]", value))]
        return value

    def _clean_member_beneath(self, source: dict[str, object], kind: str, name: str, *, certain: bool) -> object:
        """Clean a member of an object that is named like a secret. Its own name decides first."""
        inner = source[name]
        if isinstance(inner, str) and (member_kind := _classify_value(source, name, self._clean_text(inner))):
            return self._mark(member_kind)
        return self._clean_beneath(inner, _classify_member(name) or kind, name, certain=certain)

    def _clean_cookies(self, value: object) -> object:
        """Clean one or several cookie headers, or an object of cookies, by name or with `name` and `value`."""
        if isinstance(value, str):
            text = self._clean_text(value)
            spans = merge(places.find_cookies(text, 0, len(text)))
            count_spans(spans, self.redactions)
            return render(text, spans)
        if isinstance(value, list):
            return [self._clean_cookies(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            source = cast("dict[str, object]", value)
            return self._clean_names(source, [self._clean_cookie(source, name) for name in source])
        return value

    def _clean_cookie(self, source: dict[str, object], name: str) -> object:
        inner, cookie = source[name], source.get("name") if name == "value" else name
        if isinstance(inner, str) and isinstance(cookie, str) and places.is_secret_cookie(cookie, inner):
            return self._mark("cookie")
        return self._clean_member(source, name, inner)

    def _mark(self, kind: str) -> str:
        self.redactions[kind] = self.redactions.get(kind, 0) + 1
        return f"[redacted:{kind}]"

    def _clean_list(self, items: list[object]) -> list[object]:
        return [self.clean_value(item) for item in self._clean_runs(items)]

    def _clean_runs(self, items: list[object]) -> list[object]:
        """Clean consecutive texts together; the other items are returned as they are."""
        if len(items) < 2 or not (self._has_private or self._rules):
            return items
        runs = [(is_text, list(run)) for is_text, run in groupby(items, lambda item: isinstance(item, str))]
        return [item for is_text, run in runs for item in (self._clean_texts(cast("list[str]", run)) if is_text else run)]

    def _clean_texts(self, texts: list[str]) -> list[str]:
        """Clean consecutive texts, which may be lines of one text or arguments of one command."""
        if self._has_private:
            texts = self._clean_lines(texts)
        spans = _find_in_arguments(texts) if self._rules else []
        if not spans:
            return texts
        count_spans(spans, self.redactions)
        return render_items(texts, spans)

    def _clean_lines(self, lines: list[str]) -> list[str]:
        """Remove private spans that begin in one line and end in another."""
        if len(lines) == 1 or not private.may_be_in("\n".join(lines)):
            return lines
        return [
            line if line == before else take_secrets(line, RULES, self.redactions)
            for before, line in zip(lines, take_private_items(lines, self.redactions), strict=True)
        ]

    def _clean_text(self, text: str) -> str:
        if not self._storable and not _is_storable(text):
            self.replaced += len(UNSTORABLE.findall(text))
            text = storable(text)
        if self._hides and (plain := reveal_hidden(text)) is not None and (len(text) > self._limit or redact(plain)[1]):
            text = plain
        rules = self._rules
        if self._has_private and (less := take_private(text, self.redactions)) != text:
            text, rules = less, RULES  # texts on both sides of a span are adjacent now
        if len(text) > self._limit:
            return self._trim(text)
        if rules and len(text) >= _MIN_CHARS and may_find(text, rules):
            text = take_secrets(text, rules, self.redactions)
            return self._trim(text) if len(text) > self._limit else text
        return text

    def _trim(self, text: str) -> str:
        """The head and the tail of a text that is too long, redacted, with a note in between."""
        self.trimmed += 1
        for _ in range(4):  # marks may be longer than the secrets, so once may not be enough
            room = max(self._limit - _NOTE_CHARS, 0)
            head, tail = min(self._limit * 6 // 10, room * 2 // 3), min(self._limit * 3 // 10, room // 3)
            left_out = _describe_left_out(text[head : len(text) - tail], self._limit // 20)
            front, back = take_secrets_from_ends(text, head, tail, RULES, self.redactions)
            text = take_secrets(front + left_out + back, RULES, self.redactions)
            if len(text) <= self._limit:
                return text
        return text[: self._limit]


def _describe_left_out(text: str, room: int) -> str:
    """The note of what is left out of the middle of a text, with its telling lines."""
    lines: dict[str, None] = {}
    at = 0
    for found in scan(_TELLING, text):
        if len(lines) >= _MAX_TELLING_LINES:
            break
        if found.start() < at:
            continue
        start = max(text.rfind("\n", 0, found.start()) + 1, found.start() - _MAX_LINE_CHARS // 2)
        end = text.find("\n", found.start())
        at = len(text) if end < 0 else end
        line = text[start : min(at, start + _MAX_LINE_CHARS)].strip()
        if len(line) >= room:
            break
        room -= 0 if line in lines else len(line) + 1
        lines[line] = None
    count = text.count("\n") - (len(lines) + 1 if lines else 0)
    note = f"{len(text):,} characters in {count:,} lines left out" if count > 0 else f"{len(text):,} characters left out"
    return "\n".join(["", f"[... {note}, but for these ...]", *lines, "[...]", ""]) if lines else f"\n[... {note} ...]\n"


def _describe_refusal(value: object, at: str) -> Invalid:
    """The error for a value that `_survey` rejected, with its path."""
    path, problem = _find_refused(value, at, MAX_DEPTH) or (at, "cannot be stored")
    path = storable(path)
    return Invalid(f"The value at {path} {problem}.", [Issue(path, problem)])


def _find_refused(value: object, path: str, levels: int) -> tuple[str, str] | None:
    """Path and problem of the first part that cannot be stored."""
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
    problems = (_find_refused(inner, inner_path, levels - 1) for inner_path, inner in steps)
    return next(filter(None, problems), None)


# -- secrets that are recognized by the names of members


def _may_find_secret(names: Sequence[str], parts: Sequence[_Part]) -> bool:
    """Whether members of these names, or these texts, may hold secrets, or are arguments of a command."""
    if not any(part.rules for part in parts):
        return False
    if not _SUSPICIOUS_MEMBERS.isdisjoint(names) or any(map(_classify_member, names)):
        return True
    return any(has_match(_FLAG_ITEM, part.text) or any(secret_rules.find(part.text, part.rules, part.low)) for part in parts)


def _classify_member(name: str) -> str | None:
    """The kind of secret that a member of this name holds; None for other names."""
    return _classify(name[-_MAX_NAME_CHARS:])


_classify = functools.lru_cache(maxsize=2048)(classify_name)


def _classify_value(source: dict[str, object], name: str, value: object) -> str | None:
    """The kind of secret that this member of an object is; None when it is none."""
    if not isinstance(value, str):
        return None
    if name in places.JWK_SECRETS and places.JWK_TYPE in source:
        return "private_key" if is_token_like(value) else None
    kind = _classify_member(name)
    if kind is None and name in _VALUE_MEMBERS:
        kind = next((kind for label in _find_labels(source) if (kind := _classify_member(label))), None)
    if kind is not None:
        return kind if is_assigned_secret(kind, value, explicit=True) else None
    return "basic_auth" if name in _LOGIN_MEMBERS and is_login(value) else None


def _find_labels(source: dict[str, object]) -> Iterator[str]:
    """The names that an object gives to its value: `{"name": "DB_PASSWORD", "value": "..."}`."""
    return (label for field in _LABEL_MEMBERS if isinstance(label := source.get(field), str))


def _is_manifest_data(source: dict[str, object], name: str) -> bool:
    """Whether the member is the data of a Kubernetes Secret, all of which is secret."""
    return name in _MANIFEST_DATA_MEMBERS and source.get(_MANIFEST_MEMBER) == "Secret"


def _holds_cookies(source: dict[str, object], name: str) -> bool:
    """Whether the member is a cookie header, or holds cookies."""
    return name in _COOKIE_MEMBERS or (name in _VALUE_MEMBERS and any(label in _COOKIE_MEMBERS for label in _find_labels(source)))


def _is_secret_beneath(kind: str, name: str | None, value: str, *, certain: bool) -> bool:
    """Whether a text is a secret where an outer member is named like one. `certain`: all are but placeholders."""
    if certain:
        return is_assigned_secret("password", value, explicit=True)
    if name is not None and name.lower() in _HARMLESS_MEMBERS:
        return False
    if name in _VALUE_MEMBERS:
        return is_assigned_secret(kind, value, explicit=True)
    if is_token_like(value) and len(value) >= _MIN_LONG_CHARS:
        return True
    has_spaces_and_digits = " " in value and any(map(str.isdigit, value))
    return kind in {"password", "secret", "credential"} and (is_mixed(value) or (has_spaces_and_digits and is_passphrase(value)))


def _find_in_arguments(items: Sequence[str]) -> list[Span]:
    """Secrets among the arguments of a command, as spans of the items joined by line breaks."""
    if not 2 <= len(items) <= _MAX_ARGUMENTS or any(len(item) > _MAX_ARGUMENT_CHARS for item in items):
        return []
    if not any(item.startswith("-") for item in items):
        return []
    spans = list(secret_rules.find(" ".join(items), secret_rules.RULES))
    start = 0
    for name, value in pairwise(items):
        start += len(name) + 1
        kind = _classify_member(name) if name.startswith("--") else None
        if kind is not None and not value.startswith("-") and is_assigned_secret(kind, value, explicit=True):
            spans.append(Span(start, start + len(value), kind))
    return merge(spans)
