"""JSON as plain lines: JSON within a request is escaped once more, and every quote and line end would be paid for twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from cmserver.providers.wording.cut import excerpt, one_line

_DEPTH = 6
_ITEMS = 100
_KEY = 80
_STRING = 2_000
_LONG_LINE = 200
_HUGE = 10**40


def plain(value: object, most: int) -> str:
    """Any JSON in at most `most` characters of lines, `key: value`. A string that holds JSON is shown as what it holds."""
    lines: list[str] = []
    size = 0
    for line in _lines(_opened(value), 0):
        lines.append(line)
        size += len(line) + 1
        if size > 4 * most:
            lines.append("[… the rest left out …]")
            break
    return excerpt("\n".join(lines), most)


def _lines(value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        yield from _fields(cast("dict[object, object]", value), depth)
    elif isinstance(value, list):
        yield from _items(cast("list[object]", value), depth)
    elif isinstance(value, str):
        text = excerpt(value, _STRING).strip("\n")
        yield from (indent + line for line in text.split("\n")) if depth else text.split("\n")
    elif value is not None:
        yield indent + _scalar(value)


def _fields(source: dict[object, object], depth: int) -> Iterator[str]:
    if source.get("type") == "text" and isinstance(source.get("text"), str):  # a block of a message
        yield from _lines(source["text"], depth)
        return
    indent = "  " * depth
    for place, (key, value) in enumerate(source.items()):
        if place == _ITEMS:
            yield f"{indent}[… {len(source) - _ITEMS} fields more …]"
            return
        if value is None or value in ("", [], {}):
            continue
        name = one_line(str(key), _KEY)
        if isinstance(value, dict | list) or (isinstance(value, str) and ("\n" in value or len(value) > _LONG_LINE)):
            yield f"{indent}{name}:"
            yield from _lines(cast("object", value), depth + 1) if depth < _DEPTH else [f"{indent}  [… too deep …]"]
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _items(values: list[object], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for place, value in enumerate(values):
        if place == _ITEMS:
            yield f"{indent}[… {len(values) - _ITEMS} items more …]"
            return
        if depth >= _DEPTH:
            yield f"{indent}- [… too deep …]"
        else:
            below = list(_lines(value, depth + 1))
            yield from [f"{indent}- {below[0].lstrip()}", *below[1:]] if below else []


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < _HUGE else "[a very large number]"
    return excerpt(value, _STRING) if isinstance(value, str) else one_line(str(value), _KEY)


def _opened(value: object) -> object:
    """What a string of JSON holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return value
    return value
