"""Reads observations, summaries and skip marks out of an answer in tags, also damaged ones.

A text field that is closed holds everything up to its closing tag, quoted tags included; one that is not closed ends where the next
field, list or block begins. No text of an observation is lost: text in no field is added to the narrative.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from cmserver.answers.model import SUMMARY_FIELDS, ParsedAnswer
from cmserver.answers.text_fields import build_observation, has_event_reference, join_distinct, split_items, split_skip_mark
from cmserver.answers.tolerant_xml import Tag, TagScan, decode_text, parse_attributes
from cmserver.answers.vocabulary import DISTINCTIVE_NAMES, LIST_FIELDS, MARK_FIELDS, TEXT_FIELDS, canonical_name
from cmserver.providers.model import DraftObservation, DraftSummary, Skip

_CODE_FENCE = re.compile(r"^[ \t]*+```[\w-]*+[ \t]*+$", re.MULTILINE)
_ENVELOPE = re.compile(r"\s*+<([A-Za-z][\w-]*+)[^<>]*+>(.*)</\1\s*+>\s*+", re.DOTALL)
_ANY_TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
_WORD = re.compile(r"[^\W_]")
_MAX_UNEXPECTED_FIELD_CHARS = 60
_ITEM_ATTRIBUTES = ("path", "name", "file", "value", "text", "title")


class _Block(msgspec.Struct):
    """An observation, a summary or a skip mark while it is being read."""

    name: str
    index: int
    """The index of its opening tag; -1 for fields outside any block."""
    order: int
    fields: dict[str, list[str]]
    unassigned: list[str]
    """Text in no field."""
    closed: bool = False
    nested: bool = False
    """A skip mark that only contains others."""

    unassigned_before_last_field: int = 0
    """How many texts of `unassigned` come before the last field."""

    def add(self, name: str, *texts: str) -> None:
        self.fields.setdefault(name, []).extend(texts)
        self.unassigned_before_last_field = len(self.unassigned)


class XmlAnswer(msgspec.Struct):
    """The content of the tags, and the text around the blocks."""

    parsed: ParsedAnswer
    outside: list[str]


def read_xml_answer(scan: TagScan) -> XmlAnswer:
    """Read everything that can be read; an answer without tags is all `outside`."""
    return _Reader(scan).read()


def block_starts(scan: TagScan) -> list[int]:
    """Positions at which observations, summaries and skip marks begin."""
    return [tag.start for tag in scan.tags if tag.role in {"root", "skip"} and tag.kind != "close"]


class _Reader:
    def __init__(self, scan: TagScan) -> None:
        self._text = scan.text
        self._tags = scan.tags
        self._end = scan.end
        self._comments = deque(scan.comments)
        self._position = 0
        """Everything before it is read."""
        self._blocks: list[_Block] = []
        """Open blocks; the last one is being read."""
        self._list: tuple[str, int] | None = None
        """Name of the open list, and the index of its opening tag."""
        self._done: list[tuple[int, DraftObservation | DraftSummary | Skip]] = []
        self._outside: list[str] = []
        self._is_explicitly_empty = False
        roots = [index for index, tag in enumerate(self._tags) if tag.role in {"root", "skip"} and tag.kind != "close"]
        self._last_root = roots[-1] if roots else -1

    def read(self) -> XmlAnswer:
        """Read the whole answer: observations, summaries and skip marks in their order, and the text outside of them."""
        index = 0
        while index < len(self._tags):
            tag = self._tags[index]
            if tag.start < self._position or not self._is_structure(index):
                index += 1
                continue
            self._consume_text(tag.start)
            self._position = tag.end
            index = self._consume_tag(index)
        self._consume_text(self._end)
        self._finish_all()
        parsed = ParsedAnswer(is_explicitly_empty=self._is_explicitly_empty)
        for _, result in sorted(self._done, key=lambda entry: entry[0]):
            if isinstance(result, DraftObservation):
                parsed.observations.append(result)
            elif isinstance(result, DraftSummary):
                parsed.summaries.append(result)
            else:
                parsed.skipped.append(result)
        return XmlAnswer(parsed, self._outside)

    # The role of a tag in its context

    @property
    def _block(self) -> _Block | None:
        return self._blocks[-1] if self._blocks else None

    def _belongs(self, tag: Tag) -> bool:
        """Whether a field is one of the open block's."""
        block = self._block
        if block is None or block.name == "observation":
            named = tag.name in {"fact", "concept", "file"}
            return tag.role in {"field", "list", "events"} or (tag.role == "item" and block is not None and named)
        if block.name == "summary":
            return tag.role in {"summary", "events"}
        return tag.role in {"reason", "events"}

    def _is_item(self, tag: Tag) -> bool:
        """Whether it is an item of the open list; `<li>` and the like must be closed, as they may be part of a text."""
        if self._list is None or tag.role != "item":
            return False
        return LIST_FIELDS[self._list[0]] == tag.name or tag.partner >= 0 or (tag.kind == "empty" and "=" in tag.attributes)

    def _is_structure(self, index: int) -> bool:
        """Whether a tag between the fields is markup."""
        tag = self._tags[index]
        if tag.quoted:
            return False
        if tag.kind == "close" or tag.role in {"skip", "wrap", "think", "root"}:
            return True
        if tag.role == "item":
            return self._is_item(tag) or (self._list is None and self._belongs(tag) and tag.partner >= 0)
        if self._block is None:
            return tag.partner >= 0 and tag.role in {"field", "list", "events", "summary"}
        if self._list is not None and self._tags[self._list[1]].partner >= 0 and self._belongs(tag):
            return tag.name in DISTINCTIVE_NAMES and tag.partner >= 0  # a field in a list that is closed behind it
        return tag.role != "reason" or self._belongs(tag)

    def _ends_text(self, index: int, opened_at: int) -> bool:
        """Whether a tag ends the unclosed text that was opened at the index `opened_at`."""
        tag = self._tags[index]
        if tag.quoted:
            return False
        if tag.kind == "close":
            return tag.partner < opened_at and tag.role != "think"
        if tag.role in {"root", "skip"}:
            return self._begins_block(index)
        if tag.role == "item":
            return self._is_item(tag) or (tag.partner >= 0 and self._belongs(tag))
        if tag.kind == "empty" or not self._belongs(tag):
            return False
        expected = tag.name in DISTINCTIVE_NAMES or tag.name == "title" or tag.role == "summary" or tag.partner >= 0
        return expected or len(self._text_until_next_tag(index).strip()) <= _MAX_UNEXPECTED_FIELD_CHARS

    def _begins_block(self, index: int) -> bool:
        """Whether `<observation>` in a text opens a block: it has attributes or is followed by another tag."""
        tag = self._tags[index]
        if "=" in tag.attributes or tag.partner > index + 1 or (tag.role == "skip" and tag.partner >= 0):
            return True
        following = self._tags[index + 1] if index + 1 < len(self._tags) else None
        if following is None:
            return not self._text[tag.end : self._end].strip()
        return not self._text[tag.end : following.start].strip()

    def _text_until_next_tag(self, index: int) -> str:
        following = self._tags[index + 1].start if index + 1 < len(self._tags) else self._end
        return self._text[self._tags[index].end : following]

    # Moving forward

    def _consume_text(self, until: int) -> None:
        """Read the text between two tags: items of a list, text in no field, or prose around the blocks."""
        if until <= self._position:
            return
        pieces = list[str]()
        at = self._position
        while self._comments and self._comments[0].start < until:
            comment = self._comments.popleft()
            if comment.start >= at:
                pieces.append(self._text[at : comment.start])
                at = comment.end
        raw = "".join([*pieces, self._text[at:until]])
        self._position = until
        if not raw.strip():
            return
        block = self._block
        if block is None or block.index < 0:
            self._outside.append(raw)
        elif self._list is not None:
            if _WORD.search(_ANY_TAG.sub("", raw)):  # else it only separates items
                block.add(self._list[0], *map(decode_text, split_items(self._list[0], raw)))
        else:
            block.unassigned.append(raw)

    def _consume_tag(self, index: int) -> int:
        """Read what begins with this tag; returns the index of the next tag to read."""
        tag = self._tags[index]
        if tag.kind == "close":
            self._close(index)
        elif tag.role == "think":
            if tag.partner >= 0:
                self._position = self._tags[tag.partner].end
                return tag.partner + 1
        elif tag.role == "wrap":
            self._is_explicitly_empty = self._is_explicitly_empty or (
                tag.name == "observations" and (tag.partner >= 0 or tag.kind == "empty")
            )
        elif tag.role == "root":
            self._open_block(index)
        elif tag.role == "skip":
            self._open_skip(index)
        else:
            return self._read_field(index)
        return index + 1

    def _close(self, index: int) -> None:
        """Close what the tag closes: a list, blocks, or thoughts without an opening tag, which are dropped."""
        tag = self._tags[index]
        if tag.partner < 0:
            if tag.role == "think" and self._last_root > index:
                self._finish_all()  # the thoughts so far had no opening tag
                self._done.clear()
                self._outside.clear()
            elif tag.role == "root" and self._block is not None and self._block.index < 0:
                self._finish()  # a block without its opening tag
        elif tag.role == "list":
            if self._list is not None and self._list[1] == tag.partner:
                self._list = None
        elif tag.role in {"root", "skip", "wrap"}:
            while self._blocks and self._blocks[-1].index >= tag.partner:
                self._blocks[-1].closed = self._blocks[-1].index == tag.partner
                self._finish()

    def _open_block(self, index: int) -> None:
        """Open an observation or a summary, with the fields in its attributes."""
        tag = self._tags[index]
        block = self._block
        if tag.name == "summary" and tag.partner >= 0 and block is not None and block.name == "observation":
            inside = block.index >= 0 and self._tags[block.index].partner > index
            if inside and self._tags[index + 1].role != "summary":
                return  # the summary of an observation: text in no field
        self._close_previous(index)
        new_block = _Block(tag.name, index, index, {}, [])
        for name, value in parse_attributes(tag):
            field = canonical_name(name)
            if field == "events" or (field in SUMMARY_FIELDS if tag.name == "summary" else field in {*MARK_FIELDS, *TEXT_FIELDS}):
                new_block.add(str(field), value)
            elif field in LIST_FIELDS and tag.name == "observation":
                new_block.add(field, *split_items(field, value))
        self._blocks.append(new_block)
        if tag.kind == "empty":
            new_block.closed = True
            self._finish()

    def _open_skip(self, index: int) -> None:
        """Open a skip mark, with the events and the reason in its attributes."""
        tag = self._tags[index]
        if self._blocks and self._blocks[-1].index < 0:
            self._finish()
        if self._block is not None and self._block.name == "skip":
            if self._tags[self._block.index].partner < 0:
                self._finish()
            else:
                self._block.nested = True
        new_block = _Block("skip", index, index, {}, [])
        for name, value in parse_attributes(tag):
            if canonical_name(name) in {"events", "reason"}:
                new_block.add(str(canonical_name(name)), value)
        if "=" not in tag.attributes and has_event_reference(tag.attributes):
            new_block.add("events", tag.attributes)
        self._blocks.append(new_block)
        if tag.kind == "empty" or (tag.partner < 0 and new_block.fields):
            self._finish()

    def _close_previous(self, index: int) -> None:
        """Finish the blocks before a new one, unless they contain it."""
        self._list = None
        while self._blocks:
            open_block = self._blocks[-1]
            if open_block.index >= 0 and self._tags[open_block.index].partner > index and open_block.name != "skip":
                return
            self._finish()

    def _read_field(self, index: int) -> int:
        """Read a field, list or item into its block; returns the index of the next tag."""
        tag = self._tags[index]
        if not self._belongs(tag) and not self._is_item(tag) and self._block is not None and self._block.index >= 0:
            return index + 1  # its text is in no field
        self._open_implicit_block(index)
        block = self._block
        if block is None:
            return index + 1
        if self._list is not None and tag.role != "item" and self._tags[self._list[1]].partner < index:
            self._list = None
        if tag.role == "list":
            if tag.kind == "open":
                self._list = (tag.name, index)
            return index + 1
        name = tag.name
        if tag.role == "item":
            name = self._list[0] if self._list else {"fact": "facts", "concept": "concepts"}.get(tag.name, "files_read")
        text, next_index = (
            ("", index + 1) if tag.kind == "empty" else self._read_closed(index) if tag.partner >= 0 else self._read_unclosed(index)
        )
        if tag.role == "item" and "=" in tag.attributes and (not text.strip() or name.startswith("files")):
            text = _item_attribute(tag) or text
        if tag.role == "events":
            self._read_events(block, tag, text)
        else:
            block.add(name, text)
        return next_index

    def _open_implicit_block(self, index: int) -> None:
        """Fields outside any block form one together; a second title begins the next."""
        tag, block = self._tags[index], self._block
        if block is not None and block.index < 0 and (not self._belongs(tag) or (tag.name == "title" and "title" in block.fields)):
            self._finish()
            block = None
        if block is None:
            self._blocks.append(_Block("summary" if tag.role == "summary" else "observation", -1, index, {}, []))

    def _read_events(self, block: _Block, tag: Tag, text: str) -> None:
        """Add the events that a block is about; in a skip mark, events with a reason of their own are a mark of their own."""
        attributes = dict(parse_attributes(tag))
        reason = next((value for name, value in attributes.items() if canonical_name(name) == "reason"), None)
        refs = " ".join([text, *(value for name, value in attributes.items() if canonical_name(name) != "reason")])
        if block.name == "skip" and reason is not None:
            block.nested = True
            self._done.append((block.index, Skip(event=refs, reason=reason)))
        else:
            block.add("events", refs)

    def _read_closed(self, index: int) -> tuple[str, int]:
        """Read a closed text; return it and the index of the next tag. Lists and fields inside go to their own field."""
        tag = self._tags[index]
        last = self._tags[tag.partner]
        pieces, at, inner = list[str](), tag.end, index + 1
        self._position = last.end
        while inner < tag.partner:
            inner_tag = self._tags[inner]
            if not inner_tag.quoted and inner_tag.kind == "open" and inner_tag.start >= at:
                if inner_tag.role == "root" and inner_tag.partner >= 0:
                    inner = inner_tag.partner  # a quoted block
                elif inner_tag.name in DISTINCTIVE_NAMES and self._belongs(inner_tag) and inner_tag.partner >= 0:
                    pieces.append(self._text[at : inner_tag.start])
                    self._lift(inner)
                    inner = inner_tag.partner
                    at = self._tags[inner].end
                elif inner_tag.partner < 0 and self._crosses(inner_tag, tag.partner):
                    pieces.append(self._text[at : inner_tag.start])
                    at = last.start
                    self._add_lifted(inner_tag.name, decode_text(self._text[inner_tag.end : last.start]))
                    break
            inner += 1
        pieces.append(self._text[at : last.start])
        return "".join(map(decode_text, pieces)), tag.partner + 1

    def _crosses(self, tag: Tag, end: int) -> bool:
        """Whether a field opened inside a text is closed right after it: `<title>A<narrative>B</title></narrative>`."""
        if end + 1 >= len(self._tags) or tag.role not in {"field", "summary"} or not self._belongs(tag):
            return False
        following = self._tags[end + 1]
        between = self._text[self._tags[end].end : following.start]
        return following.kind == "close" and following.name == tag.name and following.partner < 0 and not between.strip()

    def _lift(self, index: int) -> None:
        """Add a field or list that stands inside another field to the block."""
        tag = self._tags[index]
        raw = self._text[tag.end : self._tags[tag.partner].start]
        if tag.role != "list":
            self._add_lifted(tag.name, decode_text(raw))
            return
        items = list[str]()
        inner = index + 1
        while inner < tag.partner:
            item = self._tags[inner]
            if item.role == "item" and item.kind == "open" and item.partner >= 0:
                items.append(decode_text(self._text[item.end : self._tags[item.partner].start]))
                inner = item.partner
            inner += 1
        self._add_lifted(tag.name, *(items or [decode_text(item) for item in split_items(tag.name, raw)]))

    def _add_lifted(self, name: str, *texts: str) -> None:
        if self._block is not None:
            self._block.add(name, *texts)

    def _read_unclosed(self, index: int) -> tuple[str, int]:
        """Read the text of a field that is not closed; returns it and the index of the next tag."""
        following = index + 1
        while following < len(self._tags) and not self._ends_text(following, index):
            following += 1
        self._position = self._tags[following].start if following < len(self._tags) else self._end
        text = self._text[self._tags[index].end : self._position]
        if following == len(self._tags) and text.rstrip().endswith("```") and text.count("```") % 2:
            text = text.rstrip()[:-3]  # the end of a fence around the answer
        return decode_text(text), following

    # Finishing blocks

    def _finish_all(self) -> None:
        while self._blocks:
            self._finish()

    def _finish(self) -> None:
        """Take off the last block and add it to the results, unless it is a lone field in prose, or was cut off where it began."""
        block = self._blocks.pop()
        self._list = None
        unassigned = _unassigned_text(block)
        if block.name == "skip":
            self._finish_skip(block, unassigned)
        elif block.name == "summary":
            if unassigned:
                block.add("notes", unassigned)
            fields = {name: join_distinct(block.fields.get(name)) for name in SUMMARY_FIELDS}
            if block.index >= 0 or _is_whole(block):
                self._done.append((block.order, DraftSummary(**fields)))
        elif block.index >= 0 or _is_whole(block):
            if unassigned:
                block.add("narrative", unassigned)
            if block.index == len(self._tags) - 1 and not block.closed and not block.fields.keys() - {"type", "events"}:
                return  # the answer was cut off where it began
            self._done.append((block.order, build_observation(block.fields)))

    def _finish_skip(self, block: _Block, unassigned: str) -> None:
        """Add the skip mark to the results; its events may stand in its text, or in the observation around it."""
        if block.nested and not block.fields.get("events"):
            return
        refs, reason = " ".join(block.fields.get("events", [])), " ".join(block.fields.get("reason", []))
        if not refs:
            refs, unassigned = split_skip_mark(unassigned)
        outer = self._block
        if not refs and outer is not None and outer.name == "observation":
            refs = " ".join(outer.fields.get("events", []))
        self._done.append((block.index, Skip(event=refs, reason=reason or unassigned)))


def _is_whole(block: _Block) -> bool:
    """Whether fields outside any block form one: a lone `<title>` in prose does not."""
    return len(block.fields.keys() - {"type", "events"}) > 1 or bool(block.fields.keys() & DISTINCTIVE_NAMES)


def _unassigned_text(block: _Block) -> str:
    """Return the text of a block that stands in none of its fields, without code fences and enclosing tags; "" when there is none.

    Where a block with fields was never closed, the text after its last field is the model's prose and is left out.
    """
    if not block.unassigned:
        return ""
    is_cut = block.fields and not block.closed and block.name != "skip"
    unassigned = block.unassigned[: block.unassigned_before_last_field] if is_cut else block.unassigned
    texts = list[str]()
    for raw in unassigned:
        text = (_CODE_FENCE.sub("", raw) if "```" in raw else raw).strip()
        if text[:1] == "<" and (envelope := _ENVELOPE.fullmatch(text)) is not None:
            text = envelope[2].strip()
        if _WORD.search(_ANY_TAG.sub("", text)):
            texts.append(decode_text(text))
    return "\n\n".join(texts)


def _item_attribute(tag: Tag) -> str:
    """The item in an attribute of the tag, as in `<file path="..."/>`; "" when there is none."""
    attributes = {name.lower(): value for name, value in parse_attributes(tag)}
    return next((attributes[name] for name in _ITEM_ATTRIBUTES if attributes.get(name)), "")
