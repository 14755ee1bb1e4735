"""Makes text short and readable: keeps head and tail, drops what no model can read, and shows JSON as plain lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec

from cmserver.base.lookalikes import COLOURS, CONTROL, remove_invisible

_WINDOW = 40_000
"""How many characters of a text are read, half from each end."""
_SMALL = 60
"""Below this a text is cut at its end, without a count."""
_MARK = 30
"""Length of the mark for omitted text, without its number."""
_HEAD_PERCENT = 60
_BINARY_ONE_IN = 10
_SHORT = 20

_DEPTH = 6
_ITEMS = 100
_KEY = 80
_STRING = 2_000
_LONG_LINE = 200
_HUGE = 10**40

_DATA_URL = re.compile(r"data:([\w.+-]{0,60}/[\w.+-]{0,80})?[^,\s\"'<>]{0,100};base64,[A-Za-z0-9+/=_-]{40,}", re.IGNORECASE)
_BASE64 = re.compile(
    r"[A-Za-z0-9+/]{200,}+={0,2}+(?>(?:\n[A-Za-z0-9+/]{4,}+={0,2}+(?=\n|\Z))*)"
    r"|(?:(?<=\n)|\A)(?>(?:[A-Za-z0-9+/]{60,}+\n){3,})(?>(?:[A-Za-z0-9+/]{1,}+={0,2}+(?=\n|\Z))?)"
)


def clean(text: str) -> str:
    """The text without colours, control and invisible characters, with marks for binary and base64 and Unix line ends."""
    text = text.encode("utf-8", "replace").decode()
    if _is_binary(text):
        return f"[binary data, {_count(text)} left out]"
    text = remove_invisible(text)
    if ";base64," in text:
        text = _DATA_URL.sub(lambda match: f"[data of type {match[1] or 'unknown'}, {_count(match[0])} left out]", text)
    return _BASE64.sub(lambda match: f"[base64, {_count(match[0])} left out]", text)


def excerpt(text: str, max_chars: int) -> str:
    """The text, clean, in at most `max_chars` characters. Reads only the ends of a long text."""
    window = max(_WINDOW, 2 * max_chars)
    if len(text) <= window:
        return elide(clean(text), max_chars)
    half = window // 2
    return _joined(clean(text[:half]), clean(text[-half:]), len(text) - window, max_chars)


def elide(
    text: str,
    max_chars: int,
    whole_head: Callable[[str], str] = lambda text: text,
    whole_tail: Callable[[str], str] = lambda text: text,
) -> str:
    """The text in at most `max_chars` characters. `whole_head` and `whole_tail` may remove what a cut has broken."""
    if len(text) <= max_chars:
        return text
    if max_chars < _SMALL:
        return whole_head(text[: max_chars - 1]) + "…" if max_chars > 0 else ""
    return _joined(text, text, -len(text), max_chars, whole_head, whole_tail)


def one_line(text: str, max_chars: int) -> str:
    """The text, clean, as one line. All kinds of line ends count as spaces."""
    line = " ".join(clean(text[: max_chars * 4]).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def share_room(lengths: Sequence[int], total: int) -> list[int]:
    """The room for each text so that all fit: short ones whole, the longest cut to the same length."""
    granted = [0] * len(lengths)
    left = max(0, total)
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    for done, place in enumerate(order):
        granted[place] = min(lengths[place], left // (len(order) - done))
        left -= granted[place]
    return granted


def _joined(
    first: str,
    last: str,
    between: int,
    max_chars: int,
    whole_head: Callable[[str], str] = lambda text: text,
    whole_tail: Callable[[str], str] = lambda text: text,
) -> str:
    """The head of `first` and the tail of `last`; `between` is the number of further characters between them."""
    room = max_chars - _MARK - len(f"{len(first) + len(last) + between:,}")
    front = room * _HEAD_PERCENT // 100
    head = whole_head(_to_line_end(first[:front]))
    tail = whole_tail(_from_line_start(last[max(0, len(last) - (room - front)) :]))
    gone = len(first) + len(last) + between - len(head) - len(tail)
    return f"{head}\n[… {gone:,} characters left out …]\n{tail}"


def _to_line_end(head: str) -> str:
    end = head.rfind("\n")
    return head[:end] if end > len(head) * 3 // 4 else head


def _from_line_start(tail: str) -> str:
    start = tail.find("\n")
    return tail[start + 1 :] if 0 <= start < len(tail) // 4 else tail


def _is_binary(text: str) -> bool:
    """One strange character in ten. Colours of a terminal are not strange."""
    if len(text) < _SHORT or not ("\ufffd" in text or CONTROL.search(text)):
        return False
    strange = len(CONTROL.findall(COLOURS.sub("", text))) + text.count("\ufffd")
    return strange * _BINARY_ONE_IN > len(text)


def _count(text: str) -> str:
    return f"{len(text):,} characters"


def render_json(value: object, max_chars: int) -> str:
    """Any JSON in at most `max_chars` characters of lines, `key: value`. A string that holds JSON is shown as what it holds."""
    lines: list[str] = []
    size = 0
    for line in _lines(_opened(value), 0):
        lines.append(line)
        size += len(line) + 1
        if size > 4 * max_chars:
            lines.append("[… the rest left out …]")
            break
    return excerpt("\n".join(lines), max_chars)


def _lines(value: object, depth: int) -> Iterator[str]:
    """A JSON value as indented lines, in the manner of YAML, shortened where it is long or deep."""
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
    """The fields of an object as lines; empty ones are left out."""
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
    """The items of a list as lines that begin with "- "."""
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
