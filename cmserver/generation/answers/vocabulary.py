"""The words an answer is read by, in all their spellings: files_read, files-read, filesRead, FILES_READ are one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from cmserver.generation.answers.model import SUMMARY_FIELDS

Sort = Literal["root", "skip", "field", "list", "item", "summary", "events", "reason", "wrap", "think"]
"""What a tag is there for."""

LISTS: Final = {"facts": "fact", "concepts": "concept", "files_read": "file", "files_modified": "file"}
"""The fields that are lists, with the name of one item."""
TEXTS: Final = ("title", "subtitle", "narrative")
OBSERVATION_FIELDS: Final = ("type", *TEXTS, *LISTS)
WRAPPERS: Final = ("answer", "observations", "response", "result", "results", "output", "xml")
TELLING: Final = frozenset({"narrative", "subtitle", *LISTS, "investigated", "next_steps"})
"""Names that hardly stand in a text but as tags of an answer; `<title>` is also HTML, `<type>` any configuration file."""

_OTHER_ITEMS = ("item", "li", "entry", "path", "point", "bullet")

SORTS: Final[dict[str, Sort]] = {
    "observation": "root",
    "summary": "root",
    "skip": "skip",
    **dict.fromkeys(("type", *TEXTS), "field"),
    **dict.fromkeys(LISTS, "list"),
    **dict.fromkeys(("fact", "concept", "file", *_OTHER_ITEMS), "item"),
    **dict.fromkeys(SUMMARY_FIELDS, "summary"),
    "events": "events",
    "reason": "reason",
    **dict.fromkeys(WRAPPERS, "wrap"),
    **dict.fromkeys(("think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad"), "think"),
}
_SPELLINGS: Final[dict[str, str]] = {name.replace("_", ""): name for name in SORTS} | {
    "skipped": "skip",
    "skipsummary": "skip",
    "event": "events",
    "eventids": "events",
    "eventid": "events",
    "files": "files_read",
    "readfiles": "files_read",
    "modifiedfiles": "files_modified",
    "fileschanged": "files_modified",
    "filesedited": "files_modified",
    "nextstep": "next_steps",
}
_SEPARATORS: Final = str.maketrans("", "", "-_")

NAMES: Final = "|".join(
    "[-_]?".join(name.split("_")) for name in sorted({*SORTS, "skipped", "event", "files"}, key=len, reverse=True)
)
"""For patterns that look for the beginning of one of our tags, without regard to case."""
_QUOTED: Final = re.compile(rf"&(?:lt|(amp;lt));(?=[\s/]*+(?:{NAMES})(?![a-z0-9_]))", re.IGNORECASE)


@lru_cache(4096)
def meant(name: str) -> str | None:
    """Which of our words a name is, in its own spelling; None for a stranger."""
    return _SPELLINGS.get(name.translate(_SEPARATORS).lower())


def begins_one(name: str) -> bool:
    """Whether a name that was cut off may have become one of ours."""
    squeezed = name.translate(_SEPARATORS).lower()
    return any(spelling.startswith(squeezed) for spelling in _SPELLINGS if spelling not in _OTHER_ITEMS)


def unquoted(text: str) -> str:
    """JSON has no entities, but a model that quotes our prompt quotes its `&lt;title>`, too: that is taken back here."""
    return _QUOTED.sub(lambda found: "&lt;" if found[1] else "<", text) if "&" in text else text
