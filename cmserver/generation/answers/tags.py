"""The tags of an answer: where they stand, which opening belongs to which closing, and which of them are only quoted.

Our own scanner, because no library reads what models write. An XML parser stops at the first error, and an unescaped `&` is one.
HTML parsers go on, but take `List<T>` for an element and CDATA for a comment, close and move elements by the rules of HTML
(`<title>`, `<summary>` and `<li>` have some of their own), and do not say afterwards what stood there. Here only tags of our own
vocabulary are tags, and everything else is text, to the letter. Patterns are possessive and loops go forward, so that the work
grows with the length of the answer and no faster.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from cmserver.generation.answers.vocabulary import NAMES, SORTS, Sort, begins_one, meant


def _value(quote: str) -> str:
    """A quoted value on one line, with a few `<` in it that begin none of our tags: reason="List<T> > 3"."""
    return rf"{quote}[^{quote}<\n]*+(?:<(?!\s*+/?\s*+(?:{NAMES})(?!\w))[^{quote}<\n]*+){{0,4}}+{quote}"


_MARKUP = re.compile(
    rf"""<(?:
      (?P<comment>!--)
    | (?P<cdata>!\[CDATA\[)
    | \s*+(?P<close>/?)\s*+(?P<name>[A-Za-z][\w-]{{0,40}}+)(?=[\s/<>"']|\Z)
      (?P<attributes>(?:[^<>"']++|{_value('"')}|{_value("'")}|["'])*+)
      (?P<end>>?)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"""(?<![\w:.-])([A-Za-z_][\w:.-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|"([^"]*+)\Z|'([^']*+)\Z|([^\s"'>]++))"""
)
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CDATA = re.compile(r"<!\[CDATA\[((?:[^\]]++|\](?!\]>))*+)(?:\]\]>|\Z)")
_CUT = re.compile(r"<\s*+/?\s*+([A-Za-z][\w-]*+)?(?P<rest>[\s/][^<>]*+)?")
_LIKE_ATTRIBUTES = re.compile(r"\s*+/?\s*+(?:\Z|[A-Za-z_][\w:.-]*+\s*+(?:=|\Z))")
_TEXTS = {"field", "item", "summary", "events", "reason"}
TAGS_MOST = 30_000
"""What comes behind so many is not read: the longest answer that a model gives has fewer."""
_LOOK_AHEAD = 8
_CUT_MOST = 300


class Tag(msgspec.Struct, gc=False):
    """One tag of our vocabulary. `partner` is the place of its other half among the tags, or -1."""

    name: str
    sort: Sort
    kind: Literal["open", "close", "empty"]
    start: int
    end: int
    attributes: str
    partner: int = -1
    quoted: bool = False
    """It is part of a text, and no structure."""


class Comment(msgspec.Struct, frozen=True, gc=False):
    """A comment between the fields, which is not read."""

    start: int
    end: int


class Scanned(msgspec.Struct, frozen=True):
    """An answer with its tags. What comes behind `end` is half a tag, where the answer was cut off."""

    text: str
    tags: list[Tag]
    comments: list[Comment]
    end: int


def scan(text: str) -> Scanned:
    """Find the tags, pair them, and tell those that are quoted."""
    end = _whole(text)
    tags, comments = _found(text, end)
    if len(tags) >= TAGS_MOST:
        end = tags[-1].end
    _pair(text, tags)
    return Scanned(text, tags, comments, end)


def plain(raw: str) -> str:
    """A text of the answer as it was meant: CDATA to the letter, entities decoded once elsewhere."""
    if "<![CDATA[" not in raw:
        return _decoded(raw)
    pieces = _CDATA.split(raw)
    return "".join(piece if place % 2 else _decoded(piece) for place, piece in enumerate(pieces))


def attributes_of(tag: Tag) -> list[tuple[str, str]]:
    """Name and value of each, as written."""
    if "=" not in tag.attributes:
        return []
    found = _ATTRIBUTE.finditer(tag.attributes)
    return [(one[1], _decoded(next((value for value in one.groups()[1:] if value is not None), ""))) for one in found]


def _decoded(text: str) -> str:
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return _ENTITIES[found[1]]
    code = int(found[2]) if found[2] else int(found[3], 16)
    return chr(code) if 0 < code < 0x110000 else found[0]


def _whole(text: str) -> int:
    """Where the whole tags of a text end: before half a tag of ours at its end."""
    start = text.rfind("<")
    if start < 0 or len(text) - start > _CUT_MOST:
        return len(text)
    tail = text[start:]
    if "<![CDATA[".startswith(tail) or "<!--".startswith(tail):
        return start
    cut = _CUT.fullmatch(tail)
    if cut is None or not begins_one(cut[1] or "") or (cut["rest"] and not cut[1]):
        return len(text)
    if cut["rest"] and (meant(cut[1]) in {"observation", "skip", "summary", None} or not _LIKE_ATTRIBUTES.match(cut["rest"])):
        return len(text)
    return start


def _found(text: str, end: int) -> tuple[list[Tag], list[Comment]]:
    tags, comments = list[Tag](), list[Comment]()
    position, roots, inside, ends_of = 0, 0, "", dict[str, int]()
    while len(tags) < TAGS_MOST and (found := _MARKUP.search(text, position, end)) is not None:
        position = found.end()
        if found["comment"] or found["cdata"]:
            closing = "-->" if found["comment"] else "]]>"
            opaque = not inside if found["comment"] else bool(roots or inside)
            close = ends_of.get(closing, 0)
            if opaque and 0 <= close < position:
                close = ends_of[closing] = text.find(closing, position, end)
            if opaque and close >= position:
                position = close + len(closing)
                if found["comment"]:
                    comments.append(Comment(found.start(), position))
            continue
        tag = _tag(found, end)
        if tag is None:
            continue
        if _between_quotes(text, tag):
            tag.quoted = True
        tags.append(tag)
        opens = tag.kind == "open"
        if tag.sort == "root":
            roots, inside = max(0, roots + (1 if opens else -1 if tag.kind == "close" else 0)), ""
        elif tag.sort in _TEXTS:
            inside = inside or tag.name if opens else "" if tag.name == inside else inside
    return tags, comments


def _tag(found: re.Match[str], end: int) -> Tag | None:
    name = meant(found["name"])
    if name is None:
        return None
    sort, attributes = SORTS[name], found["attributes"]
    if not found["end"]:  # what comes next is a `<`, or the end
        if sort not in {"root", "skip"} or not _LIKE_ATTRIBUTES.match(attributes):
            return None
        if found.end() < end and attributes and not attributes[0].isspace():
            return None
    kind = "close" if found["close"] else "empty" if attributes.rstrip().endswith("/") else "open"
    return Tag(name, sort, kind, found.start(), found.end(), attributes)


def _between_quotes(text: str, tag: Tag) -> bool:
    """`<title>` in a sentence about it: with the same mark before and behind."""
    before = text[tag.start - 1 : tag.start]
    return before in {"`", '"', "'"} and text[tag.end : tag.end + 1] == before


def _pair(text: str, tags: list[Tag]) -> None:
    """Give each closing tag the nearest opening one of its name; what was opened in between is left unclosed."""
    opened, by_name = list[int](), dict[str, list[int]]()
    for place, tag in enumerate(tags):
        if tag.quoted or tag.kind == "empty":
            continue
        top = tags[opened[-1]] if opened else None
        if tag.kind == "open":
            if top is not None and top.name == tag.name and tag.sort in _TEXTS and tag.sort != "item":
                tag.quoted = True  # there is one title only
                continue
            opened.append(place)
            by_name.setdefault(tag.name, []).append(place)
            continue
        if not by_name.get(tag.name):
            continue
        if top is not None and top.name != tag.name and top.sort in _TEXTS and _goes_on(text, tags, place, top.name):
            tag.quoted = True
            continue
        while True:
            other = opened.pop()
            by_name[tags[other].name].pop()
            if tags[other].name == tag.name:
                tag.partner, tags[other].partner = other, place
                break


def _goes_on(text: str, tags: list[Tag], place: int, name: str) -> bool:
    """Whether the text that a closing tag of something else stands in goes on behind it, to its own end."""
    for later in range(place + 1, min(place + 1 + _LOOK_AHEAD, len(tags))):
        tag = tags[later]
        if tag.kind == "close" and tag.name == name:
            return bool(text[tags[place].end : tag.start].strip())
        if tag.sort == "skip" or (tag.kind == "open" and tag.sort not in {"root", "wrap", "think"}):
            return False
    return False
