"""What a model names in a turn: what it is asked, how its answer is read, and that it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import cast
from uuid import UUID

from cmserver.base.follow import hold_off
from cmserver.base.sql import Conn
from cmserver.base.tolerant_json import array, record
from cmserver.graph import repository
from cmserver.graph.find_names import read_names
from cmserver.graph.model import NOTES_MOST, READER, EntityName, EntityType
from cmserver.graph.read_observations import keep_names
from cmserver.models.providers.model import Prompt
from cmserver.redaction.redact import redact
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import SessionTurn

ANSWER_TOKENS = 500
"""Ten names with notes take some 300."""
TEMPERATURE = 0.1
_KNOWN = 20
"""How many known entities the model is shown, so that one thing keeps one name."""
_MAX_NAMES = 20
_ANSWER_MOST, _OBJECTS_MOST = 20_000, 200
"""So much of an answer is read, and so many beginnings of objects are tried: an unclosed one is read to the end."""
_MAX_DEPTH = 6
"""Of what an answer wraps its entities in."""
_BEGINNING = re.compile(r"[\[{]")
_DECODER = json.JSONDecoder(strict=False)


async def build_turn_prompt(conn: Conn, team_id: UUID, project: str, turn: SessionTurn) -> Prompt:
    """What a model is asked about the turn."""
    known = await repository.list_latest(conn, team_id, turn.project_id, _KNOWN)
    return Prompt(
        kind="entities",
        project=project,
        stored=[side for side in (turn.prompt, turn.reply) if side],
        keep=[f"{entity.name} ({entity.type})" for entity in known],
        answer_tokens=ANSWER_TOKENS,
        temperature=TEMPERATURE,
    )


def read_answer(answer: str) -> list[EntityName] | None:
    """The entities in an answer, whatever stands around them, up to where it was cut; none of another type or that says nothing.

    None for an answer without any: prose, or the beginning of a list.
    """
    names: dict[tuple[EntityType, str], EntityName] = {}
    for fields in _find_objects(answer[:_ANSWER_MOST]):
        notes = fields.get("notes")
        cleaned = redact(notes)[0].strip()[:NOTES_MOST] if isinstance(notes, str) else ""
        for named in read_names([f"{fields.get('type')}: {redact(str(fields.get('name') or ''))[0]}"]):
            names.setdefault(named.key, EntityName(named.type, named.name, cleaned or None))
    if not names and not any(map(_holds_list, _find_values(answer[:_ANSWER_MOST]))):
        return None
    return list(names.values())[:_MAX_NAMES]


def _holds_list(value: object) -> bool:
    """Whether the value is a list of objects, of none as well, or wraps one."""
    fields = {} if isinstance(value, str) else record(value)
    lists = [cast("list[object]", inner) for inner in (value, *fields.values()) if isinstance(inner, list)]
    return any(not items or any(isinstance(item, dict) for item in items) for items in lists)


def _find_objects(text: str) -> Iterator[dict[str, object]]:
    """The whole JSON objects in the text that have a name and a type, whatever they are wrapped in."""
    for value in _find_values(text):
        yield from _walk(value)


def _find_values(text: str) -> Iterator[object]:
    """The whole JSON objects and lists in the text."""
    end = 0
    for _ in range(_OBJECTS_MOST):
        found = _BEGINNING.search(text, end)
        if found is None:
            return
        try:
            value, end = cast("tuple[object, int]", _DECODER.raw_decode(text, found.start()))
        except (ValueError, RecursionError):
            end = found.end()
        else:
            yield value


def _walk(value: object, depth: int = 0) -> Iterator[dict[str, object]]:
    """The objects in the value, itself among them, that have a name and a type."""
    fields = {} if isinstance(value, str) else record(value)
    if fields.keys() >= {"name", "type"}:
        yield fields
    for inner in [*fields.values(), *array(value)] if depth < _MAX_DEPTH else ():
        yield from _walk(inner, depth + 1)


async def keep_turn_names(conn: Conn, team_id: UUID, turn_id: UUID, named: Sequence[EntityName]) -> None:
    """Store what a model names in the turn as entities of its project and their mentions; nothing when it was deleted."""
    await hold_off(conn, READER, team_id)
    for turn in await turns.by_ids(conn, team_id, [turn_id]):
        await keep_names(conn, team_id, {turn.id: turn.project_id}, {turn.id: named}, "model")
