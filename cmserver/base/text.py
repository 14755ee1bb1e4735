"""Texts that PostgreSQL can store, and those it can use as keys."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

KEY_MOST = 500
"""A row of an index holds 2,704 bytes. So many characters are 2,000 bytes at most; the rest is for the other columns."""

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
STORABLE_PATTERN = r"^[^\x00\ud800-\udfff]*$"
WHY_UNSTORABLE = "A character that cannot be stored (NUL, or half of a surrogate pair) is in the text"

Text = Annotated[str, Meta(pattern=STORABLE_PATTERN)]
"""Any text that can be stored as it is."""

Key = Annotated[Text, Meta(min_length=1, max_length=KEY_MOST)]
"""An id that somebody else has given."""

Label = Annotated[Text, Meta(min_length=1, max_length=100)]
"""A short name of a kind, which may stand beside a `Key` in one index."""


def storable(text: str) -> str:
    """The text with U+FFFD for each character that cannot be stored."""
    return UNSTORABLE.sub("\ufffd", text)
