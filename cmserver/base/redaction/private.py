"""Finds private spans and private keys. They may be of any length, so they are looked for in the whole of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cmserver.base.redaction.spans import CONTEXT, Span

PRIVATE = "private"
_KEY = "private_key"

# The letter is looked at first: most tags are others.
_TAG = re.compile(
    r"<(/?)(?=[cpsCPS])"
    r"((?i:private|claude-mem-context|cmserver-context|system[_-]instruction|persisted-output|system-reminder))(?=[\s/>])"
)
_TAG_END = re.compile(r"\s*+>")

_KEY_EDGE = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
# Lines of base64 and header lines, also as strings in code (quotes, plus signs) or with escaped line breaks.
_KEY_BODY = re.compile(r"(?:(?:[\s\"'+,]|\\+[nr])*+(?:[A-Za-z-]{4,20}: [^\n\\]{1,200}|[A-Za-z0-9/+=]{16,}+))*+")
_KEY_LAST_LINE = re.compile(r"(?:[\s\"'+,]|\\+[nr])*+[A-Za-z0-9/+=]++\s*+\Z")
# The same from right to left, for a block whose beginning is not there.
_YDOB_YEK = re.compile(r"(?:[\s\"'+,]|[nr]\\+)*+[A-Za-z0-9/+=]++(?:(?:[\s\"'+,]|[nr]\\+)++[A-Za-z0-9/+=]{16,}+)*+")


def may_be_in(text: str) -> bool:
    """Whether `find` could find something; much cheaper than to look."""
    return ("<" in text and _TAG.search(text) is not None) or "PRIVATE KEY" in text


def find(text: str) -> Iterator[Span]:
    if "<" in text:
        yield from _tagged(text)
    if "PRIVATE KEY" in text:
        yield from _key_blocks(text)


def _tagged(text: str) -> Iterator[Span]:
    """From an opening tag to the closing one that belongs to it, or else to the end of the text."""
    inside, depth, start = "", 0, 0
    for tag in _TAG.finditer(text):
        name = tag[2].lower().replace("_", "-")
        opens = not tag[1]
        if not inside:
            if opens:
                inside, depth, start = name, 1, tag.start()
        elif name == inside and opens:
            depth += 1
        elif name == inside and (closed := _TAG_END.match(text, tag.end())):
            depth -= 1
            if depth == 0:
                yield Span(start, closed.end(), PRIVATE if inside == "private" else CONTEXT)
                inside = ""
    if inside:
        yield Span(start, len(text), PRIVATE if inside == "private" else CONTEXT)


def _key_blocks(text: str) -> Iterator[Span]:
    """PEM and PGP private keys, also when only the beginning or only the end of one is there."""
    edges = list(_KEY_EDGE.finditer(text))
    done = 0
    for number, edge in enumerate(edges):
        if edge.start() < done:
            continue
        following = edges[number + 1] if number + 1 < len(edges) else None
        start = edge.start()
        if edge[1] == "END":
            before = _YDOB_YEK.match(text[done : edge.start()][::-1])
            start -= before.end() if before else 0
            done = edge.end()
        elif following is not None and following[1] == "END":
            done = following.end()
        else:
            done = _end_of_open_block(text, edge.end())
        yield Span(start, done, _KEY)


def _end_of_open_block(text: str, start: int) -> int:
    body = _KEY_BODY.match(text, start)
    end = body.end() if body else start
    last = _KEY_LAST_LINE.match(text, end)
    return last.end() if last else end
