"""Fences stored text in a prompt: it can neither close its fence nor, quoted back by a model, become a tag of the answer.

Every `<` that would begin one of our tags is written `&lt;`, in any case, spelling and spacing; so is what looks like one
(base/lookalikes.py), and the `[` of `[INST]` is written `&#91;`. An `&` that would then be ambiguous is written `&amp;`, so that
the text can be restored.
"""

from __future__ import annotations

import re

from cmserver.base.lookalikes import AMPERSAND, LESS_THAN, is_token, replace_tags
from cmserver.models.providers.prompts.text import elide, excerpt, one_line

FENCES = (
    "session",
    "project",
    "root",
    "requests",
    "request",
    "recorded",
    "open",
    "event",
    "earliersummary",
    "lastmessage",
    "stored",
    "keep",
)
"""The tags that a prompt puts around data."""
ANSWERS = (
    "answer", "observation", "observations", "events", "eventid", "eventids", "type", "title", "subtitle", "narrative", "facts",
    "fact", "concepts", "concept", "entities", "entity", "files", "file", "filesread", "readfiles", "filesmodified",
    "modifiedfiles", "fileschanged", "filesedited", "skip", "skipped", "skipsummary", "reason", "summary", "investigated",
    "learned", "completed", "nextsteps", "nextstep", "notes", "item", "li", "entry", "path", "point", "bullet", "response",
    "result", "results", "output", "xml", "quote", "state", "closes", "anchors", "anchor",
)  # fmt: skip
"""The tags an answer is read by, in all spellings that are understood, without hyphens and underscores."""
MODELS = (
    "think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad", "system",
    "functioncalls", "functionresults", "invoke", "toolcall", "toolcalls", "tooluse", "toolresult", "toolresults",
)  # fmt: skip
"""The tags that models put around text that is not the answer, around calls of tools, and `system`."""

_NAMES = frozenset({*FENCES, *ANSWERS, *MODELS})
_WORD = re.compile(r"[\w-]*")
_AMBIGUOUS = re.compile(rf"&(?={AMPERSAND}|{LESS_THAN}|#91;)", re.IGNORECASE)
_TORN_HEAD = re.compile(r"&(?:l|lt|a|am|amp|#|#9|#91)?\Z")
_TORN_TAIL = re.compile(r"\A(?:lt|t|amp|mp|p|#91|91|1)?;")


def escape_tags(text: str) -> str:
    """Escape our tags in a text. It must be clean (text.py): an invisible character in a tag's name would hide the tag."""
    return replace_tags(_AMBIGUOUS.sub("&amp;", text), _is_ours, _write)


def shorten_escaped(text: str, max_chars: int) -> str:
    """Shorten escaped text to its head and tail without cutting through an `&lt;`."""
    return elide(text, max_chars, _whole_head, _whole_tail)


def fence_text(text: str, max_chars: int) -> str:
    """Any text as data, in at most `max_chars` characters."""
    return shorten_escaped(escape_tags(excerpt(text, max_chars)), max_chars)


def fence_line(text: str, max_chars: int) -> str:
    """Any text as one line of data."""
    line = escape_tags(one_line(text, max_chars))
    return line if len(line) <= max_chars else _whole_head(line[: max_chars - 1]) + "…"


def _is_ours(text: str, _is_apart: bool = True) -> bool:
    """Whether the text after `<` begins one of our tags, also with a prefix (`x:skip`)."""
    if is_token(text):
        return True
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    names = (_WORD.match(part) for part in word.split(":"))
    return word.startswith("!") or any(name and _squeezed(name[0]) in _NAMES for name in names)


def _write(opener: str) -> str:
    if opener in "[\uff3b":
        return "&#91;"
    return opener if opener[0] in "&\\%" else "&lt;"  # an entity has its `&amp;` already; nothing decodes an escape


def _squeezed(name: str) -> str:
    return name.replace("-", "").replace("_", "")


def _whole_head(text: str) -> str:
    return _TORN_HEAD.sub("", text)


def _whole_tail(text: str) -> str:
    return _TORN_TAIL.sub("", text)
