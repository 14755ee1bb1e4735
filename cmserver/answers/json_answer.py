"""Reads observations, summaries and skip marks out of an answer in JSON, whatever the shape of its values."""

from __future__ import annotations

import json
from typing import cast

from cmserver.answers.damaged_json import JsonObject, find_json_values
from cmserver.answers.model import ParsedAnswer
from cmserver.answers.text_fields import build_observation, has_event_reference, join_distinct, split_items, split_skip_mark
from cmserver.answers.tolerant_xml import scan_tags
from cmserver.answers.vocabulary import LIST_FIELDS, OBSERVATION_FIELDS, canonical_name, unquote_tags
from cmserver.answers.xml_answer import read_xml_answer
from cmserver.models.providers.model import SUMMARY_FIELDS, DraftObservation, DraftSummary, Skip

_MAX_DEPTH = 4
_OBSERVATIONS = {"observation", "observations"}
_SKIPS = {"skip", "skips", "skipped"}
_WRAPPERS = {"answer", "response", "result", "results", "output", "data", "content", "text", "message"}
_ITEM_KEYS = ("text", "fact", "concept", "file", "path", "name", "value", "title")


def read_json_answer(value: object, depth: int = 0) -> ParsedAnswer:
    """Read one JSON value; a string in it that holds an answer in tags is read as such."""
    parsed = ParsedAnswer()
    if depth > _MAX_DEPTH:
        return parsed
    if isinstance(value, list):
        for item in cast("list[object]", value):
            parsed.add(read_json_answer(item, depth + 1))
    elif isinstance(value, JsonObject):
        _read_object(value, parsed, depth)
    return parsed


def _read_object(value: JsonObject, parsed: ParsedAnswer, depth: int) -> None:
    """Add what the object holds to `parsed`: it is an observation, or has observations, summaries and skip marks inside."""
    fields = {_field_name(key) for key, _ in value.pairs}
    if fields & {"title", "subtitle", "narrative", *LIST_FIELDS} or ("type" in fields and "events" in fields):
        parsed.observations.append(_read_observation(value))
        return
    for key, inner in value.pairs:
        name = key.strip().lower()
        if name in _OBSERVATIONS:
            _read_observations(_decode_nested(inner), parsed)
        elif name == "summary" and inner is not None:
            parsed.summaries.append(_read_summary(_decode_nested(inner)))
        elif name in _SKIPS or _field_name(key) == "skip":
            _read_skips(_decode_nested(inner), parsed)
        elif name in _WRAPPERS and isinstance(inner, str) and "<" in inner:
            parsed.add(read_xml_answer(scan_tags(inner)).parsed)
        else:
            parsed.add(read_json_answer(_decode_nested(inner), depth + 1))
    if not parsed.has_content and fields & set(SUMMARY_FIELDS):
        parsed.summaries.append(_read_summary(value))


def _field_name(key: str) -> str | None:
    """Our name of a field that a model may spell otherwise; None for an unknown one."""
    return canonical_name(key.strip().replace(" ", "_"))


def _decode_nested(value: object) -> object:
    """Decode a string that holds JSON; return anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        found = find_json_values(value)
        return found[0].value if found else value
    return value


def _read_observations(value: object, parsed: ParsedAnswer) -> None:
    """Add the observations of a list, or the one that stands without a list; a text alone is a narrative."""
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if not items:
        parsed.is_explicitly_empty = True
    for item in items:
        if isinstance(item, JsonObject):
            parsed.observations.append(_read_observation(item))
        elif isinstance(item, str) and item.strip():
            parsed.observations.append(DraftObservation(narrative=unquote_tags(item)))


def _read_observation(value: JsonObject) -> DraftObservation:
    texts_by_field: dict[str, list[str]] = {}
    for key, inner in value.pairs:
        name = _field_name(key)
        if name in LIST_FIELDS:
            texts_by_field.setdefault(name, []).extend(map(unquote_tags, _read_list(name, inner)))
        elif name == "events":
            texts_by_field.setdefault(name, []).append(_read_references(inner))
        elif name in OBSERVATION_FIELDS:
            texts_by_field.setdefault(name, []).append(unquote_tags(_read_text(inner)))
    return build_observation(texts_by_field)


def _read_summary(value: object) -> DraftSummary:
    """The summary of an object; any other value becomes its notes."""
    if not isinstance(value, JsonObject):
        return DraftSummary(notes=unquote_tags(_read_text(value)))
    texts_by_field: dict[str, list[str]] = {}
    for key, inner in value.pairs:
        name = _field_name(key)
        if name in SUMMARY_FIELDS:
            texts_by_field.setdefault(name, []).append(unquote_tags(_read_text(inner)))
    return DraftSummary(**{name: join_distinct(texts) for name, texts in texts_by_field.items()})


def _read_skips(value: object, parsed: ParsedAnswer) -> None:
    """Add the skip marks, in whatever form: a list, an object with reasons by event, a text, or `true` for everything."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            _read_skips(item, parsed)
    elif isinstance(value, JsonObject):
        fields = {_field_name(key) or key.strip().lower(): inner for key, inner in value.pairs}
        if fields.keys() & {"events", "reason"}:
            parsed.skipped.append(Skip(event=_read_references(fields.get("events")), reason=_read_text(fields.get("reason"))))
        else:
            parsed.skipped += [Skip(event=key, reason=_read_text(inner)) for key, inner in value.pairs if has_event_reference(key)]
    elif isinstance(value, str) and value.strip():
        event, reason = split_skip_mark(value)
        parsed.skipped.append(Skip(event=event, reason=reason))
    elif value is True:
        parsed.skipped.append(Skip())


def _read_references(value: object) -> str:
    """The events that a value names, as one text."""
    if isinstance(value, list):
        return " , ".join(map(_read_references, cast("list[object]", value)[:1_000]))
    if isinstance(value, JsonObject):
        return " , ".join(inner for _, inner in value.pairs if isinstance(inner, str))
    return value if isinstance(value, str) else ""


def _read_text(value: object) -> str:
    """A string as it is; any other value as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_read_text, cast("list[object]", value))))
    if isinstance(value, JsonObject):
        return "\n".join(f"{key}: {text}" for key, inner in value.pairs if (text := _read_text(inner)))
    return json.dumps(value) if isinstance(value, bool | int) else ""


def _read_list(name: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [_read_item(item) for item in cast("list[object]", value)]
    return split_items(name, value) if isinstance(value, str) else [_read_item(value)]


def _read_item(value: object) -> str:
    if isinstance(value, JsonObject):
        fields = {key.strip().lower(): inner for key, inner in value.pairs}
        for name in _ITEM_KEYS:
            if isinstance(text := fields.get(name), str) and text.strip():
                return text
    return _read_text(value)
