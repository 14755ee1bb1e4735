"""Reads observations, summaries and skip marks out of an answer in tags, also damaged ones.

A text field that is closed holds everything up to its closing tag, quoted tags included; one that is not closed ends where the next
field, list or block begins. No text of an observation is lost: text in no field is added to the narrative.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from cmserver.answers.model import ParsedAnswer
from cmserver.answers.text_fields import build_observation, has_event_reference, join_distinct, split_items, split_skip_mark
from cmserver.answers.tolerant_xml import Tag, TagScan, decode_text, parse_attributes
from cmserver.answers.vocabulary import DISTINCTIVE_NAMES, LIST_FIELDS, TAG_ROLES, canonical_name
from cmserver.models.providers.model import SUMMARY_FIELDS, DraftSummary, Skip

_ENVELOPE = re.compile(r"<([A-Za-z][\w-]*+)[^<>]*+>(.*)</\1\s*+>", re.DOTALL)
_ANY_TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
_WORD = re.compile(r"[^\W_]")
_ITEM_ATTRIBUTES = ("path", "name", "file", "value", "text", "title")
_BLOCKS: Final = {"root", "skip"}
_FIELDS: Final = {"observation": {"field", "list", "events"}, "summary": {"summary", "events"}, "skip": {"reason", "events"}}
"""The roles of the fields of each block."""


class _Block(msgspec.Struct):
    """An observation, a summary or a skip mark."""

    name: str
    index: int = -1
    """The index of its opening tag; -1 for fields outside any block."""
    end: int = -1
    """The index of its closing tag; -1 when it has none."""
    outer: _Block | None = None
    fields: dict[str, list[str]] = {}
    loose: list[str] = []
    """Text in no field."""
    loose_before_last_field: int = 0
    nested: bool = False
    """A skip mark that only contains others."""

    def add(self, name: str, *texts: str) -> None:
        self.fields.setdefault(name, []).extend(texts)
        self.loose_before_last_field = len(self.loose)


class XmlAnswer(msgspec.Struct):
    """The content of the tags, and the text around the blocks."""

    parsed: ParsedAnswer
    outside: list[str]


def read_xml_answer(scan: TagScan) -> XmlAnswer:
    """Read everything that can be read; an answer without tags is all `outside`."""
    return _Reader(scan).read()


def block_starts(scan: TagScan) -> list[int]:
    """Positions at which observations, summaries and skip marks begin."""
    return [tag.start for tag in scan.tags if tag.role in _BLOCKS and tag.kind != "close"]


class _Reader:
    def __init__(self, scan: TagScan) -> None:
        self._text, self._tags = scan.text, scan.tags
        self._last_block_at = max(block_starts(scan), default=-1)
        self._position = 0
        """Everything before it is read."""
        self._blocks: list[_Block] = []
        """In the order in which they begin."""
        self._block: _Block | None = None
        """The innermost open block."""
        self._list: Tag | None = None
        self._unclosed: Tag | None = None
        """An opening tag without a closing one, whose text is being read."""
        self._answer = XmlAnswer(ParsedAnswer(), [])

    def read(self) -> XmlAnswer:
        for index, tag in enumerate(self._tags):
            if tag.start < self._position:
                continue
            if self._is_markup(index):
                self._read_text(tag.start)
                self._position = tag.end
                self._read_tag(index)
            elif tag.partner >= 0:
                self._tags[tag.partner].quoted = True
        self._read_text(len(self._text))
        for block in self._blocks:
            self._add_result(block)
        return self._answer

    def _belongs(self, tag: Tag) -> bool:
        """Whether a field is one of the open block's."""
        name = self._block.name if self._block else "observation"
        return tag.role in _FIELDS[name] or (tag.name in {"fact", "concept", "file"} and name == "observation")

    def _is_item(self, tag: Tag) -> bool:
        """Whether it is an item of the open list; `<li>` and the like must be closed, as they may be part of a text."""
        if self._list is None or tag.role != "item":
            return False
        return LIST_FIELDS[self._list.name] == tag.name or tag.partner >= 0 or (tag.kind == "empty" and "=" in tag.attributes)

    def _is_markup(self, index: int) -> bool:
        """Whether a tag is one of the answer's, and no part of a text."""
        tag = self._tags[index]
        if tag.quoted or (tag.role == "think" and self._unclosed):
            return False
        if tag.kind == "close" or self._is_item(tag):
            return True
        if tag.role == "item":
            return tag.partner >= 0 and self._block is not None and self._belongs(tag)
        if self._unclosed is None:
            return tag.role in {*_BLOCKS, "wrap", "think"} or tag.partner >= 0 or self._block is not None
        if tag.role in _BLOCKS:  # with attributes, or followed by another tag
            following = self._tags[index + 1].start if index + 1 < len(self._tags) else len(self._text)
            is_closed = tag.partner > index + (tag.role == "root")
            return is_closed or "=" in tag.attributes or not self._text[tag.end : following].strip()
        is_expected = tag.partner >= 0 or tag.name in DISTINCTIVE_NAMES or tag.name == "title" or tag.role == "summary"
        return is_expected and tag.kind != "empty" and self._belongs(tag)

    def _read_text(self, until: int) -> None:
        """Read the text between two tags: of an unclosed field, items of a list, text in no field, or prose around the blocks."""
        raw, tag, block = self._text[self._position : until], self._unclosed, self._block
        self._position, self._unclosed = until, None
        if tag is not None:
            if until == len(self._text) and raw.rstrip().endswith("```") and raw.count("```") % 2:
                raw = raw.rstrip()[:-3]  # the end of a fence around the answer
            self._add_text(tag, decode_text(raw))
            return
        first, *others = raw.split("<!--")
        raw = first + "".join(rest if end else f"<!--{text}" for text, end, rest in (other.partition("-->") for other in others))
        if block is None or block.index < 0:
            self._answer.outside.append(raw)
        elif _WORD.search(_ANY_TAG.sub("", raw)):  # else it only separates
            if self._list is not None:
                block.add(self._list.name, *map(decode_text, split_items(self._list.name, raw)))
            else:
                envelope = _ENVELOPE.fullmatch(raw.strip())
                block.loose.append(decode_text(envelope[2] if envelope else raw).strip())

    def _read_tag(self, index: int) -> None:
        """Read what begins or ends with this tag."""
        tag = self._tags[index]
        if tag.role == "think":
            if tag.partner >= 0:
                self._position = self._tags[tag.partner].end
            elif tag.kind == "close" and self._last_block_at > tag.start:  # the thoughts so far had no opening tag
                self._block = self._list = None
                self._blocks.clear()
                self._answer.outside.clear()
        elif tag.role == "wrap":
            self._answer.parsed.is_explicitly_empty |= tag.name == "observations" and (tag.partner >= 0 or tag.kind == "empty")
        elif tag.kind != "close":
            self._open_block(index) if tag.role in _BLOCKS else self._read_field(index)
        elif self._list is not None and self._list is self._tags[tag.partner]:
            self._list = None
        elif tag.role in _BLOCKS:
            while self._block is not None and self._block.index >= tag.partner >= 0:
                self._leave_block()

    def _open_block(self, index: int) -> None:
        """Open an observation, a summary or a skip mark, with the fields in its attributes."""
        tag = self._tags[index]
        while (block := self._block) is not None and block.end < index:
            if tag.role == "skip" and block.index >= 0 and block.name != "skip":
                break  # a skip mark inside an observation without a closing tag
            self._leave_block()
        if block is not None and block.name == "observation" and tag.name == "summary" and tag.partner >= 0:
            if self._tags[index + 1].role != "summary":
                return  # the summary of an observation: text in no field
        elif block is not None and block.name == "skip":
            block.nested = True
        block = self._enter_block(_Block(tag.name, index, index if tag.kind == "empty" else tag.partner, self._block))
        for name, value in parse_attributes(tag):
            field = canonical_name(name) or ("events" if tag.role == "skip" and has_event_reference(value) else "")
            if TAG_ROLES.get(field) in _FIELDS[tag.name]:
                block.add(field, *(split_items(field, value) if field in LIST_FIELDS else [value]))
        if tag.role == "skip" and "=" not in tag.attributes and has_event_reference(tag.attributes):
            block.add("events", tag.attributes)
        if tag.kind == "empty" or (tag.role == "skip" and tag.partner < 0 and block.fields):
            self._leave_block()

    def _enter_block(self, block: _Block) -> _Block:
        self._block, self._list = block, None
        self._blocks.append(block)
        return block

    def _leave_block(self) -> None:
        self._block, self._list = self._block.outer if self._block else None, None

    def _read_field(self, index: int) -> None:
        """Read a field, list or item into its block. Fields outside any block form one together; a second title begins the next."""
        tag, block = self._tags[index], self._block
        belongs = self._belongs(tag) or self._is_item(tag)
        if block is not None and block.index < 0 and (not belongs or (tag.name == "title" and "title" in block.fields)):
            self._leave_block()
        if self._block is None and (belongs or tag.role == "summary"):
            self._enter_block(_Block("summary" if tag.role == "summary" else "observation"))
        elif not belongs:
            return  # its text is in no field
        if self._list is not None and tag.role != "item" and self._list.partner < index:
            self._list = None
        if tag.role == "list":
            self._list = tag if tag.kind == "open" else self._list
        elif tag.kind == "empty":
            self._add_text(tag, "")
        elif tag.partner < 0:
            self._unclosed = tag
        else:
            last = self._end_of_closed(index)
            self._position = last.end if last.kind == "close" else last.start
            self._add_text(tag, decode_text(self._text[tag.end : last.start]))

    def _end_of_closed(self, index: int) -> Tag:
        """The tag at which a closed text ends: its closing tag, or that of a list or field that stands inside."""
        inner, last = index + 1, self._tags[index].partner
        while inner < last:
            tag = self._tags[inner]
            if not tag.quoted and tag.partner > inner and tag.name in DISTINCTIVE_NAMES and self._belongs(tag):
                return tag
            inner = max(inner, tag.partner if tag.role == "root" else inner) + 1  # past a quoted block
        return self._tags[last]

    def _add_text(self, tag: Tag, text: str) -> None:
        """Add the text of a field or item to its block."""
        block, name, attributes = self._block, tag.name, parse_attributes(tag)
        if block is None:
            return
        if tag.role == "events":
            text = " ".join([text, *(value for _, value in attributes)])
        elif tag.role == "item":
            name = self._list.name if self._list else {"fact": "facts", "concept": "concepts"}.get(tag.name, "files_read")
            if not text.strip() or name.startswith("files"):
                by_name = {key.lower(): value for key, value in attributes}
                text = next(filter(None, map(by_name.get, _ITEM_ATTRIBUTES)), text)
        block.add(name, text)

    def _add_result(self, block: _Block) -> None:
        """Add what the block holds, unless it is a lone field in prose, or was cut off where it began.

        Where a block with fields was never closed, the text after its last field is the model's prose and is left out.
        """
        parsed, fields = self._answer.parsed, block.fields
        is_cut = fields and block.end < 0 and block.name != "skip"
        loose = "\n\n".join(block.loose[: block.loose_before_last_field] if is_cut else block.loose)
        named = fields.keys() - {"type", "events"}
        if block.name == "skip":
            refs, reason = " ".join(fields.get("events", [])), " ".join(fields.get("reason", []))
            if block.nested and not refs:
                return
            if not refs:
                refs, loose = split_skip_mark(loose)
            if not refs and block.outer is not None:
                refs = " ".join(block.outer.fields.get("events", []))
            parsed.skipped.append(Skip(event=refs, reason=reason or loose))
        elif block.index >= 0 or len(named) > 1 or named & DISTINCTIVE_NAMES:
            block.add("notes" if block.name == "summary" else "narrative", *filter(None, [loose]))
            if block.name == "summary":
                parsed.summaries.append(DraftSummary(**{name: join_distinct(fields.get(name)) for name in SUMMARY_FIELDS}))
            elif block.end >= 0 or named or loose or block.index != len(self._tags) - 1:
                parsed.observations.append(build_observation(fields))
