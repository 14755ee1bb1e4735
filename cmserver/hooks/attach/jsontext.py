"""A settings file as text: one member of its outermost object is changed, and what stays the same stays as it is written."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from cmserver.base.errors import CmserverError

_GAP = re.compile(r"[ \t\n\r]*")
_USUAL_INDENT = "  "
_LEVELS = 2
"""How deep what is new is written with a line for each part."""

Json = dict[str, object]


class BadFile(CmserverError):
    """A settings file that we cannot read, and therefore do not touch."""


class Member(msgspec.Struct, frozen=True):
    """Where a member of the outermost object stands: its name from `begin`, its value from `value` to `end`."""

    name: str
    begin: int
    value: int
    end: int


def read(path: Path) -> str | None:
    """The file's text, None when there is none."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is no UTF-8 text (at byte {error.start}), and is left as it is.") from None


def parse(path: Path, text: str | None) -> Json:
    """What the file says; nothing when it is empty. Raises `BadFile` with the place for all that is no plain JSON object."""
    if text is None or not text.strip():
        return {}
    try:
        found: object = json.loads(text, object_pairs_hook=_no_name_twice, parse_constant=_no_constant)
    except RecursionError:
        raise BadFile(f"{path} is nested too deep, and is left as it is.") from None
    except json.JSONDecodeError as error:
        comment = " Comments are no JSON." if text[error.pos : error.pos + 2] in {"//", "/*"} else ""
        raise BadFile(
            f"{path} is no JSON in line {error.lineno}, column {error.colno} ({error.msg}), and is left as it is.{comment} "
            "Put it right, or name another file with --settings."
        ) from None
    except ValueError as error:
        raise BadFile(f"{path} cannot be kept as it is: {error} Put it right, or name another file with --settings.") from None
    if not isinstance(found, dict):
        raise BadFile(f"{path} holds no JSON object, and is left as it is.")
    return cast("Json", found)


def put(path: Path, text: str | None, name: str, value: object) -> str:
    """The text with that member, changed where it stands or added as the last one."""
    if text is None or not text.strip():
        text = "{}\n"
    parse(path, text)
    indent = _indent(text)
    members = _members(text)
    for one in members:
        if one.name == name:
            return text[: one.value] + _written(text, value, text[one.value : one.end], indent) + text[one.end :]
    end = _line_end(text)
    added = f"{end}{indent}{json.dumps(name)}: {_written(text, value, None, indent)}"
    if members:
        return f"{text[: members[-1].end]},{added}{text[members[-1].end :]}"
    open_at = text.index("{")
    return f"{text[: open_at + 1]}{added}{end}{text[text.index('}', open_at) :]}"


def take(path: Path, text: str, name: str) -> str:
    """The text without that member."""
    parse(path, text)
    members = _members(text)
    at = next((place for place, one in enumerate(members) if one.name == name), None)
    if at is None:
        return text
    if at > 0:
        return text[: members[at - 1].end] + text[members[at].end :]
    if len(members) > 1:
        return text[: members[0].begin] + text[members[1].begin :]
    open_at = text.index("{")
    return text[: open_at + 1] + text[text.rindex("}") :]


def table(value: object) -> Json:
    """The value, if it is an object; else one with nothing in it."""
    return cast("Json", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """The value, if it is a list; else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def diff(path: Path, before: str | None, after: str, *, secrets: Iterable[str] = ()) -> str:
    """What changes, for people; secrets are hidden, and nothing in it steers a terminal."""
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        f"{path} (now)" if before is not None else "(no file)",
        str(path),
        lineterm="",
    )
    shown = "\n".join("".join(one if one.isprintable() or one == "\t" else "?" for one in line) for line in lines)
    for secret in secrets:
        shown = shown.replace(secret, "***") if secret else shown
    return shown


def _members(text: str) -> list[Member]:
    """The members of the outermost object of text that `parse` has read."""
    decoder = json.JSONDecoder()
    found: list[Member] = []
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        begin = at
        name, at = cast("tuple[str, int]", decoder.raw_decode(text, at))
        value = _skip(text, _skip(text, at) + 1)
        _, end = cast("tuple[object, int]", decoder.raw_decode(text, value))
        found.append(Member(name, begin, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _items(text: str) -> list[str]:
    """The items of a list, as they are written."""
    decoder = json.JSONDecoder()
    found: list[str] = []
    at = _skip(text, 1)
    while text[at] != "]":
        _, end = cast("tuple[object, int]", decoder.raw_decode(text, at))
        found.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at


def _indent(text: str) -> str:
    """How the first member is indented, which is how everything is."""
    match = re.match(r"\s*\{[ \t]*\r?\n([ \t]+)\"", text)
    return match[1] if match else _USUAL_INDENT


def _written(text: str, value: object, old: str | None, indent: str, level: int = 1) -> str:
    """The value as it is written so deep in that text: what is in `old` stays as it stands there, what is new below is one line."""
    dumped = _dumped(text, value)
    if old is not None and _dumped(text, json.loads(old)) == dumped:
        return old
    if not isinstance(value, (dict, list)) or not value or level > _LEVELS:
        return dumped
    parts: list[str] = []
    if isinstance(value, dict):
        there = {one.name: old[one.value : one.end] for one in _members(old)} if old and old.startswith("{") else {}
        for name, one in cast("Json", value).items():
            parts.append(f"{_dumped(text, name)}: {_written(text, one, there.get(name), indent, level + 1)}")
    else:
        known = {_dumped(text, json.loads(one)): one for one in _items(old)} if old and old.startswith("[") else {}
        parts += [
            known.get(_dumped(text, one)) or _written(text, one, None, indent, level + 1) for one in cast("list[object]", value)
        ]
    before = _line_end(text) + indent * level
    within = before + indent
    inner = f",{within}".join(parts)
    return f"{{{within}{inner}{before}}}" if isinstance(value, dict) else f"[{within}{inner}{before}]"


def _dumped(text: str, value: object) -> str:
    """The value in one line, with the characters that this text escapes."""
    escaped = text.isascii() and "\\u" in text
    dumped = json.dumps(value, ensure_ascii=escaped)
    if not escaped and re.search("[\ud800-\udfff]", dumped):  # half a character, which no file can hold but escaped
        dumped = json.dumps(value)
    return dumped


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _no_name_twice(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it names {json.dumps(twice[:40])} twice.")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no JSON.")
