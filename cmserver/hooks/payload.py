"""Reads the payloads of hooks: fields that may be missing or of another kind, and ids that can be stored whatever they hold."""

from __future__ import annotations

import re
from typing import cast, get_args

from cmserver.base.errors import Invalid, Issue
from cmserver.base.text import KEY_MOST, storable
from cmserver.recall.model import Start

Fields = dict[str, object]

PATH_MOST = 4096
_TYPE_MOST = 200
_STARTS: tuple[object, ...] = get_args(Start)
ID_MOST = KEY_MOST - 20  # with the word before it, and the number of a call within its batch
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_WORD = re.compile(r"\W+")


def fields_of(payload: object) -> Fields:
    """Invalid for what is no object."""
    if not isinstance(payload, dict):
        raise Invalid("A hook sends a JSON object.", [Issue("$", "Expected an object")])
    return cast("Fields", payload)


def required(fields: Fields, name: str) -> str:
    """Invalid when it is no text, is empty, or is too long for a key."""
    found = text(fields, name)
    if found is None:
        raise Invalid(
            f"A hook's payload has a text {name} of 1 to {KEY_MOST} characters.",
            [Issue(f"$.{name}", f"Expected a text of 1 to {KEY_MOST} characters")],
        )
    return found


def text(fields: Fields, name: str, most: int | None = KEY_MOST) -> str | None:
    """No hook is refused for a character that cannot be stored; it is replaced. None for what is no text, empty, or too long."""
    value = fields.get(name)
    return storable(value) if isinstance(value, str) and value and (most is None or len(value) <= most) else None


def texts(fields: Fields, *names: str, most: int = KEY_MOST) -> dict[str, object]:
    """Those of them that are there."""
    return {name: found for name in names if (found := text(fields, name, most))}


def record(value: object) -> Fields:
    """An object as it is, and anything else as an empty one."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def array(value: object) -> list[object]:
    """A list as it is, and anything else as an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def snake(name: str) -> str:
    """An agent's word for a kind of hook as an event type."""
    return _NO_WORD.sub("_", _WORDS.sub("_", name)).strip("_").lower()[:_TYPE_MOST] or "unknown"


def session_source(fields: Fields) -> Start:
    """How the session starts; what is not known is an ordinary start."""
    source = fields.get("source")
    return cast("Start", source) if source in _STARTS else "startup"


def prompt_event_id(fields: Fields) -> str | None:
    prompt_id = text(fields, "prompt_id", ID_MOST)
    return f"prompt:{prompt_id}" if prompt_id else None


def delivery_event_id(delivery_id: str | None, nth: int | None = None) -> str | None:
    """Anything else is known by the delivery in which it came; `nth` tells apart what came in one."""
    if not delivery_id or len(delivery_id) > ID_MOST:
        return None
    return f"delivery:{storable(delivery_id)}" + ("" if nth is None else f":{nth}")
