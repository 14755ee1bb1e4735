"""Finds the tags of an answer, pairs them, and marks those that are only quoted in a text.

An XML parser stops at the first unescaped `&`. Lenient ones go on, but lose `a < b` and read `List<T>` as an element. Here only
tags of our vocabulary are tags; everything else is text, unchanged. Patterns are possessive and loops only move forward, so that
the work grows linearly with the answer.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from cmserver.answers.vocabulary import NAME_PATTERN, TAG_ROLES, TagRole, canonical_name, is_name_prefix


def _quoted_value(quote: str) -> str:
    """A quoted value on one line; a `<` in it that begins none of our tags is allowed: reason="List<T> > 3"."""
    return rf"{quote}(?>(?:[^{quote}<\n]++|<(?!\s*+/?\s*+(?:{NAME_PATTERN})(?!\w)))*){quote}"


_MARKUP = re.compile(r"<(?:(!--|!\[CDATA\[)|\s*+(/?)\s*+([A-Za-z][\w-]{0,40}+)(?=[\s/<>\"']|\Z))")
_REST = re.compile(rf"""((?>(?:[^<>"']++|{_quoted_value('"')}|{_quoted_value("'")}|["'])*))(>?)""", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""(?<![\w:.-])([A-Za-z_][\w:.-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|"([^"]*+)\Z|'([^']*+)\Z|([^\s"'>]++))"""
)
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CDATA = re.compile(r"<!\[CDATA\[((?>(?:[^\]]++|\](?!\]>))*))(?:\]\]>|\Z)")
_LIKE_ATTRIBUTES = re.compile(r"\s*+(?:\Z|(?<=\s)[A-Za-z_][\w:.-]*+\s*+(?:=|\Z))")
_CUT = re.compile(r"<(?:!(?:-|\[C?D?A?T?A?)?|\s*+/?\s*+(?:([A-Za-z][\w-]*+)(\s[\w:.\s-]*+(=[^>]*+)?)?)?)\Z")
_TEXTS = {"field", "item", "summary", "events", "reason"}
MAX_TAGS = 30_000
"""Later tags are not read; the longest real answer has fewer."""
_LOOK_AHEAD = 8


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


class TagScan(msgspec.Struct, frozen=True):
    """An answer with its tags, without the half tag at the end of one that was cut off."""

    text: str
    tags: list[Tag]


def scan_tags(text: str) -> TagScan:
    """Find the tags of an answer, and pair them."""
    text = text[: _end_of_whole_tags(text)]
    tags = _find_tags(text)
    _pair_tags(text, tags)
    return TagScan(text[: tags[-1].end] if len(tags) >= MAX_TAGS else text, tags)


def decode_text(raw: str) -> str:
    """Decode a text of the answer: CDATA sections unchanged, entities decoded once elsewhere."""
    pieces = _CDATA.split(raw) if "<![CDATA[" in raw else [raw]
    return "".join(piece if index % 2 else _ENTITY.sub(_decode_entity, piece) for index, piece in enumerate(pieces))


def parse_attributes(tag: Tag) -> list[tuple[str, str]]:
    """Name and value of each attribute, names as written."""
    if "=" not in tag.attributes:
        return []
    return [(match[1], decode_text(next(filter(None, match.groups()[1:]), ""))) for match in _ATTRIBUTE.finditer(tag.attributes)]


def _decode_entity(match: re.Match[str]) -> str:
    if match[1]:
        return _ENTITIES[match[1]]
    code = int(match[2]) if match[2] else int(match[3], 16)
    return chr(code) if 0 < code < 0x110000 else match[0]


def _end_of_whole_tags(text: str) -> int:
    """The position of half a tag of ours at the end of a text, else the text's length."""
    cut = _CUT.match(text, max(0, text.rfind("<")))
    if cut is None or (cut[1] and not is_name_prefix(cut[1])):
        return len(text)
    name = canonical_name(cut[1]) if cut[1] else None
    is_text = cut[2] and (name is None or not _LIKE_ATTRIBUTES.match(cut[2]))
    is_block = cut[3] and name in {"observation", "summary", "skip"}  # half a block counts with the attributes that it has
    return len(text) if is_text or is_block else cut.start()


def _find_tags(text: str) -> list[Tag]:
    """The tags of ours outside of comments and CDATA. Those between quotes are marked."""
    tags, position, ends_of = list[Tag](), 0, dict[str, int]()
    while len(tags) < MAX_TAGS and (match := _MARKUP.search(text, position)) is not None:
        position = match.end()
        if match[1]:
            in_text = bool(tags) and tags[-1].kind == "open" and tags[-1].role in _TEXTS
            closing = "-->" if match[1] == "!--" else "]]>"
            if in_text == (closing == "]]>"):  # a comment in a text is text
                if 0 <= ends_of.get(closing, 0) < position:
                    ends_of[closing] = text.find(closing, position)
                position = max(position, ends_of[closing])
            continue
        name, rest = canonical_name(match[3]), _REST.match(text, position)
        if name is None or rest is None:
            continue
        attributes = rest[1]
        if name == "events" and "reason" in attributes:
            name = "skip"  # `<event id="e1" reason="..."/>` in a list of what was skipped
        role = TAG_ROLES[name]
        if not rest[2] and (role not in {"root", "skip"} or not _LIKE_ATTRIBUTES.match(attributes)):
            continue
        position = rest.end()
        kind = "close" if match[2] else "empty" if attributes.rstrip().endswith("/") else "open"
        before = text[match.start() - 1 : match.start()]
        quoted = before in {"`", '"', "'"} and text[position : position + 1] == before  # `<title>` in a sentence about it
        tags.append(Tag(name, role, kind, match.start(), position, attributes, quoted=quoted))
    return tags


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
        elif by_name.get(tag.name):
            if top is not None and top.name != tag.name and top.role in _TEXTS and (own := _own_closing(tags, index, top.name)):
                tag.quoted = True
                if not text[tag.end : own.start].strip():
                    own.start = tag.start  # crossed tags: the text ends before both
                continue
            while tag.partner < 0:
                other = opened.pop()
                by_name[tags[other].name].pop()
                if tags[other].name == tag.name:
                    tag.partner, tags[other].partner = other, index


def _own_closing(tags: list[Tag], index: int, name: str) -> Tag | None:
    """The closing tag of the text `name` soon after a closing tag of another name, which then is part of the text."""
    for tag in tags[index + 1 : index + 1 + _LOOK_AHEAD]:
        if tag.kind == "close" and tag.name == name:
            return tag
        if tag.role == "skip" or (tag.kind == "open" and tag.role not in {"root", "wrap", "think"}):
            return None
    return None
