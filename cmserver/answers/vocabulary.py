"""Names of fields and tags in an answer, in all their spellings: files_read, files-read, filesRead, FILES_READ."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from cmserver.models.providers.model import SUMMARY_FIELDS

TagRole = Literal["root", "skip", "field", "list", "item", "summary", "events", "reason", "wrap", "think"]
"""What a tag is for."""

LIST_FIELDS: Final = {
    "facts": "fact",
    "concepts": "concept",
    "files_read": "file",
    "files_modified": "file",
    "anchors": "anchor",
    "entities": "entity",
}
"""Each list field with the name of its items."""
TEXT_FIELDS: Final = ("title", "subtitle", "narrative", "quote")
MARK_FIELDS: Final = ("type", "state", "closes")
OBSERVATION_FIELDS: Final = (*MARK_FIELDS, *TEXT_FIELDS, *LIST_FIELDS)
WRAPPERS: Final = ("answer", "observations", "response", "result", "results", "output", "xml")
DISTINCTIVE_NAMES: Final = frozenset({"narrative", "subtitle", *LIST_FIELDS, "investigated", "next_steps"} - {"entities"})
"""Names that rarely occur in a text other than as tags of an answer (`<title>` is also HTML, `<type>` is in many files)."""

_OTHER_ITEMS = ("item", "li", "entry", "path", "point", "bullet")

TAG_ROLES: Final[dict[str, TagRole]] = {
    "observation": "root",
    "summary": "root",
    "skip": "skip",
    **dict.fromkeys((*MARK_FIELDS, *TEXT_FIELDS), "field"),
    **dict.fromkeys(LIST_FIELDS, "list"),
    **dict.fromkeys((*LIST_FIELDS.values(), *_OTHER_ITEMS), "item"),
    **dict.fromkeys(SUMMARY_FIELDS, "summary"),
    "events": "events",
    "reason": "reason",
    **dict.fromkeys(WRAPPERS, "wrap"),
    **dict.fromkeys(("think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad"), "think"),
}
_SPELLINGS: Final[dict[str, str]] = {name.replace("_", ""): name for name in TAG_ROLES} | {
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

NAME_PATTERN: Final = "|".join(
    "[-_]?".join(name.split("_")) for name in sorted({*TAG_ROLES, "skipped", "event", "files"}, key=len, reverse=True)
)
"""Regular expression for the name of one of our tags; use with IGNORECASE."""
_QUOTED: Final = re.compile(rf"&(?:lt|(amp;lt));(?=[\s/]*+(?:{NAME_PATTERN})(?![a-z0-9_]))", re.IGNORECASE)


@lru_cache(4096)
def canonical_name(name: str) -> str | None:
    """The name in our spelling; None when it is not in the vocabulary."""
    return _SPELLINGS.get(name.translate(_SEPARATORS).lower())


def is_name_prefix(name: str) -> bool:
    """Whether a name that was cut off may be the beginning of one of ours."""
    squeezed = name.translate(_SEPARATORS).lower()
    return any(spelling.startswith(squeezed) for spelling in _SPELLINGS if spelling not in _OTHER_ITEMS)


def unquote_tags(text: str) -> str:
    """Decode `&lt;title>` in JSON: a model that quotes our prompt copies its entities, which JSON does not have."""
    return _QUOTED.sub(lambda match: "&lt;" if match[1] else "<", text) if "&" in text else text
