"""Stored text as a prompt shows it: it can neither close its fence nor, quoted back by a model, become a tag of the answer.

Every `<` that would begin a tag of ours is written `&lt;`, whatever the case, the spelling and the spacing. An `&` that would then
be misread is written `&amp;`, so that `unguarded` gives back exactly what was there.
"""

from __future__ import annotations

import re
import unicodedata

from cmserver.providers.wording.cut import elided, excerpt, one_line

FENCES = ("session", "project", "root", "requests", "request", "recorded", "event", "earliersummary", "lastmessage")
"""The tags that a prompt puts around data."""
ANSWERS = (
    "answer", "observation", "observations", "events", "eventid", "eventids", "type", "title", "subtitle", "narrative", "facts",
    "fact", "concepts", "concept", "files", "file", "filesread", "readfiles", "filesmodified", "modifiedfiles", "fileschanged",
    "filesedited", "skip", "skipped", "skipsummary", "reason", "summary", "investigated", "learned", "completed", "nextsteps",
    "nextstep", "notes", "item", "li", "entry", "path", "point", "bullet", "response", "result", "results", "output", "xml",
)  # fmt: skip
"""The tags an answer is read by, in all spellings that are understood, without hyphens and underscores."""
MODELS = ("think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad", "system")
"""What models put around words that are not the answer, and what looks like our own words to them."""

_NAMES = frozenset({*FENCES, *ANSWERS, *MODELS})
_START = re.compile(r"[<\uff1c\ufe64](?=[\s/]*([^\s<>/]{1,80}))")
_WORD = re.compile(r"[\w-]*")
_AMBIGUOUS = re.compile(r"&(?=(?:lt|amp);)")
_WRITTEN = re.compile(r"&(lt|amp);")
_TORN_HEAD = re.compile(r"&(?:l|lt|a|am|amp)?\Z")
_TORN_TAIL = re.compile(r"\A(?:lt|t|amp|mp|p)?;")


def guarded(text: str) -> str:
    """The text, made harmless. It must be clean (cut.py): an invisible character in a tag's name would hide it."""
    return _START.sub(_written, _AMBIGUOUS.sub("&amp;", text))


def unguarded(text: str) -> str:
    """What `guarded` was given; a wide form of `<` before one of our names has become a plain one."""
    return _WRITTEN.sub(lambda found: "<" if found[1] == "lt" else "&", text)


def fitted(text: str, most: int) -> str:
    """Guarded text in at most `most` characters: its head and tail, with what is missing said between; no `&lt;` is torn."""
    return elided(text, most, _whole_head, _whole_tail)


def shown(text: str, most: int) -> str:
    """Any text as data in at most `most` characters."""
    return fitted(guarded(excerpt(text, most)), most)


def shown_line(text: str, most: int) -> str:
    """Any text as one line of data."""
    line = guarded(one_line(text, most))
    return line if len(line) <= most else _whole_head(line[: most - 1]) + "…"


def _written(found: re.Match[str]) -> str:
    """Letters that stand for plain ones (wide, mathematical ...) are taken for these; so are names with a prefix (`x:skip`)."""
    word = found[1] if found[1].isascii() else unicodedata.normalize("NFKC", found[1])
    names = (_WORD.match(part) for part in word.split(":"))
    is_ours = word[0] == "!" or any(name and _squeezed(name[0]) in _NAMES for name in names)
    return "&lt;" if is_ours else found[0]


def _squeezed(name: str) -> str:
    return name.replace("-", "").replace("_", "").casefold()


def _whole_head(text: str) -> str:
    return _TORN_HEAD.sub("", text)


def _whole_tail(text: str) -> str:
    return _TORN_TAIL.sub("", text)
