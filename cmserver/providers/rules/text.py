"""Reading loosely shaped JSON and making text short. Nothing here raises, whatever it is given."""

from __future__ import annotations

import re
from typing import cast

import msgspec

from cmserver.providers.rules.phrases.manner import words

MAX_TITLE = 100
_MAX_OUTPUT = 16_000
_MAX_NUMBER = 10**9
_MAX_BLOCKS = 50
_MAX_DEPTH = 8
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z0-9`])")


def record(value: object) -> dict[str, object]:
    """The value as a JSON object; a string that holds one is parsed, anything else is an empty object."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    return {}


def array(value: object) -> list[object]:
    """The value as a JSON list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def number(value: object) -> int:
    """The value as a whole number, or 0; also 0 for numbers of a size that counts nothing."""
    return value if isinstance(value, int) and abs(value) < _MAX_NUMBER else 0


def field(source: dict[str, object], *names: str) -> str:
    """The first of the named fields that is a non-empty string, or an empty string."""
    for name in names:
        value = source.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def prose(value: object, depth: int = 0) -> str:
    """The readable text of a tool's response: plain text, `content` blocks, or the usual text fields of an object."""
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str) and value.lstrip()[:1] != "{":
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, (prose(block, depth + 1) for block in array(cast("object", value))[:_MAX_BLOCKS])))
    source = record(value)
    plain = field(source, "text", "result", "output", "stdout", "llmContent", "content")
    return plain or prose(array(source.get("content")) or array(source.get("results")) or "", depth + 1)


def bounded(text: str) -> str:
    """Long output keeps its head and its tail, where errors and totals stand."""
    if len(text) <= _MAX_OUTPUT:
        return text
    return text[: _MAX_OUTPUT // 2] + "\n" + text[-_MAX_OUTPUT // 2 :]


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut between words."""
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-") + "…"


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a text, without Markdown's marks at its start."""
    lines = (line.strip().lstrip("#*>- ").strip() for line in text[:4000].splitlines())
    line = next((line for line in lines if line), "")
    return shorten(_SENTENCE.split(line, maxsplit=1)[0], limit)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def listed(names: list[str], limit: int) -> str:
    """`a, b and c`, or `a, b and 4 more`."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} {words().and_} {words().more.format(count=len(names) - limit)}"
    if len(names) > 1:
        return f"{', '.join(names[:-1])} {words().and_} {names[-1]}"
    return "".join(names)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def relative(path: str, root: str | None) -> str:
    """The path as seen from the agent's working folder; paths outside it stay as they are."""
    if root:
        base = root.rstrip("/\\")
        if path.startswith((base + "/", base + "\\")):
            return path[len(base) + 1 :]
    return path.removeprefix("./")
