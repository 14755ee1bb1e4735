"""Redacts, bounds and checks observations that people write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.base.text import FIELD_MOST, LABEL_MOST
from cmserver.observations.model import (
    CURRENT_ON,
    ITEM_MOST,
    ITEMS_MOST,
    TEXT_MOST,
    TITLE_MOST,
    Correction,
    ManualObservation,
    compose,
)
from cmserver.redaction.clean import clean_aside


async def tidy_observation(observation: ManualObservation, *, size_bytes: int) -> ManualObservation:
    """The observation with its `content`, composed of the other texts where it was not sent. Invalid when no text is left."""
    fields = {name: getattr(observation, name) for name in _TIDIERS}
    tidied = await _tidy_fields(fields, size_bytes=size_bytes, at=observation.at)
    content = tidied["content"]
    # Search reads the narrative: beside a title, a content that stood alone would not be found.
    tidied["narrative"] = tidied["narrative"] or content
    tidy = msgspec.structs.replace(observation, **tidied)
    composed = compose(tidy.title, tidy.subtitle, tidy.narrative, tidy.facts)
    if not composed:
        message = "No text: send a title, subtitle, narrative, content or facts"
        raise Invalid(f"{message} (at {observation.at}).", [Issue(observation.at, message)])
    return tidy if content else msgspec.structs.replace(tidy, content=composed)


async def tidy_correction(correction: Correction, *, size_bytes: int) -> Correction:
    """The correction, fit to be stored."""
    fields = {name: getattr(correction, name) for name in correction.fields if name in _OF_CORRECTION}
    tidied = await _tidy_fields(fields, size_bytes=size_bytes, at="$")
    return msgspec.structs.replace(correction, **tidied)


async def _tidy_fields(fields: Mapping[str, object], *, size_bytes: int, at: str) -> dict[str, object]:
    wire_fields = {_wire_name(name): value for name, value in fields.items()}
    if issues := [issue for name, value in wire_fields.items() for issue in _find_too_long(value, f"{at}.{name}")]:
        raise Invalid(f"{issues[0].message} (at {issues[0].path}).", issues)
    cleaned = await clean_aside(wire_fields, size_bytes=size_bytes, at=at)
    values = cast("dict[str, object]", cleaned.value)
    return {name: _OF_CORRECTION[name](values[_wire_name(name)]) for name in fields}


def _find_too_long(value: object, path: str) -> list[Issue]:
    """The texts that would be stored without their middle."""
    if isinstance(value, str) and len(value) > FIELD_MOST:
        return [Issue(path, f"At most {FIELD_MOST:,} characters are stored; this has {len(value):,}")]
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [
        Issue(f"{path}[{place}]", f"At most {ITEM_MOST:,} characters are stored; this has {len(item):,}")
        for place, item in enumerate(items)
        if isinstance(item, str) and len(item) > ITEM_MOST
    ]


def _wire_name(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))


def tidy_text(text: str | None) -> str | None:
    """The text without blanks around it, cut to what is stored; None when nothing is left."""
    return (text or "").strip()[:TEXT_MOST].rstrip() or None


def tidy_line(text: str | None) -> str | None:
    """The text on one line, cut to a title's length; None when nothing is left."""
    line = " ".join((tidy_text(text) or "").split())
    return line[: TITLE_MOST - 1] + "…" if len(line) > TITLE_MOST else line or None


def tidy_list(texts: Sequence[str] | None) -> list[str] | None:
    """The texts without empty and repeated ones, cut to what is stored; None when nothing is left."""
    cut = (text.strip()[:ITEM_MOST].rstrip() for text in texts or ())
    return list(dict.fromkeys(text for text in cut if text))[:ITEMS_MOST] or None


def _tidy_label(text: str | None) -> str | None:
    """A redacted one may have become longer."""
    return (tidy_line(text) or "")[:LABEL_MOST] or None


def _drop_mark(metadata: dict[str, object] | None) -> dict[str, object] | None:
    """The values without the one by which people choose the current word on a matter."""
    return metadata and {name: value for name, value in metadata.items() if name != CURRENT_ON}


_TIDIERS: dict[str, Callable[[Any], object]] = {
    "title": tidy_line,
    "subtitle": tidy_text,
    "narrative": tidy_text,
    "content": tidy_text,
    "facts": tidy_list,
    "concepts": tidy_list,
    "files_read": tidy_list,
    "files_modified": tidy_list,
    "agent": tidy_line,
    "caller_type": _tidy_label,
    "metadata": _drop_mark,
}
"""By field of a ManualObservation that has a text."""
_OF_CORRECTION: dict[str, Callable[[Any], object]] = {**_TIDIERS, "current_on": tidy_line}
