"""The JSON schemas of answers, within what all providers accept: all fields required, no others allowed."""

from __future__ import annotations

from typing import Final

from cmserver.models.providers.model import KINDS, Prompt, PromptKind

_TEXT: dict[str, object] = {"type": "string"}
_TEXTS: dict[str, object] = {"type": "array", "items": _TEXT}
_TRUTH: dict[str, object] = {"type": "boolean"}
_NUMBER: dict[str, object] = {"type": "number"}
_NUMBERS: dict[str, object] = {"type": "array", "items": {"type": "integer"}}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_FIELDS: dict[str, object] = {
    "events": _TEXTS,
    "type": {"type": "string", "enum": list(KINDS)},
    "title": _TEXT,
    "subtitle": _TEXT,
    "narrative": _TEXT,
    "facts": _TEXTS,
    "concepts": _TEXTS,
    "files_read": _TEXTS,
    "files_modified": _TEXTS,
    "quote": _TEXT,
    "state": {"type": "string", "enum": ["", "open"]},
    "closes": _TEXTS,
}
_SUMMARY = _object(request=_TEXT, investigated=_TEXT, learned=_TEXT, completed=_TEXT, next_steps=_TEXT, notes=_TEXT)


def _observations(**fields: object) -> dict[str, object]:
    return _object(
        observations={"type": "array", "items": _object(**fields)},
        skipped={"type": "array", "items": _object(event=_TEXT, reason=_TEXT)},
    )


SCHEMAS: Final[dict[PromptKind, dict[str, object]]] = {
    "observations": _observations(**_FIELDS),
    "summary": _object(summary=_SUMMARY),
    "merge": _object(title=_TEXT, narrative=_TEXT, facts=_TEXTS),
    "guard": _object(same=_TRUTH, conflict=_TRUTH, confidence=_NUMBER, reason=_TEXT),
    "overview": _object(page=_TEXT),
    "entities": _object(entities={"type": "array", "items": _object(name=_TEXT, type=_TEXT, notes=_TEXT)}),
    "derive": _object(common=_TRUTH, title=_TEXT, narrative=_TEXT, facts=_TEXTS, sources=_NUMBERS, confidence=_NUMBER),
}
"""By the prompt's kind. The answers are JSON of `Answer`; of a guard, a derivation and an overview, of these fields alone."""
_WITH_ENTITIES: Final = _observations(**_FIELDS, entities=_TEXTS)


def answer_schema(prompt: Prompt) -> dict[str, object]:
    """The schema of the answer to the prompt."""
    names_entities = prompt.kind == "observations" and prompt.preferences.names_entities
    return _WITH_ENTITIES if names_entities else SCHEMAS[prompt.kind]
