"""Observations, summary and skip marks out of an answer in JSON, whatever shape its values have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

from cmserver.generation.answers.loose import items_of, names_events, skip_of
from cmserver.generation.answers.model import SUMMARY_FIELDS, Heard, Skipped
from cmserver.generation.answers.values import Object, values
from cmserver.generation.answers.vocabulary import LISTS, OBSERVATION_FIELDS, meant, unquoted
from cmserver.providers.model import DraftObservation, DraftSummary

_DEPTH = 4
_OBSERVATIONS = {"observation", "observations"}
_SKIPS = {"skip", "skips", "skipped"}
_WRAPPERS = {"answer", "response", "result", "results", "output", "data", "content", "text", "message"}
_SAYS = ("text", "fact", "concept", "file", "path", "name", "value", "title")


def understood(value: object, tags: Callable[[str], Heard], depth: int = 0) -> Heard:
    """What a JSON value says; `tags` reads a text in it that is an answer in tags."""
    heard = Heard()
    if depth > _DEPTH:
        return heard
    if isinstance(value, list):
        for one in cast("list[object]", value):
            heard.add(understood(one, tags, depth + 1))
    elif isinstance(value, Object):
        _understand(value, heard, tags, depth)
    return heard


def _understand(value: Object, heard: Heard, tags: Callable[[str], Heard], depth: int) -> None:
    own = {_field(key) for key, _ in value.pairs}
    if own & {"title", "subtitle", "narrative", *LISTS} or ("type" in own and "events" in own):
        heard.observations.append(_observation(value))
        return
    for key, inner in value.pairs:
        name = key.strip().lower()
        if name in _OBSERVATIONS:
            _observations(_parsed(inner), heard)
        elif name == "summary" and inner is not None:
            heard.summaries.append(_summary(_parsed(inner)))
        elif name in _SKIPS or _field(key) == "skip":
            _skips(_parsed(inner), heard)
        elif name in _WRAPPERS and isinstance(inner, str) and "<" in inner:
            heard.add(tags(inner))
        else:
            heard.add(understood(_parsed(inner), tags, depth + 1))
    if not heard.anything and own & set(SUMMARY_FIELDS):
        heard.summaries.append(_summary(value))


def _field(key: str) -> str | None:
    return meant(key.strip().replace(" ", "_"))


def _parsed(value: object) -> object:
    """A text that holds JSON is that JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        found = values(value)
        return found[0].value if found else value
    return value


def _observations(value: object, heard: Heard) -> None:
    every = cast("list[object]", value) if isinstance(value, list) else [value]
    if not every:
        heard.nothing = True
    for one in every:
        if isinstance(one, Object):
            heard.observations.append(_observation(one))
        elif isinstance(one, str) and one.strip():
            heard.observations.append(DraftObservation(narrative=unquoted(one)))


def _observation(value: Object) -> DraftObservation:
    texts: dict[str, list[str]] = {}
    lists: dict[str, list[str]] = {}
    for key, inner in value.pairs:
        name = _field(key)
        if name in LISTS:
            lists.setdefault(name, []).extend(map(unquoted, _list(name, inner)))
        elif name == "events":
            lists.setdefault(name, []).append(_references(inner))
        elif name in OBSERVATION_FIELDS:
            texts.setdefault(name, []).append(unquoted(_text(inner)))
    return DraftObservation(
        type=" ".join(texts.get("type", [])),
        title=_joined(texts.get("title"), "; "),
        subtitle=_joined(texts.get("subtitle"), "; "),
        narrative=_joined(texts.get("narrative"), "\n\n"),
        **lists,
    )


def _summary(value: object) -> DraftSummary:
    if not isinstance(value, Object):
        return DraftSummary(notes=unquoted(_text(value)))
    said: dict[str, list[str]] = {}
    for key, inner in value.pairs:
        name = _field(key)
        if name in SUMMARY_FIELDS:
            said.setdefault(name, []).append(unquoted(_text(inner)))
    return DraftSummary(**{name: _joined(texts, "\n\n") for name, texts in said.items()})


def _skips(value: object, heard: Heard) -> None:
    if isinstance(value, list):
        for one in cast("list[object]", value):
            _skips(one, heard)
    elif isinstance(value, Object):
        said = {_field(key) or key.strip().lower(): inner for key, inner in value.pairs}
        if said.keys() & {"events", "reason"}:
            heard.skipped.append(Skipped(event=_references(said.get("events")), reason=_text(said.get("reason"))))
        else:
            heard.skipped += [Skipped(event=key, reason=_text(inner)) for key, inner in value.pairs if names_events(key)]
    elif isinstance(value, str) and value.strip():
        event, reason = skip_of(value)
        heard.skipped.append(Skipped(event=event, reason=reason))
    elif value is True:
        heard.skipped.append(Skipped())


def _references(value: object) -> str:
    if isinstance(value, list):
        return " , ".join(map(_references, cast("list[object]", value)[:1_000]))
    if isinstance(value, Object):
        return " , ".join(inner for _, inner in value.pairs if isinstance(inner, str))
    return value if isinstance(value, str) else ""


def _text(value: object) -> str:
    """A text; what is something else as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, cast("list[object]", value))))
    if isinstance(value, Object):
        return "\n".join(f"{key}: {text}" for key, inner in value.pairs if (text := _text(inner)))
    return json.dumps(value) if isinstance(value, bool) else ""


def _list(name: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [_item(one) for one in cast("list[object]", value)]
    return items_of(name, value) if isinstance(value, str) else [_item(value)]


def _item(value: object) -> str:
    if isinstance(value, Object):
        said = {key.strip().lower(): inner for key, inner in value.pairs}
        for name in _SAYS:
            if isinstance(inner := said.get(name), str) and inner.strip():
                return inner
    return _text(value)


def _joined(texts: list[str] | None, by: str) -> str | None:
    if not texts:
        return None
    return by.join(dict.fromkeys(clean for text in texts if (clean := text.strip()))) or None
