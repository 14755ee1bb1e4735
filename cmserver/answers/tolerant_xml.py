"""Finds the tags of an answer, pairs them, and marks those that are only quoted in a text.

An XML parser stops at the first error, and an unescaped `&` is one. HTML parsers go on, but read `List<T>` as an element and CDATA
as a comment, move elements by the rules of HTML (`<title>`, `<summary>` and `<li>` have some of their own), and do not keep the
original text. Here only tags of our vocabulary are tags; everything else is text, unchanged. Patterns are possessive and loops
only move forward, so that the work grows linearly with the answer.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from cmserver.answers.vocabulary import NAME_PATTERN, TAG_ROLES, TagRole, canonical_name, is_name_prefix


def _quoted_value(quote: str) -> str:
    """A quoted value on one line; up to four `<` in it that begin none of our tags are allowed: reason="List<T> > 3"."""
    return rf"{quote}[^{quote}<\n]*+(?>(?:<(?!\s*+/?\s*+(?:{NAME_PATTERN})(?!\w))[^{quote}<\n]*+){{0,4}}){quote}"


_MARKUP = re.compile(
    rf"""<(?:
      (?P<comment>!--)
    | (?P<cdata>!\[CDATA\[)
    | \s*+(?P<close>/?)\s*+(?P<name>[A-Za-z][\w-]{{0,40}}+)(?=[\s/<>"']|\Z)
      (?P<attributes>(?>(?:[^<>"']++|{_quoted_value('"')}|{_quoted_value("'")}|["'])*))
      (?P<end>>?)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"""(?<![\w:.-])([A-Za-z_][\w:.-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|"([^"]*+)\Z|'([^']*+)\Z|([^\s"'>]++))"""
)
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CDATA = re.compile(r"<!\[CDATA\[((?>(?:[^\]]++|\](?!\]>))*))(?:\]\]>|\Z)")
_CUT = re.compile(r"<\s*+/?\s*+([A-Za-z][\w-]*+)?(?P<rest>[\s/][^<>]*+)?")
_LIKE_ATTRIBUTES = re.compile(r"\s*+/?\s*+(?:\Z|[A-Za-z_][\w:.-]*+\s*+(?:=|\Z))")
_TEXTS = {"field", "item", "summary", "events", "reason"}
MAX_TAGS = 30_000
"""Later tags are not read; the longest real answer has fewer."""
_LOOK_AHEAD = 8
_MAX_CUT_CHARS = 300


class Tag(msgspec.Struct, gc=False):
    """One tag of our vocabulary. `partner` is the index of the matching opening or closing tag, or -1."""

    name: str
    role: TagRole
    kind: Literal["open", "close", "empty"]
    start: int
    end: int
    attributes: str
    partner: int = -1
    quoted: bool = False
    """The tag is part of a text."""


class Comment(msgspec.Struct, frozen=True, gc=False):
    """A comment between the fields; ignored."""

    start: int
    end: int


class TagScan(msgspec.Struct, frozen=True):
    """An answer with its tags. Text after `end` is half a tag of an answer that was cut off."""

    text: str
    tags: list[Tag]
    comments: list[Comment]
    end: int


def scan_tags(text: str) -> TagScan:
    """Find the tags and comments of an answer, and pair the tags."""
    end = _end_of_whole_tags(text)
    tags, comments = _find_tags(text, end)
    if len(tags) >= MAX_TAGS:
        end = tags[-1].end
    _pair_tags(text, tags)
    return TagScan(text, tags, comments, end)


def decode_text(raw: str) -> str:
    """Decode a text of the answer: CDATA sections unchanged, entities decoded once elsewhere."""
    if "<![CDATA[" not in raw:
        return _decode_entities(raw)
    pieces = _CDATA.split(raw)
    return "".join(piece if index % 2 else _decode_entities(piece) for index, piece in enumerate(pieces))


def parse_attributes(tag: Tag) -> list[tuple[str, str]]:
    """Name and value of each attribute, names as written."""
    if "=" not in tag.attributes:
        return []
    matches = _ATTRIBUTE.finditer(tag.attributes)
    return [
        (match[1], _decode_entities(next((value for value in match.groups()[1:] if value is not None), ""))) for match in matches
    ]


def _decode_entities(text: str) -> str:
    return _ENTITY.sub(_decode_entity, text) if "&" in text else text


def _decode_entity(match: re.Match[str]) -> str:
    if match[1]:
        return _ENTITIES[match[1]]
    code = int(match[2]) if match[2] else int(match[3], 16)
    return chr(code) if 0 < code < 0x110000 else match[0]


def _end_of_whole_tags(text: str) -> int:
    """The position of half a tag of ours at the end of a text, else the text's length."""
    start = text.rfind("<")
    if start < 0 or len(text) - start > _MAX_CUT_CHARS:
        return len(text)
    tail = text[start:]
    if "<![CDATA[".startswith(tail) or "<!--".startswith(tail):
        return start
    cut = _CUT.fullmatch(tail)
    if cut is None or not is_name_prefix(cut[1] or "") or (cut["rest"] and not cut[1]):
        return len(text)
    if cut["rest"] and (
        canonical_name(cut[1]) in {"observation", "skip", "summary", None} or not _LIKE_ATTRIBUTES.match(cut["rest"])
    ):
        return len(text)
    return start


def _find_tags(text: str, end: int) -> tuple[list[Tag], list[Comment]]:
    """The tags of ours in the text, those between quotes marked, and the comments; other markup is text."""
    tags, comments = list[Tag](), list[Comment]()
    position, roots, inside, ends_of = 0, 0, "", dict[str, int]()
    while len(tags) < MAX_TAGS and (match := _MARKUP.search(text, position, end)) is not None:
        position = match.end()
        if match["comment"] or match["cdata"]:
            closing = "-->" if match["comment"] else "]]>"
            opaque = not inside if match["comment"] else bool(roots or inside)
            close = ends_of.get(closing, 0)
            if opaque and 0 <= close < position:
                close = ends_of[closing] = text.find(closing, position, end)
            if opaque and close >= position:
                position = close + len(closing)
                if match["comment"]:
                    comments.append(Comment(match.start(), position))
            continue
        tag = _read_tag(match, end)
        if tag is None:
            continue
        if _is_between_quotes(text, tag):
            tag.quoted = True
        tags.append(tag)
        opens = tag.kind == "open"
        if tag.role == "root":
            roots, inside = max(0, roots + (1 if opens else -1 if tag.kind == "close" else 0)), ""
        elif tag.role in _TEXTS:
            inside = inside or tag.name if opens else "" if tag.name == inside else inside
    return tags, comments


def _read_tag(match: re.Match[str], end: int) -> Tag | None:
    """The tag of the match; None when its name is none of ours, or it is cut off so that it may be text."""
    name = canonical_name(match["name"])
    if name is None:
        return None
    role, attributes = TAG_ROLES[name], match["attributes"]
    if not match["end"]:  # what comes next is a `<`, or the end
        if role not in {"root", "skip"} or not _LIKE_ATTRIBUTES.match(attributes):
            return None
        if match.end() < end and attributes and not attributes[0].isspace():
            return None
    kind = "close" if match["close"] else "empty" if attributes.rstrip().endswith("/") else "open"
    return Tag(name, role, kind, match.start(), match.end(), attributes)


def _is_between_quotes(text: str, tag: Tag) -> bool:
    """Whether the same quotation mark stands before and after the tag: `<title>` in a sentence about it."""
    before = text[tag.start - 1 : tag.start]
    return before in {"`", '"', "'"} and text[tag.end : tag.end + 1] == before


def _pair_tags(text: str, tags: list[Tag]) -> None:
    """Pair each closing tag with the nearest open one of its name; tags opened in between stay unclosed."""
    opened, by_name = list[int](), dict[str, list[int]]()
    for index, tag in enumerate(tags):
        if tag.quoted or tag.kind == "empty":
            continue
        top = tags[opened[-1]] if opened else None
        if tag.kind == "open":
            if top is not None and top.name == tag.name and tag.role in _TEXTS and tag.role != "item":
                tag.quoted = True  # there is one title only
                continue
            opened.append(index)
            by_name.setdefault(tag.name, []).append(index)
            continue
        if not by_name.get(tag.name):
            continue
        if top is not None and top.name != tag.name and top.role in _TEXTS and _text_continues(text, tags, index, top.name):
            tag.quoted = True
            continue
        while True:
            other = opened.pop()
            by_name[tags[other].name].pop()
            if tags[other].name == tag.name:
                tag.partner, tags[other].partner = other, index
                break


def _text_continues(text: str, tags: list[Tag], index: int, name: str) -> bool:
    """Whether the text `name` continues after a closing tag of another name, up to its own closing tag."""
    for later in range(index + 1, min(index + 1 + _LOOK_AHEAD, len(tags))):
        tag = tags[later]
        if tag.kind == "close" and tag.name == name:
            return bool(text[tags[index].end : tag.start].strip())
        if tag.role == "skip" or (tag.kind == "open" and tag.role not in {"root", "wrap", "think"}):
            return False
    return False
