"""Redacts, bounds and checks observations that people write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST, Correction, ManualObservation, compose
from cmserver.redaction.clean import clean_aside


async def tidy_observation(observation: ManualObservation, *, field_max_chars: int, size_bytes: int) -> ManualObservation:
    """The observation with its `content`, composed of the other texts where it was not sent. Invalid when no text is left."""
    fields = {name: getattr(observation, name) for name in _TIDIERS}
    tidied = await _tidy_fields(fields, field_max_chars=field_max_chars, size_bytes=size_bytes, at=observation.at)
    content = tidied["content"]
    # Search reads the narrative: beside a title, a content that stood alone would not be found.
    tidied["narrative"] = tidied["narrative"] or content
    tidy = msgspec.structs.replace(observation, **tidied)
    composed = compose(tidy.title, tidy.subtitle, tidy.narrative, tidy.facts)
    if not composed:
        message = "No text: send a title, subtitle, narrative, content or facts"
        raise Invalid(f"{message} (at {observation.at}).", [Issue(observation.at, message)])
    return tidy if content else msgspec.structs.replace(tidy, content=composed)


async def tidy_correction(correction: Correction, *, field_max_chars: int, size_bytes: int) -> Correction:
    """The correction, fit to be stored."""
    fields = {name: getattr(correction, name) for name in correction.fields if name in _TIDIERS}
    tidied = await _tidy_fields(fields, field_max_chars=field_max_chars, size_bytes=size_bytes, at="$")
    return msgspec.structs.replace(correction, **tidied)


async def _tidy_fields(fields: Mapping[str, object], *, field_max_chars: int, size_bytes: int, at: str) -> dict[str, object]:
    wire_fields = {_wire_name(name): value for name, value in fields.items()}
    if issues := [issue for name, value in wire_fields.items() for issue in _find_too_long(value, f"{at}.{name}", field_max_chars)]:
        raise Invalid(f"{issues[0].message} (at {issues[0].path}).", issues)
    cleaned = await clean_aside(wire_fields, field_max_chars=field_max_chars, size_bytes=size_bytes, at=at)
    values = cast("dict[str, object]", cleaned.value)
    return {name: _TIDIERS[name](values[_wire_name(name)]) for name in fields}


def _find_too_long(value: object, path: str, field_max_chars: int) -> list[Issue]:
    """The texts that would be stored without their middle."""
    most = min(field_max_chars, TEXT_MOST)
    if isinstance(value, str) and len(value) > most:
        return [Issue(path, f"At most {most:,} characters are stored; this has {len(value):,}")]
    items = cast("list[object]", value) if isinstance(value, list) else []
    most = min(field_max_chars, ITEM_MOST)
    return [
        Issue(f"{path}[{place}]", f"At most {most:,} characters are stored; this has {len(item):,}")
        for place, item in enumerate(items)
        if isinstance(item, str) and len(item) > most
    ]


def _wire_name(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.capitalize, words))


def _tidy_text(value: object) -> str | None:
    text = cast("str | None", value) or ""
    return text.strip()[:TEXT_MOST].rstrip() or None


def _tidy_line(value: object) -> str | None:
    line = " ".join((_tidy_text(value) or "").split())
    return line[: TITLE_MOST - 1] + "…" if len(line) > TITLE_MOST else line or None


def _tidy_list(values: object) -> list[str] | None:
    texts = (text.strip()[:ITEM_MOST].rstrip() for text in cast("Sequence[str] | None", values) or ())
    return list(dict.fromkeys(text for text in texts if text))[:ITEMS_MOST] or None


def _keep(value: object) -> object:
    return value


_TIDIERS: dict[str, Callable[[object], object]] = {
    "title": _tidy_line,
    "subtitle": _tidy_text,
    "narrative": _tidy_text,
    "content": _tidy_text,
    "facts": _tidy_list,
    "concepts": _tidy_list,
    "files_read": _tidy_list,
    "files_modified": _tidy_list,
    "agent": _tidy_line,
    "metadata": _keep,
}
"""By field of a ManualObservation that has a text."""
