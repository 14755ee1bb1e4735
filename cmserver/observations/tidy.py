"""What people write down becomes fit to be stored: without what is private or secret, within bounds, with its text in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET

from cmserver.base.errors import Invalid, Issue
from cmserver.base.redaction.clean import clean_aside
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST, Correction, Manual, compose


async def tidy(given: Manual, *, field_max_chars: int, size_bytes: int) -> Manual:
    """With `content` in any case: as it was sent, or made of the other texts. Invalid when no text is left."""
    said = {
        "title": given.title,
        "subtitle": given.subtitle,
        "narrative": given.narrative,
        "content": given.content,
        "facts": given.facts,
        "concepts": given.concepts,
        "filesRead": given.files_read,
        "filesModified": given.files_modified,
        "metadata": given.metadata,
    }
    cleaned = await clean_aside(said, field_max_chars=field_max_chars, size_bytes=size_bytes, at=given.at)
    values = cast("dict[str, object]", cleaned.value)
    content = _text(values["content"])
    # Search reads the narrative: beside a title, a content that stood alone would not be found.
    title, subtitle, narrative = _line(values["title"]), _text(values["subtitle"]), _text(values["narrative"]) or content
    facts = _items(values["facts"])
    composed = compose(title, subtitle, narrative, facts)
    if not composed:
        message = "There is no text to remember: send a title, subtitle, narrative, content or facts"
        raise Invalid(f"{message} (at {given.at}).", [Issue(given.at, message)])
    return msgspec.structs.replace(
        given,
        title=title,
        subtitle=subtitle,
        narrative=narrative,
        content=content or composed,
        facts=facts,
        concepts=_items(values["concepts"]),
        files_read=_items(values["filesRead"]),
        files_modified=_items(values["filesModified"]),
        metadata=cast("dict[str, object]", values["metadata"]),
    )


async def tidy_correction(given: Correction, *, field_max_chars: int, size_bytes: int) -> Correction:
    """The same for what is corrected."""
    said = {name: value for name in ("title", "concepts", "metadata") if (value := getattr(given, name)) is not UNSET}
    cleaned = await clean_aside(said, field_max_chars=field_max_chars, size_bytes=size_bytes)
    values = cast("dict[str, object]", cleaned.value)
    return msgspec.structs.replace(
        given,
        title=_line(values["title"]) if "title" in values else UNSET,
        concepts=_items(values["concepts"]) if "concepts" in values else UNSET,
        metadata=cast("dict[str, object]", values["metadata"]) if "metadata" in values else UNSET,
    )


def _text(value: object) -> str | None:
    text = cast("str | None", value) or ""
    return text.strip()[:TEXT_MOST].rstrip() or None


def _line(value: object) -> str | None:
    one = " ".join((_text(value) or "").split())
    return one[: TITLE_MOST - 1] + "…" if len(one) > TITLE_MOST else one or None


def _items(values: object) -> list[str]:
    texts = (text.strip()[:ITEM_MOST].rstrip() for text in cast("Sequence[str]", values))
    return list(dict.fromkeys(text for text in texts if text))[:ITEMS_MOST]
