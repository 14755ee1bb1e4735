"""Observations, summary and skip marks out of an answer in tags, whatever was done to it.

What a text field holds is decided by whether it was closed: then everything up to its end is text, also tags that it quotes; else
it ends where the next field, list or block begins. Nothing that stands in an observation is lost: what is in no field is narrative.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from cmserver.generation.answers.loose import items_of, names_events, skip_of
from cmserver.generation.answers.model import SUMMARY_FIELDS, Heard, Skipped
from cmserver.generation.answers.tags import Scanned, Tag, attributes_of, plain
from cmserver.generation.answers.vocabulary import LISTS, TELLING, TEXTS, meant
from cmserver.providers.model import DraftObservation, DraftSummary

_FENCE = re.compile(r"^[ \t]*+```[\w-]*+[ \t]*+$", re.MULTILINE)
_ENVELOPE = re.compile(r"\s*+<([A-Za-z][\w-]*+)[^<>]*+>(.*)</\1\s*+>\s*+", re.DOTALL)
_ANY_TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
_WORD = re.compile(r"[^\W_]")
_SHORT = 60
_SAYS_WHICH = ("path", "name", "file", "value", "text", "title")


class _Block(msgspec.Struct):
    """An observation, a summary or a skip mark that is being read."""

    name: str
    place: int
    """Of its opening tag; -1 for fields that stand in no block."""
    order: int
    fields: dict[str, list[str]]
    loose: list[str]
    closed: bool = False
    nested: bool = False
    """A skip mark with others in it: it only holds them."""

    before_fields: int = 0
    """How many of the loose words stand before its last field."""

    def say(self, name: str, *texts: str) -> None:
        self.fields.setdefault(name, []).extend(texts)
        self.before_fields = len(self.loose)


class Read(msgspec.Struct):
    """What the tags of an answer say, and what stands around its blocks."""

    heard: Heard
    outside: list[str]


def read(scanned: Scanned) -> Read:
    """Everything that can be read; an answer without tags is all `outside`."""
    return _Reader(scanned).read()


def block_starts(scanned: Scanned) -> list[int]:
    """Where observations, summaries and skip marks begin."""
    return [tag.start for tag in scanned.tags if tag.sort in {"root", "skip"} and tag.kind != "close"]


class _Reader:
    def __init__(self, scanned: Scanned) -> None:
        self._text = scanned.text
        self._tags = scanned.tags
        self._end = scanned.end
        self._comments = deque(scanned.comments)
        self._at = 0
        """Up to here everything is read."""
        self._blocks: list[_Block] = []
        """The one that is being read is the last; those before it are closed behind it."""
        self._list: tuple[str, int] | None = None
        """The list that is open, and the place of its opening tag."""
        self._done: list[tuple[int, DraftObservation | DraftSummary | Skipped]] = []
        self._outside: list[str] = []
        self._nothing = False
        roots = [place for place, tag in enumerate(self._tags) if tag.sort in {"root", "skip"} and tag.kind != "close"]
        self._last_root = roots[-1] if roots else -1

    def read(self) -> Read:
        place = 0
        while place < len(self._tags):
            tag = self._tags[place]
            if tag.start < self._at or not self._is_structure(place):
                place += 1
                continue
            self._pass_over(tag.start)
            self._at = tag.end
            place = self._take(place)
        self._pass_over(self._end)
        self._finish_all()
        heard = Heard(nothing=self._nothing)
        for _, one in sorted(self._done, key=lambda done: done[0]):
            if isinstance(one, DraftObservation):
                heard.observations.append(one)
            elif isinstance(one, DraftSummary):
                heard.summaries.append(one)
            else:
                heard.skipped.append(one)
        return Read(heard, self._outside)

    # What a tag is here

    @property
    def _block(self) -> _Block | None:
        return self._blocks[-1] if self._blocks else None

    def _belongs(self, tag: Tag) -> bool:
        """Whether a field makes sense in the block that is open."""
        block = self._block
        if block is None or block.name == "observation":
            named = tag.name in {"fact", "concept", "file"}
            return tag.sort in {"field", "list", "events"} or (tag.sort == "item" and block is not None and named)
        if block.name == "summary":
            return tag.sort in {"summary", "events"}
        return tag.sort in {"reason", "events"}

    def _is_item(self, tag: Tag) -> bool:
        """Whether it is an item of the list that is open; `<li>` and the like only whole, as they may be words of a text."""
        if self._list is None or tag.sort != "item":
            return False
        return LISTS[self._list[0]] == tag.name or tag.partner >= 0 or (tag.kind == "empty" and "=" in tag.attributes)

    def _is_structure(self, place: int) -> bool:
        """Between the fields."""
        tag = self._tags[place]
        if tag.quoted:
            return False
        if tag.kind == "close" or tag.sort in {"skip", "wrap", "think", "root"}:
            return True
        if tag.sort == "item":
            return self._is_item(tag) or (self._list is None and self._belongs(tag) and tag.partner >= 0)
        if self._block is None:
            return tag.partner >= 0 and tag.sort in {"field", "list", "events", "summary"}
        if self._list is not None and self._tags[self._list[1]].partner >= 0 and self._belongs(tag):
            return tag.name in TELLING and tag.partner >= 0  # a field in a list that is closed behind it
        return tag.sort != "reason" or self._belongs(tag)

    def _ends_text(self, place: int, since: int) -> bool:
        """In a text that was never closed, opened at `since`."""
        tag = self._tags[place]
        if tag.quoted:
            return False
        if tag.kind == "close":
            return tag.partner < since and tag.sort != "think"
        if tag.sort in {"root", "skip"}:
            return self._begins_block(place)
        if tag.sort == "item":
            return self._is_item(tag) or (tag.partner >= 0 and self._belongs(tag))
        if tag.kind == "empty" or not self._belongs(tag):
            return False
        expected = tag.name in TELLING or tag.name == "title" or tag.sort == "summary" or tag.partner >= 0
        return expected or len(self._until_next(place).strip()) <= _SHORT

    def _begins_block(self, place: int) -> bool:
        """An opening like `<observation>` in a text: it is one if what follows is what follows in an answer."""
        tag = self._tags[place]
        if "=" in tag.attributes or tag.partner > place + 1 or (tag.sort == "skip" and tag.partner >= 0):
            return True
        following = self._tags[place + 1] if place + 1 < len(self._tags) else None
        if following is None:
            return not self._text[tag.end : self._end].strip()
        return not self._text[tag.end : following.start].strip()

    def _until_next(self, place: int) -> str:
        following = self._tags[place + 1].start if place + 1 < len(self._tags) else self._end
        return self._text[self._tags[place].end : following]

    # Going on

    def _pass_over(self, until: int) -> None:
        """What stands between the tags: items of a list, words in no field, or prose around it all."""
        if until <= self._at:
            return
        pieces = list[str]()
        at = self._at
        while self._comments and self._comments[0].start < until:
            comment = self._comments.popleft()
            if comment.start >= at:
                pieces.append(self._text[at : comment.start])
                at = comment.end
        raw = "".join([*pieces, self._text[at:until]])
        self._at = until
        if not raw.strip():
            return
        block = self._block
        if block is None or block.place < 0:
            self._outside.append(raw)
        elif self._list is not None:
            if _WORD.search(_ANY_TAG.sub("", raw)):  # else it only holds items together
                block.say(self._list[0], *map(plain, items_of(self._list[0], raw)))
        else:
            block.loose.append(raw)

    def _take(self, place: int) -> int:
        """Read the structure that begins with this tag; where to go on."""
        tag = self._tags[place]
        if tag.kind == "close":
            self._take_close(place)
        elif tag.sort == "think":
            if tag.partner >= 0:
                self._at = self._tags[tag.partner].end
                return tag.partner + 1
        elif tag.sort == "wrap":
            self._nothing = self._nothing or (tag.name == "observations" and (tag.partner >= 0 or tag.kind == "empty"))
        elif tag.sort == "root":
            self._open_block(place)
        elif tag.sort == "skip":
            self._open_skip(place)
        else:
            return self._take_field(place)
        return place + 1

    def _take_close(self, place: int) -> None:
        tag = self._tags[place]
        if tag.partner < 0:
            if tag.sort == "think" and self._last_root > place:
                self._finish_all()  # the thoughts before it had no opening tag
                self._done.clear()
                self._outside.clear()
            elif tag.sort == "root" and self._block is not None and self._block.place < 0:
                self._finish()  # a block without its opening tag
        elif tag.sort == "list":
            if self._list is not None and self._list[1] == tag.partner:
                self._list = None
        elif tag.sort in {"root", "skip", "wrap"}:
            while self._blocks and self._blocks[-1].place >= tag.partner:
                self._blocks[-1].closed = self._blocks[-1].place == tag.partner
                self._finish()

    def _open_block(self, place: int) -> None:
        tag = self._tags[place]
        block = self._block
        if tag.name == "summary" and tag.partner >= 0 and block is not None and block.name == "observation":
            inside = block.place >= 0 and self._tags[block.place].partner > place
            if inside and self._tags[place + 1].sort != "summary":
                return  # the summary of an observation: words in no field
        self._leave(place)
        fresh = _Block(tag.name, place, place, {}, [])
        for name, value in attributes_of(tag):
            field = meant(name)
            if field == "events" or (field in SUMMARY_FIELDS if tag.name == "summary" else field in {"type", *TEXTS}):
                fresh.say(str(field), value)
            elif field in LISTS and tag.name == "observation":
                fresh.say(field, *items_of(field, value))
        self._blocks.append(fresh)
        if tag.kind == "empty":
            fresh.closed = True
            self._finish()

    def _open_skip(self, place: int) -> None:
        tag = self._tags[place]
        if self._blocks and self._blocks[-1].place < 0:
            self._finish()
        if self._block is not None and self._block.name == "skip":
            if self._tags[self._block.place].partner < 0:
                self._finish()
            else:
                self._block.nested = True
        fresh = _Block("skip", place, place, {}, [])
        for name, value in attributes_of(tag):
            if meant(name) in {"events", "reason"}:
                fresh.say(str(meant(name)), value)
        if "=" not in tag.attributes and names_events(tag.attributes):
            fresh.say("events", tag.attributes)
        self._blocks.append(fresh)
        if tag.kind == "empty" or (tag.partner < 0 and fresh.fields):
            self._finish()

    def _leave(self, place: int) -> None:
        """A new block begins: the one before it is over, unless it is closed behind this one."""
        self._list = None
        while self._blocks:
            open_one = self._blocks[-1]
            if open_one.place >= 0 and self._tags[open_one.place].partner > place and open_one.name != "skip":
                return
            self._finish()

    def _take_field(self, place: int) -> int:
        tag = self._tags[place]
        if not self._belongs(tag) and not self._is_item(tag) and self._block is not None and self._block.place >= 0:
            return place + 1  # its words are in no field
        self._enter_without_block(place)
        block = self._block
        if block is None:
            return place + 1
        if self._list is not None and tag.sort != "item" and self._tags[self._list[1]].partner < place:
            self._list = None
        if tag.sort == "list":
            if tag.kind == "open":
                self._list = (tag.name, place)
            return place + 1
        name = tag.name
        if tag.sort == "item":
            name = self._list[0] if self._list else {"fact": "facts", "concept": "concepts"}.get(tag.name, "files_read")
        text, further = (
            ("", place + 1) if tag.kind == "empty" else self._closed(place) if tag.partner >= 0 else self._unclosed(place)
        )
        if tag.sort == "item" and "=" in tag.attributes and (not text.strip() or name.startswith("files")):
            text = _which(tag) or text
        if tag.sort == "events":
            self._take_events(block, tag, text)
        else:
            block.say(name, text)
        return further

    def _enter_without_block(self, place: int) -> None:
        """Fields that stand in no block make one together; a second title begins the next."""
        tag, block = self._tags[place], self._block
        if block is not None and block.place < 0 and (not self._belongs(tag) or (tag.name == "title" and "title" in block.fields)):
            self._finish()
            block = None
        if block is None:
            self._blocks.append(_Block("summary" if tag.sort == "summary" else "observation", -1, place, {}, []))

    def _take_events(self, block: _Block, tag: Tag, text: str) -> None:
        said = dict(attributes_of(tag))
        reason = next((value for name, value in said.items() if meant(name) == "reason"), None)
        refs = " ".join([text, *(value for name, value in said.items() if meant(name) != "reason")])
        if block.name == "skip" and reason is not None:
            block.nested = True
            self._done.append((block.place, Skipped(event=refs, reason=reason)))
        else:
            block.say("events", refs)

    def _closed(self, place: int) -> tuple[str, int]:
        """The text up to its end, and where to go on. Only what can hardly be a word of it is taken out: whole lists and fields."""
        tag = self._tags[place]
        last = self._tags[tag.partner]
        pieces, at, inner = list[str](), tag.end, place + 1
        self._at = last.end
        while inner < tag.partner:
            one = self._tags[inner]
            if not one.quoted and one.kind == "open" and one.start >= at:
                if one.sort == "root" and one.partner >= 0:
                    inner = one.partner  # a block that the text quotes
                elif one.name in TELLING and self._belongs(one) and one.partner >= 0:
                    pieces.append(self._text[at : one.start])
                    self._lift(inner)
                    inner = one.partner
                    at = self._tags[inner].end
                elif one.partner < 0 and self._crosses(one, tag.partner):
                    pieces.append(self._text[at : one.start])
                    at = last.start
                    self._say_lifted(one.name, plain(self._text[one.end : last.start]))
                    break
            inner += 1
        pieces.append(self._text[at : last.start])
        return "".join(map(plain, pieces)), tag.partner + 1

    def _crosses(self, tag: Tag, end: int) -> bool:
        """`<title>A<narrative>B</title></narrative>`: what was opened inside is closed right behind."""
        if end + 1 >= len(self._tags) or tag.sort not in {"field", "summary"} or not self._belongs(tag):
            return False
        following = self._tags[end + 1]
        between = self._text[self._tags[end].end : following.start]
        return following.kind == "close" and following.name == tag.name and following.partner < 0 and not between.strip()

    def _lift(self, place: int) -> None:
        tag = self._tags[place]
        raw = self._text[tag.end : self._tags[tag.partner].start]
        if tag.sort != "list":
            self._say_lifted(tag.name, plain(raw))
            return
        items = list[str]()
        inner = place + 1
        while inner < tag.partner:
            one = self._tags[inner]
            if one.sort == "item" and one.kind == "open" and one.partner >= 0:
                items.append(plain(self._text[one.end : self._tags[one.partner].start]))
                inner = one.partner
            inner += 1
        self._say_lifted(tag.name, *(items or [plain(item) for item in items_of(tag.name, raw)]))

    def _say_lifted(self, name: str, *texts: str) -> None:
        if self._block is not None:
            self._block.say(name, *texts)

    def _unclosed(self, place: int) -> tuple[str, int]:
        following = place + 1
        while following < len(self._tags) and not self._ends_text(following, place):
            following += 1
        self._at = self._tags[following].start if following < len(self._tags) else self._end
        text = self._text[self._tags[place].end : self._at]
        if following == len(self._tags) and text.rstrip().endswith("```") and text.count("```") % 2:
            text = text.rstrip()[:-3]  # the end of a fence around it all
        return plain(text), following

    # Blocks, read

    def _finish_all(self) -> None:
        while self._blocks:
            self._finish()

    def _finish(self) -> None:
        block = self._blocks.pop()
        self._list = None
        loose = _words(block)
        if block.name == "skip":
            self._finish_skip(block, loose)
        elif block.name == "summary":
            if loose:
                block.say("notes", loose)
            fields = {name: _joined(block.fields.get(name)) for name in SUMMARY_FIELDS}
            if block.place >= 0 or _is_whole(block):
                self._done.append((block.order, DraftSummary(**fields)))
        elif block.place >= 0 or _is_whole(block):
            if loose:
                block.say("narrative", loose)
            if block.place == len(self._tags) - 1 and not block.closed and not block.fields.keys() - {"type", "events"}:
                return  # the answer was cut off where it began
            self._done.append((block.order, _observation(block)))

    def _finish_skip(self, block: _Block, loose: str) -> None:
        if block.nested and not block.fields.get("events"):
            return
        refs, reason = " ".join(block.fields.get("events", [])), " ".join(block.fields.get("reason", []))
        if not refs:
            refs, loose = skip_of(loose)
        outer = self._block
        if not refs and outer is not None and outer.name == "observation":
            refs = " ".join(outer.fields.get("events", []))
        self._done.append((block.place, Skipped(event=refs, reason=reason or loose)))


def _is_whole(block: _Block) -> bool:
    """Whether fields in no block are meant as one: a lone `<title>` in prose is not."""
    return len(block.fields.keys() - {"type", "events"}) > 1 or bool(block.fields.keys() & TELLING)


def _words(block: _Block) -> str:
    """What stands in no field, without what only holds fields together. Behind the last field of a block left open it is prose."""
    if not block.loose:
        return ""
    loose = block.loose[: block.before_fields] if block.fields and not block.closed and block.name != "skip" else block.loose
    words = list[str]()
    for raw in loose:
        text = (_FENCE.sub("", raw) if "```" in raw else raw).strip()
        if text[:1] == "<" and (envelope := _ENVELOPE.fullmatch(text)) is not None:
            text = envelope[2].strip()
        if _WORD.search(_ANY_TAG.sub("", text)):
            words.append(plain(text))
    return "\n\n".join(words)


def _which(tag: Tag) -> str:
    said = {name.lower(): value for name, value in attributes_of(tag)}
    return next((said[name] for name in _SAYS_WHICH if said.get(name)), "")


def _joined(texts: list[str] | None, by: str = "\n\n") -> str | None:
    if not texts:
        return None
    return by.join(dict.fromkeys(clean for text in texts if (clean := text.strip()))) or None


def _observation(block: _Block) -> DraftObservation:
    said = block.fields
    if not said:
        return DraftObservation()
    return DraftObservation(
        type=_joined(said.get("type"), " ") or "",
        title=_joined(said.get("title"), "; "),
        subtitle=_joined(said.get("subtitle"), "; "),
        narrative=_joined(said.get("narrative")),
        events=said.get("events", []),
        **{name: said[name] for name in LISTS if name in said},
    )
